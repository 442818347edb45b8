from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agentsup.fakes.entropy import SeededEntropy
from agentsup.mailbox.messages import segments
from agentsup.mailbox.work.journal import (
    MAX_RESULT_BYTES,
    Diverged,
    Journal,
    Replay,
    Uncertain,
    bounded,
)
from agentsup.model.engine import Resume
from agentsup.model.errors import Conflict, LeaseLost, NotFound
from agentsup.model.tool import Effect
from agentsup.store import Database, Tx
from tests.support.empty_store import lay_store
from tests.support.inline_runner import InlineRunner
from tests.support.loop_clock import LoopClock

MESSAGE = "m1"
FENCE = 3


@dataclass
class Fixture:
    database: Database
    journal: Journal

    async def begin(
        self, call_id: str = "m1:1", effect: Effect = Effect.BLIND, fence: int = FENCE, **args: Any
    ) -> Replay | None:
        return await self.journal.begin(call_id, MESSAGE, fence, "shell", effect, args)

    async def sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        return await self.database.write(lambda tx: [tuple(r) for r in tx.all(text, params)])

    async def resume(self) -> Resume | None:
        return await self.database.read(lambda reader: segments.resume_of(reader, MESSAGE))

    async def begin_segment(self, fence: int = FENCE) -> int:
        return await self.database.write(lambda tx: segments.begin_tx(tx, MESSAGE, fence, 10))

    async def suspend(self, segment_no: int, checkpoint: bytes, question_id: str) -> None:
        await self.database.write(
            lambda tx: segments.suspend_tx(tx, MESSAGE, segment_no, checkpoint, question_id, 20)
        )

    async def question(self, question_id: str, state: str, answer: str = "") -> None:
        await self.sql(
            "INSERT OR REPLACE INTO questions (question_id, agent_id, session_id, message_id,"
            " kind, text, state, answer, decision, asked_at)"
            " VALUES (?, 'a', 's', 'm1', 'q', 't', ?, ?, ?, 1)",
            question_id,
            state,
            answer,
            "text" if state == "answered" else None,
        )


def one_leased_message(tx: Tx) -> None:
    tx.execute(
        "INSERT INTO sessions (session_id, agent_id, key, created_at, updated_at)"
        " VALUES ('s', 'a', 'k', 1, 1)"
    )
    tx.execute(
        "INSERT INTO messages (message_id, agent_id, session_id, kind, lane, priority, state,"
        " parts, principal, deliver_to, root_id, accepted_at, fence)"
        " VALUES (?, 'a', 's', 'chat', 'interactive', 2, 'leased', '[]', '{}', '{}', ?, 1, ?)",
        (MESSAGE, MESSAGE, FENCE),
    )


@pytest_asyncio.fixture
async def context(tmp_path: Path) -> AsyncIterator[Fixture]:
    clock = LoopClock()
    path = tmp_path / "state.db"
    runner = InlineRunner(path, clock=clock, entropy=SeededEntropy(clock, 1), max_delay_s=0)
    database = await Database.open(lay_store(path), clock=clock, runner=runner)
    await database.write(one_leased_message)
    yield Fixture(database, Journal(database, clock))
    await database.close()


async def test_the_intent_is_stored_before_begin_returns(context: Fixture) -> None:
    assert await context.begin(cmd="ls") is None
    rows = await context.sql("SELECT call_id, name, effect, state, ended_at FROM tool_calls")
    assert rows == [("m1:1", "shell", "blind", "intent", None)]


async def test_a_finished_call_is_replayed_and_not_made_again(context: Fixture) -> None:
    await context.begin("m1:1", cmd="ls", flags=["-l"])
    await context.journal.finish("m1:1", True, "two files")
    await context.begin("m1:2", Effect.KEYED, to="b")
    await context.journal.finish("m1:2", False, "b is down", "agent_down")
    assert await context.begin("m1:1", flags=["-l"], cmd="ls") == Replay(True, "two files")
    again = await context.begin("m1:2", Effect.KEYED, to="b")
    assert again == Replay(False, "b is down", "agent_down")


async def test_read_only_calls_leave_no_row(context: Fixture) -> None:
    assert await context.begin(effect=Effect.READ, q="x") is None
    assert await context.journal.finish("m1:1", True, "found") == "found"
    assert await context.begin(effect=Effect.READ, q="x") is None
    assert await context.sql("SELECT * FROM tool_calls") == []


@pytest.mark.parametrize("effect", [Effect.IDEMPOTENT, Effect.KEYED])
async def test_an_unrecorded_call_that_may_be_repeated_runs_again(
    context: Fixture, effect: Effect
) -> None:
    await context.begin(effect=effect, n=1)
    assert await context.begin(effect=effect, n=1) is None
    await context.journal.finish("m1:1", True, "second time")
    assert await context.begin(effect=effect, n=1) == Replay(True, "second time")


async def test_an_unrecorded_blind_call_is_never_made_again_by_itself(context: Fixture) -> None:
    await context.begin(cmd="rm")
    for _ in range(2):
        with pytest.raises(Uncertain, match="shell") as caught:
            await context.begin(cmd="rm")
        assert caught.value.facts["call_id"] == "m1:1"
    assert await context.sql("SELECT state FROM tool_calls") == [("unknown",)]


async def test_uncertainty_is_told_before_divergence(context: Fixture) -> None:
    await context.begin(cmd="rm")
    with pytest.raises(Uncertain):
        await context.begin(cmd="something else")


async def test_another_call_under_the_same_id_is_refused(context: Fixture) -> None:
    await context.begin(cmd="ls")
    await context.journal.finish("m1:1", True, "files")
    with pytest.raises(Diverged, match="m1:1"):
        await context.begin(cmd="rm")
    with pytest.raises(Conflict):
        await context.journal.begin("m1:1", MESSAGE, FENCE, "mail", Effect.BLIND, {"cmd": "ls"})


@pytest.mark.parametrize("change", ["state = 'cancelled'", "fence = 4", "state = 'queued'"])
async def test_no_effect_begins_once_the_lease_is_gone(context: Fixture, change: str) -> None:
    await context.sql(f"UPDATE messages SET {change} WHERE message_id = 'm1'")
    with pytest.raises(LeaseLost):
        await context.begin(cmd="ls")
    with pytest.raises(LeaseLost):
        await context.begin_segment()
    assert await context.sql("SELECT * FROM tool_calls") == []


async def test_what_happened_is_recorded_also_after_the_lease_is_gone(context: Fixture) -> None:
    await context.begin(cmd="ls")
    await context.sql("UPDATE messages SET state = 'cancelled' WHERE message_id = 'm1'")
    await context.journal.finish("m1:1", True, "done")
    assert await context.sql("SELECT state, result FROM tool_calls") == [("done", "done")]


async def test_the_first_recorded_outcome_stands(context: Fixture) -> None:
    await context.begin(cmd="ls")
    await context.journal.finish("m1:1", True, "first")
    await context.journal.finish("m1:1", False, "second", "late")
    assert await context.begin(cmd="ls") == Replay(True, "first")


async def test_a_long_result_is_shortened_alike_now_and_at_replay(context: Fixture) -> None:
    await context.begin(cmd="cat")
    kept = await context.journal.finish("m1:1", True, "ä" * MAX_RESULT_BYTES)
    assert len(kept.encode()) <= MAX_RESULT_BYTES
    assert kept.endswith(
        f"[shortened: the first {MAX_RESULT_BYTES} of {2 * MAX_RESULT_BYTES} bytes were kept]"
    )
    assert await context.begin(cmd="cat") == Replay(True, kept)


async def test_output_that_is_no_valid_text_can_be_stored(context: Fixture) -> None:
    await context.begin(cmd="cat")
    assert await context.journal.finish("m1:1", True, "half \ud83d pair") == "half ? pair"


def test_bounds_never_cut_a_character_or_touch_what_fits() -> None:
    assert bounded("x" * 100, 100) == "x" * 100
    for limit in range(80, 100):
        cut = bounded("€" * 100, limit)
        assert len(cut.encode()) <= limit
        assert "€\n[shortened" in cut
        assert "\ufffd" not in cut


@pytest.mark.parametrize(
    "resolution, ok, says",
    [("done", True, "confirmed that this was carried out"), ("skipped", False, "leave it out")],
)
async def test_a_person_settles_an_uncertain_call(
    context: Fixture, resolution: Any, ok: bool, says: str
) -> None:
    await context.begin(cmd="rm")
    assert [call.call_id for call in await context.journal.uncertain(MESSAGE)] == ["m1:1"]
    await context.journal.resolve("m1:1", resolution)
    replay = await context.begin(cmd="rm")
    assert replay is not None
    assert replay.ok is ok
    assert says in replay.text
    assert await context.journal.uncertain(MESSAGE) == []
    with pytest.raises(Conflict, match="nothing to decide"):
        await context.journal.resolve("m1:1", "again")


async def test_again_lets_a_blind_call_run_once_more(context: Fixture) -> None:
    await context.begin(cmd="rm")
    await context.journal.resolve("m1:1", "again")
    assert await context.journal.uncertain(MESSAGE) == []
    assert await context.begin(cmd="rm") is None
    with pytest.raises(Uncertain):
        await context.begin(cmd="rm")


async def test_only_blind_calls_are_uncertain_and_a_recorded_one_is_not(context: Fixture) -> None:
    await context.begin("m1:1", Effect.IDEMPOTENT)
    await context.begin("m1:2", Effect.BLIND)
    await context.journal.finish("m1:2", False, "failed", "x")
    assert await context.journal.uncertain(MESSAGE) == []
    assert [call.state for call in await context.journal.calls(MESSAGE)] == ["intent", "failed"]


async def test_the_answer_about_an_uncertain_call_comes_with_it(context: Fixture) -> None:
    await context.begin(cmd="rm")
    await context.database.write(lambda tx: context.journal.ask_about_tx(tx, "m1:1", "q1"))
    await context.question("q1", "open")
    (call,) = await context.journal.uncertain(MESSAGE)
    assert (call.question_id, call.answer) == ("q1", None)
    await context.question("q1", "answered", "it happened")
    (call,) = await context.journal.uncertain(MESSAGE)
    assert call.answer == "it happened"
    await context.question("q1", "expired")
    (call,) = await context.journal.uncertain(MESSAGE)
    assert call.answer == ""


async def test_unknown_and_settled_calls_cannot_be_asked_about(context: Fixture) -> None:
    await context.begin(cmd="ls")
    await context.journal.finish("m1:1", True, "ok")
    with pytest.raises(Conflict):
        await context.database.write(lambda tx: context.journal.ask_about_tx(tx, "m1:1", "q"))
    with pytest.raises(NotFound):
        await context.journal.resolve("m1:9", "done")


async def test_segments_count_up_and_a_running_one_is_lost_by_its_successor(
    context: Fixture,
) -> None:
    assert await context.resume() is None
    assert await context.begin_segment() == 1
    assert await context.resume() == Resume()
    assert await context.begin_segment() == 2
    await context.database.write(lambda tx: segments.end_tx(tx, MESSAGE, 2, 30))
    rows = await context.sql("SELECT segment_no, state, ended_at FROM segments ORDER BY 1")
    assert rows == [(1, "lost", 10), (2, "ended", 30)]
    with pytest.raises(LeaseLost, match="segment 1"):
        await context.database.write(lambda tx: segments.end_tx(tx, MESSAGE, 1, 30))


async def test_a_suspended_turn_resumes_with_its_answer_also_after_a_later_crash(
    context: Fixture,
) -> None:
    await context.begin_segment()
    await context.suspend(1, b"here", "q1")
    await context.question("q1", "answered", "yes")
    assert await context.resume() == Resume(b"here", "yes")
    assert await context.begin_segment() == 2
    # The process died in segment 2: the checkpoint of segment 1 is still the place to go on from.
    assert await context.resume() == Resume(b"here", "yes")
    await context.begin_segment()
    await context.suspend(3, b"further", "q2")
    await context.question("q2", "expired")
    assert await context.resume() == Resume(b"further", "")
    states = await context.sql("SELECT state FROM segments ORDER BY segment_no")
    assert states == [("resumed",), ("lost",), ("suspended",)]


async def test_a_segment_that_no_longer_runs_cannot_be_suspended(context: Fixture) -> None:
    await context.begin_segment()
    await context.begin_segment()
    with pytest.raises(LeaseLost, match="segment 1"):
        await context.suspend(1, b"late", "q1")
    assert await context.sql("SELECT checkpoint FROM segments WHERE segment_no = 1") == [(None,)]
