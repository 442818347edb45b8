"""Accepting: once per key, in bounds, with everything that belongs to it or nothing at all."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from agentsup.mailbox import Mailbox
from agentsup.mailbox.messages import MailboxLimits, sessions
from agentsup.model.errors import (
    AgentsupError,
    BadRequest,
    Conflict,
    DepthExceeded,
    LoopDetected,
    Overloaded,
    TooLarge,
)
from agentsup.model.message import (
    IN_STORE,
    Accepted,
    DeliverTo,
    MessageKind,
    MessageState,
    Part,
    Priority,
)
from agentsup.model.principal import SYSTEM, PersonRole, Principal, PrincipalKind
from agentsup.store import Tx
from tests.support.mailbox_fixture import MailboxFixture

ASK: dict[str, Any] = {"deliver_to": IN_STORE, "conversation": "peer"}


def limited(rig: MailboxFixture, **limits: Any) -> None:
    rig.limits = MailboxLimits(**limits)
    rig.mailbox = Mailbox(
        rig.db, rig.clock, rig.entropy, boot_id=f"boot-{rig.boots}", limits=rig.limits
    )


async def test_a_platform_message_is_accepted_once(rig: MailboxFixture) -> None:
    first = await rig.put("hi", source="telegram:ann", external_id="17")
    again = await rig.put("edited", source="telegram:ann", external_id="17")
    other = await rig.put("hi", source="telegram:ben", external_id="17")
    assert (again.message_id, again.duplicate) == (first.message_id, True)
    assert not other.duplicate
    assert len(await rig.sql("SELECT 1 FROM messages")) == 2


async def test_a_key_answers_the_same_also_when_done_and_after_a_restart(
    rig: MailboxFixture,
) -> None:
    first = await rig.put(idempotency_key="k1")
    await rig.finish(await rig.one())
    await rig.reboot()
    again = await rig.put(idempotency_key="k1")
    assert (again.message_id, again.session_id) == (first.message_id, first.session_id)
    assert (again.duplicate, again.state) == (True, MessageState.DONE)


async def test_a_key_with_another_body_is_a_conflict_and_belongs_to_its_principal(
    rig: MailboxFixture,
) -> None:
    first = await rig.put("one", idempotency_key="k1")
    with pytest.raises(Conflict) as refused:
        await rig.put("two", idempotency_key="k1")
    assert refused.value.facts["message_id"] == first.message_id
    eve = Principal(PrincipalKind.PERSON, "eve")
    assert not (await rig.put("two", idempotency_key="k1", principal=eve)).duplicate


async def test_a_pruned_message_is_still_recognised(rig: MailboxFixture) -> None:
    first = await rig.put(idempotency_key="k1")
    await rig.finish(await rig.one())
    await rig.db.write(lambda tx: tx.execute("DELETE FROM messages").rowcount)
    again = await rig.put(idempotency_key="k1")
    assert (again.message_id, again.duplicate) == (first.message_id, True)
    holds, sums = await rig.mailbox.messages.conservation()
    assert holds
    assert (sums["accepted"], sums["pruned"]) == (1, 1)


async def test_a_full_queue_refuses_requests_with_its_name_and_size(rig: MailboxFixture) -> None:
    limited(rig, queue_limit=2, queue_limit_of=lambda agent: 3 if agent == "ben" else None)
    await rig.put()
    await rig.put()
    with pytest.raises(Overloaded) as refused:
        await rig.put()
    assert refused.value.facts == {"queue": "agent:ann", "size": 2, "limit": 2}
    for _ in range(3):
        await rig.put(agent="ben")
    with pytest.raises(Overloaded):
        await rig.put(agent="ben")
    await rig.put("a result", kind=MessageKind.REPLY)
    lease = await rig.one()
    with pytest.raises(Overloaded):
        await rig.put()
    await rig.finish(lease)
    await rig.finish(await rig.one())
    await rig.put()


async def test_a_duplicate_is_answered_even_by_a_full_queue(rig: MailboxFixture) -> None:
    limited(rig, queue_limit=1)
    first = await rig.put(idempotency_key="k1")
    assert (await rig.put(idempotency_key="k1")).message_id == first.message_id


async def test_size_is_counted_in_bytes(rig: MailboxFixture) -> None:
    limited(rig, max_body_bytes=1000)
    await rig.put("x" * 900)
    with pytest.raises(TooLarge):
        await rig.put("x" * 1001)
    with pytest.raises(TooLarge):
        await rig.put("ж" * 600)


@pytest.mark.parametrize(
    "changes,error",
    [
        ({"path": ("ben", "ann")}, LoopDetected),
        ({"sender_agent_id": "ann"}, LoopDetected),
        ({"path": tuple("bcdefghij")}, DepthExceeded),
        ({"session_key": ""}, BadRequest),
    ],
)
async def test_refusals_leave_nothing(
    rig: MailboxFixture, changes: dict[str, Any], error: type[AgentsupError]
) -> None:
    with pytest.raises(error):
        await rig.put(idempotency_key="k", source="s", external_id="1", **changes)
    for table in ("messages", "ledger", "events", "outbox", "sessions", "conversations"):
        assert await rig.sql(f"SELECT * FROM {table}") == []


async def test_paths_up_to_the_limit_and_replies_pass(rig: MailboxFixture) -> None:
    await rig.put(path=tuple("bcdefghi"))
    await rig.put(kind=MessageKind.REPLY, path=("ann",))


async def test_a_root_has_a_bounded_number_of_messages(rig: MailboxFixture) -> None:
    limited(rig, max_messages_per_root=3)
    root = (await rig.put()).message_id
    await rig.put(root_id=root)
    await rig.put(root_id=root)
    with pytest.raises(DepthExceeded):
        await rig.put(root_id=root)
    await rig.put("the result", root_id=root, kind=MessageKind.REPLY)
    await rig.put()


async def test_a_chat_message_tells_its_conversation(rig: MailboxFixture) -> None:
    accepted = await rig.put("hello there")
    rows = await rig.sql("SELECT type, conversation, message_id FROM events ORDER BY seq")
    assert rows == [
        ("chat.in", "console:c1", accepted.message_id),
    ]
    assert await rig.sql("SELECT agent_id, channel, conversation FROM conversations") == [
        ("ann", "console", "c1")
    ]
    assert await rig.outbox() == []


@pytest.mark.parametrize(
    "spoke, whose",
    [
        (("me user", "me operator"), "operator"),
        (("me operator", "me user"), "person:me"),
        (("anna user", "olga operator"), "person:anna"),
        (("olga operator", "anna user"), "person:anna"),
        (("anna user", "ben user", "olga operator", "anna user"), "*"),
        (("anna user", "the daemon"), "person:anna"),
        (("the daemon", "anna user"), "person:anna"),
        (("olga operator", "otto operator"), "operator"),
    ],
)
@pytest.mark.parametrize("together", [False, True])
async def test_a_conversation_is_that_of_the_one_person_below_operator(
    rig: MailboxFixture, spoke: tuple[str, ...], whose: str, together: bool
) -> None:
    await rig.put("begin", principal=SYSTEM)
    rig.later(5)
    said = []
    for who in spoke:
        name, _, role = who.partition(" ")
        by = SYSTEM
        if who != "the daemon":
            by = Principal(PrincipalKind.PERSON, name, role=PersonRole[role.upper()])
        said.append(rig.new(who, principal=by))
    if together:
        await asyncio.gather(*(rig.mailbox.queue.accept(new) for new in said))
    else:
        for new in said:
            await rig.mailbox.queue.accept(new)
            rig.later(5)
    assert await rig.sql("SELECT person FROM conversations") == [(whose,)]


async def test_work_from_elsewhere_is_noted_in_the_latest_conversation(rig: MailboxFixture) -> None:
    await rig.put("before any chat", **ASK)
    await rig.put(conversation="old")
    rig.later(1)
    await rig.put(conversation="new")
    await rig.put("please sum this up", **ASK)
    await rig.put("quiet", silent=True, **ASK)
    await rig.put("by the clock", principal=SYSTEM, **ASK)
    assert await rig.outbox() == [
        ("notice", "console", "local", "Bob asks: before any chat"),
        ("notice", "console", "new", "Bob asks: please sum this up"),
    ]


async def test_sessions_belong_to_keys_and_can_be_left_and_continued(rig: MailboxFixture) -> None:
    first = await rig.put()
    assert (await rig.put()).session_id == first.session_id
    assert (await rig.put(agent="ben")).session_id != first.session_id
    assert (await rig.put(conversation="c2")).session_id != first.session_id
    fresh = await rig.put(new_session=True)
    assert fresh.session_id != first.session_id
    assert (await rig.put()).session_id == fresh.session_id
    await rig.db.write(sessions.point_tx, "ann", "chat:console:c1", first.session_id)
    assert (await rig.put()).session_id == first.session_id
    assert (await rig.put(session_key=fresh.session_id)).session_id == fresh.session_id
    with pytest.raises(AgentsupError):
        await rig.db.write(sessions.point_tx, "ben", "x", first.session_id)
    assert len(await rig.db.read(lambda reader: sessions.list_of(reader, "ann"))) == 3


async def test_position_and_eta_follow_the_queue(rig: MailboxFixture) -> None:
    rig.clock.stand_still()
    limited(rig, slots_of=lambda agent: 2)
    await rig.put()
    lease = await rig.one()
    rig.later(10)
    await rig.finish(lease)
    ids = [(await rig.put(f"m{i}")).message_id for i in range(4)]
    for place, message_id in enumerate(ids):
        position = await rig.mailbox.messages.position(message_id)
        assert position.position == place
        assert position.eta_s == pytest.approx((place + 1) * 10 / 2)
    accepted = await rig.put()
    assert accepted.position == 4
    assert accepted.eta_s == pytest.approx(25.0)
    await rig.reboot()
    assert (await rig.mailbox.messages.position(ids[0])).eta_s == pytest.approx(5.0)


async def test_threads_reach_any_depth(rig: MailboxFixture) -> None:
    root = await rig.put("root")
    parent = root.message_id
    for depth in range(5):
        parent = (
            await rig.put(f"d{depth}", root_id=root.message_id, in_reply_to=parent)
        ).message_id
    await rig.put("other")
    texts = [message.text for message in await rig.mailbox.messages.thread(parent)]
    assert texts == ["root", "d0", "d1", "d2", "d3", "d4"]
    await rig.put("named", thread_id="budget")
    assert [message.text for message in await rig.mailbox.messages.thread("budget")] == ["named"]


async def test_lists_filter_and_page(rig: MailboxFixture) -> None:
    for i in range(5):
        await rig.put(f"m{i}")
    await rig.put("for ben", agent="ben")
    page = await rig.mailbox.messages.list(agent_id="ann", limit=3)
    assert [message.text for message in page] == ["m4", "m3", "m2"]
    rest = await rig.mailbox.messages.list(agent_id="ann", before_seq=page[-1].seq)
    assert [message.text for message in rest] == ["m1", "m0"]
    session_id = page[0].session_id
    assert (
        len(await rig.mailbox.messages.list(session_id=session_id, state=MessageState.QUEUED)) == 5
    )
    assert await rig.mailbox.messages.list(state=MessageState.DONE) == []


async def test_a_message_reads_back_whole(rig: MailboxFixture) -> None:
    then = DeliverTo("chat", agent_id="ben", channel="console", conversation="x")
    to = DeliverTo("mailbox", agent_id="ben", session_id="ses_b", then=then)
    new = rig.new("text", deliver_to=to, path=("ben",), traceparent="00-x", summary="s")
    new = replace(new, expires_at=rig.clock.now_ms() + 5, thread_id="t", capability="sum")
    message = await rig.mailbox.messages.get((await rig.mailbox.queue.accept(new)).message_id)
    for name in ("parts", "principal", "deliver_to", "path", "traceparent", "summary"):
        assert getattr(message, name) == getattr(new, name)
    assert message.root_id == message.message_id


async def test_parts_and_the_event_are_plain_json(rig: MailboxFixture) -> None:
    text = 'a "b"\n\\ ü \u2028'
    several = (Part("text", text="see"), Part("file", path="a/b.txt"), Part("text", text="it"))
    messages = [
        rig.new(text, external_id='x"y'),
        rig.new(""),
        rig.new("", parts=several, priority=Priority.LOW),
    ]
    for new in messages:
        await rig.mailbox.queue.accept(new)
    rows = await rig.sql("SELECT data FROM events WHERE type = 'chat.in' ORDER BY seq")
    begun = {"kind": "chat", "lane": "interactive", "from": "Bob"}
    assert [json.loads(row[0]) for row in rows] == [
        {**begun, "priority": 2, "text": text, "files": [], "say_id": 'x"y'},
        {**begun, "priority": 2, "text": "", "files": [], "say_id": ""},
        {**begun, "priority": 3, "text": "see\nit", "files": ["a/b.txt"], "say_id": ""},
    ]
    parts = await rig.sql("SELECT parts FROM messages ORDER BY seq")
    expected = [[part.to_json() for part in new.parts] for new in messages]
    assert [json.loads(row[0]) for row in parts] == expected


async def test_accepting_counts_no_long_queue(rig: MailboxFixture) -> None:
    limited(rig, queue_limit=10_000)
    await asyncio.gather(*(rig.put(f"{n}", conversation="c1") for n in range(300)))
    await rig.put("one", conversation="c2")
    short = await rig.put("two", conversation="c2")
    assert short.position == 1
    long = await rig.put("many", conversation="c1")
    assert long.position == 302, "that of the agent, which is kept"


async def test_what_is_written_along_is_in_the_same_transaction(rig: MailboxFixture) -> None:
    def also(tx: Tx, accepted: Accepted) -> None:
        tx.execute("INSERT INTO facts (key, value) VALUES (?, 'x')", (accepted.message_id,))

    def refuse(tx: Tx, accepted: Accepted) -> None:
        also(tx, accepted)
        raise Conflict("dropped by a stop")

    results = await asyncio.gather(
        rig.mailbox.queue.accept(rig.new("first"), also=also),
        rig.mailbox.queue.accept(rig.new("refused"), also=refuse),
        rig.mailbox.queue.accept(rig.new("last"), also=also),
        return_exceptions=True,
    )
    assert isinstance(results[1], Conflict)
    accepted = [(one.message_id,) for one in results if isinstance(one, Accepted)]
    assert await rig.sql("SELECT message_id FROM messages ORDER BY seq") == accepted
    assert await rig.sql("SELECT key FROM facts ORDER BY key") == sorted(accepted)
