"""What the engine acp keeps, played against a strict agent in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentsup.engines.acp.engine import AcpEngine
from agentsup.engines.failures import ExtraMissing, NotConfigured, NotInstalled
from agentsup.engines.guard import GuardedSession, SegmentLimits, open_guarded
from agentsup.engines.process import ProcessLauncher
from agentsup.engines.programs.presets import PRESETS, Preset
from agentsup.kit.childenv import child_env
from agentsup.kit.clock import SystemClock
from agentsup.kit.proctable import members
from agentsup.model.engine import (
    EngineEvent,
    EngineNotice,
    EngineSpec,
    HistoryItem,
    Permission,
    PermissionRequest,
    Resume,
    Segment,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    Usage,
)
from agentsup.model.errors import LeaseLost
from tests.contract.engines.conftest import collect, done, spoken
from tests.support import acp_agent
from tests.support.bound import BOUND_S
from tests.support.engine_host import MemoryHost, segment

KEY = "sk-not-to-be-seen-0123456789"


class AcpFixture:
    """The engine with its agent's script, journal and surroundings."""

    def __init__(self, root: Path) -> None:
        self.script = root / "script.json"
        self.workspace = root / "agent" / "workspace"
        self.workspace.mkdir(parents=True)
        self.manager = ProcessLauncher(SystemClock())
        self.preset: Preset | None = None
        self.env: dict[str, str] = {}

    def plays(self, *turns: list[dict[str, Any]], **facts: Any) -> None:
        self.script.write_text(json.dumps({"turns": list(turns), **facts}))

    def journal(self, kind: str = "") -> list[dict[str, Any]]:
        path = self.script.with_suffix(".journal")
        lines = path.read_text().splitlines() if path.exists() else []
        notes = [json.loads(line) for line in lines]
        return [note for note in notes if not kind or note["kind"] == kind]

    def requests(self, method: str) -> list[dict[str, Any]]:
        return [note["params"] for note in self.journal("request") if note["method"] == method]

    async def open(
        self,
        host: MemoryHost | None = None,
        *,
        limits: SegmentLimits | None = None,
        spec: EngineSpec | None = None,
        **options: Any,
    ) -> GuardedSession:
        engine = AcpEngine(self.manager, self.env, self.preset)
        command = [sys.executable, "-S", acp_agent.__file__, str(self.script)]
        given = replace(
            spec or EngineSpec(engine.name),
            options={"command": command, **options},
            workspace=str(self.workspace),
            env=child_env(),
            agent="ada",
        )
        return await open_guarded(engine, given, host or MemoryHost(), limits=limits)

    async def run(
        self, given: Segment | None = None, host: MemoryHost | None = None, **more: Any
    ) -> list[EngineEvent]:
        session = await self.open(host, **more)
        try:
            return await collect(session, given or segment())
        finally:
            await session.close()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[AcpFixture]:
    made = AcpFixture(tmp_path)
    yield made
    await made.manager.close()
    pids = {note["pid"] for note in made.journal("started")}
    assert not [pid for pid in pids if members(pid)], "a group lives on"
    assert not made.journal("violation")


async def allow(request: PermissionRequest) -> Permission:
    return Permission(True)


# -- what is said --------------------------------------------------------------------------------------


async def test_text_thoughts_calls_and_usage_come_in_order(rig: AcpFixture) -> None:
    rig.plays(
        [
            {"think": "hm"},
            {"say": ["one ", "two"]},
            {"update": {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "Look around"}},
            {
                "update": {
                    "sessionUpdate": "tool_call_update",
                    "toolCallId": "c",
                    "kind": "search",
                    "status": "in_progress",
                    "rawInput": {"pattern": "x"},
                }
            },
            {
                "update": {
                    "sessionUpdate": "tool_call_update",
                    "toolCallId": "c",
                    "status": "completed",
                    "rawOutput": "three hits",
                }
            },
            {"say": "three"},
            {"usage": {"input": 11, "output": 7}},
        ]
    )
    events = await rig.run()
    assert events[:-1] == [
        ThinkingDelta("hm"),
        TextDelta("one "),
        TextDelta("two"),
        ToolStarted("search", {"pattern": "x"}),
        ToolFinished("search", ok=True, preview="three hits"),
        TextDelta("\n\nthree"),
        Usage(11, 7),
    ]
    assert (done(events).outcome, done(events).text) == ("ok", "one two\n\nthree")


async def test_updates_that_nobody_knows_cost_nothing(rig: AcpFixture) -> None:
    odd: list[dict[str, Any]] = [
        {"update": {"sessionUpdate": "future_thing", "x": 1}},
        {"update": {"sessionUpdate": "agent_message_chunk", "content": None}},
        {"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "image"}}},
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": 7, "status": []}},
        {"update": {"sessionUpdate": "plan", "entries": "none"}},
        {"update": {"sessionUpdate": "usage_update", "cost": "much"}},
        {"raw": b'{"jsonrpc":"2.0","method":"session/update"}\n'.hex()},
        {"raw": b'[1]\nnull\n{"half": \n\xff\xfe\n\n'.hex()},
        {"request": "fs/read_text_file", "params": {"path": "/etc/passwd"}},
        {"say": "$answer"},
    ]
    rig.plays(odd)
    end = done(await rig.run())
    assert end.outcome == "ok"
    assert json.loads(end.text)["error"]["code"] == -32601, "files are not offered"
    able = rig.requests("initialize")[0]["clientCapabilities"]
    assert not any(able.get("fs", {}).values())
    assert not able.get("terminal")


async def test_a_plan_is_told_once_and_money_by_turn(rig: AcpFixture) -> None:
    plan = {"sessionUpdate": "plan", "entries": [{"content": "look"}, {"content": "leap"}]}

    def cost(amount: float) -> dict[str, Any]:
        money = {"amount": amount, "currency": "USD"}
        return {"update": {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": money}}

    rig.plays(
        [{"update": plan}, {"update": plan}, cost(0.25), {"say": "a"}],
        [cost(0.75), {"say": "b"}],
        load=True,
    )
    first = await rig.run()
    assert [e for e in first if isinstance(e, EngineNotice)] == [
        EngineNotice("Plan:\n1. look\n2. leap")
    ]
    assert Usage(usd=0.25) in first
    second = await rig.run(segment(engine_state=done(first).engine_state))
    assert Usage(usd=0.5) in second


@pytest.mark.parametrize(
    "reason, outcome, code",
    [
        ("max_tokens", "failed", "limit_reached"),
        ("max_turn_requests", "failed", "turn_limit"),
        ("refusal", "failed", "content_filtered"),
        ("cancelled", "failed", "request_rejected"),
        ("tired", "failed", "request_rejected"),
    ],
)
async def test_stop_reasons_are_ends(rig: AcpFixture, reason: str, outcome: str, code: str) -> None:
    rig.plays([{"say": "so far"}, {"usage": {"input": 3, "output": 2}}, {"stop": reason}])
    events = await rig.run()
    end = done(events)
    assert Usage(3, 2) in events
    assert (end.outcome, end.code, end.text) == (outcome, code, "so far")


# -- sessions ------------------------------------------------------------------------------------------

HISTORY = (HistoryItem("user", "I am Ada"), HistoryItem("assistant", "hello Ada"))


@pytest.mark.parametrize("way", ["load", "resume"])
async def test_a_session_is_gone_on_with_by_a_later_process(rig: AcpFixture, way: str) -> None:
    rig.plays([{"say": "$prompt"}], **{way: True})
    first = done(await rig.run(segment("one", system="Be kind.")))
    assert "Be kind." in first.text
    given = segment("two", system="Be kind.", history=HISTORY, engine_state=first.engine_state)
    events = await rig.run(given)
    second = done(events)
    assert spoken(events) == second.text == "two", (
        "neither what was before nor the instructions again"
    )
    changed = replace(given, system="Be brief.", engine_state=second.engine_state)
    third = done(await rig.run(changed))
    assert "Be brief." in third.text
    assert "hello Ada" not in third.text
    assert len(rig.requests("session/new")) == 1
    assert len({note["pid"] for note in rig.journal("started")}) == 3


async def test_an_agent_without_sessions_is_told_the_transcript(rig: AcpFixture) -> None:
    rig.plays([{"say": "$prompt"}])
    first = done(await rig.run(segment("one")))
    given = segment("two", history=HISTORY, engine_state=first.engine_state)
    text = done(await rig.run(given)).text
    assert text.index("I am Ada") < text.index("hello Ada") < text.index("two")


async def test_a_session_that_is_lost_is_begun_anew_with_the_transcript(rig: AcpFixture) -> None:
    rig.plays([{"say": "$prompt"}], load=True)
    first = done(await rig.run(segment("one")))
    rig.script.with_suffix(".kept").unlink()
    given = segment("two", history=HISTORY, engine_state=first.engine_state)
    text = done(await rig.run(given)).text
    assert "hello Ada" in text
    foreign = replace(given, engine_state=b'{"v": 1, "engine": "other", "id": "s1"}')
    assert "hello Ada" in done(await rig.run(foreign)).text
    assert len(rig.requests("session/load")) == 1


async def test_a_turn_that_was_broken_off_is_told_so(rig: AcpFixture) -> None:
    rig.plays([{"say": "$prompt"}])
    assert "broken off" in done(await rig.run(segment("go", resume=Resume()))).text


def _option(category: str, current: str, *values: str) -> dict[str, Any]:
    options = [{"value": each, "name": each} for each in values]
    return {"id": category[0], "category": category, "currentValue": current, "options": options}


async def test_model_and_effort_are_set_where_the_agent_offers_them(rig: AcpFixture) -> None:
    model = _option("model", "p/small", "p/small", "p/large", "q/tiny")
    effort = _option("thought_level", "low", "low", "high")
    rig.plays([{"say": "x"}], config_options=[model, effort])
    await rig.run(spec=EngineSpec("acp", model="large", reasoning_effort="high"))
    await rig.run(spec=EngineSpec("acp", model="p/small", reasoning_effort="low"))
    asked = rig.requests("session/set_config_option")
    assert [(each["configId"], each["value"]) for each in asked] == [
        ("m", "p/large"),
        ("t", "high"),
    ]


async def test_a_model_that_the_agent_does_not_offer_is_refused(rig: AcpFixture) -> None:
    """Else the answer would come from another one, and everything would say that it did not."""
    rig.plays([{"say": "x"}], config_options=[_option("model", "small", "small", "large")])
    end = done(await rig.run(spec=EngineSpec("acp", model="unheard-of")))
    assert (end.outcome, end.code) == ("failed", NotConfigured.code)
    assert "no model 'unheard-of'; it offers small, large" in end.error
    rig.plays([{"say": "x"}])
    end = done(await rig.run(spec=EngineSpec("acp", model="large")))
    assert "does not let its model be chosen" in end.error


async def test_an_effort_that_the_agent_does_not_know_is_refused(rig: AcpFixture) -> None:
    rig.plays([{"say": "x"}])
    end = done(await rig.run(spec=EngineSpec("acp", reasoning_effort="high")))
    assert (end.outcome, end.code) == ("failed", NotConfigured.code)
    assert "does not let its reasoning_effort be chosen" in end.error
    rig.plays([{"say": "x"}], config_options=[_option("thought_level", "low", "low", "middle")])
    end = done(await rig.run(spec=EngineSpec("acp", reasoning_effort="high")))
    assert "no reasoning_effort 'high'; it offers low, middle" in end.error


@pytest.mark.parametrize("name", ["claude-acp", "goose"])
async def test_a_replaced_command_is_not_trusted_to_hear_a_variable(
    rig: AcpFixture, name: str
) -> None:
    """Another program may not know the variable by which the preset's own is told its model."""
    rig.preset = PRESETS[name]
    rig.plays([{"say": "x"}])
    end = done(await rig.run(spec=EngineSpec(name, model="large")))
    assert "does not let its model be chosen" in end.error
    rig.preset = replace(PRESETS[name], command=("acp_agent.py",))  # the same one, by its path
    rig.plays([{"say": "x"}])
    assert done(await rig.run(spec=EngineSpec(name, model="large"))).outcome == "ok"


async def test_mcp_servers_are_handed_over_where_the_agent_can_use_them(rig: AcpFixture) -> None:
    servers: dict[str, dict[str, Any]] = {
        "files": {"command": "/bin/mcp", "args": ["-x"], "env": {"A": "b"}},
        "bus": {"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": {"K": "v"}},
    }
    rig.plays([{"say": "x"}])
    events = await rig.run(spec=EngineSpec("acp", mcp_servers=servers))
    assert [e for e in events if isinstance(e, EngineNotice) and "bus" in e.text]
    rig.plays([{"say": "x"}], mcp_http=True)
    await rig.run(spec=EngineSpec("acp", mcp_servers=servers))
    first, second = (each["mcpServers"] for each in rig.requests("session/new"))
    assert [each["name"] for each in first] == ["files"]
    assert first[0]["env"] == [{"name": "A", "value": "b"}]
    assert second[1]["headers"] == [{"name": "K", "value": "v"}]


# -- leave ---------------------------------------------------------------------------------------------


def asking(rig: AcpFixture, **more: Any) -> list[dict[str, Any]]:
    call = {"kind": "edit", "title": "write it", "input": {"path": "x"}}
    return [{"ask": call | {"write": str(rig.workspace / "effect")} | more}, {"say": "$answer"}]


async def test_leave_is_asked_and_a_single_yes_is_given(rig: AcpFixture) -> None:
    rig.plays(asking(rig))
    host = MemoryHost(permit=allow)
    events = await rig.run(host=host)
    assert host.permission_requests == [
        PermissionRequest("call-1", "edit", {"path": "x"}, "write it")
    ]
    assert events[0] == ToolStarted("edit", {"path": "x"})
    assert events[1] == ToolFinished("edit", ok=True, preview="allowed")
    assert (rig.workspace / "effect").read_text() == "done\n"
    assert rig.journal("permission")[0]["outcome"]["optionId"] == "own-allow_once"


async def test_without_leave_nothing_is_done(rig: AcpFixture) -> None:
    rig.plays(asking(rig))
    assert done(await rig.run()).text == "denied"
    assert not (rig.workspace / "effect").exists()
    assert rig.journal("permission")[0]["outcome"]["optionId"] == "own-reject_once"


@pytest.mark.parametrize(
    "options, answer, chosen",
    [
        (["allow_always", "reject_once"], Permission(True), "own-reject_once"),
        (["allow_once", "reject_always"], Permission(False), "own-reject_always"),
        (["allow_once", "reject_once"], Permission(True, args={"path": "y"}), "own-reject_once"),
        (["allow_once"], Permission(False), None),
    ],
)
async def test_no_standing_leave_and_no_other_arguments(
    rig: AcpFixture, options: list[str], answer: Permission, chosen: str | None
) -> None:
    async def permit(request: PermissionRequest) -> Permission:
        return answer

    rig.plays(asking(rig, options=options))
    await rig.run(host=MemoryHost(permit=permit))
    outcome = rig.journal("permission")[0]["outcome"]
    assert outcome.get("optionId") == chosen
    assert not (rig.workspace / "effect").exists()


async def test_an_agent_that_gives_up_when_denied_says_why(rig: AcpFixture) -> None:
    async def permit(request: PermissionRequest) -> Permission:
        return Permission(False, "not on a Sunday")

    rig.plays(asking(rig, give_up=True))
    end = done(await rig.run(host=MemoryHost(permit=permit)))
    assert end.outcome == "ok"
    assert "not on a Sunday" in end.text


async def test_what_a_person_says_with_a_denial_reaches_the_model(rig: AcpFixture) -> None:
    """The protocol has no field for it, so it is a prompt of its own, once in a turn."""

    async def permit(request: PermissionRequest) -> Permission:
        return Permission(False, "denied: use staging", words="use staging")

    for give_up in (False, True):
        rig.plays(asking(rig, give_up=give_up), [*asking(rig), {"say": ["on staging then"]}])
        end = done(await rig.run(host=MemoryHost(permit=permit)))
        assert end.outcome == "ok"
        assert end.text.endswith("on staging then")
        first, second = rig.requests("session/prompt")
        assert "use staging" not in str(first)
        assert "use staging" in str(second)
        assert not (rig.workspace / "effect").exists()
        for suffix in (".journal", ".kept"):
            rig.script.with_suffix(suffix).unlink()


async def test_a_plain_denial_costs_no_second_prompt(rig: AcpFixture) -> None:
    rig.plays(asking(rig))
    await rig.run()
    assert len(rig.requests("session/prompt")) == 1


async def test_a_call_asked_for_again_and_again_is_a_loop(rig: AcpFixture) -> None:
    call = {"toolCallId": "same", "kind": "edit", "title": "w", "rawInput": {"a": 1}}
    options = [{"optionId": "y", "name": "y", "kind": "allow_once"}]
    ask = {
        "request": "session/request_permission",
        "params": {"toolCall": call, "options": options},
    }
    over = {"sessionUpdate": "tool_call_update", "toolCallId": "same", "status": "completed"}
    rig.plays([ask, {"update": over}] * 20)
    host = MemoryHost(permit=allow)
    assert done(await rig.run(host=host)).code == "loop_detected"
    assert len(host.permission_requests) <= 6


async def test_a_denied_turn_without_a_word_says_why(rig: AcpFixture) -> None:
    rig.plays(asking(rig)[:1])
    end = done(await rig.run())
    assert end.outcome == "ok"
    assert "was denied" in end.text
    rig.plays([])
    rig.script.with_suffix(".kept").unlink()
    rig.plays([{"think": "…"}])
    assert done(await rig.run()).code == "empty_answer"


async def test_a_stop_while_a_person_is_asked_ends_the_question(rig: AcpFixture) -> None:
    asked = asyncio.Event()

    async def permit(request: PermissionRequest) -> Permission:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    rig.plays(asking(rig))
    session = await rig.open(MemoryHost(permit=permit))
    running = asyncio.create_task(collect(session, segment()))
    await asked.wait()
    session.cancel()
    assert done(await running).outcome == "cancelled"
    await session.close()
    assert not (rig.workspace / "effect").exists()


async def test_a_lost_lease_while_asking_passes(rig: AcpFixture) -> None:
    async def permit(request: PermissionRequest) -> Permission:
        raise LeaseLost("another owner took it")

    rig.plays(asking(rig))
    session = await rig.open(MemoryHost(permit=permit))
    with pytest.raises(LeaseLost):
        await collect(session, segment())
    await session.close()
    assert not (rig.workspace / "effect").exists()


# -- ends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_cancelled_turn_ends_with_its_group(
    rig: AcpFixture, caplog: pytest.LogCaptureFixture, *, stubborn: bool
) -> None:
    steps: list[dict[str, Any]] = [{"grandchild": 60}, {"say": "first"}]
    steps += [{"ignore_term": True}, {"deaf": 60}] if stubborn else [{"sleep": 60}]
    rig.plays(steps)
    host = MemoryHost()
    session = await rig.open(host)
    async with aclosing(session.run(segment())) as run, asyncio.timeout(BOUND_S):
        async for event in run:
            if isinstance(event, TextDelta):
                session.cancel(within_s=BOUND_S / 2)
    assert "left behind" not in caplog.text
    (note,) = rig.journal("grandchild")
    assert not members(note["pid"]), "the grandchild is gone with its group"
    assert not host.groups
    assert bool(rig.journal("cancel")) is not stubborn
    await session.close()


async def test_what_was_used_is_told_also_when_cancelled(rig: AcpFixture) -> None:
    rig.plays([{"usage": {"input": 5, "output": 2}}, {"say": "first"}, {"sleep": 60}])
    session = await rig.open()
    events = []
    async with aclosing(session.run(segment())) as run:
        async for event in run:
            events.append(event)
            if isinstance(event, TextDelta):
                session.cancel()
    assert Usage(5, 2) in events
    await session.close()


@pytest.mark.parametrize("step", [{"exit": 42}, {"exit": 53}, {"exit": 0}, {"kill": 9}])
async def test_an_agent_that_ends_is_a_failed_turn_and_nothing_more(
    rig: AcpFixture, step: dict[str, int]
) -> None:
    rig.plays([{"stderr": 100, "text": "out of ink "}, {"say": "so"}, step])
    end = done(await rig.run())
    assert (end.outcome, end.code, end.text) == ("failed", "program_ended", "so")
    assert end.exit_code is None
    assert "out of ink" in end.error
    assert ("exit code" in end.error) or ("signal 9" in end.error)


@pytest.mark.parametrize(
    "error, code, permanent",
    [
        ({"code": -32000, "message": "Authentication required"}, "auth_failed", True),
        ({"message": "boom", "data": {"details": "no ink"}}, "server_error", False),
        ({"message": "slow down", "data": {"status": 429}}, "rate_limited", False),
        ({"code": -32602, "message": "odd"}, "request_rejected", True),
    ],
)
async def test_a_refused_prompt_has_a_type(
    rig: AcpFixture, error: dict[str, Any], code: str, *, permanent: bool
) -> None:
    rig.plays([{"error": error}])
    end = done(await rig.run())
    assert (end.outcome, end.code, end.permanent) == ("failed", code, permanent)
    assert error["message"] in end.error


_USED_UP = "You have exhausted your capacity on this model. Your quota will reset after 12h30m15s."


@pytest.mark.parametrize(
    "steps",
    [
        [{"error": {"message": _USED_UP}}],
        [{"error": {"message": "Internal error", "data": {"details": _USED_UP}}}],
        [{"say": [_USED_UP]}],
        [{"stderr": 1, "text": f"\n{_USED_UP}"}, {"exit": 1}],
    ],
)
async def test_a_plan_that_is_used_up_is_a_wait_however_the_agent_says_it(
    rig: AcpFixture, steps: list[dict[str, Any]]
) -> None:
    rig.plays(steps)
    end = done(await rig.run())
    assert (end.code, end.retry_after_s) == ("rate_limited", 45_015.0)


async def test_after_a_call_a_failure_is_not_tried_again(rig: AcpFixture) -> None:
    rig.plays([*asking(rig), {"error": {"message": "boom"}}])
    assert done(await rig.run(host=MemoryHost(permit=allow))).permanent


async def test_noise_and_long_lines_are_borne(rig: AcpFixture) -> None:
    rig.plays([{"stderr": 2_000_000}, {"long": 300_000}])
    assert len(done(await rig.run()).text) == 300_000
    rig.plays([{"raw": (b"no message\n" * 2000).hex()}, {"say": "x"}])
    end = done(await rig.run())
    assert (end.outcome, end.code) == ("failed", "output_unreadable")


async def test_a_flood_waits_for_its_reader(rig: AcpFixture) -> None:
    # More than one line may be long, which is what a pipe's reader holds at most.
    rig.plays([{"say": ["y" * 8000] * 2600}, {"grandchild": 0}])
    session = await rig.open()
    async with aclosing(session.run(segment())) as run:
        await anext(run)
        (child,) = rig.manager.children
        pipe = child._group.stdout
        assert pipe is not None
        async with asyncio.timeout(BOUND_S):
            while not pipe._is_paused:
                await SystemClock().sleep(0.01)
        assert not rig.journal("grandchild"), "the agent is not through yet"
    await session.close()


async def test_an_agent_that_never_gets_ready_is_named(rig: AcpFixture) -> None:
    rig.plays([], start_delay_s=30)
    end = done(await rig.run(start_timeout_s=0.4))
    assert (end.outcome, end.code, end.permanent) == ("failed", "never_ready", True)
    assert "start_timeout_s" in end.error


@pytest.mark.parametrize("stream", ["1", "2"])
@pytest.mark.parametrize("ending", ["", "\\n"])
async def test_what_an_agent_asks_instead_of_starting_is_quoted(
    rig: AcpFixture, stream: str, ending: str
) -> None:
    asks = f"printf 'Do you trust this folder? [y/N]{ending}' >&{stream}; exec sleep 60"
    end = done(await rig.run(start_timeout_s=2.0, command=["sh", "-c", asks]))
    assert (end.outcome, end.code, end.permanent) == ("failed", "never_ready", True)
    assert "Do you trust this folder? [y/N]" in end.error


async def test_what_an_agent_says_before_it_ends_is_quoted(rig: AcpFixture) -> None:
    says = "echo 'Please set an auth method'; exit 55"
    end = done(await rig.run(command=["sh", "-c", says]))
    assert "exit code 55" in end.error
    assert "Please set an auth method" in end.error


async def test_another_version_of_the_protocol_is_refused(rig: AcpFixture) -> None:
    rig.plays([], version=2)
    end = done(await rig.run())
    assert end.code == "output_unreadable"
    assert "version 2" in end.error


# -- surroundings --------------------------------------------------------------------------------------


async def test_what_the_agent_may_know(rig: AcpFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAM_TOKEN", KEY)
    rig.plays([{"say": "x"}])
    await rig.run(segment("the prompt"), env={"AGENT_KEY": KEY})
    (started,) = rig.journal("started")
    assert started["env"]["AGENT_KEY"] == KEY
    assert "TELEGRAM_TOKEN" not in started["env"]
    assert started["env"]["HOME"] == str(rig.workspace.parent / "engine-home" / "acp")
    assert started["cwd"] == str(rig.workspace)
    assert "the prompt" not in " ".join(started["argv"])
    assert os.environ["HOME"] != started["env"]["HOME"]


async def test_a_key_is_never_quoted(rig: AcpFixture) -> None:
    rig.plays([{"stderr": 10, "text": f"bad key {KEY} "}, {"exit": 1}])
    end = done(await rig.run(env={"AGENT_KEY": KEY}))
    assert "bad key" in end.error
    assert KEY not in repr(end)


async def test_a_preset_hands_on_its_own_variables_and_signs_in(rig: AcpFixture) -> None:
    rig.preset = PRESETS["gemini"]
    rig.env = {"GEMINI_API_KEY": KEY, "OPENAI_API_KEY": KEY, "HOME": "/nowhere"}
    rig.plays([{"say": "x"}], auth="gemini-api-key")
    assert done(await rig.run()).text == "x"
    (started,) = rig.journal("started")
    assert started["env"]["GEMINI_API_KEY"] == KEY
    assert "OPENAI_API_KEY" not in started["env"]
    rig.env = {}
    end = done(await rig.run())
    assert end.code == "auth_failed"
    assert "GEMINI_API_KEY" in end.error


async def test_a_sign_in_of_the_user_is_used_where_it_lies(rig: AcpFixture, tmp_path: Path) -> None:
    rig.preset = PRESETS["gemini"]
    home = tmp_path / "person"
    (home / ".gemini").mkdir(parents=True)
    (home / ".gemini" / "oauth_creds.json").write_text("{}")
    rig.env = {"HOME": str(home), "GOOGLE_CLOUD_PROJECT": "company"}
    rig.plays([{"say": "x"}])
    await rig.run()
    await rig.run(home="private")
    first, second = rig.journal("started")
    assert first["env"]["HOME"] != second["env"]["HOME"]
    assert second["env"]["HOME"] == str(rig.workspace.parent / "engine-home" / "gemini")


_ENDED = "IneligibleTierError: This client is no longer supported for Gemini Code Assist"


@pytest.mark.parametrize(
    "steps",
    [
        [{"error": {"code": -32603, "message": "Internal error", "data": {"details": _ENDED}}}],
        [{"stderr": 1, "text": f"\n{_ENDED}"}, {"exit": 1}],
    ],
)
async def test_a_sign_in_that_has_ended_is_told_with_the_key_that_helps(
    rig: AcpFixture, steps: list[dict[str, Any]]
) -> None:
    rig.preset = PRESETS["gemini"]
    rig.plays(steps)
    end = done(await rig.run())
    assert (end.code, end.permanent, "GEMINI_API_KEY" in end.error) == ("auth_failed", True, True)


async def test_what_is_missing_is_named(rig: AcpFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = AcpEngine(rig.manager, {})
    host = MemoryHost()
    with pytest.raises(NotConfigured, match=r"engine_options\.command"):
        await engine.open(EngineSpec("acp"), host)
    with pytest.raises(NotConfigured, match="comand"):
        await engine.open(EngineSpec("acp", options={"comand": ["x"]}), host)
    rig.plays([])
    end = done(await rig.run(command=["no-such-program-here"]))
    assert end.code == NotInstalled.code
    rig.preset = replace(PRESETS["qwen"], command=("no-such-program-here",))
    end = done(await rig.run(command=[]))
    assert "npm install -g @qwen-code/qwen-code" in end.error

    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'acp'", name="acp")

    monkeypatch.setattr("agentsup.engines.acp.engine.importlib.import_module", missing)
    with pytest.raises(ExtraMissing, match=r"pip install 'agentsup\[acp\]'"):
        await engine.open(EngineSpec("acp", options={"command": ["x"]}), host)
