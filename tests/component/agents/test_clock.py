"""Every turn says when it is for the person: date, weekday and time zone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from agentsup.agents.persona.prompt import now
from agentsup.model.engine import EngineDone, EngineEvent, Segment
from tests.component.agents.shared import replace_engine
from tests.component.conftest import Open
from tests.support.virtual_daemon import agent

pytestmark = pytest.mark.virtual


async def answer(segment: Segment) -> AsyncIterator[EngineEvent]:
    yield EngineDone("ok", text="read")


def test_the_day_is_the_persons() -> None:
    at = int(datetime(2026, 12, 31, 23, 30, tzinfo=ZoneInfo("UTC")).timestamp() * 1000)
    assert now(at, "UTC") == "[Now: Thursday 2026-12-31 23:30 UTC]"
    assert now(at, "Europe/Zurich") == "[Now: Friday 2027-01-01 00:30 Europe/Zurich]"


async def test_a_turn_knows_the_time_of_its_person(household: Open) -> None:
    house = await household(agent("ann", user_timezone="Asia/Tokyo"))
    engine = replace_engine(house, "ann", answer)
    await house.ask("ann", "hello")
    (asked,) = engine.segments
    said = asked.prompt.removeprefix("hello\n\n[Now: ").removesuffix("]")
    assert said == now(house.clock.now_ms(), "Asia/Tokyo").removeprefix("[Now: ").removesuffix("]")
    assert "Now:" not in asked.system


async def test_a_task_knows_the_time(household: Open) -> None:
    house = await household(agent("ann", user_timezone="Asia/Tokyo"))
    engine = replace_engine(house, "ann", answer)
    await house.command("ann", "/task new look around")
    await house.until(lambda: bool(engine.segments))
    assert "Asia/Tokyo]" in engine.segments[-1].prompt
