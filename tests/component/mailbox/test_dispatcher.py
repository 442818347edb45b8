"""The dispatcher on a real mailbox: one, many, whoever is free; repeated, refused, interrupted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.mail import Asker, new_mail
from agentsup.mailbox.messages import Completion, MailboxLimits
from agentsup.mailbox.work import Pump, Work
from agentsup.mailbox.work.slots import SlotPool
from agentsup.model.errors import (
    BadRequest,
    Conflict,
    DepthExceeded,
    Forbidden,
    Gone,
    LeaseLost,
    LoopDetected,
    NoAgentForRole,
    NobodyThere,
    NotFound,
    Overloaded,
)
from agentsup.model.ids import AgentId, InstanceId
from agentsup.model.message import LaneName, Lease, MessageKind, MessageOutcome
from agentsup.model.principal import OPERATOR
from tests.support.dispatcher_fixture import DispatcherFixture, agent_of
from tests.support.mailbox_fixture import WIDE

Open = Callable[..., Awaitable[DispatcherFixture]]
WRITER = {"role": "writer", "team": "desk"}
FOUR = [(name, WRITER) for name in ("w1", "w2", "w3", "w4")]


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Open]:
    opened: list[DispatcherFixture] = []

    async def open_(*agents: Any, **more: Any) -> DispatcherFixture:
        opened.append(await DispatcherFixture.open(tmp_path, agents, **more))
        return opened[-1]

    yield open_
    for rig in opened:
        await rig.close()


def asker_of(lease: Lease) -> Asker:
    slots = SlotPool(WIDE, lambda: None)
    return Asker(lease, slots.take(lease.message.lane))


async def chosen_by_events(rig: DispatcherFixture) -> list[tuple[Any, ...]]:
    return await rig.mail.sql(
        "SELECT data ->> 'deed', data ->> 'agent', data ->> 'reason', data -> 'candidates'"
        " FROM events WHERE type = 'route.chosen' ORDER BY seq"
    )


# -- to one ----------------------------------------------------------------------------------------


async def test_a_letter_has_its_sender_from_the_caller(post: Open) -> None:
    rig = await post("ann", "ben")
    sent = await rig.dispatcher.send(
        "ben", new_mail("the body", "A subject"), caller=agent_of("ann")
    )
    message = await rig.mail.mailbox.messages.get(sent.message_id)
    assert (message.text, message.sender_agent_id) == ("A subject\n\nthe body", "ann")
    assert (message.kind, message.lane) == (MessageKind.CHAT, LaneName.PEER)
    with pytest.raises(Forbidden, match="belongs to ann"):
        await rig.dispatcher.send("ben", new_mail("x", sender="cat"), caller=agent_of("ann"))


async def test_an_unknown_addressee_is_named_with_the_near_one(post: Open) -> None:
    rig = await post("ann", "benjamin", "cat")
    rig.agents.remove("cat")
    with pytest.raises(NotFound) as refused:
        await rig.dispatcher.send("benjamim", new_mail("x"), caller=agent_of("ann"))
    assert refused.value.facts["did_you_mean"] == "benjamin"
    with pytest.raises(Gone):
        await rig.dispatcher.send("cat", new_mail("x"), caller=agent_of("ann"))


async def test_a_reply_takes_the_place_of_the_turns_answer(post: Open) -> None:
    rig = await post("ann", "ben")
    turn = await _turn_of_ann(rig)
    sent = await rig.dispatcher.send(
        "ben", new_mail("how much?"), caller=agent_of("ann"), asker=asker_of(turn)
    )
    lease = await rig.mail.one("ben")
    letter = new_mail("seven", idempotency_key="call-1")
    reply = await rig.dispatcher.reply(
        sent.message_id, letter, caller=agent_of("ben"), asker=asker_of(lease)
    )
    again = await rig.dispatcher.reply(
        sent.message_id, letter, caller=agent_of("ben"), asker=asker_of(lease)
    )
    assert (again.message_id, again.duplicate) == (reply.message_id, True)
    await rig.mail.finish(lease, "I told ann")
    await rig.mail.finish(turn)
    got = await rig.mail.one("ann")
    assert (got.message.kind, got.message.text) == (MessageKind.REPLY, "seven")
    assert got.message.session_id == turn.message.session_id
    assert got.message.deliver_to == turn.message.deliver_to
    await rig.mail.finish(got)
    assert await rig.mail.claim("ann") == [], "the answer is told once"


async def test_a_reply_after_the_end_goes_into_the_same_thread(post: Open) -> None:
    rig = await post("ann", "ben")
    turn = await _turn_of_ann(rig)
    sent = await rig.dispatcher.send(
        "ben", new_mail("look"), caller=agent_of("ann"), asker=asker_of(turn)
    )
    await rig.mail.finish(await rig.mail.one("ben"), "first")
    late = await rig.dispatcher.reply(sent.message_id, new_mail("more"), caller=agent_of("ben"))
    deeper = await rig.dispatcher.reply(late.message_id, new_mail("thanks"), caller=agent_of("ann"))
    texts = [m.text for m in await rig.mail.mailbox.messages.thread(turn.message.message_id)]
    assert texts == ["go", "look", "first", "more", "thanks"]
    assert (await rig.mail.mailbox.messages.get(deeper.message_id)).agent_id == "ben"


async def test_who_may_reply(post: Open) -> None:
    rig = await post("ann", "ben", "cat")
    sent = await rig.dispatcher.send("ben", new_mail("x"), caller=agent_of("ann"))
    with pytest.raises(Forbidden, match="was not sent to cat"):
        await rig.dispatcher.reply(sent.message_id, new_mail("y"), caller=agent_of("cat"))
    chat = await rig.mail.put("hello", "ben")
    with pytest.raises(BadRequest, match="no agent"):
        await rig.dispatcher.reply(chat.message_id, new_mail("y"), caller=agent_of("ben"))
    event = await rig.mail.put("ann began", "ben", kind=MessageKind.EVENT, sender_agent_id="ann")
    with pytest.raises(BadRequest, match="wants no answer"):
        await rig.dispatcher.reply(event.message_id, new_mail("y"), caller=agent_of("ben"))
    with pytest.raises(NotFound):
        await rig.dispatcher.reply("msg_nothing", new_mail("y"), caller=agent_of("ben"))
    rig.agents.remove("ann")
    with pytest.raises(NotFound, match="no longer exists"):
        await rig.dispatcher.reply(sent.message_id, new_mail("y"), caller=agent_of("ben"))


async def test_replies_to_replies_end_somewhere(post: Open) -> None:
    rig = await post("ann", "ben", limits=MailboxLimits(max_messages_per_root=5))
    sent = await rig.dispatcher.send("ben", new_mail("0"), caller=agent_of("ann"))
    last, names = sent.message_id, ("ben", "ann")

    async def for_ever() -> None:
        nonlocal last
        for n in range(9):
            reply = await rig.dispatcher.reply(
                last, new_mail(str(n)), caller=agent_of(names[n % 2])
            )
            last = reply.message_id

    with pytest.raises(DepthExceeded):
        await for_ever()


async def test_a_waited_answer_is_said_at_the_end(post: Open) -> None:
    rig = await post("ann", "ben")
    turn = await _turn_of_ann(rig)
    sent = await rig.dispatcher.send(
        "ben", new_mail("look"), caller=agent_of("ann"), asker=asker_of(turn)
    )
    await rig.mail.wait_for(turn, sent.message_id)
    with pytest.raises(Conflict, match="waits for the end"):
        await rig.dispatcher.reply(sent.message_id, new_mail("x"), caller=agent_of("ben"))


async def test_a_stopped_turn_sends_nothing(post: Open) -> None:
    rig = await post("ann", "ben", ("cat", {"role": "writer", "team": "t"}))
    turn = await _turn_of_ann(rig)
    asker, ann = asker_of(turn), agent_of("ann")
    sent = await rig.dispatcher.send("ann", new_mail("x"), caller=agent_of("ben"))
    await rig.mail.mailbox.control.stop("agent:ann", OPERATOR)
    with pytest.raises(LeaseLost):
        await rig.dispatcher.send("ben", new_mail("x"), caller=ann, asker=asker)
    with pytest.raises(LeaseLost):
        await rig.dispatcher.reply(sent.message_id, new_mail("x"), caller=ann, asker=asker)
    with pytest.raises(LeaseLost):
        await rig.dispatcher.broadcast(new_mail("x"), team="t", caller=ann, asker=asker)
    with pytest.raises(LeaseLost):
        await rig.dispatcher.assign(new_mail("x"), role="writer", caller=ann, asker=asker)


async def _turn_of_ann(rig: DispatcherFixture) -> Lease:
    await rig.mail.put("go", "ann")
    return await rig.mail.one("ann")


# -- to many ---------------------------------------------------------------------------------------


async def test_a_broadcast_reaches_all_but_its_sender(post: Open) -> None:
    rig = await post("ann", *FOUR)
    told = await rig.dispatcher.broadcast(
        new_mail("meet at ten", "News"), team="Desk", caller=agent_of("w2")
    )
    assert [copy.agent for copy in told.copies] == ["w1", "w3", "w4"]
    rows = await rig.mail.sql(
        "SELECT agent_id, kind, thread_id, deliver_to FROM messages ORDER BY seq"
    )
    assert rows == [
        (name, "broadcast", told.broadcast_id, '{"kind":"none"}') for name in ("w1", "w3", "w4")
    ]
    assert told.broadcast_id.startswith("bc_")
    lease = await rig.mail.one("w3")
    await rig.dispatcher.reply(
        lease.message.message_id, new_mail("fine"), caller=agent_of("w3"), asker=asker_of(lease)
    )
    (reply,) = await rig.mail.claim("w2")
    assert (reply.message.text, reply.message.thread_id) == ("fine", told.broadcast_id)


async def test_nobody_to_tell_and_no_such_team(post: Open) -> None:
    rig = await post(("ann", {"team": "alone"}), *FOUR)
    with pytest.raises(NobodyThere, match="nobody in team alone"):
        await rig.dispatcher.broadcast(new_mail("x"), team="alone", caller=agent_of("ann"))
    with pytest.raises(NotFound) as refused:
        await rig.dispatcher.broadcast(new_mail("x"), team="dask", caller=agent_of("ann"))
    assert refused.value.facts["did_you_mean"] == "desk"
    with pytest.raises(BadRequest):
        await rig.dispatcher.broadcast(new_mail("x"), caller=agent_of("ann"))
    with pytest.raises(BadRequest):
        await rig.dispatcher.broadcast(new_mail(" "), team="desk", caller=agent_of("ann"))


async def test_a_broadcast_that_fails_at_the_third_of_five_tells_nobody(post: Open) -> None:
    five = [(f"t{n}", {"team": "five"}) for n in range(5)]
    full = MailboxLimits(queue_limit_of=lambda agent: 1 if agent == "t2" else None)
    rig = await post("ann", *five, limits=full)
    blocking = await rig.mail.put("in the way", "t2")
    letter = new_mail("all of you", idempotency_key="call-7")
    with pytest.raises(Overloaded):
        await rig.dispatcher.broadcast(letter, team="five", caller=agent_of("ann"))
    assert await rig.mail.sql("SELECT 1 FROM messages WHERE kind = 'broadcast'") == []
    assert await rig.mail.sql("SELECT 1 FROM events WHERE type = 'route.chosen'") == []
    await rig.mail.mailbox.control.cancel(blocking.message_id, OPERATOR)
    first = await rig.dispatcher.broadcast(letter, team="five", caller=agent_of("ann"))
    rig.agents.add("t9", team="five")
    await rig.reboot()
    again = await rig.dispatcher.broadcast(letter, team="five", caller=agent_of("ann"))
    assert [c.message_id for c in again.copies] == [c.message_id for c in first.copies]
    assert (again.broadcast_id, again.duplicate) == (first.broadcast_id, True)
    counted = await rig.mail.sql(
        "SELECT agent_id, COUNT(*) FROM messages WHERE kind = 'broadcast' GROUP BY 1 ORDER BY 1"
    )
    assert counted == [(f"t{n}", 1) for n in range(5)]
    other = new_mail("something else", idempotency_key="call-7")
    with pytest.raises(Conflict):
        await rig.dispatcher.broadcast(other, team="five", caller=agent_of("ann"))


async def test_can_delegate_to_holds_for_every_way(post: Open) -> None:
    rig = await post(("ann", {"can_delegate_to": ("w1",)}), *FOUR)
    ann = agent_of("ann")
    with pytest.raises(Forbidden):
        await rig.dispatcher.send("w2", new_mail("x"), caller=ann)
    with pytest.raises(Forbidden):
        await rig.dispatcher.broadcast(new_mail("x"), team="desk", caller=ann)
    sent = [await rig.dispatcher.assign(new_mail("x"), role="writer", caller=ann) for _ in range(3)]
    assert {each.agent for each in sent} == {"w1"}
    rig.agents.add("ann", can_delegate_to=())
    with pytest.raises(Forbidden, match="may not send"):
        await rig.dispatcher.assign(new_mail("x"), role="writer", caller=ann)


async def test_in_anothers_place_only_those_are_written_to_whom_both_may(post: Open) -> None:
    rig = await post(
        ("ann", {"can_delegate_to": ("w1", "w2")}),
        ("eve", {"can_delegate_to": ("W2", "w3")}),
        *FOUR,
    )
    given: dict[str, Any] = {"caller": agent_of("ann"), "persona_id": "eve"}
    sent = await rig.dispatcher.send("w2", new_mail("x"), **given)
    assert (await rig.mail.mailbox.messages.get(sent.message_id)).sender_agent_id == "ann"
    for name in ("w1", "w3"):
        with pytest.raises(Forbidden):
            await rig.dispatcher.send(name, new_mail("x"), **given)
    assert (await rig.dispatcher.assign(new_mail("x"), role="writer", **given)).agent == "w2"
    with pytest.raises(Forbidden):
        await rig.dispatcher.broadcast(new_mail("x"), team="desk", **given)
    told = await rig.dispatcher.broadcast(new_mail("x"), names=["w2"], **given)
    assert [copy.agent for copy in told.copies] == ["w2"]
    rig.agents.add("eve")
    assert (await rig.dispatcher.send("w1", new_mail("x"), **given)).agent == "w1"


# -- to whoever is free ----------------------------------------------------------------------------


async def test_a_hundred_at_once_spread_evenly(post: Open) -> None:
    rig = await post("ann", *FOUR)
    sent = await asyncio.gather(
        *(
            rig.dispatcher.assign(new_mail(f"work {n}"), role="Writer", caller=agent_of("ann"))
            for n in range(100)
        )
    )
    spread = Counter(each.agent for each in sent)
    assert set(spread) == {"w1", "w2", "w3", "w4"}
    assert all(24 <= count <= 26 for count in spread.values()), spread


async def test_running_work_counts_as_load(post: Open) -> None:
    rig = await post("ann", *FOUR[:2])
    first = await rig.dispatcher.assign(new_mail("long"), role="writer", caller=agent_of("ann"))
    await rig.mail.one(first.agent)
    other = {"w1": "w2", "w2": "w1"}[first.agent]
    for _ in range(3):
        sent = await rig.dispatcher.assign(new_mail("quick"), role="writer", caller=agent_of("ann"))
        assert sent.agent == other, "it is free each time; the other one works"
        await rig.mail.finish((await rig.mail.claim(other))[0])


async def test_a_repetition_meets_the_first_choice(post: Open) -> None:
    rig = await post("ann", *FOUR)
    letter = new_mail("once", idempotency_key="call-3")
    first = await rig.dispatcher.assign(letter, role="writer", caller=agent_of("ann"))
    for _ in range(3):
        await rig.dispatcher.assign(new_mail("fill"), role="writer", caller=agent_of("ann"))
    await rig.reboot()
    for name in ("w1", "w2", "w3", "w4"):
        rig.agents.remove(name)
    again = await rig.dispatcher.assign(letter, role="writer", caller=agent_of("ann"))
    assert (again.message_id, again.agent_id) == (first.message_id, first.agent_id)
    assert again.duplicate
    with pytest.raises(Conflict):
        await rig.dispatcher.assign(
            new_mail("other", idempotency_key="call-3"), role="writer", caller=agent_of("ann")
        )


async def test_a_key_is_apart_for_each_person_an_agent_acts_for(post: Open) -> None:
    rig = await post("ann", *FOUR)
    letter = new_mail("once", idempotency_key="call-3")
    anna, ben = (replace(agent_of("ann"), behalf=f"person:{name}") for name in ("anna", "ben"))
    first = await rig.dispatcher.assign(letter, role="writer", caller=anna)
    assert not (await rig.dispatcher.assign(letter, role="writer", caller=ben)).duplicate
    again = await rig.dispatcher.assign(letter, role="writer", caller=anna)
    assert (again.message_id, again.duplicate) == (first.message_id, True)
    told = await rig.dispatcher.broadcast(letter, team="desk", caller=anna)
    assert not (await rig.dispatcher.broadcast(letter, team="desk", caller=ben)).duplicate
    once_more = await rig.dispatcher.broadcast(letter, team="desk", caller=anna)
    assert (once_more.broadcast_id, once_more.duplicate) == (told.broadcast_id, True)


async def test_alone_with_a_role_an_agent_works_for_itself(post: Open) -> None:
    rig = await post("ann", ("ben", {"role": "editor", "can_delegate_to": ()}), ("cat", WRITER))
    turn_text = await rig.mail.put("go", "ben")
    turn = await rig.mail.one("ben")
    sent = await rig.dispatcher.assign(
        new_mail("mine"), role="editor", caller=agent_of("ben"), asker=asker_of(turn)
    )
    assert sent.agent == "ben"
    message = await rig.mail.mailbox.messages.get(sent.message_id)
    assert (message.root_id, message.path) == (turn_text.message_id, ())
    assert message.session_id != turn.message.session_id
    rig.agents.add("dan", role="editor")
    rig.agents.add("ben", role="editor")
    other = await rig.dispatcher.assign(
        new_mail("yours"), role="editor", caller=agent_of("ben"), asker=asker_of(turn)
    )
    assert other.agent == "dan", "an agent added later is served at once"


async def test_who_waits_for_the_work_is_not_given_it(post: Open) -> None:
    rig = await post(("ann", WRITER), ("ben", WRITER), "cat")
    await rig.mail.put("deep", "cat", path=("ann", "ben"), sender_agent_id="ben")
    asker = asker_of(await rig.mail.one("cat"))
    with pytest.raises(LoopDetected):
        await rig.dispatcher.assign(
            new_mail("x"), role="writer", caller=agent_of("cat"), asker=asker
        )
    rig.agents.add("dan", **WRITER)
    sent = await rig.dispatcher.assign(
        new_mail("x"), role="writer", caller=agent_of("cat"), asker=asker
    )
    assert sent.agent == "dan"


async def test_nobody_of_that_role(post: Open) -> None:
    rig = await post("ann", *FOUR)
    with pytest.raises(NoAgentForRole) as refused:
        await rig.dispatcher.assign(
            new_mail("x"), role="writr", team="desk", caller=agent_of("ann")
        )
    assert (refused.value.facts["role"], refused.value.facts["team"]) == ("writr", "desk")
    assert "writr" in refused.value.message
    assert "desk" in refused.value.message
    assert refused.value.facts["did_you_mean"] == "writer"
    rig.agents.add("ann", team="other")
    with pytest.raises(NoAgentForRole):
        await rig.dispatcher.assign(
            new_mail("x"), role="writer", team="other", caller=agent_of("w1")
        )


async def test_those_that_are_down_are_chosen_last(post: Open) -> None:
    rig = await post(
        "ann",
        ("w1", {**WRITER, "status": "failed"}),
        ("w2", {**WRITER, "status": "stopped", "is_wanted_up": False}),
        ("w3", WRITER),
    )
    sent = [
        await rig.dispatcher.assign(new_mail("x"), role="writer", caller=agent_of("ann"))
        for _ in range(3)
    ]
    assert {each.agent for each in sent} == {"w3"}
    rig.agents.remove("w3")
    late = await rig.dispatcher.assign(new_mail("x"), role="writer", caller=agent_of("ann"))
    assert late.agent in ("w1", "w2"), "better to wait for one of them than to be refused"


async def test_a_choice_is_on_record_with_its_reasons(post: Open) -> None:
    rig = await post("ann", *FOUR[:2])
    await rig.mail.put("busy", "w1")
    await rig.dispatcher.assign(new_mail("x"), role="writer", caller=agent_of("ann"))
    assert await chosen_by_events(rig) == [
        (
            "assign",
            "w2",
            "least loaded, 0 open",
            '[{"agent":"w2","load":0},{"agent":"w1","load":1}]',
        )
    ]


# -- two on one mailbox ----------------------------------------------------------------------------


class _Counting:
    """A host's handler: counts and answers."""

    def __init__(self, rig: DispatcherFixture, seen: Counter[str]) -> None:
        self._rig, self._seen = rig, seen

    async def handle(self, work: Work) -> None:
        self._seen[work.lease.message.message_id] += 1
        await asyncio.sleep(0.01)
        await self._rig.mail.mailbox.leases.complete(
            work.lease, Completion(MessageOutcome.OK, "done")
        )


@pytest.mark.virtual
async def test_two_at_one_mailbox_handle_each_message_once(post: Open) -> None:
    rig = await post("ann", ("ben", WRITER))
    seen: Counter[str] = Counter()
    draining, owner = asyncio.Event(), TaskOwner("pumps")
    for n in range(2):
        pump = Pump(
            mailbox=rig.mail.mailbox,
            agent_id=AgentId("ben"),
            instance_id=InstanceId(f"i{n}"),
            slots={LaneName.INTERACTIVE: 3, LaneName.PEER: 3, LaneName.BACKGROUND: 3},
            handler=_Counting(rig, seen),
        )
        owner.spawn(pump.run(lambda: None, draining), name=f"pump:{n}")
    sent = await asyncio.gather(
        *(
            rig.dispatcher.send("ben", new_mail(f"m{n}", thread_id=f"t{n % 7}"), caller=OPERATOR)
            for n in range(60)
        )
    )
    for each in sent:
        await rig.mail.mailbox.queue.wait_done(each.message_id, 600)
    assert seen == {each.message_id: 1 for each in sent}
    draining.set()
    await asyncio.sleep(1)
    await owner.close(5)
