"""Many at once: accepted by a few statements, and with the same result as one after another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.messages.values import MailboxLimits
from agentsup.mailbox.queue import accept
from agentsup.model.errors import AgentsupError, Conflict, Overloaded
from agentsup.model.ids import AgentId
from agentsup.model.message import (
    IN_STORE,
    Accepted,
    DeliverTo,
    MessageKind,
    NewMessage,
    Part,
    Priority,
)
from agentsup.store import Tx
from tests.support.mailbox_fixture import MailboxFixture

PLACES = (("ann", "c1"), ("ann", "c2"), ("ben", "c1"))


def limit_queues(rig: MailboxFixture, limit: int) -> None:
    rig.limits = MailboxLimits(queue_limit=limit)
    rig.mailbox = Mailbox(rig.db, rig.clock, rig.entropy, boot_id="boot-1", limits=rig.limits)


async def begin_sessions(rig: MailboxFixture) -> None:
    for agent, conversation in PLACES:
        await rig.put("first", agent, conversation=conversation)


async def accept_all(rig: MailboxFixture, messages: Sequence[NewMessage]) -> list[Any]:
    return await asyncio.gather(
        *(rig.mailbox.accept(new) for new in messages), return_exceptions=True
    )


async def test_texts_of_a_crowd_take_few_statements(
    rig: MailboxFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin_sessions(rig)

    def one_by_one(*args: Any, **rest: Any) -> Accepted:
        raise AssertionError("accepted by itself")

    monkeypatch.setattr(accept, "accept_tx", one_by_one)
    texts = [rig.new(f"text {n}", source="console", external_id=str(n)) for n in range(16)]
    results = await accept_all(rig, texts)
    assert [result.position for result in results] == list(range(1, 17))
    rows = await rig.sql(
        "SELECT message_id, json_extract(parts, '$[0].text') FROM messages WHERE seq > 3"
        " ORDER BY seq"
    )
    assert rows == [(result.message_id, f"text {n}") for n, result in enumerate(results)]
    told = await rig.sql(
        "SELECT message_id, conversation, data ->> '$.text', data ->> '$.say_id' FROM events"
        " WHERE type = 'chat.in' ORDER BY seq LIMIT -1 OFFSET 3"
    )
    assert told == [
        (result.message_id, "console:c1", f"text {n}", str(n)) for n, result in enumerate(results)
    ]
    entered = await rig.sql("SELECT COUNT(*) FROM ledger WHERE source = 'console'")
    assert entered == [(16,)]


async def test_requests_over_http_that_nobody_is_shown_take_few_statements(
    rig: MailboxFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin_sessions(rig)
    monkeypatch.delattr(accept, "accept_tx")
    quiet = [
        rig.new(f"{n}", deliver_to=IN_STORE, silent=True, person="person:eve") for n in range(16)
    ]
    results = await accept_all(rig, quiet)
    assert [result.position for result in results] == list(range(1, 17))
    rows = await rig.sql("SELECT message_id, person FROM messages WHERE seq > 3 ORDER BY seq")
    assert rows == [(result.message_id, "person:eve") for result in results]
    told = await rig.sql(
        "SELECT message_id, conversation FROM events WHERE type = 'message.accepted' ORDER BY seq"
    )
    assert told == [(result.message_id, "") for result in results]


async def test_accepting_counts_no_long_queue(rig: MailboxFixture) -> None:
    limit_queues(rig, 10_000)
    await begin_sessions(rig)
    await accept_all(rig, [rig.new(f"{n}", conversation="c1") for n in range(299)])
    short = await rig.put("two", conversation="c2")
    assert short.position == 1
    long = await rig.put("many", conversation="c1")
    assert long.position == 302, "that of the agent, which is kept"


async def test_who_waits_for_work_or_events_is_woken_once(rig: MailboxFixture) -> None:
    await begin_sessions(rig)
    woken: list[str] = []
    for topic in ("agent:ann", "agent:ben", "events"):
        rig.db.listen(topic, partial(woken.append, topic))
    await accept_all(rig, [rig.new("one"), rig.new("two"), rig.new("three", "ben")])
    assert sorted(woken) == ["agent:ann", "agent:ben", "events"]


async def test_one_that_is_refused_takes_nobody_with_it(rig: MailboxFixture) -> None:
    await begin_sessions(rig)
    before = await rig.put("a", idempotency_key="k")
    messages = [
        rig.new("b"),
        rig.new("another body", idempotency_key="k"),
        rig.new("a", idempotency_key="k"),
        rig.new("c", source="s", external_id="1"),
        rig.new("c", source="s", external_id="1"),
    ]
    results = await accept_all(rig, messages)
    assert isinstance(results[1], Conflict)
    assert (results[2].message_id, results[2].duplicate) == (before.message_id, True)
    assert (results[4].message_id, results[4].duplicate) == (results[3].message_id, True)
    assert await rig.sql("SELECT COUNT(*) FROM messages WHERE agent_id = 'ann'") == [(5,)]


async def test_a_queue_takes_what_it_has_room_for(rig: MailboxFixture) -> None:
    limit_queues(rig, 10)
    await begin_sessions(rig)
    results = await accept_all(rig, [rig.new(f"{n}") for n in range(16)])
    refused = [isinstance(result, Overloaded) for result in results]
    assert refused == [False] * 8 + [True] * 8


async def test_what_is_written_along_is_in_the_same_transaction(rig: MailboxFixture) -> None:
    await begin_sessions(rig)

    def also(tx: Tx, accepted: Accepted) -> None:
        tx.execute("INSERT INTO facts (key, value) VALUES (?, 'x')", (accepted.message_id,))

    def refuse(tx: Tx, accepted: Accepted) -> None:
        also(tx, accepted)
        raise Conflict("dropped by a stop")

    results = await asyncio.gather(
        *(rig.mailbox.accept(rig.new(f"{n}"), also=also) for n in range(3)),
        rig.mailbox.accept(rig.new("refused"), also=refuse),
        rig.mailbox.accept(rig.new("last"), also=also),
        return_exceptions=True,
    )
    assert isinstance(results[3], Conflict)
    accepted = [result for result in results if isinstance(result, Accepted)]
    assert len(accepted) == 4
    assert await rig.sql(
        "SELECT m.message_id FROM facts JOIN messages m ON m.message_id = key ORDER BY m.seq"
    ) == [(one.message_id,) for one in accepted]
    assert await rig.sql("SELECT COUNT(*) FROM messages WHERE parts LIKE '%refused%'") == [(0,)]


PARTS = st.sampled_from(
    [
        (Part("text", text="hi"),),
        (Part("text", text=""),),
        (Part("text", text='"quoted"\n\u2028 ü \U0001f600 \\'),),
        (Part("text", text="two"), Part("text", text="texts")),
        (Part("text", text="see"), Part("file", path="a/b.txt", name="b.txt")),
        (Part("file", path="a/b.txt"), Part("data", data={"x": [1, None]})),
    ]
)
CHANGES: list[dict[str, Any]] = [
    {"source": "telegram:x", "external_id": "1"},
    {"source": "telegram:x", "external_id": "2", "idempotency_key": "k1"},
    {"idempotency_key": "k2"},
    {"priority": Priority.HIGH, "traceparent": "00-1-2-01"},
    {"not_before": 5, "expires_at": 2**50},
    {"new_session": True},
    {"session_key": ""},
    {"session_key": "chat:console:new"},
    {"kind": MessageKind.TASK, "silent": True},
    {"deliver_to": IN_STORE},
    {"deliver_to": IN_STORE, "silent": True},
    {"deliver_to": DeliverTo("http"), "silent": True, "person": "person:eve"},
    {"deliver_to": DeliverTo("mailbox", agent_id=AgentId("ben")), "silent": True},
    {"in_reply_to": "msg_other", "silent": True},
    {"sender_agent_id": "ann"},
    {"path": ("ann",)},
    {"root_id": "msg_other"},
    {"epochs": {"all": 1}},
]
"""What may be odd about a message; most are plain, so that most groups are done jointly."""
CROWD = st.lists(
    st.tuples(st.sampled_from(PLACES), PARTS, st.sampled_from([{}] * 150 + CHANGES)),
    min_size=2,
    max_size=24,
)


TABLES = tuple(
    f"SELECT {columns}"
    for columns in (
        """seq, message_id, agent_id, session_id, kind, lane, priority, state, parts, principal,
           deliver_to, root_id, path, traceparent = '00-1-2-01', sender_agent_id, capability,
           summary, silent, not_before, expires_at, replay_of, epochs, person FROM messages
           ORDER BY seq""",
        """seq, type, agent_id, session_id, message_id, conversation, data FROM events
           ORDER BY seq""",
        "agent_id, key, session_id FROM pointers ORDER BY 1, 2",
        "agent_id, channel, conversation FROM conversations ORDER BY 1, 2, 3",
        "source, external_id, message_id, body_hash FROM ledger ORDER BY 1, 2",
        "* FROM counts ORDER BY 1, 2",
    )
)


async def told(rig: MailboxFixture) -> list[Any]:
    """All that acceptance writes, with ids replaced by the order of their first mention."""
    names: dict[str, str] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, str) and value.startswith(("msg_", "ses_")):
            return names.setdefault(value, f"{value[:4]}{len(names)}")
        return value

    return [[tuple(map(plain, row)) for row in await rig.sql(query)] for query in TABLES]


def outcome(result: Any) -> Any:
    if isinstance(result, AgentsupError):
        return result.code
    assert isinstance(result, Accepted), result
    return result.position, result.eta_s, result.state, result.duplicate


@settings(max_examples=6)
@given(crowds=st.lists(CROWD, min_size=10, max_size=10), limit=st.sampled_from([1000, 30]))
async def test_many_at_once_are_accepted_like_one_after_another(
    crowds: list[Any], limit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outcomes: list[list[Any]] = [[], []]
    tables = []
    for at_once in (False, True):
        rig = await MailboxFixture.open(tmp_path_factory.mktemp("mail"))
        try:
            limit_queues(rig, limit)
            rig.mailbox.context.pace.seed("ann", 3.0)
            for crowd in crowds:
                messages = [
                    replace(rig.new("", agent, conversation=place, parts=parts), **changes)
                    for (agent, place), parts, changes in crowd
                ]
                parts_of_it = [messages] if at_once else [[new] for new in messages]
                for together in parts_of_it:
                    results = await accept_all(rig, together)
                    outcomes[at_once] += map(outcome, results)
            tables.append(await told(rig))
            await rig.check()
        finally:
            await rig.close()
    assert outcomes[0] == outcomes[1]
    for one_by_one, all_at_once in zip(*tables, strict=True):
        assert one_by_one == all_at_once


async def test_facts_of_an_acceptance_are_plain_json(rig: MailboxFixture) -> None:
    await begin_sessions(rig)
    text = 'a "b"\n\\ ü \u2028'
    several = (Part("text", text="see"), Part("file", path="a/b.txt"), Part("text", text="it"))
    messages = [
        rig.new(text, external_id='x"y'),
        rig.new(""),
        rig.new("", parts=several, priority=Priority.LOW),
    ]
    await accept_all(rig, messages)
    rows = await rig.sql("SELECT data FROM events WHERE type = 'chat.in' AND seq > 3 ORDER BY seq")
    facts = [json.loads(row[0]) for row in rows]
    begun = {"kind": "chat", "lane": "interactive", "from": "Bob"}
    assert facts == [
        {**begun, "priority": 2, "text": text, "files": [], "say_id": 'x"y'},
        {**begun, "priority": 2, "text": "", "files": [], "say_id": ""},
        {**begun, "priority": 3, "text": "see\nit", "files": ["a/b.txt"], "say_id": ""},
    ]
    parts = await rig.sql("SELECT parts FROM messages WHERE seq > 3 ORDER BY seq")
    expected = [[part.to_json() for part in new.parts] for new in messages]
    assert [json.loads(row[0]) for row in parts] == expected


async def test_a_conversation_is_noted_as_alive(rig: MailboxFixture) -> None:
    await begin_sessions(rig)
    rig.later(5)
    now = rig.clock.now_ms()
    await accept_all(rig, [rig.new("one"), rig.new("two"), rig.new("three", "ben")])
    noted = await rig.sql(
        "SELECT agent_id, conversation FROM conversations WHERE last_at >= ? ORDER BY 1, 2", now
    )
    assert noted == [("ann", "c1"), ("ben", "c1")]
