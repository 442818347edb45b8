"""What every engine behind the guard keeps, whatever thinks inside it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from agentsup.engines.guard import SegmentLimits
from agentsup.model.engine import (
    EngineDone,
    HistoryItem,
    Resume,
    Suspended,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Usage,
)
from agentsup.model.errors import LeaseLost
from tests.contract.engines.conftest import (
    Ask,
    EngineFixture,
    Fail,
    Hang,
    LlmHarness,
    Say,
    Use,
    allowing_for_start,
    collect,
    done,
    spoken,
)
from tests.support.bound import BOUND_S
from tests.support.engine_host import MemoryHost, segment
from tests.support.model_server import Call, Reply


async def add(args: dict[str, Any]) -> str:
    return str(args["a"] + args["b"])


async def broken(args: dict[str, Any]) -> str:
    raise ValueError("the shelf is empty")


async def test_text_streams_in_order_and_ends_once(rig: EngineFixture) -> None:
    rig.play(Say(("one ", "two ", "three"), every_s=0.01))
    session = await rig.open(MemoryHost())
    events = await collect(session, segment())
    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    assert deltas == ["one ", "two ", "three"]
    assert done(events).outcome == "ok"
    assert done(events).text == "one two three"
    await session.close()


async def test_text_arrives_before_the_run_is_over(rig: EngineFixture) -> None:
    rig.play(Say(("first", "second"), every_s=3 * BOUND_S))
    session = await rig.open(MemoryHost())
    async with aclosing(session.run(segment())) as run, asyncio.timeout(BOUND_S):
        while not isinstance(first := await anext(run), TextDelta):
            pass
    assert first == TextDelta("first")
    await session.close()


async def test_a_tool_is_called_and_its_result_reaches_the_engine(rig: EngineFixture) -> None:
    rig.play(Use("add", {"a": 2, "b": 3}), Say(("the sum is $result",)))
    host = MemoryHost({"add": add})
    session = await rig.open(host)
    events = await collect(session, segment())
    if rig.has_host_tools:
        assert host.executed == [("add", {"a": 2, "b": 3})]
    assert ToolStarted("add", {"a": 2, "b": 3}) in events
    assert ToolFinished("add", ok=True, preview="5") in events
    assert done(events).text == "the sum is 5"
    await session.close()


async def test_the_text_of_a_failed_tool_reaches_the_engine_and_the_turn_goes_on(
    rig: EngineFixture,
) -> None:
    rig.play(Use("broken"), Say(("it said: $result",)))
    session = await rig.open(MemoryHost({"broken": broken}))
    events = await collect(session, segment())
    assert done(events).outcome == "ok"
    assert "the shelf is empty" in done(events).text
    finished = [event for event in events if isinstance(event, ToolFinished)]
    assert [event.ok for event in finished] == [False]
    await session.close()


async def test_an_unknown_tool_does_not_end_the_turn(rig: EngineFixture) -> None:
    rig.play(Use("nonsense"), Say(("never mind",)))
    session = await rig.open(MemoryHost({"add": add}))
    assert done(await collect(session, segment())).text.endswith("never mind")
    await session.close()


async def test_usage_is_told(rig: EngineFixture) -> None:
    rig.play(Use("add", {"a": 1, "b": 1}), Say(("done",)))
    session = await rig.open(MemoryHost({"add": add}))
    used = [e for e in await collect(session, segment()) if isinstance(e, Usage)]
    assert (sum(u.input_tokens for u in used), sum(u.output_tokens for u in used)) == (22, 14)
    await session.close()


async def test_usage_is_told_also_when_the_turn_fails(rig: EngineFixture) -> None:
    if rig.name == "acp":
        pytest.skip("over acp usage comes with an answer alone: see test_acp.py for failed answers")
    rig.play(Use("add", {"a": 1, "b": 1}), Fail())
    session = await rig.open(MemoryHost({"add": add}))
    events = await collect(session, segment())
    assert done(events).outcome == "failed"
    assert sum(e.input_tokens for e in events if isinstance(e, Usage)) == 11
    await session.close()


async def test_a_failure_is_permanent_and_has_a_sentence(rig: EngineFixture) -> None:
    rig.play(Fail("the ink is dry"))
    session = await rig.open(MemoryHost())
    end = done(await collect(session, segment()))
    assert end.outcome == "failed"
    assert end.permanent
    assert "the ink is dry" in end.error
    assert "sk-loopback" not in end.error
    await session.close()


async def test_a_question_suspends_and_its_answer_resumes_in_a_new_session(
    asking: EngineFixture,
) -> None:
    asking.play(
        Use("add", {"a": 1, "b": 1}),
        Ask("red or blue?", ("red", "blue")),
        Say(("you chose $result",)),
    )
    host = MemoryHost({"add": add})
    session = await asking.open(host)
    end = (await collect(session, segment()))[-1]
    await session.close()
    assert isinstance(end, Suspended)
    assert (end.text, end.options) == ("red or blue?", ("red", "blue"))
    resumed = await asking.open(host)
    again = segment(resume=Resume(checkpoint=end.checkpoint, answer="blue"))
    events = await collect(resumed, again)
    assert done(events).text.endswith("you chose blue")
    assert len(host.executed) == (1 if asking.has_host_tools else 0)
    await resumed.close()


async def test_a_damaged_checkpoint_is_a_clear_failure(asking: EngineFixture) -> None:
    asking.play(Say(("x",)))
    session = await asking.open(MemoryHost())
    events = await collect(session, segment(resume=Resume(checkpoint=b"{}", answer="yes")))
    assert done(events).code == "checkpoint_unusable"
    await session.close()


async def test_a_turn_run_again_after_a_crash_meets_its_journal(tooled: EngineFixture) -> None:
    for _ in range(2):
        tooled.play(Use("add", {"a": 2, "b": 2}), Say(("$result",)))
    host = MemoryHost({"add": add})
    first = await tooled.open(host)
    await collect(first, segment())
    await first.close()
    host.rewind()
    again = await tooled.open(host)
    events = await collect(again, segment(resume=Resume()))
    assert done(events).text == "4"
    assert len(host.executed) == 1
    await again.close()


async def test_cancelling_the_consumer_ends_the_run_at_once(rig: EngineFixture) -> None:
    rig.play(Say(("first", "second"), every_s=3 * BOUND_S))
    session = await rig.open(MemoryHost())
    heard = asyncio.Event()

    async def consume() -> None:
        async with aclosing(session.run(segment())) as run:
            async for _ in run:
                heard.set()

    task = asyncio.create_task(consume())
    await heard.wait()
    task.cancel()
    async with asyncio.timeout(BOUND_S):
        await asyncio.wait({task})
    assert task.cancelled()
    await session.close()


async def test_cancel_ends_with_the_text_so_far(rig: EngineFixture) -> None:
    rig.play(Say(("first", "second"), every_s=3 * BOUND_S))
    session = await rig.open(MemoryHost())
    events = []
    async with aclosing(session.run(segment())) as run, asyncio.timeout(BOUND_S):
        async for event in run:
            events.append(event)
            if isinstance(event, TextDelta):
                session.cancel(within_s=BOUND_S / 2)
    end = events[-1]
    assert isinstance(end, EngineDone)
    assert (end.outcome, end.code, end.text) == ("cancelled", "cancelled", "first")
    await session.close()


async def test_silence_over_the_idle_deadline_ends_the_turn(rig: EngineFixture) -> None:
    rig.play(Hang())
    session = await rig.open(MemoryHost(), SegmentLimits(idle_s=0.3))
    end = done(await collect(session, segment()))
    assert (end.outcome, end.code) == ("failed", "turn_timed_out")
    assert "0.3 s" in end.error
    await session.close()


async def test_a_long_tool_call_is_not_idleness(rig: EngineFixture) -> None:
    async def slow(args: dict[str, Any]) -> str:
        await asyncio.sleep(args["seconds"])
        return "at last"

    idle_s = await allowing_for_start(rig, 0.8)
    rig.play(Use("slow", {"seconds": idle_s * 1.5}), Say(("$result",)))
    session = await rig.open(MemoryHost({"slow": slow}), SegmentLimits(idle_s=idle_s))
    assert done(await collect(session, segment())).text == "at last"
    await session.close()


async def test_five_equal_calls_in_a_row_end_the_turn_before_the_fifth_runs(
    rig: EngineFixture,
) -> None:
    rig.play(*[Use("add", {"a": 1, "b": 1})] * 8, Say(("never",)))
    host = MemoryHost({"add": add})
    session = await rig.open(host)
    end = done(await collect(session, segment()))
    assert (end.outcome, end.code, end.permanent) == ("failed", "loop_detected", True)
    assert len(host.executed) == (4 if rig.has_host_tools else 0)
    await session.close()


async def test_a_lost_lease_inside_a_tool_reaches_the_stack(tooled: EngineFixture) -> None:
    async def lost(args: dict[str, Any]) -> str:
        raise LeaseLost("another owner has it")

    tooled.play(Use("lost"), Say(("never",)))
    session = await tooled.open(MemoryHost({"lost": lost}, fatal=(LeaseLost,)))
    with pytest.raises(LeaseLost):
        await collect(session, segment())
    await session.close()


async def test_unicode_survives(rig: EngineFixture) -> None:
    text = "añ 日本 👩‍👩‍👧 \u202eright\u202c \x1b[31m \u0000".replace("\x00", "")
    rig.play(Use("echo", {"text": text}), Say((text[:5], text[5:])))
    heard: list[str] = []

    async def echo(args: dict[str, Any]) -> str:
        heard.append(args["text"])
        return str(args["text"])

    session = await rig.open(MemoryHost({"echo": echo}))
    assert done(await collect(session, segment(text))).text == text
    assert heard == ([text] if rig.has_host_tools else [])
    await session.close()


async def test_a_huge_input_is_taken(rig: EngineFixture) -> None:
    rig.play(Say(("read it",)))
    session = await rig.open(MemoryHost())
    assert done(await collect(session, segment("x" * 2_000_000))).text == "read it"
    await session.close()


async def test_many_runs_cancelled_leave_nothing_behind(rig: EngineFixture) -> None:
    for _ in range(10):
        rig.play(Say(("first", "second"), every_s=3 * BOUND_S))
        session = await rig.open(MemoryHost())
        async with aclosing(session.run(segment())) as run, asyncio.timeout(BOUND_S):
            await anext(run)
        await session.close()
    names = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("eng")]
    assert names == []


# -- what only a model has ------------------------------------------------------------------------


async def test_engine_state_carries_tool_results_to_the_next_turn(llm: LlmHarness) -> None:
    llm.play(Use("add", {"a": 20, "b": 22}), Say(("the sum is 42",)))
    session = await llm.open(MemoryHost({"add": add}))
    state = done(await collect(session, segment("add them", system="Be brief."))).engine_state
    await session.close()
    assert state is not None
    assert b"Be brief" not in state
    llm.play(Say(("42, as I said",)))
    session = await llm.open(MemoryHost({"add": add}))
    ignored = (HistoryItem("user", "from the transcript"),)
    events = await collect(session, segment("again?", engine_state=state, history=ignored))
    assert done(events).text == "42, as I said"
    seen = str(llm.server.asked[-1].body)
    assert all(word in seen for word in ("add them", "the sum is 42", "again?", "'42'"))
    assert "from the transcript" not in seen
    await session.close()


@pytest.mark.parametrize(
    "state", [None, b"", b"junk", b'{"engine":"other"}', b'{"engine":"llm","v":1,"messages":[3]}']
)
async def test_without_usable_state_the_transcript_is_the_history(
    llm: LlmHarness, state: bytes | None
) -> None:
    llm.play(Say(("yes",)))
    session = await llm.open(MemoryHost())
    history = (
        HistoryItem("user", "my name is Ada"),
        HistoryItem("assistant", "hello Ada"),
        HistoryItem("note", "the file arrived"),
    )
    given = segment("who am I?", system="You are kind.", history=history, engine_state=state)
    assert done(await collect(session, given)).text == "yes"
    seen = str(llm.server.asked[-1].body)
    for text in ("my name is Ada", "hello Ada", "the file arrived", "who am I?", "You are kind."):
        assert text in seen
    await session.close()


async def test_the_server_notices_a_cancelled_stream(llm: LlmHarness) -> None:
    llm.play(Say(("first", "second"), every_s=3 * BOUND_S))
    session = await llm.open(MemoryHost())
    async with aclosing(session.run(segment())) as run, asyncio.timeout(BOUND_S):
        while not isinstance(await anext(run), TextDelta):
            pass
    async with asyncio.timeout(BOUND_S):
        await llm.server.wait_disconnects(1)
    await session.close()


async def test_texts_of_two_steps_are_set_apart(llm: LlmHarness) -> None:
    llm._replies.append(Reply("Let me add.", calls=(Call("add", {"a": 1, "b": 2}),)))
    llm.play(Say(("It is ", "3.")))
    session = await llm.open(MemoryHost({"add": add}))
    events = await collect(session, segment())
    assert done(events).text == "Let me add.\n\nIt is 3." == spoken(events)
    await session.close()


async def test_nothing_after_tools_is_asked_for_once_more_then_fails(llm: LlmHarness) -> None:
    llm.play(Use("add", {"a": 1, "b": 2}), Say(()), Say(("here it is",)))
    session = await llm.open(MemoryHost({"add": add}))
    assert done(await collect(session, segment())).text == "here it is"
    llm.play(Use("add", {"a": 1, "b": 2}), Say(()), Say(()))
    end = done(await collect(session, segment()))
    assert (end.outcome, end.code) == ("failed", "empty_after_tool_use")
    llm.play(Say(()), Say(()))
    assert done(await collect(session, segment())).code == "empty_answer"
    await session.close()


async def test_text_before_a_question_is_part_of_the_answer(llm: LlmHarness) -> None:
    llm._replies.append(Reply("I wonder.", calls=(Call("ask_user", {"text": "go on?"}),)))
    session = await llm.open(MemoryHost())
    end = (await collect(session, segment()))[-1]
    assert isinstance(end, Suspended)
    llm.play(Say(("Thanks.",)))
    again = segment(resume=Resume(checkpoint=end.checkpoint, answer="yes"))
    assert done(await collect(session, again)).text == "I wonder.\n\nThanks."
    await session.close()


async def test_a_second_question_in_one_step_is_answered_with_wait(llm: LlmHarness) -> None:
    both = (Call("ask_user", {"text": "one?"}), Call("ask_user", {"text": "two?"}))
    llm._replies.append(Reply(calls=both))
    session = await llm.open(MemoryHost())
    end = (await collect(session, segment()))[-1]
    assert isinstance(end, Suspended)
    assert end.text == "one?"
    llm.play(Say(("fine",)))
    again = segment(resume=Resume(checkpoint=end.checkpoint, answer=None))
    assert done(await collect(session, again)).text == "fine"
    seen = str(llm.server.asked[-1].body)
    assert "no answer was given" in seen
    assert "Only one question" in seen
    await session.close()


async def test_standing_instructions_go_along_when_resumed(llm: LlmHarness) -> None:
    llm.play(Ask("sure?"), Say(("ok",)))
    session = await llm.open(MemoryHost())
    end = (await collect(session, segment(system="SYS-1")))[-1]
    assert isinstance(end, Suspended)
    resume = Resume(checkpoint=end.checkpoint, answer="yes")
    await collect(session, segment(system="SYS-2", resume=resume))
    seen = str(llm.server.asked[-1].body)
    assert "SYS-2" in seen
    assert "SYS-1" not in seen
    await session.close()


async def test_state_keeps_whole_recent_turns_within_its_bound(llm: LlmHarness) -> None:
    state: bytes | None = None
    sizes = []
    for number in range(8):
        llm.play(Use("add", {"a": number, "b": 0}), Say((f"answer {number}",)))
        session = await llm.open(MemoryHost({"add": add}))
        given = segment(f"turn {number} " + "x" * 100_000, engine_state=state)
        state = done(await collect(session, given)).engine_state
        assert state is not None
        sizes.append(len(state))
        await session.close()
    assert max(sizes) <= 512 * 1024 + 100
    assert state is not None
    assert b"turn 7 " in state
    assert b"turn 0 " not in state
    llm.play(Say(("x",)))
    session = await llm.open(MemoryHost())
    huge = segment("y" * 1_000_000, engine_state=state)
    assert done(await collect(session, huge)).engine_state is None
    await session.close()


async def test_an_engine_that_used_a_tool_and_said_nothing_is_asked_once_more(
    rig: EngineFixture,
) -> None:
    used, silence, answer = Use("add", {"a": 2, "b": 3}), Say(("",)), Say(("five",))
    host = MemoryHost({"add": add})
    does_it_itself = rig.name.startswith("llm")
    rig.play(used, silence, *([answer] if does_it_itself else []))
    session = await rig.open(host)
    end = done(await collect(session, segment()))
    await session.close()
    if not does_it_itself:
        assert not end.text.strip()
        assert end.outcome == "ok" or end.code == "empty_after_tool_use"
        assert rig.has_host_tools or rig.name == "command" or end.engine_state is not None
        rig.play(answer)
        session = await rig.open(host)
        more = replace(segment("say it now"), engine_state=end.engine_state, nudge="hint")
        end = done(await collect(session, more))
        await session.close()
    assert (end.outcome, end.text) == ("ok", "five")


async def test_the_last_request_of_a_turn_is_answered_without_tools(rig: EngineFixture) -> None:
    rig.play(Say(("that is all",)))
    host = MemoryHost({"add": add})
    session = await rig.open(host)
    end = done(await collect(session, replace(segment("sum up"), nudge="wrap_up")))
    assert (end.outcome, end.text) == ("ok", "that is all")
    if isinstance(rig, LlmHarness):
        offered = rig.server.asked[-1].body.get("tools", [])
        choice = rig.server.asked[-1].body.get("tool_choice")
        assert not offered or choice in ("none", {"type": "none"}), (offered, choice)
    await session.close()
