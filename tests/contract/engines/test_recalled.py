"""Memories that fit a message: they are told with it, behind what a provider has cached, and are in no
state of an engine, as other people may take part in its session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentsup.engines.acp.prompts import SavedSession, digest, prompt_of
from agentsup.model.engine import Picture, Resume, Suspended
from tests.contract.engines.conftest import (
    Ask,
    EngineFixture,
    LlmHarness,
    ProgramHarness,
    Say,
    collect,
    done,
)
from tests.support.engine_host import MemoryHost, segment

RECALLED = "Notes:\n- tea: RECALLED"


async def end_of(rig: EngineFixture, **more: Any) -> Any:
    session = await rig.open(MemoryHost())
    events = await collect(session, segment(system="You are ann.", **more))
    await session.close()
    return events[-1]


@pytest.mark.parametrize("pictures", [(), (Picture("a.jpg", b"\xff\xd8\xff"),)])
async def test_a_model_reads_memories_in_the_message_of_their_turn_alone(
    llm: LlmHarness, pictures: tuple[Picture, ...]
) -> None:
    llm.play(Say(("one",)), Say(("two",)))
    first = await end_of(llm, recalled=RECALLED, pictures=pictures)
    assert b"RECALLED" not in first.engine_state
    assert b"hi" in first.engine_state
    assert str(llm.server.asked[-1].body).count("RECALLED") == 1
    assert "RECALLED" in str(llm.server.asked[-1].messages[-1])
    await end_of(llm, engine_state=first.engine_state)
    assert "RECALLED" not in str(llm.server.asked[-1].body)


async def test_memories_are_told_again_after_a_question(llm: LlmHarness) -> None:
    llm.play(Ask("Which?", ("a", "b")), Say(("fine",)))
    asked = await end_of(llm, recalled=RECALLED)
    assert isinstance(asked, Suspended)
    assert b"RECALLED" not in asked.checkpoint
    resume = Resume(asked.checkpoint, "a")
    end = await end_of(llm, recalled=RECALLED, resume=resume)
    assert str(llm.server.asked[-1].body).count("RECALLED") == 1
    assert b"RECALLED" not in end.engine_state


async def test_a_program_is_told_the_memories_of_a_message(tmp_path: Path) -> None:
    for name in ("command", "claude"):
        rig = ProgramHarness(name, tmp_path / name)
        rig.play({"do": "look", "what": "received"}, Say(("$result",)))
        session = await rig.open(MemoryHost())
        events = await collect(session, segment(recalled=RECALLED))
        await session.close()
        await rig.close()
        assert "RECALLED" in done(events).text


def test_an_agent_is_not_given_its_instructions_again_for_other_memories() -> None:
    given = segment(system="You are ann.", recalled=RECALLED)
    assert prompt_of(given, None).endswith(RECALLED)
    known = prompt_of(given, SavedSession("s", digest("You are ann.")))
    assert "RECALLED" in known
    assert "You are ann." not in known
