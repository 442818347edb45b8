"""P7: what starts later than it was asked for has the rights that its person has by then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from agentsup.commands import ChatCommands
from agentsup.commands.dispatch import Command
from agentsup.mailbox.delivery.notices import latest_conversation
from agentsup.mailbox.mail import BusRequest, InterAgentBus
from agentsup.mailbox.mail.subscriptions import Subscriber
from agentsup.mailbox.messages import keys, sessions
from agentsup.model.control import CommandContext, CommandReply
from agentsup.model.errors import Forbidden, RightsLost
from agentsup.model.ids import AgentId
from agentsup.model.message import DeliverTo, Lease, Message, MessageKind
from agentsup.model.principal import OPERATOR, OPERATORS, PersonRole, Principal, PrincipalKind
from agentsup.model.task import NewSchedule, OccurrenceSkipReason, SkippedOccurrence, TaskState
from agentsup.tasks import Scheduler, skip_text
from tests.support.mailbox_fixture import BOB
from tests.support.task_fixture import ANN, BEN, TaskFixture

pytestmark = pytest.mark.virtual

OP = Principal(PrincipalKind.PERSON, "op", "Op", PersonRole.OPERATOR)
OP_SINCE = replace(OP, role=PersonRole.USER)
OWN = "person:op"
CHAT = DeliverTo("chat", agent_id="ann", channel="web", conversation="op")
SAID: dict[str, Any] = {"principal": OP, "session_key": "chat:web:op", "deliver_to": CHAT}
LOST: list[tuple[PersonRole | None, str]] = [
    (None, "may not use the agents any more"),
    (PersonRole.VIEWER, "is a viewer now"),
]


def demote(rig: TaskFixture, role: PersonRole | None = PersonRole.USER) -> None:
    rig.mail.roles["op"] = role


async def stored(rig: TaskFixture, message_id: str) -> Message:
    return await rig.mail.mailbox.messages.get(message_id)


async def ended_with(rig: TaskFixture, message_id: str) -> tuple[str, str]:
    found = await stored(rig, message_id)
    return found.state.value, found.error_code


# -- tasks -------------------------------------------------------------------------------------------


async def test_a_task_of_a_former_operator_is_resumed_as_one_persons(rig: TaskFixture) -> None:
    task = await rig.create(caller=OP)
    first = await rig.mail.one()
    assert first.message.person == OPERATORS
    await rig.mail.finish(first)
    demote(rig)
    await rig.hub.resume(task.task_id, "and now?", caller=OP_SINCE)
    run = (await rig.mail.one()).message
    assert (run.person, run.principal.role) == (OWN, PersonRole.USER)
    works = Principal(PrincipalKind.RUN, "ann", "ann", behalf=run.person)
    told = await rig.hub.update(task.task_id, caller=works, progress="half")
    assert told.progress == "half", "its own run may still tell how far it is"
    assert [each.task_id for each in await rig.hub.list(caller=works)] == [task.task_id]


@pytest.mark.parametrize("role, why", LOST)
async def test_a_task_of_somebody_without_rights_is_not_resumed(
    rig: TaskFixture, role: PersonRole | None, why: str
) -> None:
    task = await rig.create(caller=OP, start=False)
    demote(rig, role)
    with pytest.raises(RightsLost, match=why):
        await rig.hub.resume(task.task_id, caller=OPERATOR)
    assert (await rig.again(task)).state is TaskState.TODO


async def test_what_an_agent_began_for_an_operator_follows_that_operators_role(
    rig: TaskFixture,
) -> None:
    await rig.mail.put("plan it", **SAID)
    turn = await rig.mail.one()
    task = await rig.create(caller=ANN, asker=rig.asker(turn))
    await rig.mail.finish(turn)
    run = await rig.mail.one()
    # What its run begins goes back to the same person, however far away.
    deeper = await rig.create("dig", caller=ANN, asker=rig.asker(run), start=False)
    await rig.mail.finish(run)
    for lease in await rig.mail.claim():
        await rig.mail.finish(lease)
    demote(rig)
    for each in (task, deeper):
        await rig.hub.resume(each.task_id, "go on", caller=OPERATOR)
    for lease in await rig.mail.claim():
        assert (lease.message.person, lease.message.principal.behalf) == (OWN, OWN)
        nested = await rig.create("more", caller=ANN, asker=rig.asker(lease), start=False)
        assert nested.owner.behalf == OWN
        await rig.mail.finish(lease)
    demote(rig, None)
    with pytest.raises(RightsLost):
        await rig.hub.resume(deeper.task_id, "go on", caller=OPERATOR)


async def test_a_key_stands_for_the_same_run_whatever_the_role_is_by_then(rig: TaskFixture) -> None:
    await rig.mail.put("plan it", **SAID)
    turn = await rig.mail.one()
    task = await rig.create(caller=ANN, asker=rig.asker(turn))
    await rig.mail.finish(turn)
    await rig.mail.finish(await rig.mail.one())
    again: dict[str, Any] = {"caller": OPERATOR, "idempotency_key": "k1"}
    await rig.hub.resume(task.task_id, "go on", **again)
    for lease in await rig.mail.claim():
        await rig.mail.finish(lease)
    demote(rig)
    known = await rig.again(task)
    await rig.hub.resume(task.task_id, "go on", **again)
    assert (await rig.again(task)).runs == known.runs, "one key, one run"
    assert [each.message.kind for each in await rig.mail.claim()] in ([], [MessageKind.REPLY])


async def test_a_role_that_rose_widens_nothing(rig: TaskFixture) -> None:
    task = await rig.create(caller=OP_SINCE, start=False)
    await rig.mail.put("hello", **{**SAID, "principal": OP_SINCE})
    demote(rig, PersonRole.MANAGER)
    await rig.hub.resume(task.task_id, caller=OP)
    for lease in await rig.mail.claim():
        assert (lease.message.person, lease.message.principal.role) == (OWN, PersonRole.USER)


async def test_the_console_and_agents_as_such_are_as_they_were(rig: TaskFixture) -> None:
    rig.mail.roles.update({"operator": None, "ann": None, "": None})
    kept = [await rig.create(caller=OPERATOR), await rig.create(caller=ANN)]
    ran = [lease.message.message_id for lease in await rig.mail.claim()]
    assert ran == [each.current_run for each in kept]


# -- schedules ---------------------------------------------------------------------------------------


@asynccontextmanager
async def scheduler(rig: TaskFixture) -> AsyncIterator[list[tuple[str, str]]]:
    """The scheduler at work, and what it tells the operators."""
    told: list[tuple[str, str]] = []

    async def tell(task_id: str, why: SkippedOccurrence) -> None:
        told.append((task_id, skip_text(why)))

    ready, draining = asyncio.Event(), asyncio.Event()
    keeper = Scheduler(rig.mail.db, rig.mail.clock, rig.hub.starter, tell, ())
    running = asyncio.create_task(keeper.run(ready.set, draining))
    await ready.wait()
    try:
        yield told
    finally:
        draining.set()
        await asyncio.wait({running})
        running.result()


@pytest.mark.parametrize("role, why", LOST)
@pytest.mark.parametrize("new", [NewSchedule(every_s=60), NewSchedule(cron="* * * * *")])
async def test_a_schedule_without_its_persons_rights_rests_and_says_so_once(
    rig: TaskFixture, new: NewSchedule, role: PersonRole | None, why: str
) -> None:
    task = await rig.create(caller=OP, schedule=new)
    async with scheduler(rig) as told:
        await rig.mail.clock.sleep(61)
        await rig.mail.finish(await rig.mail.one())
        demote(rig, role)
        await rig.mail.clock.sleep(600)
        assert await rig.mail.claim() == []
        assert [task_id for task_id, _ in told] == [task.task_id]
        assert why in told[0][1]
        known = (await rig.hub.card(task.task_id, caller=OPERATOR)).runs
        assert [
            (run.state, run.skipped is not None and why in skip_text(run.skipped)) for run in known
        ] == [
            ("skipped", True),
            ("done", False),
        ]
        plan = (await rig.hub.card(task.task_id, caller=OPERATOR)).schedule
        assert plan is not None
        assert plan.is_paused
        with pytest.raises(RightsLost):
            await rig.hub.pause(task.task_id, caller=OPERATOR, is_paused=False)
        with pytest.raises(RightsLost):
            await rig.hub.reschedule(task.task_id, new, caller=OPERATOR)
        demote(rig, PersonRole.OPERATOR)
        await rig.hub.pause(task.task_id, caller=OPERATOR, is_paused=False)
        await rig.mail.clock.sleep(61)
        assert (await rig.mail.one()).message.person == OPERATORS


async def test_a_single_time_without_its_persons_rights_is_on_record(rig: TaskFixture) -> None:
    at = rig.mail.clock.now_ms() + 60_000
    text = datetime.fromtimestamp(at / 1000, UTC).isoformat()
    task = await rig.create(caller=OP, schedule=NewSchedule(at=text))
    demote(rig, None)
    async with scheduler(rig) as told:
        await rig.mail.clock.sleep(120)
    (run,) = (await rig.hub.card(task.task_id, caller=OPERATOR)).runs
    assert (run.state, len(told)) == ("skipped", 1)
    assert run.skipped == SkippedOccurrence(
        OccurrenceSkipReason.RIGHTS, {"rights": "removed", "who": OP.label}
    )


async def test_a_schedule_of_a_former_operator_goes_on_as_one_persons(rig: TaskFixture) -> None:
    await rig.create(caller=OP, schedule=NewSchedule(every_s=60))
    demote(rig)
    async with scheduler(rig) as told:
        await rig.mail.clock.sleep(61)
    assert (await rig.mail.one()).message.person == OWN
    assert told == []


# -- messages that wait ------------------------------------------------------------------------------

Way = Callable[[TaskFixture, Lease], Awaitable[str]]


async def _retried(rig: TaskFixture, lease: Lease) -> str:
    await rig.mail.mailbox.leases.retry(lease, code="net", text="no network")
    rig.mail.later(10)
    return lease.message.message_id


async def _cut_off(rig: TaskFixture, lease: Lease) -> str:
    await rig.reboot()
    return lease.message.message_id


async def _given_back(rig: TaskFixture, lease: Lease) -> str:
    await rig.mail.mailbox.leases.release(lease)
    return lease.message.message_id


async def _answered(rig: TaskFixture, lease: Lease) -> str:
    question = await rig.mail.park(lease)
    await rig.mail.mailbox.questions.answer(question.question_id, "yes", OPERATOR)
    return lease.message.message_id


async def _requeued(rig: TaskFixture, lease: Lease) -> str:
    for _ in range(9):
        if (
            await rig.mail.mailbox.leases.retry(lease, code="net", text="no network")
        ).value == "dead":
            break
        rig.mail.later(600)
        lease = await rig.mail.one()
    await rig.mail.mailbox.failed.requeue(lease.message.message_id, OPERATOR)
    return lease.message.message_id


async def _replayed(rig: TaskFixture, lease: Lease) -> str:
    await rig.mail.fail(lease)
    return (await rig.mail.mailbox.failed.replay(lease.message.message_id, OPERATOR)).message_id


WAYS: list[Way] = [_retried, _cut_off, _given_back, _answered, _requeued, _replayed]


@pytest.mark.parametrize("way", WAYS)
async def test_a_turn_that_begins_again_has_the_rights_of_now(rig: TaskFixture, way: Way) -> None:
    await rig.mail.put(**SAID)
    first = await rig.mail.one()
    assert first.message.person == OPERATORS
    again_id = await way(rig, first)
    demote(rig)
    again = (await rig.mail.one()).message
    assert again.message_id == again_id
    assert (again.person, again.principal.role) == (OWN, PersonRole.USER)
    kept = await stored(rig, again_id)
    assert (kept.person, kept.principal) == (again.person, again.principal)


@pytest.mark.parametrize("way", WAYS)
async def test_a_turn_of_somebody_removed_does_not_begin_again(rig: TaskFixture, way: Way) -> None:
    await rig.mail.put(**SAID)
    again_id = await way(rig, await rig.mail.one())
    demote(rig, None)
    assert await rig.mail.claim() == []
    assert await ended_with(rig, again_id) == ("done", "rights_lost")
    ((kind, channel, place, text),) = (await rig.mail.outbox())[-1:]
    assert (kind, channel, place) == ("notice", "web", "op")
    assert "may not use the agents any more" in str(text)
    await rig.mail.check()


async def test_a_queued_run_has_the_rights_of_its_start(rig: TaskFixture) -> None:
    task = await rig.create(caller=OP)
    demote(rig)
    assert (await rig.mail.one()).message.person == OWN
    other = await rig.create(caller=OP)
    demote(rig, None)
    assert await rig.mail.claim() == []
    assert (await rig.again(other)).state is TaskState.FAILED
    assert "may not use the agents any more" in (await rig.again(other)).error_text
    assert (await rig.again(task)).state is TaskState.RUNNING


async def test_a_notice_is_in_the_persons_language(rig: TaskFixture) -> None:
    german = replace(OP, language="de")
    await rig.mail.put(**{**SAID, "principal": german})
    demote(rig, None)
    assert await rig.mail.claim() == []
    assert "gehört nicht mehr zu den Leuten" in str((await rig.mail.outbox())[-1][3])


# -- sessions of the operators -----------------------------------------------------------------------


def bus_of(rig: TaskFixture) -> InterAgentBus:
    return InterAgentBus(
        mailbox=rig.mail.mailbox,
        directory=rig.directory,
        hex_digits=lambda count: "a" * count,
    )


async def test_what_was_handed_on_for_a_former_operator_enters_no_session_of_the_operators(
    rig: TaskFixture,
) -> None:
    await rig.mail.put("ask ben", **SAID)
    turn = await rig.mail.one()
    sent = await bus_of(rig).send_async(
        BusRequest("ben", "what do you know?"), caller=ANN, asker=rig.asker(turn)
    )
    demote(rig)
    assert await rig.mail.claim("ben") == []
    assert await ended_with(rig, sent.message_id) == ("done", "rights_lost")
    await rig.mail.finish(turn)
    reply = await rig.mail.one()
    assert (reply.message.kind, reply.message.person) == (MessageKind.REPLY, OWN)
    assert "a session of the operators" in reply.message.text


async def test_what_is_handed_on_since_is_the_persons_own(rig: TaskFixture) -> None:
    await rig.mail.put("ask ben", **SAID)
    demote(rig)
    turn = await rig.mail.one()
    await bus_of(rig).send_async(
        BusRequest("ben", "what do you know?"), caller=ANN, asker=rig.asker(turn)
    )
    asked = (await rig.mail.one("ben")).message
    assert asked.person == OWN
    key = await rig.mail.sql("SELECT key FROM sessions WHERE session_id = ?", asked.session_id)
    assert key == [(keys.peer_key("ann", OWN),)]


@pytest.mark.parametrize("conversation", ["local", "bob", "opposite"])
async def test_a_former_operator_is_answered_in_no_conversation_of_others(
    rig: TaskFixture, conversation: str
) -> None:
    to = replace(CHAT, conversation=conversation)
    put = await rig.mail.put(principal=OP, session_key=f"chat:web:{conversation}", deliver_to=to)
    demote(rig)
    assert await rig.mail.claim() == []
    assert await ended_with(rig, put.message_id) == ("done", "rights_lost")


async def test_what_an_operator_had_an_agent_say_follows_that_operators_role(
    rig: TaskFixture,
) -> None:
    sent = await bus_of(rig).send_async(BusRequest("ben", "do it", sender="ann"), caller=OP)
    demote(rig)
    assert await rig.mail.claim("ben") == []
    assert await ended_with(rig, sent.message_id) == ("done", "rights_lost")


async def test_an_event_of_a_former_operators_work_is_not_told_to_the_operators(
    rig: TaskFixture,
) -> None:
    watcher = Subscriber("ben", frozenset({"finished"}))
    rig.mail.subscribers = {AgentId("ann"): (watcher,)}
    await rig.mail.put(**SAID)
    await rig.mail.finish(await rig.mail.one())
    demote(rig)
    assert await rig.mail.claim("ben") == []


async def test_work_of_the_operators_whose_beginning_is_pruned_does_not_go_on(
    rig: TaskFixture,
) -> None:
    await rig.mail.put("ask ben", **SAID)
    turn = await rig.mail.one()
    sent = await bus_of(rig).send_async(
        BusRequest("ben", "what do you know?"), caller=ANN, asker=rig.asker(turn)
    )
    await rig.mail.finish(turn)
    await prune(rig, turn.message.message_id)
    assert await rig.mail.claim("ben") == []
    assert await ended_with(rig, sent.message_id) == ("done", "rights_lost")


async def prune(rig: TaskFixture, message_id: str) -> None:
    """The message is past retention."""
    await rig.mail.db.write(
        lambda tx: tx.execute("DELETE FROM messages WHERE message_id = ?", (message_id,))
    )


async def handed_on(rig: TaskFixture, who: Principal = OP) -> Lease:
    """Ben at work on what ann handed on for ``who``; the message that led to it is gone."""
    await rig.mail.put("ask ben", **{**SAID, "principal": who})
    turn = await rig.mail.one()
    await bus_of(rig).send_async(BusRequest("ben", "look"), caller=ANN, asker=rig.asker(turn))
    await rig.mail.finish(turn)
    lease = await rig.mail.one("ben")
    await prune(rig, turn.message.message_id)
    return lease


async def test_a_schedule_is_not_the_consoles_where_nobody_knows_who_asked(
    rig: TaskFixture,
) -> None:
    lease = await handed_on(rig)
    every = NewSchedule(every_s=60)
    task = await rig.create(caller=BEN, agent="", schedule=every, asker=rig.asker(lease))
    await rig.mail.finish(lease)
    demote(rig, None)
    async with scheduler(rig) as told:
        await rig.mail.clock.sleep(200)
    assert await rig.mail.claim("ben") == []
    ((task_id, why),) = told
    assert (task_id, "not on record" in why) == (task.task_id, True), why
    with pytest.raises(RightsLost, match="not on record"):
        await rig.hub.resume(task.task_id, "go on", caller=OPERATOR)


async def test_a_task_is_not_begun_where_nobody_knows_who_asked(rig: TaskFixture) -> None:
    lease = await handed_on(rig)
    with pytest.raises(RightsLost, match="not on record"):
        await rig.create(caller=BEN, agent="", asker=rig.asker(lease))


async def test_who_asked_is_carried_over_past_the_first_message(rig: TaskFixture) -> None:
    lease = await handed_on(rig)
    knows = replace(lease.message, principal=replace(lease.message.principal, asker="op"))
    asker = rig.asker(replace(lease, message=knows))
    task = await rig.create(caller=BEN, agent="", asker=asker, start=False)
    demote(rig)
    await rig.hub.resume(task.task_id, "go on", caller=OPERATOR)
    assert OWN in {each.message.person for each in await rig.mail.claim("ben")}


async def test_a_replay_does_not_start_where_nobody_knows_who_asked(rig: TaskFixture) -> None:
    lease = await handed_on(rig)
    await rig.mail.fail(lease)
    again = await rig.mail.mailbox.failed.replay(lease.message.message_id, OPERATOR)
    assert await rig.mail.claim("ben") == []
    assert await ended_with(rig, again.message_id) == ("done", "rights_lost")


async def test_a_role_that_one_person_lost_changes_nothing_for_another(rig: TaskFixture) -> None:
    task = await rig.create(caller=OP, start=False)
    await rig.mail.put(principal=BOB)
    demote(rig, None)
    assert (await rig.mail.one()).message.person == "person:bob"
    with pytest.raises(Forbidden):
        await rig.hub.get(task.task_id, caller=BOB)


# -- conversations of the operators ------------------------------------------------------------------

ASKS: dict[str, Any] = {
    "deliver_to": DeliverTo("http"),
    "session_key": "ia-x",
    "kind": MessageKind.CHAT,
}
OLGA = replace(OP, subject="olga", name="Olga")


async def heard_at(rig: TaskFixture) -> list[tuple[Any, ...]]:
    """Where a notice and an approval of the operators' work go that has no other place."""
    await rig.mail.put("look", principal=OPERATOR, **ASKS)
    (turn,) = [each for each in await rig.mail.claim() if each.message.deliver_to.kind == "http"]
    await rig.mail.park(turn)
    return [row[:3] for row in (await rig.mail.outbox())[-2:]]


async def put_in(rig: TaskFixture, place: str, who: Principal) -> None:
    chat = replace(CHAT, conversation=place)
    await rig.mail.put(principal=who, session_key=f"chat:web:{place}", deliver_to=chat)
    rig.mail.later(0.1)


async def test_a_notice_of_the_operators_goes_to_no_former_operator(rig: TaskFixture) -> None:
    await put_in(rig, "olga", OLGA)
    await put_in(rig, "op", OP)
    for lease in await rig.mail.claim():
        await rig.mail.finish(lease)
    demote(rig)
    assert await heard_at(rig) == [("notice", "web", "olga"), ("question", "web", "olga")]


@pytest.mark.parametrize("role", [None, PersonRole.VIEWER, PersonRole.USER])
async def test_without_an_operators_conversation_a_notice_goes_to_the_console(
    rig: TaskFixture, role: PersonRole | None
) -> None:
    await put_in(rig, "op", OP)
    await rig.mail.finish(await rig.mail.one())
    demote(rig, role)
    assert await heard_at(rig) == [("notice", "console", "local"), ("question", "console", "local")]


async def test_who_spoke_last_is_noted_within_the_same_moment(rig: TaskFixture) -> None:
    for who in (OP, OLGA):
        await put_in(rig, "both", who)
    for lease in await rig.mail.claim():
        await rig.mail.finish(lease)
    await rig.mail.finish(await rig.mail.one())
    demote(rig)
    assert {row[1:] for row in await heard_at(rig)} == {("web", "both")}
    rig.mail.roles.update(op=None, olga=PersonRole.USER)
    rig.mail.later(5)
    for lease in await rig.mail.claim():
        await rig.mail.finish(lease)
    place = await rig.mail.db.read(
        lambda r: latest_conversation(r, "ann", OPERATORS, rig.mail.mailbox.context.role_now)
    )
    assert place == ("console", "local")


# -- chats that go on with another place's session ----------------------------------------------------


async def pointed(rig: TaskFixture) -> tuple[str, str, str]:
    """What was said before in the operator's chat, in another one, and in the session shared since."""
    own = (await rig.mail.put(**SAID)).session_id
    other = (await rig.mail.put(conversation="other")).session_id
    for lease in await rig.mail.claim():
        await rig.mail.finish(lease)
    key = keys.chat_key("web", "op")
    await rig.mail.db.write(lambda tx: sessions.point_tx(tx, "ann", key, other, by="op"))
    return key, own, other


async def test_a_chat_of_a_former_operator_goes_back_to_its_own_session(rig: TaskFixture) -> None:
    _, own, other = await pointed(rig)
    there = await rig.mail.put(**SAID)
    assert there.session_id == other, "an operator goes on where they like"
    await rig.mail.finish(await rig.mail.one())
    demote(rig)
    both = await asyncio.gather(*(rig.mail.put(**{**SAID, "principal": OP_SINCE}) for _ in "ab"))
    assert [each.session_id for each in both] == [own, own]
    told = [row for row in await rig.mail.outbox() if "back in its own session" in str(row[3])]
    assert [row[:3] for row in told] == [("notice", "web", "op")], "said once"
    assert (await rig.mail.put(**SAID)).session_id == own


async def test_a_command_is_for_the_session_that_a_message_would_go_to(rig: TaskFixture) -> None:
    key, own, other = await pointed(rig)

    async def where(context: CommandContext, rest: str) -> CommandReply:
        return CommandReply(str(await rig.mail.db.read(sessions.current, "ann", key)))

    table = (Command("where", "", "", where),)
    keep_own = partial(sessions.keep_own, rig.mail.db, rig.mail.mailbox.context)
    commands = ChatCommands(table, lambda: "main", keep_own)
    context = CommandContext("ann", "ann", "web", "op", OP_SINCE)
    assert (await commands.run("/where", context)).text == other
    demote(rig)
    first, second = [(await commands.run("/where", context)).text for _ in range(2)]
    assert "back in its own session" in first
    assert first.endswith(own)
    assert second == own
