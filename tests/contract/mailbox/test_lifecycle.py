"""The table of states: every move from every state, and what each end leaves behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from agentsup.mailbox.messages import Completion
from agentsup.model.errors import AgentsupError, Conflict, IllegalTransition, LeaseLost
from agentsup.model.message import Lease, MessageOutcome, MessageState
from agentsup.model.principal import OPERATOR
from tests.support.mailbox_fixture import BOB, WIDE, MailboxFixture


class Subject:
    """A message brought into one state, with what is needed to move it."""

    def __init__(
        self, rig: MailboxFixture, message_id: str, lease: Lease, question_id: str
    ) -> None:
        self.rig = rig
        self.message_id = message_id
        self.lease = lease
        self.question_id = question_id


async def bring(rig: MailboxFixture, state: MessageState) -> Subject:
    message_id = (await rig.put(expires_at=rig.clock.now_ms() + 3_600_000)).message_id
    lease = await rig.one()
    question_id = (await rig.park(lease)).question_id
    if state is not MessageState.PARKED:
        await rig.mailbox.questions.answer(question_id, "yes", BOB)
    if state in (MessageState.LEASED, MessageState.DONE):
        lease = await rig.one()
    if state is MessageState.DONE:
        await rig.finish(lease)
    if state is MessageState.CANCELLED:
        await rig.mailbox.control.cancel(message_id, BOB)
    if state is MessageState.DEAD:
        for _ in range(2):
            lease = await rig.one()
            await rig.mailbox.leases.release_all("i1", culprits=None, text="boom")
    assert await rig.state_of(message_id) == state
    return Subject(rig, message_id, lease, question_id)


async def expire(subject: Subject) -> None:
    subject.rig.later(3601)
    await subject.rig.mailbox.deadlines.expire()


MOVES: dict[str, Callable[[Subject], Awaitable[object]]] = {
    "claim": lambda s: s.rig.claim(),
    "complete": lambda s: s.rig.finish(s.lease),
    "retry": lambda s: s.rig.mailbox.leases.retry(s.lease, code="net", text="timeout"),
    "release": lambda s: s.rig.mailbox.leases.release(s.lease),
    "park": lambda s: s.rig.park(s.lease),
    "crash": lambda s: s.rig.mailbox.leases.release_all("i1", culprits=None, text="boom"),
    "answer": lambda s: s.rig.mailbox.questions.answer(s.question_id, "yes", BOB),
    "cancel": lambda s: s.rig.mailbox.control.cancel(s.message_id, BOB),
    "interrupt": lambda s: s.rig.mailbox.control.interrupt(s.lease.message.session_id, BOB),
    "stop": lambda s: s.rig.mailbox.control.stop("all", BOB),
    "requeue": lambda s: s.rig.mailbox.failed.requeue(s.message_id, OPERATOR),
    "drop": lambda s: s.rig.mailbox.failed.drop(s.message_id, OPERATOR),
    "expire": expire,
}


Q, L, P, D, X, C = MessageState
LOST, NO, LATE = LeaseLost, IllegalTransition, Conflict

#            queued  leased  parked  done  dead  cancelled
TABLE: dict[str, tuple[MessageState | type[AgentsupError], ...]] = {
    "claim": (L, L, P, D, X, C),
    "complete": (LOST, D, LOST, LOST, LOST, LOST),
    "retry": (LOST, Q, LOST, LOST, LOST, LOST),
    "release": (LOST, Q, LOST, LOST, LOST, LOST),
    "park": (LOST, P, LOST, LOST, LOST, LOST),
    "crash": (Q, Q, P, D, X, C),
    "answer": (LATE, LATE, Q, LATE, LATE, LATE),
    "cancel": (C, C, C, NO, NO, NO),
    "interrupt": (Q, C, C, D, X, C),
    "stop": (C, C, C, D, X, C),
    "requeue": (LATE, LATE, LATE, LATE, Q, LATE),
    "drop": (LATE, LATE, LATE, LATE, C, LATE),
    "expire": (D, L, P, D, X, C),
}


@pytest.mark.parametrize("state", list(MessageState))
@pytest.mark.parametrize("move", list(MOVES))
async def test_every_move_from_every_state(
    rig: MailboxFixture, move: str, state: MessageState
) -> None:
    subject = await bring(rig, state)
    expected = TABLE[move][list(MessageState).index(state)]
    if isinstance(expected, MessageState):
        await MOVES[move](subject)
        assert await rig.state_of(subject.message_id) == expected
    else:
        before = await rig.sql("SELECT * FROM messages")
        with pytest.raises(expected):
            await MOVES[move](subject)
        assert await rig.sql("SELECT * FROM messages") == before


async def test_a_completion_is_one_transaction_and_counts_once(rig: MailboxFixture) -> None:
    await rig.put()
    lease = await rig.one()

    def fail_afterwards(tx: object) -> None:
        rig.mailbox.leases.complete_tx(tx, lease, Completion(MessageOutcome.OK, "42"))  # type: ignore[arg-type]  # the fixture's Tx
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await rig.db.write(fail_afterwards)
    assert await rig.state_of(lease.message.message_id) == "leased"
    assert await rig.outbox() == []
    await rig.finish(lease, "42")
    assert await rig.outbox() == [("answer", "console", "c1", "42")]
    with pytest.raises(LeaseLost):
        await rig.finish(lease, "42")
    assert len(await rig.outbox()) == 1


async def test_a_late_completion_of_an_earlier_boot_is_refused(rig: MailboxFixture) -> None:
    await rig.put()
    old = await rig.one()
    await rig.reboot()
    new = await rig.one(instance="i2")
    assert (new.fence, new.resumed) == (old.fence + 1, True)
    with pytest.raises(LeaseLost):
        await rig.finish(old, "late")
    await rig.finish(new, "in time")
    assert [row[3] for row in await rig.outbox()] == ["in time"]


async def test_an_expired_lease_is_renewed_by_its_owner_and_lost_to_another(
    rig: MailboxFixture,
) -> None:
    await rig.put()
    lease = await rig.one(instance="i1")
    rig.later(3600)
    assert await rig.claim(instance="i1") == []
    assert await rig.mailbox.leases.renew([lease]) == set()
    assert await rig.claim(instance="i2") == []
    rig.later(31)
    taken = await rig.one(instance="i2")
    assert await rig.mailbox.leases.renew([lease]) == {lease.message.message_id}
    assert taken.fence > lease.fence


async def test_an_instance_takes_up_its_own_expired_lease_that_nobody_works_on(
    rig: MailboxFixture,
) -> None:
    await rig.put()
    lease = await rig.one()
    rig.later(31)
    busy = await rig.mailbox.leases.claim(
        "ann", "i1", WIDE, own={lease.message.message_id: lease.message.session_id}
    )
    assert busy.leases == ()
    (again,) = (await rig.mailbox.leases.claim("ann", "i1", WIDE, own={})).leases
    assert again.fence == lease.fence + 1


async def test_transient_failures_back_off_and_end_as_a_dead_letter(rig: MailboxFixture) -> None:
    rig.clock.stand_still()
    await rig.put()
    delays = []
    for _ in range(3):
        lease = await rig.one()
        assert (
            await rig.mailbox.leases.retry(lease, code="net", text="timeout") is MessageState.QUEUED
        )
        assert await rig.claim() == []
        assert rig.due_at is not None
        delays.append((rig.due_at - rig.clock.now_ms()) / 1000)
        rig.later(delays[-1])
    assert 1 <= delays[0] <= 3
    assert 2 <= delays[1] <= 6
    assert 4 <= delays[2] <= 12
    assert (
        await rig.mailbox.leases.retry(await rig.one(), code="net", text="timeout")
        is MessageState.DEAD
    )
    ((kind, _, _, text),) = await rig.outbox()
    assert kind == "notice"
    assert "4 attempts failed, the last one: timeout" in text
    assert [letter.error_code for letter in await rig.mailbox.failed.list()] == ["net"]


async def test_a_daemon_that_dies_of_a_message_stops_taking_it_up(rig: MailboxFixture) -> None:
    await rig.put()
    for _ in range(4):
        await rig.one()
        await rig.reboot()
    assert await rig.claim() == []
    (letter,) = await rig.mailbox.failed.list()
    assert letter.error_code == "interrupted"


@pytest.mark.parametrize("minutes,state", [(14, "leased"), (16, "dead")])
async def test_only_a_young_interrupted_turn_goes_on_by_itself(
    rig: MailboxFixture, minutes: int, state: str
) -> None:
    accepted = await rig.put()
    await rig.one()
    rig.later(minutes * 60)
    await rig.reboot()
    await rig.claim()
    assert await rig.state_of(accepted.message_id) == state


async def test_release_and_park_do_not_count_as_attempts(rig: MailboxFixture) -> None:
    await rig.put()
    for _ in range(6):
        await rig.mailbox.leases.release(await rig.one())
        question = await rig.park(await rig.one())
        await rig.mailbox.questions.answer(question.question_id, "yes", BOB)
    assert (await rig.one()).message.attempts == 1


async def test_a_dead_letter_is_requeued_at_its_old_place_with_fresh_attempts(
    rig: MailboxFixture,
) -> None:
    first = await rig.put("first")
    for _ in range(2):
        await rig.one()
        await rig.mailbox.leases.release_all("i1", culprits=None, text="boom")
    await rig.put("second")
    await rig.mailbox.failed.requeue(first.message_id, OPERATOR)
    lease = await rig.one()
    assert (lease.message.text, lease.message.attempts, lease.message.crashes) == ("first", 1, 0)


async def test_a_requeued_letter_waits_for_the_turn_that_holds_its_session(
    rig: MailboxFixture,
) -> None:
    first = await rig.put("first")
    for _ in range(2):
        await rig.one()
        await rig.mailbox.leases.release_all("i1", culprits=None, text="boom")
    await rig.put("second")
    running = await rig.one()
    await rig.mailbox.failed.requeue(first.message_id, OPERATOR)
    assert await rig.claim() == []
    await rig.finish(running)
    assert (await rig.one()).message.text == "first"


async def test_replay_is_a_new_message_that_names_the_old_one(rig: MailboxFixture) -> None:
    old = await rig.put("again, please", source="telegram", external_id="7", idempotency_key="k")
    with pytest.raises(Conflict):
        await rig.mailbox.failed.replay(old.message_id, OPERATOR)
    await rig.finish(await rig.one())
    new = await rig.mailbox.failed.replay(old.message_id, OPERATOR)
    lease = await rig.one()
    assert lease.message.message_id == new.message_id != old.message_id
    assert lease.message.replay_of == old.message_id
    assert (lease.message.text, lease.message.session_id) == ("again, please", old.session_id)
    await rig.finish(lease, "once more")
    assert [row[3] for row in await rig.outbox()] == ["done", "once more"]
