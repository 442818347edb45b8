"""Programs that tell no tokens: what they used is estimated, marked, and bounded by budgets."""

from __future__ import annotations

from typing import Any

import pytest

from agentsup.agents.budget.token_estimate import STEP_TOKENS
from agentsup.agents.memory.texts import tokens
from agentsup.model.engine import (
    EngineCaps,
    EngineDone,
    Segment,
    TextDelta,
    ToolStarted,
    Usage,
)
from agentsup.model.errors import EngineFailed
from tests.component.agents.shared import PlayedEngine, played
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual


class Program(PlayedEngine):
    """An engine that is a program, as far as its name goes."""

    name = "command"
    caps = EngineCaps(streaming=True, usage=True, may_not_report=True)


def size(segment: Segment) -> int:
    """Tokens of what an engine is asked."""
    texts = (segment.instructions, segment.prompt, *(item.text for item in segment.history))
    return tokens("".join(texts))


async def rows(house: VirtualDaemon) -> list[tuple[Any, ...]]:
    return await house.sql(
        "SELECT input_tokens, output_tokens, usd, is_estimated FROM usage ORDER BY usage_id"
    )


async def test_what_a_program_does_not_tell_is_estimated_and_marked(household: Open) -> None:
    house = await household(
        agent("ann", model="mine"), config='[prices."mine"]\ninput = 2.0\noutput = 4.0\n'
    )

    async def run(segment: Segment) -> Any:
        yield TextDelta("x" * 400)
        yield EngineDone("ok")

    program = played(house, "ann", Program(run))
    assert (await house.ask("ann", "go")).outcome == "ok"
    read = size(program.segments[0])
    price = (read * 2 + 100 * 4) / 1_000_000
    assert await rows(house) == [(read, 100, pytest.approx(price), 1)]
    assert await house.sql("SELECT sum(tokens) FROM budget_spent") == [(read + 100,)]
    told = (await house.command("ann", "/cost")).text
    assert f"Today: ≈ {read} tokens in, 100 out" in told
    assert f"{read + 100} tokens of this month are estimated" in told


async def test_each_call_reads_all_again(household: Open) -> None:
    house = await household(agent("ann"))

    async def run(segment: Segment) -> Any:
        yield ToolStarted("ls", {})
        yield EngineDone("ok", text="y" * 40)

    program = played(house, "ann", Program(run))
    await house.ask("ann", "go")
    ((read, written, usd, is_estimated),) = await rows(house)
    assert abs(read - 2 * size(program.segments[0])) <= 1
    assert (usd, is_estimated) == (None, 1)
    assert written > 0


async def test_a_budget_of_a_day_holds_for_it(household: Open) -> None:
    house = await household(agent("ann", budget={"per_day_tokens": 3_000}))

    async def run(segment: Segment) -> Any:
        yield EngineDone("ok", text="y" * 16_000)

    played(house, "ann", Program(run))
    assert (await house.ask("ann", "one")).outcome == "ok"
    refused = await house.ask("ann", "two")
    assert (refused.outcome, refused.error_code) == ("failed", "budget_exceeded")


async def test_a_program_that_talks_on_is_ended_by_its_budget(household: Open) -> None:
    house = await household(agent("ann", budget={"per_turn_tokens": 2 * STEP_TOKENS}))
    pieces = 0

    async def run(segment: Segment) -> Any:
        nonlocal pieces
        while pieces < 1_000:
            pieces += 1
            yield TextDelta("z" * 4_000)
        yield EngineDone("ok")

    played(house, "ann", Program(run))
    message = await house.ask("ann", "go")
    assert (message.outcome, message.error_code) == ("failed", "budget_exceeded")
    assert pieces < 200, "it is some pieces ahead of who listens"
    used = await house.sql("SELECT sum(input_tokens + output_tokens) FROM usage")
    assert 2 * STEP_TOKENS <= used[0][0] < 4 * STEP_TOKENS


@pytest.mark.parametrize("chars", [40, 4 * 3 * STEP_TOKENS])
async def test_what_it_tells_at_last_is_what_counts(household: Open, chars: int) -> None:
    house = await household(agent("ann"))

    async def run(segment: Segment) -> Any:
        for _ in range(4):
            yield TextDelta("z" * (chars // 4))
        yield Usage(100_000, 50_000, 0.75)
        yield EngineDone("ok")

    played(house, "ann", Program(run))
    await house.ask("ann", "go")
    found = await rows(house)
    assert sum(row[0] for row in found) == 100_000
    assert sum(row[1] for row in found) == 50_000
    assert sum(row[2] or 0 for row in found) == pytest.approx(0.75)
    assert {row[3] for row in found} == {0}, "nothing is left of the estimate"
    assert "estimated" not in (await house.command("ann", "/cost")).text


async def test_money_told_alone_leaves_the_tokens_estimated(household: Open) -> None:
    house = await household(
        agent("ann", model="mine"), config='[prices."mine"]\ninput = 2.0\noutput = 4.0\n'
    )

    async def run(segment: Segment) -> Any:
        yield TextDelta("x" * 40)
        yield Usage(usd=0.5)
        yield EngineDone("ok")

    played(house, "ann", Program(run))
    await house.ask("ann", "go")
    told, guessed = await rows(house)
    assert told == (0, 0, 0.5, 0)
    assert (guessed[1:], guessed[0] > 0) == ((10, None, 1), True), "its price is told already"


async def test_what_fails_before_a_word_counts_for_nothing_and_what_is_stopped_counts(
    household: Open,
) -> None:
    house = await household(agent("ann"))

    async def fails(segment: Segment) -> Any:
        raise EngineFailed("it did not start")
        yield

    played(house, "ann", Program(fails))
    assert (await house.ask("ann", "go")).outcome == "failed"
    assert await rows(house) == []

    async def thinks(segment: Segment) -> Any:
        yield TextDelta("well " * 8)
        await house.clock.sleep(100)
        yield EngineDone("ok")

    played(house, "ann", Program(thinks))
    message = await house.said("ann", "go")
    await house.clock.sleep(2)
    await house.command("ann", "/stop")
    assert (await house.daemon.mailbox.queue.wait_done(message, 60)).state == "cancelled"
    await house.until(lambda: _has_rows(house))
    ((_, written, _, is_estimated),) = await rows(house)
    assert (written, is_estimated) == (10, 1)


async def _has_rows(house: VirtualDaemon) -> bool:
    return bool(await rows(house))


async def test_the_offline_engine_uses_nothing(household: Open) -> None:
    house = await household(agent("ann", {"match": ".*", "steps": [{"say": "x" * 400}]}))
    await house.ask("ann", "go")
    assert await rows(house) == []
