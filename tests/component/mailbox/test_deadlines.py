"""Deadlines are kept by time that really passes: a step of the clock neither ends nor keeps anything."""

from pathlib import Path

import pytest

from agentsup.mailbox.steady import SETTLE_S
from agentsup.model.principal import OPERATOR
from agentsup.model.question import QuestionState
from agentsup.testing.mail import MailRig

pytestmark = pytest.mark.virtual

HOUR_MS = 3_600_000


async def asked(bench: MailRig, timeout_s: float, text: str = "m") -> str:
    """A question about a message that is parked for it."""
    await bench.put(text, conversation=text)
    question = await bench.park(await bench.one(), timeout_s=timeout_s)
    return str(question.question_id)


async def state(bench: MailRig, question_id: str) -> QuestionState:
    await bench.mailbox.expire()
    return (await bench.mailbox.question(question_id)).state


async def expiring(bench: MailRig, after_s: float) -> str:
    """A queued message that waits for its turn no longer than that."""
    at = bench.clock.now_ms() + round(after_s * 1000)
    return str((await bench.put("late", agent="ben", expires_at=at)).message_id)


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, 365 * 24 * HOUR_MS, 3_000])
async def test_a_step_ends_nothing_early_and_keeps_nothing(tmp_path: Path, step_ms: int) -> None:
    bench = await MailRig.open(tmp_path)
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
    bench = await MailRig.open(tmp_path)
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
    bench = await MailRig.open(tmp_path)
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
    bench = await MailRig.open(tmp_path)
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
