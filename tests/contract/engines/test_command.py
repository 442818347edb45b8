"""What the engine command keeps beyond the contract of all engines."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from agentsup.engines import NotConfigured
from agentsup.model.engine import (
    EngineDone,
    EngineNotice,
    FileOut,
    HistoryItem,
    Resume,
    Segment,
    Suspended,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from agentsup.model.message import Part
from tests.contract.engines.conftest import Ask, ProgramHarness, Say, collect, done, spoken
from tests.support.engine_host import MemoryHost, segment


def line(**event: Any) -> dict[str, Any]:
    return {"do": "raw", "text": json.dumps(event) + "\n"}


async def answered(rig: ProgramHarness, given: Segment | None = None) -> EngineDone:
    session = await rig.open(MemoryHost())
    end = done(await collect(session, given or segment()))
    await session.close()
    return end


async def test_the_envelope_holds_the_whole_message(command: ProgramHarness) -> None:
    command.spec = {"model": "m-1"}
    command.play({"do": "look", "what": "received"}, Say(("$result",)))
    given = segment(
        "the text",
        prompt="from Ada: the text",
        system="Be kind.",
        history=(HistoryItem("user", "before"), HistoryItem("assistant", "yes")),
        parts=(Part("file", path="in/a.txt", name="a.txt"),),
    )
    received = json.loads((await answered(command, given)).text)
    assert received["text"] == "the text"
    assert received["prompt"] == "from Ada: the text"
    assert received["system"] == "Be kind."
    assert [each["text"] for each in received["history"]] == ["before", "yes"]
    assert received["files"] == [{"path": "in/a.txt", "name": "a.txt"}]
    assert (received["agent"], received["model"]) == ("ada", "m-1")
    assert received["state"] is received["resume"] is None


async def test_its_state_comes_back_in_the_next_turn(command: ProgramHarness) -> None:
    command.play({"do": "say", "chunks": ["one"], "state": {"n": 1}})
    command.play({"do": "look", "what": "received"}, Say(("$result",)))
    state = (await answered(command)).engine_state
    assert json.loads((await answered(command, segment(engine_state=state))).text)["state"] == {
        "n": 1
    }


@pytest.mark.parametrize("state", [b"", b"junk", b'{"engine":"claude","v":1}'])
async def test_a_foreign_state_is_no_state(command: ProgramHarness, state: bytes) -> None:
    command.play({"do": "look", "what": "received"}, Say(("$result",)))
    assert json.loads((await answered(command, segment(engine_state=state))).text)["state"] is None


async def test_too_much_state_is_not_kept(command: ProgramHarness) -> None:
    command.play({"do": "say", "chunks": ["one"], "state": "x" * 600_000})
    assert (await answered(command)).engine_state is None


async def test_text_before_a_question_is_part_of_the_answer(command: ProgramHarness) -> None:
    command.play(line(type="text", text="I wonder. "), Ask("go on?"), Say(("Thanks.",)))
    session = await command.open(MemoryHost())
    end = (await collect(session, segment()))[-1]
    await session.close()
    assert isinstance(end, Suspended)
    again = segment(resume=Resume(checkpoint=end.checkpoint, answer="yes"))
    assert (await answered(command, again)).text == "I wonder. Thanks."


async def test_the_small_events_are_told(command: ProgramHarness) -> None:
    command.play(
        line(type="thinking", text="hm"),
        line(type="notice", text="look"),
        line(type="file", path="out/a.txt"),
        line(type="usage", input=1, output=2, usd=0.5),
        line(type="done", text="all"),
    )
    session = await command.open(MemoryHost())
    *told, end = await collect(session, segment())
    await session.close()
    assert told == [
        ThinkingDelta("hm"),
        EngineNotice("look"),
        FileOut("out/a.txt"),
        Usage(1, 2, 0.5),
    ]
    assert isinstance(end, EngineDone)
    assert end.text == "all"


@pytest.mark.parametrize("path", ["../up", "/etc/passwd", "link/x", ".", "a\x00b"])
async def test_a_file_outside_the_workspace_is_not_sent(command: ProgramHarness, path: str) -> None:
    (command.workspace / "link").symlink_to("/etc")
    command.play(line(type="file", path=path), Say(("never",)))
    end = await answered(command)
    assert end.outcome == "failed"
    assert "workspace" in end.error


@pytest.mark.parametrize(
    "event, field",
    [
        ({"type": "text"}, "text.text"),
        ({"type": "usage", "input": -1}, "usage.input"),
        ({"type": "ask", "text": "x", "who": "nobody"}, "ask.who"),
    ],
)
async def test_an_event_that_is_wrong_names_its_field(
    command: ProgramHarness, event: dict[str, Any], field: str
) -> None:
    command.play(line(**event), Say(("never",)))
    end = await answered(command)
    assert end.code == "output_unreadable"
    assert field in end.error


async def test_a_program_may_fail_for_now(command: ProgramHarness) -> None:
    command.play(line(type="fail", error="busy", permanent=False, retry_after_s=7))
    end = await answered(command)
    assert (end.outcome, end.permanent, end.retry_after_s) == ("failed", False, 7)
    assert end.error == "busy"


async def test_output_that_is_no_event_is_named_with_the_remedy(command: ProgramHarness) -> None:
    command.play({"do": "raw", "text": "Hello there\n"})
    end = await answered(command)
    assert (end.outcome, end.code) == ("failed", "output_unreadable")
    assert "Hello there" in end.error
    assert "engine_options.output" in end.error


async def test_plain_text_in_and_out(command: ProgramHarness) -> None:
    command.options = {
        "command": [sys.executable, "-S", "-c", "import sys; print(sys.stdin.read() + 'é')"],
        "input": "text",
        "output": "text",
    }
    session = await command.open(MemoryHost())
    given = segment("now", system="Be kind.", history=(HistoryItem("user", "before"),))
    events = await collect(session, given)
    await session.close()
    assert done(events).text == "Be kind.\n\nUser: before\n\nnow\né"
    assert any(isinstance(event, TextDelta) for event in events)


async def test_plain_text_that_is_not_utf8_is_mended(command: ProgramHarness) -> None:
    script = r"import sys; sys.stdout.buffer.write(b'caf\xe9 \xc3\xa9')"
    command.options = {"command": [sys.executable, "-S", "-c", script], "output": "text"}
    assert (await answered(command)).text == "caf\ufffd é"


async def test_no_output_at_all_is_no_answer(command: ProgramHarness) -> None:
    command.options = {"command": ["true"], "output": "text"}
    assert (await answered(command)).code == "empty_answer"


async def test_without_a_program_the_field_is_named(command: ProgramHarness) -> None:
    command.options = {"command": []}
    with pytest.raises(NotConfigured, match=r"engine_options\.command"):
        await command.open(MemoryHost())


async def test_thoughts_of_a_model_in_the_program_are_not_its_answer(
    command: ProgramHarness,
) -> None:
    command.options["output"] = "text"
    command.play({"do": "raw", "text": "<think>SECRET</think>Four."})
    session = await command.open(MemoryHost())
    events = await collect(session, segment())
    await session.close()
    assert done(events).text == spoken(events) == "Four."
