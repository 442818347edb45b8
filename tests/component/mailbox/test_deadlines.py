"""Deadlines are kept by time that really passes: a step of the clock neither ends nor keeps
anything."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from agentsup.mailbox.delivery.outbox import topic_of
from agentsup.mailbox.delivery.relay import Relay
from agentsup.mailbox.lifecycle import deadlines, ending
from agentsup.mailbox.messages.steady_clock import SETTLE_S
from agentsup.mailbox.questions import asking
from agentsup.model.channel import Delivery, DeliveryOutcome
from agentsup.model.engine import Suspended
from agentsup.model.errors import Conflict
from agentsup.model.message import LaneName
from agentsup.model.principal import OPERATOR
from agentsup.model.question import Question, QuestionState
from agentsup.store.transaction import Tx
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


async def state(context: MailboxFixture, question_id: str) -> QuestionState:
    await context.mailbox.expire()
    return (await context.mailbox.question(question_id)).state


async def expiring(context: MailboxFixture, after_s: float) -> str:
    """A queued message that waits for its turn no longer than that."""
    at = context.clock.now_ms() + round(after_s * 1000)
    return str((await context.put("late", agent="ben", expires_at=at)).message_id)


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, 365 * 24 * HOUR_MS, 3_000])
async def test_a_step_ends_nothing_early_and_keeps_nothing(tmp_path: Path, step_ms: int) -> None:
    bench = await MailboxFixture.open(tmp_path)
    question, message = await asked(bench, 600), await expiring(bench, 600)
    bench.clock.jump_ms(step_ms)
    answered = await asked(bench, 5, "other")
    await bench.mailbox.answer(answered, "yes", OPERATOR)
    assert await state(bench, question) is QuestionState.OPEN
    assert await bench.state_of(message) == "queued"
    shown = (await bench.mailbox.question(question)).deadline_at
    assert shown == bench.clock.now_ms() + 600_000, "what is shown follows the wall"
    bench.later(599)
    assert await state(bench, question) is QuestionState.OPEN
    bench.later(2)
    assert await state(bench, question) is QuestionState.EXPIRED
    assert await bench.state_of(message) == "done"
    assert await bench.sql(
        "SELECT outcome, error_code FROM messages WHERE message_id = ?", message
    ) == [("failed", "expired")]
    await bench.close()


async def test_after_a_start_a_wrong_clock_has_time_to_be_set(tmp_path: Path) -> None:
    bench = await MailboxFixture.open(tmp_path)
    question, message = await asked(bench, 600), await expiring(bench, 600)
    bench.clock.jump_ms(365 * 24 * HOUR_MS)  # as a machine whose clock has no battery
    await bench.reboot()
    assert await state(bench, question) is QuestionState.OPEN
    own = await asked(bench, 5, "own")
    bench.clock.jump_ms(-365 * 24 * HOUR_MS)
    assert await state(bench, question) is QuestionState.OPEN
    assert await state(bench, own) is QuestionState.OPEN
    bench.later(SETTLE_S + 1)
    assert await state(bench, own) is QuestionState.EXPIRED
    assert await state(bench, question) is QuestionState.OPEN
    assert await bench.state_of(message) == "queued"
    bench.later(600 - SETTLE_S)
    assert await state(bench, question) is QuestionState.EXPIRED
    await bench.close()


async def test_over_a_restart_the_wall_decides(tmp_path: Path) -> None:
    bench = await MailboxFixture.open(tmp_path)
    question = await asked(bench, 600)
    bench.later(3600)  # the daemon is off
    await bench.reboot()
    assert await state(bench, question) is QuestionState.OPEN
    bench.later(SETTLE_S + 1)
    assert await state(bench, question) is QuestionState.EXPIRED
    await bench.close()


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, -365 * 24 * HOUR_MS])
async def test_a_step_neither_shortens_nor_prolongs_a_pause(tmp_path: Path, step_ms: int) -> None:
    """The pause before another attempt, of a message and of a delivery."""
    bench = await MailboxFixture.open(tmp_path)
    await bench.put("again", conversation="again")
    await bench.mailbox.retry(await bench.one(), code="net", text="x")
    await bench.put("told", conversation="told")
    await bench.finish(await bench.one())
    in_a_minute = bench.clock.now_ms() + 60_000
    await bench.db.write(
        lambda tx: tx.execute("UPDATE outbox SET not_before = ?", (in_a_minute,)).rowcount,
        name="test",
    )

    async def pauses() -> list[int]:
        rows = await bench.sql(
            "SELECT not_before FROM messages WHERE state = 'queued' UNION ALL"
            " SELECT not_before FROM outbox WHERE state = 'pending'"
        )
        return [not_before - bench.clock.now_ms() for (not_before,) in rows]

    before = await pauses()
    assert len(before) == 2
    assert min(before) > 0
    bench.clock.jump_ms(step_ms)
    await bench.mailbox.expire()
    assert await pauses() == before
    bench.later(60)
    await bench.one()
    await bench.close()


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


async def test_a_pause_of_before_does_not_go_with_a_clock_that_is_set(tmp_path: Path) -> None:
    """A machine without a battery: 30 years back at boot, right after five seconds."""
    bench = await MailboxFixture.open(tmp_path)
    await bench.put("again", conversation="again")
    await bench.mailbox.retry(await bench.one(), code="net", text="x")
    await paused_part(bench)
    before, before_part = await paused(bench), await part_paused(bench)
    bench.clock.jump_ms(-30 * YEAR_MS)
    await bench.reboot()
    await bench.mailbox.expire()
    bench.later(1)
    bench.clock.jump_ms(30 * YEAR_MS)
    await bench.mailbox.expire()
    assert await paused(bench) == before - 1_000
    assert await part_paused(bench) == before_part - 1_000
    await bench.close()


async def test_a_pause_of_this_life_goes_with_the_clock_whoever_accepted_its_message(
    tmp_path: Path,
) -> None:
    bench = await MailboxFixture.open(tmp_path)
    await bench.put("again", conversation="again")
    bench.clock.jump_ms(-HOUR_MS)
    await bench.reboot()
    await bench.mailbox.retry(await bench.one(), code="net", text="x")
    before = await paused(bench)
    bench.clock.jump_ms(HOUR_MS)
    await bench.mailbox.expire()
    assert await paused(bench) == before
    await bench.close()


async def test_a_pause_of_a_week_survives_a_restart(tmp_path: Path) -> None:
    """A coding agent's plan ends for a week; a restart must not ask it every day."""
    bench = await MailboxFixture.open(tmp_path)
    await bench.put("again", conversation="again")
    week_s = 7 * 24 * 3600.0
    lease = await bench.one()
    await bench.db.write(
        lambda tx: ending.retry_tx(
            bench.mailbox.context, tx, lease, code="limit", text="x", unit=0.0, least_s=week_s
        ),
        name="test",
    )
    before = await paused(bench)
    assert before >= week_s * 1000
    await bench.reboot()
    bench.later(SETTLE_S + 1)
    await bench.mailbox.expire()
    assert await paused(bench) == before - round((SETTLE_S + 1) * 1000)
    await bench.close()


async def test_a_clock_that_is_set_late_moves_nothing_by_years(tmp_path: Path) -> None:
    bench = await MailboxFixture.open(tmp_path)
    question, message = await asked(bench, 600), await expiring(bench, 600)
    await bench.put("again", agent="cid", conversation="again")
    await bench.mailbox.retry(await bench.one("cid"), code="net", text="x")
    await paused_part(bench)
    bench.clock.jump_ms(-30 * YEAR_MS)
    await bench.reboot()
    woken = asyncio.Event()
    bench.db.listen(topic_of("console"), woken.set)
    bench.later(SETTLE_S + 1)
    assert await state(bench, question) is QuestionState.OPEN
    assert woken.is_set()
    assert await part_paused(bench) == 0
    bench.clock.jump_ms(30 * YEAR_MS)
    assert await state(bench, question) is QuestionState.OPEN
    deadline_at = (await bench.mailbox.question(question)).deadline_at
    assert deadline_at == bench.clock.now_ms() + 600_000, "no longer than from the start on"
    assert await part_paused(bench) == 0
    pauses = await bench.sql("SELECT not_before FROM messages WHERE not_before > 0")
    assert pauses == [(bench.clock.now_ms(),)]
    bench.later(601)
    assert await state(bench, question) is QuestionState.EXPIRED
    assert await bench.state_of(message) == "done"
    await bench.close()


async def test_what_a_clock_ahead_has_stored_ends_in_the_next_life(tmp_path: Path) -> None:
    bench = await MailboxFixture.open(tmp_path)
    bench.clock.jump_ms(30 * YEAR_MS)
    await bench.reboot()
    question = await asked(bench, 600)
    await bench.put("again", agent="ben", conversation="again")
    await bench.mailbox.retry(await bench.one("ben"), code="net", text="x")
    bench.clock.jump_ms(-30 * YEAR_MS)
    await bench.reboot()
    bench.later(SETTLE_S)
    await bench.mailbox.expire()
    await bench.one("ben")
    bench.later(601)
    assert await state(bench, question) is QuestionState.EXPIRED
    await bench.close()


async def test_late_work_is_not_begun_before_the_clock_has_settled(tmp_path: Path) -> None:
    bench = await MailboxFixture.open(tmp_path)
    message = await expiring(bench, 600)
    in_time = await bench.put("in time", agent="ben", conversation="other")
    bench.later(3 * 3600)  # the daemon is off
    await bench.reboot()
    woken = asyncio.Event()
    bench.db.listen("agent:ben", woken.set)
    free = {LaneName.INTERACTIVE: 1}
    (lease,) = await bench.claim("ben", free=free)
    assert lease.message.message_id == in_time.message_id, "others are not held up by it"
    await bench.finish(lease)
    bench.later(SETTLE_S - 1)
    await bench.mailbox.expire()
    assert not await bench.claim("ben")
    assert await bench.state_of(message) == "queued"
    woken.clear()
    bench.later(2)
    await bench.mailbox.expire()
    assert woken.is_set()
    assert await bench.state_of(message) == "done"
    assert not await bench.claim("ben")
    await bench.close()


async def test_work_that_was_late_by_a_wrong_clock_alone_is_begun(tmp_path: Path) -> None:
    bench = await MailboxFixture.open(tmp_path)
    message = await expiring(bench, 600)
    bench.clock.jump_ms(YEAR_MS)
    await bench.reboot()
    assert not await bench.claim("ben")
    bench.clock.jump_ms(-YEAR_MS)
    woken = asyncio.Event()
    bench.db.listen("agent:ben", woken.set)
    await bench.mailbox.expire()
    assert woken.is_set()
    assert (await bench.one("ben")).message.message_id == message
    await bench.close()


async def test_a_late_answer_after_a_start_is_refused_and_can_be_repeated(tmp_path: Path) -> None:
    bench = await MailboxFixture.open(tmp_path)
    question = await asked(bench, 600)
    bench.clock.jump_ms(HOUR_MS)  # off for an hour, or a clock an hour ahead
    await bench.reboot()
    with pytest.raises(Conflict, match="answer again in a minute") as refused:
        await bench.mailbox.answer(question, "yes", OPERATOR)
    assert refused.value.facts["state"] == "open"
    bench.clock.jump_ms(-HOUR_MS)
    await bench.mailbox.expire()
    answered = await bench.mailbox.answer(question, "yes", OPERATOR)
    assert answered.state is QuestionState.ANSWERED
    await bench.close()


async def test_an_answer_that_is_late_after_a_start_counts_for_nothing(tmp_path: Path) -> None:
    bench = await MailboxFixture.open(tmp_path)
    question = await asked(bench, 600)
    bench.later(3600)
    await bench.reboot()
    for _ in range(2):
        with pytest.raises(Conflict):
            await bench.mailbox.answer(question, "yes", OPERATOR)
        bench.later(SETTLE_S + 1)
        await bench.mailbox.expire()
    assert (await bench.mailbox.question(question)).state is QuestionState.EXPIRED
    await bench.close()


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
async def test_what_is_stored_before_a_step_is_followed_moves_once(
    tmp_path: Path, step_ms: int
) -> None:
    bench = await MailboxFixture.open(tmp_path)
    await bench.put("again", conversation="again")
    await bench.put("off", conversation="off")
    again, off = sorted(await bench.claim(), key=lambda each: each.message.seq)
    bench.clock.jump_ms(step_ms)
    await bench.mailbox.retry(again, code="net", text="x")
    await bench.db.write(
        lambda tx: ending.postpone_tx(
            bench.mailbox.context, tx, off, code="x", text="x", wait_s=30, unit=0
        )
    )
    at = bench.clock.now_ms() + 600_000
    alone = await bench.put("late", agent="ben", expires_at=at)
    first, second = await asyncio.gather(  # accepted by one statement
        *(bench.put(text, agent="ben", expires_at=at) for text in "ab")
    )
    later = await bench.put("later", agent="cid", not_before=at)
    assert await bench.mailbox.next_deadline() == at - step_ms
    await bench.mailbox.expire()
    for accepted in (alone, first, second):
        assert (await bench.mailbox.get(accepted.message_id)).expires_at == at
        assert await bench.state_of(accepted.message_id) == "queued"
    assert (await bench.mailbox.get(later.message_id)).not_before == at
    pauses = [
        (await bench.mailbox.get(each.message.message_id)).not_before - bench.clock.now_ms()
        for each in (again, off)
    ]
    assert 1_000 <= pauses[0] <= 3_000
    assert pauses[1] == 30_000
    await bench.close()


async def test_a_pause_runs_out_by_time_that_passes_also_before_a_step_is_followed(
    tmp_path: Path,
) -> None:
    bench = await MailboxFixture.open(tmp_path)
    await bench.put("again", conversation="again")
    await bench.mailbox.retry(await bench.one(), code="net", text="x")
    bench.clock.jump_ms(HOUR_MS)
    assert not await bench.claim()
    assert bench.due_at is not None
    bench.clock.jump_ms(-2 * HOUR_MS)
    bench.later(3)
    await bench.one()
    await bench.close()


async def test_a_pause_of_a_parked_message_goes_with_the_clock(tmp_path: Path) -> None:
    bench = await MailboxFixture.open(tmp_path)
    await bench.put("again", conversation="again")
    lease = await bench.one()
    question = await bench.db.write(
        lambda tx: asking.ask_tx(
            bench.mailbox.context, tx, lease.message, Suspended(b"", "q?", ("yes",))
        )
    )
    await bench.mailbox.retry(lease, code="net", text="x")
    assert await bench.state_of(lease.message.message_id) == "parked"
    bench.clock.jump_ms(-HOUR_MS)
    await bench.mailbox.expire()
    await bench.mailbox.answer(question.question_id, "yes", OPERATOR)
    bench.later(3)
    await bench.one()
    await bench.close()


async def test_the_clock_is_right_for_all_that_the_same_commit_writes(tmp_path: Path) -> None:
    bench = await MailboxFixture.open(tmp_path)
    await bench.put("m", conversation="m")
    lease = await bench.one()
    bench.clock.jump_ms(HOUR_MS)
    desk = bench.mailbox.context

    def ask(tx: Tx) -> Question:
        suspended = Suspended(b"", "q?", ("yes",), timeout_s=600, kind="approval")
        return asking.ask_tx(desk, tx, lease.message, suspended)

    commits = bench.db.stats.commits
    _, question = await asyncio.gather(
        bench.db.write(partial(deadlines.expire_tx, desk)), bench.db.write(ask)
    )
    assert bench.db.stats.commits == commits + 1
    assert question.deadline_at == bench.clock.now_ms() + 600_000
    assert await state(bench, question.question_id) is QuestionState.OPEN
    await bench.close()


async def test_a_step_whose_commit_fails_is_followed_by_the_next(tmp_path: Path) -> None:
    bench = await MailboxFixture.open(tmp_path)
    question = await asked(bench, 600)
    bench.clock.jump_ms(HOUR_MS)

    def broken(tx: Tx) -> None:
        deadlines.expire_tx(bench.mailbox.context, tx)
        raise Conflict("no")

    with pytest.raises(Conflict):
        await bench.db.write(broken)
    assert await state(bench, question) is QuestionState.OPEN
    shown = (await bench.mailbox.question(question)).deadline_at
    assert shown == bench.clock.now_ms() + 600_000
    await bench.close()


async def test_a_step_after_a_start_that_is_not_stored_leaves_earlier_deadlines_alone(
    tmp_path: Path,
) -> None:
    bench = await MailboxFixture.open(tmp_path)
    question = await asked(bench, 600)
    bench.later(3600)
    await bench.reboot()
    bench.later(SETTLE_S + 1)

    def broken(tx: Tx) -> None:
        assert deadlines.expire_tx(bench.mailbox.context, tx).question_ids
        raise Conflict("no")

    with pytest.raises(Conflict):
        await bench.db.write(broken)
    assert bench.mailbox.context.steady.can_settle
    assert await state(bench, question) is QuestionState.EXPIRED
    await bench.close()


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
async def test_a_part_is_sent_again_after_its_pause_over_a_step(
    tmp_path: Path, step_ms: int
) -> None:
    bench = await MailboxFixture.open(tmp_path)
    channel = RecordingChannel("console")
    channel.plan(Delivery(DeliveryOutcome.RETRY, "flood", retry_after_s=300.0))
    await bench.put()
    await bench.finish(await bench.one())
    steady = bench.mailbox.context.steady
    relay = Relay(
        bench.db, bench.clock, bench.entropy, {"console": channel}, boot_id="b", steady=steady
    )
    bench.clock.jump_ms(step_ms)
    begun_s, draining = bench.clock.monotonic(), asyncio.Event()
    running = asyncio.create_task(relay.run(lambda: None, draining))
    await bench.clock.sleep(0.5)
    assert len(channel.attempts) == 1
    await bench.mailbox.expire()
    await channel.wait_sent(1, timeout_s=3 * 3600)
    assert 300 <= bench.clock.monotonic() - begun_s < 300.1
    assert relay.stats.lost_wakes == 0
    draining.set()
    await running
    await bench.close()


async def test_work_that_waited_for_an_answer_is_not_told_as_never_started(tmp_path: Path) -> None:
    bench = await MailboxFixture.open(tmp_path)
    put = await bench.put(expires_at=bench.clock.now_ms() + 60_000)
    question = await bench.park(await bench.one(), timeout_s=600)
    bench.later(61)
    await bench.mailbox.answer(question.question_id, "yes", OPERATOR)
    never = await expiring(bench, 1)
    bench.later(2)
    await bench.mailbox.expire()
    ended = await bench.mailbox.get(put.message_id)
    assert (ended.error_code, ended.error_text) == (
        "expired",
        "its time was over before it could go on",
    )
    assert "was not started" in (await bench.mailbox.get(never)).error_text
    assert "before it could go on" in str((await bench.outbox("kind = 'notice'"))[0])
    await bench.close()
