"""Calls that wait for a person: the segment ends, and the same call is made again."""

from __future__ import annotations

from typing import Any

from agentsup.model.engine import Resume, Suspended
from agentsup.model.hook import CallSuspended, Suspend
from agentsup.model.tool import ToolResult
from agentsup.model.tool_names import wire_name
from tests.contract.engines.conftest import EngineFixture, LlmHarness, Say, Use, collect, done
from tests.support.engine_host import MemoryHost, segment
from tests.support.model_server import Call, Reply


async def add(args: dict[str, Any]) -> str:
    return str(args["a"] + args["b"])


async def test_a_call_that_waits_ends_the_segment_and_is_made_again(tooled: EngineFixture) -> None:
    """The host decides when it is made again; calls that were made stay made, in their order."""
    tooled.play(
        Use("add", {"a": 1, "b": 1}), Use("drop", {"table": "x"}), Say(("it said: $result",))
    )
    may: list[bool] = []

    async def drop(args: dict[str, Any]) -> str:
        if not may:
            raise CallSuspended("call_1", "drop", Suspend("May I?", ("yes", "no"), 60.0))
        return f"dropped {args['table']}"

    host = MemoryHost({"add": add, "drop": drop})
    resume: Resume | None = None
    for _ in range(2):
        session = await tooled.open(host)
        end = (await collect(session, segment(resume=resume)))[-1]
        await session.close()
        assert isinstance(end, Suspended)
        assert (end.text, end.options, end.timeout_s) == ("May I?", ("yes", "no"), 60.0)
        assert (end.kind, end.call_id) == ("approval", "call_1")
        resume = Resume(checkpoint=end.checkpoint, answer="yes")
    may.append(True)
    resumed = await tooled.open(host)
    events = await collect(resumed, segment(resume=resume))
    assert done(events).text.endswith("it said: dropped x")
    assert [name for name, _ in host.executed] == ["add", "drop"]
    await resumed.close()


async def test_several_waiting_calls_of_one_step_are_asked_about_one_by_one(
    llm: LlmHarness,
) -> None:
    allowed: set[str] = set()

    async def drop(args: dict[str, Any]) -> str:
        if args["table"] not in allowed:
            raise CallSuspended(f"call_{args['table']}", "drop", Suspend(f"Drop {args['table']}?"))
        return f"dropped {args['table']}"

    drops = tuple(Call("drop", {"table": name}) for name in ("x", "y"))
    question = Call("ask_user", {"text": "Why?"})
    llm._replies.append(Reply(calls=(*drops, Call("add", {"a": 1, "b": 1}), question)))
    llm.play(Say(("all done",)))
    host = MemoryHost({"drop": drop, "add": add})
    asked: list[str] = []
    resume: Resume | None = None
    for table in ("", "x", "y"):
        session = await llm.open(host)
        end = (await collect(session, segment(resume=resume)))[-1]
        await session.close()
        assert isinstance(end, Suspended), end
        asked.append(end.text)
        if table:
            allowed.add(table)
        resume = Resume(checkpoint=end.checkpoint, answer="yes")
    session = await llm.open(host)
    assert done(await collect(session, segment(resume=resume))).text == "all done"
    await session.close()
    assert asked == ["Why?", "Drop x?", "Drop y?"]
    made = [(name, args.get("table")) for name, args in host.executed]
    assert sorted(made, key=str) == [("add", None), ("drop", "x"), ("drop", "y")]


async def test_a_call_that_waited_reaches_the_host_also_when_its_tool_is_not_offered_any_more(
    tooled: EngineFixture,
) -> None:
    """Its server may be away when the answer comes: the model must read so, not that it erred."""
    name = "mcp:shop/drop"
    called = name if tooled.name == "scripted" else wire_name(name)
    tooled.play(Use(called, {"table": "x"}), Say(("it said: $result",)))

    async def drop(args: dict[str, Any]) -> str:
        raise CallSuspended("call_1", name, Suspend("May I?", ("yes", "no"), 60.0))

    session = await tooled.open(MemoryHost({name: drop}))
    end = (await collect(session, segment()))[-1]
    await session.close()
    assert isinstance(end, Suspended)
    away = AwayHost({})
    resumed = await tooled.open(away)
    events = await collect(resumed, segment(resume=Resume(end.checkpoint, "yes")))
    assert "shop is not running, nothing was done" in done(events).text
    assert away.called == [name]
    await resumed.close()


class AwayHost(MemoryHost):
    """Offers nothing, and says why."""

    def __init__(self, tools: dict[str, Any]) -> None:
        super().__init__(tools)
        self.called: list[str] = []

    async def call(self, name: str, args: dict[str, Any]) -> ToolResult:
        self.called.append(name)
        return ToolResult(False, "shop is not running, nothing was done", "mcp_unavailable")
