"""Deadlines are kept by time that really passes: a step of the clock neither ends nor keeps
anything."""

from __future__ import annotations

import asyncio

import pytest

from agentsup.mailbox.delivery import Relay
from agentsup.mailbox.delivery.outbox import topic_of
from agentsup.mailbox.messages.steady_clock import SETTLE_S
from agentsup.model.channel import Delivery, DeliveryOutcome
from agentsup.model.engine import Suspended
from agentsup.model.errors import Conflict
from agentsup.model.message import LaneName
from agentsup.model.principal import OPERATOR
from agentsup.model.question import Question, QuestionState
from agentsup.store import Tx
from tests.support.mailbox_fixture import MailboxFixture
from tests.support.recording_channel import RecordingChannel

pytestmark = pytest.mark.virtual

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


async def asked(context: MailboxFixture, timeout_s: float, text: str = "m") -> str:
    """A question about a message that is parked for it."""
    await context.put(text, conversation=text)
    question = await context.park(await context.one(), timeout_s=timeout_s)
    return str(question.question_id)


async def again(context: MailboxFixture, agent: str = "ann") -> None:
    """A message that waits for another attempt."""
    await context.put("again", agent=agent, conversation="again")
    await context.mailbox.leases.retry(await context.one(agent), code="net", text="x")


async def state(context: MailboxFixture, question_id: str) -> QuestionState:
    await context.mailbox.deadlines.expire()
    return (await context.mailbox.questions.get(question_id)).state


async def expiring(context: MailboxFixture, after_s: float) -> str:
    """A queued message that waits for its turn no longer than that."""
    at = context.clock.now_ms() + round(after_s * 1000)
    return str((await context.put("late", agent="ben", expires_at=at)).message_id)


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, 365 * 24 * HOUR_MS, 3_000])
async def test_a_step_ends_nothing_early_and_keeps_nothing(
    rig: MailboxFixture, step_ms: int
) -> None:
    question, message = await asked(rig, 600), await expiring(rig, 600)
    rig.clock.jump_ms(step_ms)
    answered = await asked(rig, 5, "other")
    await rig.mailbox.questions.answer(answered, "yes", OPERATOR)
    assert await state(rig, question) is QuestionState.OPEN
    assert await rig.state_of(message) == "queued"
    shown = (await rig.mailbox.questions.get(question)).deadline_at
    assert shown == rig.clock.now_ms() + 600_000, "what is shown follows the wall"
    rig.later(599)
    assert await state(rig, question) is QuestionState.OPEN
    rig.later(2)
    assert await state(rig, question) is QuestionState.EXPIRED
    assert await rig.state_of(message) == "done"
    assert await rig.sql(
        "SELECT outcome, error_code FROM messages WHERE message_id = ?", message
    ) == [("failed", "expired")]


async def test_after_a_start_a_wrong_clock_has_time_to_be_set(rig: MailboxFixture) -> None:
    question, message = await asked(rig, 600), await expiring(rig, 600)
    rig.clock.jump_ms(365 * 24 * HOUR_MS)  # as a machine whose clock has no battery
    await rig.reboot()
    assert await state(rig, question) is QuestionState.OPEN
    own = await asked(rig, 5, "own")
    rig.clock.jump_ms(-365 * 24 * HOUR_MS)
    assert await state(rig, question) is QuestionState.OPEN
    assert await state(rig, own) is QuestionState.OPEN
    rig.later(SETTLE_S + 1)
    assert await state(rig, own) is QuestionState.EXPIRED
    assert await state(rig, question) is QuestionState.OPEN
    assert await rig.state_of(message) == "queued"
    rig.later(600 - SETTLE_S)
    assert await state(rig, question) is QuestionState.EXPIRED


async def test_over_a_restart_the_wall_decides(rig: MailboxFixture) -> None:
    question = await asked(rig, 600)
    rig.later(3600)  # the daemon is off
    await rig.reboot()
    assert await state(rig, question) is QuestionState.OPEN
    rig.later(SETTLE_S + 1)
    assert await state(rig, question) is QuestionState.EXPIRED


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, -365 * 24 * HOUR_MS])
async def test_a_step_neither_shortens_nor_prolongs_a_pause(
    rig: MailboxFixture, step_ms: int
) -> None:
    """The pause before another attempt, of a message and of a delivery."""
    await again(rig)
    await paused_part(rig)

    async def pauses() -> list[int]:
        rows = await rig.sql(
            "SELECT not_before FROM messages WHERE state = 'queued' UNION ALL"
            " SELECT not_before FROM outbox WHERE state = 'pending'"
        )
        return [not_before - rig.clock.now_ms() for (not_before,) in rows]

    before = await pauses()
    assert len(before) == 2
    assert min(before) > 0
    rig.clock.jump_ms(step_ms)
    await rig.mailbox.deadlines.expire()
    assert await pauses() == before
    rig.later(60)
    await rig.one()


async def paused(context: MailboxFixture) -> int:
    """How long the one queued message waits for another attempt (ms)."""
    ((not_before,),) = await context.sql("SELECT not_before FROM messages WHERE state = 'queued'")
    return int(not_before) - context.clock.now_ms()


async def paused_part(context: MailboxFixture) -> None:
    """A part to deliver that waits for a minute."""
    await context.put("told", agent="dan", conversation="told")
    await context.finish(await context.one("dan"))
    in_a_minute = context.clock.now_ms() + 60_000
    await context.db.write(
        lambda tx: tx.execute("UPDATE outbox SET not_before = ?", (in_a_minute,)).rowcount,
        name="test",
    )


async def part_paused(context: MailboxFixture) -> int:
    ((not_before,),) = await context.sql(
        "SELECT DISTINCT not_before FROM outbox WHERE state = 'pending'"
    )
    return int(not_before) - context.clock.now_ms()


async def test_a_pause_of_before_does_not_go_with_a_clock_that_is_set(rig: MailboxFixture) -> None:
    """A machine without a battery: 30 years back at boot, right after five seconds."""
    await again(rig)
    await paused_part(rig)
    before, before_part = await paused(rig), await part_paused(rig)
    rig.clock.jump_ms(-30 * YEAR_MS)
    await rig.reboot()
    await rig.mailbox.deadlines.expire()
    rig.later(1)
    rig.clock.jump_ms(30 * YEAR_MS)
    await rig.mailbox.deadlines.expire()
    assert await paused(rig) == before - 1_000
    assert await part_paused(rig) == before_part - 1_000


async def test_a_pause_of_this_life_goes_with_the_clock_whoever_accepted_its_message(
    rig: MailboxFixture,
) -> None:
    await rig.put("again", conversation="again")
    rig.clock.jump_ms(-HOUR_MS)
    await rig.reboot()
    await rig.mailbox.leases.retry(await rig.one(), code="net", text="x")
    before = await paused(rig)
    rig.clock.jump_ms(HOUR_MS)
    await rig.mailbox.deadlines.expire()
    assert await paused(rig) == before


async def test_a_pause_of_a_week_survives_a_restart(rig: MailboxFixture) -> None:
    """A coding agent's plan ends for a week; a restart must not ask it every day."""
    await rig.put("again", conversation="again")
    week_s = 7 * 24 * 3600.0
    lease = await rig.one()
    await rig.db.write(
        lambda tx: rig.mailbox.leases.retry_tx(
            tx, lease, code="limit", text="x", unit=0.0, least_s=week_s
        ),
        name="test",
    )
    before = await paused(rig)
    assert before >= week_s * 1000
    await rig.reboot()
    rig.later(SETTLE_S + 1)
    await rig.mailbox.deadlines.expire()
    assert await paused(rig) == before - round((SETTLE_S + 1) * 1000)


async def test_a_clock_that_is_set_late_moves_nothing_by_years(rig: MailboxFixture) -> None:
    question, message = await asked(rig, 600), await expiring(rig, 600)
    await again(rig, "cid")
    await paused_part(rig)
    rig.clock.jump_ms(-30 * YEAR_MS)
    await rig.reboot()
    woken = asyncio.Event()
    rig.db.listen(topic_of("console"), woken.set)
    rig.later(SETTLE_S + 1)
    assert await state(rig, question) is QuestionState.OPEN
    assert woken.is_set()
    assert await part_paused(rig) == 0
    rig.clock.jump_ms(30 * YEAR_MS)
    assert await state(rig, question) is QuestionState.OPEN
    deadline_at = (await rig.mailbox.questions.get(question)).deadline_at
    assert deadline_at == rig.clock.now_ms() + 600_000, "no longer than from the start on"
    assert await part_paused(rig) == 0
    pauses = await rig.sql("SELECT not_before FROM messages WHERE not_before > 0")
    assert pauses == [(rig.clock.now_ms(),)]
    rig.later(601)
    assert await state(rig, question) is QuestionState.EXPIRED
    assert await rig.state_of(message) == "done"


async def test_what_a_clock_ahead_has_stored_ends_in_the_next_life(rig: MailboxFixture) -> None:
    rig.clock.jump_ms(30 * YEAR_MS)
    await rig.reboot()
    question = await asked(rig, 600)
    await again(rig, "ben")
    rig.clock.jump_ms(-30 * YEAR_MS)
    await rig.reboot()
    rig.later(SETTLE_S)
    await rig.mailbox.deadlines.expire()
    await rig.one("ben")
    rig.later(601)
    assert await state(rig, question) is QuestionState.EXPIRED


async def test_late_work_is_not_begun_before_the_clock_has_settled(rig: MailboxFixture) -> None:
    message = await expiring(rig, 600)
    in_time = await rig.put("in time", agent="ben", conversation="other")
    rig.later(3 * 3600)  # the daemon is off
    await rig.reboot()
    woken = asyncio.Event()
    rig.db.listen("agent:ben", woken.set)
    free = {LaneName.INTERACTIVE: 1}
    (lease,) = await rig.claim("ben", free=free)
    assert lease.message.message_id == in_time.message_id, "others are not held up by it"
    await rig.finish(lease)
    rig.later(SETTLE_S - 1)
    await rig.mailbox.deadlines.expire()
    assert not await rig.claim("ben")
    assert await rig.state_of(message) == "queued"
    woken.clear()
    rig.later(2)
    await rig.mailbox.deadlines.expire()
    assert woken.is_set()
    assert await rig.state_of(message) == "done"
    assert not await rig.claim("ben")


async def test_work_that_was_late_by_a_wrong_clock_alone_is_begun(rig: MailboxFixture) -> None:
    message = await expiring(rig, 600)
    rig.clock.jump_ms(YEAR_MS)
    await rig.reboot()
    assert not await rig.claim("ben")
    rig.clock.jump_ms(-YEAR_MS)
    woken = asyncio.Event()
    rig.db.listen("agent:ben", woken.set)
    await rig.mailbox.deadlines.expire()
    assert woken.is_set()
    assert (await rig.one("ben")).message.message_id == message


async def test_a_late_answer_after_a_start_is_refused_and_can_be_repeated(
    rig: MailboxFixture,
) -> None:
    question = await asked(rig, 600)
    rig.clock.jump_ms(HOUR_MS)  # off for an hour, or a clock an hour ahead
    await rig.reboot()
    with pytest.raises(Conflict, match="answer again in a minute") as refused:
        await rig.mailbox.questions.answer(question, "yes", OPERATOR)
    assert refused.value.facts["state"] == "open"
    rig.clock.jump_ms(-HOUR_MS)
    await rig.mailbox.deadlines.expire()
    answered = await rig.mailbox.questions.answer(question, "yes", OPERATOR)
    assert answered.state is QuestionState.ANSWERED


async def test_an_answer_that_is_late_after_a_start_counts_for_nothing(rig: MailboxFixture) -> None:
    question = await asked(rig, 600)
    rig.later(3600)
    await rig.reboot()
    for _ in range(2):
        with pytest.raises(Conflict):
            await rig.mailbox.questions.answer(question, "yes", OPERATOR)
        rig.later(SETTLE_S + 1)
        await rig.mailbox.deadlines.expire()
    assert (await rig.mailbox.questions.get(question)).state is QuestionState.EXPIRED


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
async def test_what_is_stored_before_a_step_is_followed_moves_once(
    rig: MailboxFixture, step_ms: int
) -> None:
    await rig.put("again", conversation="again")
    await rig.put("off", conversation="off")
    again, off = sorted(await rig.claim(), key=lambda each: each.message.seq)
    rig.clock.jump_ms(step_ms)
    await rig.mailbox.leases.retry(again, code="net", text="x")
    await rig.db.write(
        lambda tx: rig.mailbox.leases.postpone_tx(tx, off, code="x", text="x", wait_s=30, unit=0)
    )
    at = rig.clock.now_ms() + 600_000
    alone = await rig.put("late", agent="ben", expires_at=at)
    first, second = await asyncio.gather(  # accepted by one statement
        *(rig.put(text, agent="ben", expires_at=at) for text in "ab")
    )
    later = await rig.put("later", agent="cid", not_before=at)
    assert await rig.mailbox.deadlines.next() == at - step_ms
    await rig.mailbox.deadlines.expire()
    for accepted in (alone, first, second):
        assert (await rig.mailbox.messages.get(accepted.message_id)).expires_at == at
        assert await rig.state_of(accepted.message_id) == "queued"
    assert (await rig.mailbox.messages.get(later.message_id)).not_before == at
    pauses = [
        (await rig.mailbox.messages.get(each.message.message_id)).not_before - rig.clock.now_ms()
        for each in (again, off)
    ]
    assert 1_000 <= pauses[0] <= 3_000
    assert pauses[1] == 30_000


async def test_a_pause_runs_out_by_time_that_passes_also_before_a_step_is_followed(
    rig: MailboxFixture,
) -> None:
    await again(rig)
    rig.clock.jump_ms(HOUR_MS)
    assert not await rig.claim()
    assert rig.due_at is not None
    rig.clock.jump_ms(-2 * HOUR_MS)
    rig.later(3)
    await rig.one()


async def test_a_pause_of_a_parked_message_goes_with_the_clock(rig: MailboxFixture) -> None:
    await rig.put("again", conversation="again")
    lease = await rig.one()
    question = await rig.db.write(
        lambda tx: rig.mailbox.questions.ask_tx(tx, lease.message, Suspended(b"", "q?", ("yes",)))
    )
    await rig.mailbox.leases.retry(lease, code="net", text="x")
    assert await rig.state_of(lease.message.message_id) == "parked"
    rig.clock.jump_ms(-HOUR_MS)
    await rig.mailbox.deadlines.expire()
    await rig.mailbox.questions.answer(question.question_id, "yes", OPERATOR)
    rig.later(3)
    await rig.one()


async def test_the_clock_is_right_for_all_that_the_same_commit_writes(rig: MailboxFixture) -> None:
    await rig.put("m", conversation="m")
    lease = await rig.one()
    rig.clock.jump_ms(HOUR_MS)

    def ask(tx: Tx) -> Question:
        suspended = Suspended(b"", "q?", ("yes",), timeout_s=600, kind="approval")
        return rig.mailbox.questions.ask_tx(tx, lease.message, suspended)

    commits = rig.db.stats.commits
    _, question = await asyncio.gather(
        rig.db.write(rig.mailbox.deadlines.expire_tx), rig.db.write(ask)
    )
    assert rig.db.stats.commits == commits + 1
    assert question.deadline_at == rig.clock.now_ms() + 600_000
    assert await state(rig, question.question_id) is QuestionState.OPEN


async def test_a_step_whose_commit_fails_is_followed_by_the_next(rig: MailboxFixture) -> None:
    question = await asked(rig, 600)
    rig.clock.jump_ms(HOUR_MS)

    def broken(tx: Tx) -> None:
        rig.mailbox.deadlines.expire_tx(tx)
        raise Conflict("no")

    with pytest.raises(Conflict):
        await rig.db.write(broken)
    assert await state(rig, question) is QuestionState.OPEN
    shown = (await rig.mailbox.questions.get(question)).deadline_at
    assert shown == rig.clock.now_ms() + 600_000


async def test_a_step_after_a_start_that_is_not_stored_leaves_earlier_deadlines_alone(
    rig: MailboxFixture,
) -> None:
    question = await asked(rig, 600)
    rig.later(3600)
    await rig.reboot()
    rig.later(SETTLE_S + 1)

    def broken(tx: Tx) -> None:
        assert rig.mailbox.deadlines.expire_tx(tx).question_ids
        raise Conflict("no")

    with pytest.raises(Conflict):
        await rig.db.write(broken)
    assert rig.mailbox.context.steady.can_settle
    assert await state(rig, question) is QuestionState.EXPIRED


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
async def test_a_part_is_sent_again_after_its_pause_over_a_step(
    rig: MailboxFixture, step_ms: int
) -> None:
    channel = RecordingChannel("console")
    channel.plan(Delivery(DeliveryOutcome.RETRY, "flood", retry_after_s=300.0))
    await rig.put()
    await rig.finish(await rig.one())
    steady = rig.mailbox.context.steady
    relay = Relay(rig.db, rig.clock, rig.entropy, {"console": channel}, boot_id="b", steady=steady)
    rig.clock.jump_ms(step_ms)
    begun_s, draining = rig.clock.monotonic(), asyncio.Event()
    running = asyncio.create_task(relay.run(lambda: None, draining))
    await rig.clock.sleep(0.5)
    assert len(channel.attempts) == 1
    await rig.mailbox.deadlines.expire()
    await channel.wait_sent(1, timeout_s=3 * 3600)
    assert 300 <= rig.clock.monotonic() - begun_s < 300.1
    assert relay.stats.lost_wakes == 0
    draining.set()
    await running


async def test_work_that_waited_for_an_answer_is_not_told_as_never_started(
    rig: MailboxFixture,
) -> None:
    put = await rig.put(expires_at=rig.clock.now_ms() + 60_000)
    question = await rig.park(await rig.one(), timeout_s=600)
    rig.later(61)
    await rig.mailbox.questions.answer(question.question_id, "yes", OPERATOR)
    never = await expiring(rig, 1)
    rig.later(2)
    await rig.mailbox.deadlines.expire()
    ended = await rig.mailbox.messages.get(put.message_id)
    assert (ended.error_code, ended.error_text) == (
        "expired",
        "its time was over before it could go on",
    )
    assert "was not started" in (await rig.mailbox.messages.get(never)).error_text
    assert "before it could go on" in str((await rig.outbox("kind = 'notice'"))[0])
