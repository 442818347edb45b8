"""Calls in the whole daemon: ceilings, approval with suspension, stored results, a CLI's own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentsup.agents.tools import exec_tool, file_tools, web_tool
from agentsup.agents.turn import run
from agentsup.agents.turn.engine_host import TurnHost
from agentsup.engines.guard import guard
from agentsup.engines.registry import EngineRegistry
from agentsup.model.engine import (
    EngineCaps,
    EngineDone,
    EngineSpec,
    Permission,
    PermissionRequest,
    Segment,
    ToolFinished,
)
from agentsup.model.errors import Conflict, LeaseLost
from agentsup.model.hook import (
    Allow,
    CallFacts,
    ChangeHook,
    Deny,
    GateHook,
    Phase,
    Suspend,
    Verdict,
)
from agentsup.model.principal import OPERATOR
from agentsup.model.tool import Effect, Safety, ToolResult
from tests.component.agents.shared import (
    SAY,
    PlayedEngine,
    give_append,
    log_of,
    open_question,
    played,
    rule,
    use,
)
from tests.component.conftest import Open
from tests.support.mode_approver import ModeApprover
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual


APPEND = use("append", text="one")


@dataclass
class Asking:
    """An approver that asks about what is dangerous; ``edit`` replaces the arguments on a yes."""

    edit: dict[str, Any] | None = None
    asked: list[str] = field(default_factory=list)
    waited: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def decide(self, call: CallFacts) -> Verdict:
        if call.safety is not Safety.DANGEROUS:
            return Allow()
        if call.answer is None:
            self.asked.append(call.call_id)
            return Suspend(f"May I {call.name}?", ("yes", "no"), timeout_s=600)
        return Allow()

    async def wait(self, call: CallFacts, ask: Suspend) -> Allow | Deny:
        self.asked.append(call.call_id)
        self.waited.set()
        await self.go_on.wait()
        return Allow(self.edit)


@pytest.fixture(autouse=True)
def append_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    give_append(monkeypatch)


async def asked(house: VirtualDaemon) -> None:
    await house.until(lambda: any("May I append?" in text for text in house.texts()))


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_call_that_waits_survives_a_kill(household: Open, when: str) -> None:
    asking = Asking()
    house = await household(
        agent("ann", rule("go", APPEND, APPEND, {"say": "done"})), approver=asking
    )
    message = await house.said("ann", "go")
    await asked(house)
    assert (await house.state_of(message), log_of(house)) == ("parked", [])
    if when == "before":
        await house.restart(kill=True)
    await house.command("ann", "/answer yes")
    if when == "after":
        await house.restart(kill=True)
    # The second call has the same arguments and is another one: it is asked about for itself.
    await house.until(lambda: len(set(asking.asked)) == 2)
    assert log_of(house) == ["one"]
    await house.until(lambda: sum("May I append?" in text for text in house.texts()) >= 2)
    await house.restart(kill=True)
    await house.command("ann", "/answer yes")
    assert (await house.daemon.mailbox.queue.wait_done(message, 60)).result_text == "done"
    assert log_of(house) == ["one", "one"]
    rows = await house.sql("SELECT call_id, state FROM tool_calls ORDER BY rowid")
    assert [state for _, state in rows] == ["done", "done"]
    assert [call_id for call_id, _ in rows] == list(dict.fromkeys(asking.asked))


async def test_a_finished_call_is_not_asked_about_again_after_a_kill(household: Open) -> None:
    """Its result stands, also where it would be denied by now."""

    def ann(**more: Any) -> dict[str, Any]:
        return agent("ann", rule("go", APPEND, {"sleep": 5}, SAY), **more)

    house = await household(ann(permission_mode="bypassPermissions"))
    message = await house.said("ann", "go")
    await house.until(lambda: log_of(house) == ["one"])
    await house.clock.sleep(1)
    house.write([ann()])
    await house.restart(kill=True)
    done = await house.daemon.mailbox.queue.wait_done(message, 60)
    assert (done.result_text, log_of(house)) == ("appended one", ["one"])


async def test_an_engine_that_ignores_a_stop_gets_nothing_more(
    household: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a new call nor the result of an old one, though it is in the journal."""
    hosts: list[TurnHost] = []
    open_guarded = guard.open_guarded

    async def spy(engine: Any, spec: EngineSpec, host: TurnHost, **more: Any) -> Any:
        hosts.append(host)
        return await open_guarded(engine, spec, host, **more)

    monkeypatch.setattr(run, "open_guarded", spy)
    play_out = rule("go", APPEND, {"sleep": 800})
    house = await household(agent("ann", play_out, permission_mode="bypassPermissions"))
    message = await house.said("ann", "go")
    await house.until(lambda: log_of(house) == ["one"])
    await house.clock.sleep(1)
    await house.restart(kill=True)
    await house.until(lambda: len(hosts) == 2)
    await house.command("ann", "/stop")
    assert await house.state_of(message) == "cancelled"
    hosts[1].again(is_last=False)  # as an engine that begins anew
    for name, args in (("append", {"text": "one"}), ("fs_stat", {"path": "."})):
        with pytest.raises(LeaseLost):
            await hosts[1].call(name, args)
    with pytest.raises(LeaseLost):
        await hosts[1].permit(READ)
    assert log_of(house) == ["one"]


# -- results -----------------------------------------------------------------------------------------


async def test_a_large_result_is_stored_and_read_in_pages(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            rule("go", use("fs_read", path="big"), SAY),
            rule("on (.*) (.*)", use("result_read", ref="$1", offset=30_000), SAY),
        )
    )
    workspace = house.home.workspace("ann")
    text = "".join(f"line {number}\n" for number in range(10_000))
    (workspace / "big").write_text(text)
    shown = (await house.ask("ann", "go")).result_text
    assert len(shown) <= 20_000
    assert shown.startswith("line 0\n")
    assert shown.endswith("line 9999\n")
    reference = shown.split('ref="')[1].split('"')[0]
    other = await house.ask("ann", f"on {reference} x", conversation="elsewhere")
    assert "there is no stored result" in other.result_text


async def test_a_turn_that_has_read_its_share_sees_only_ends(household: Open) -> None:
    reads = [use("fs_read", path=f"big{number}") for number in range(6)]
    house = await household(agent("ann", rule("go", *reads, SAY)))
    for number in range(6):
        (house.home.workspace("ann") / f"big{number}").write_text("x" * 30_000)
    shown = (await house.ask("ann", "go")).result_text
    assert len(shown) <= 1_100
    assert await house.sql("SELECT count(*), sum(chars) FROM results") == [(6, 180_000)]


async def test_secrets_are_masked_before_anything_is_kept(household: Open) -> None:
    house = await household(agent("ann", rule("go", use("fs_read", path="big"), SAY)))
    house.redactor.add("hunter2hunter2")
    (house.home.workspace("ann") / "big").write_text("hunter2hunter2 " * 3_000)
    assert "hunter2" not in (await house.ask("ann", "go")).result_text
    assert await house.sql("SELECT count(*) FROM results WHERE text LIKE '%hunter2%'") == [(0,)]


async def test_personal_data_is_named_where_that_is_switched_on(household: Open) -> None:
    house = await household(
        agent("ann", rule("go", use("fs_read", path="a"), SAY)),
        config="[hooks]\npersonal_data = true\n",
    )
    (house.home.workspace("ann") / "a").write_text("jo@example.org")
    assert (await house.ask("ann", "go")).result_text == "[mail address]"
    rows = {row.name: row.is_on for row in house.daemon.calls.pipeline.hooks.rows()}
    assert rows["personal_data"]


# -- calls that an engine makes itself ---------------------------------------------------------------


class OwnEngine(PlayedEngine):
    """Asks leave for calls of its own, as a coding CLI does."""

    caps = EngineCaps()

    def __init__(
        self, *requests: PermissionRequest, told: bool = True, breaks: bool = False
    ) -> None:
        super().__init__()
        self._requests, self._told, self._breaks = requests, told, breaks
        self.answers: list[Permission] = []

    async def run(self, segment: Segment) -> Any:
        for request in self._requests:
            answer = await self.host.permit(request)
            self.answers.append(answer)
            if answer.allowed and self._told:
                yield ToolFinished(request.tool, True, "it went well")
        if self._breaks:
            yield EngineDone("failed", error="gone", code="x", permanent=False)
        else:
            yield EngineDone("ok", text="done")


READ = PermissionRequest("r1", "Read", {"file_path": "a.txt"})
EDIT = PermissionRequest("r2", "Edit", {"file_path": "a.txt"})
BASH = PermissionRequest("r3", "Bash", {"command": "ls"})


async def test_own_calls_pass_the_same_gates(household: Open) -> None:
    bob = agent("bob", tools=["fs_read", "Bash"])
    house = await household(agent("ann"), bob, approver=ModeApprover())
    engine = played(house, "ann", OwnEngine(READ, EDIT, BASH, BASH))
    await house.ask("ann", "go")
    assert [answer.allowed for answer in engine.answers] == [True, True, False, False]
    engine = played(house, "bob", OwnEngine(READ, EDIT, BASH))
    await house.ask("bob", "go")
    assert [answer.allowed for answer in engine.answers] == [True, False, False]
    assert engine.answers[1].reason == "Edit is not among the tools of bob"
    assert "dangerous" in engine.answers[2].reason


@pytest.mark.parametrize("kill", ["", "asked", "answered"])
async def test_an_own_call_is_asked_about_by_a_question_that_outlives_the_daemon(
    household: Open, monkeypatch: pytest.MonkeyPatch, kill: str
) -> None:
    house = await household(agent("ann"))
    engine = played(house, "ann", OwnEngine(BASH))
    message = await house.said("ann", "go")
    question = await open_question(house)
    assert (await house.state_of(message), question.tool) == ("leased", "exec")
    if kill == "answered":
        await house.daemon.mailbox.questions.answer(question.question_id, "once", OPERATOR)
    if kill:
        await house.die()
        engine = OwnEngine(BASH)
        monkeypatch.setattr(EngineRegistry, "get", lambda registry, name: engine)
        await house.start()
        await house.clock.sleep(5)
    if kill != "answered":
        await house.daemon.mailbox.questions.answer(question.question_id, "once", OPERATOR)
    await house.daemon.mailbox.queue.wait_done(message, 600)
    assert [answer.allowed for answer in engine.answers] == [True]
    assert await house.sql("SELECT count(*) FROM questions") == [(1,)]


async def test_approval_of_a_tool_servers_call_is_for_all_its_arguments(household: Open) -> None:
    """What only describes a command of a shell may have an effect in a tool of somebody else."""
    calls = [
        PermissionRequest(
            f"r{n}", "mcp__ops__run", {"command": "deploy", "title": title, "description": title}
        )
        for n, title in enumerate(("harmless", "other"))
    ]
    house = await household(agent("ann"))
    engine = played(house, "ann", OwnEngine(*calls))
    message = await house.said("ann", "go")
    for title, answer in (("harmless", "once"), ("other", "deny")):
        question = await open_question(house)
        assert title in question.text
        await house.daemon.mailbox.questions.answer(question.question_id, answer, OPERATOR)
    await house.daemon.mailbox.queue.wait_done(message, 600)
    assert [answer.allowed for answer in engine.answers] == [True, False]


async def test_nobody_is_asked_about_an_own_call_of_a_stopped_turn(household: Open) -> None:
    house = await household(agent("ann"))
    engine = played(house, "ann", OwnEngine(BASH))
    message = await house.said("ann", "go")
    question = await open_question(house)
    await house.command("ann", "/stop")
    assert await house.state_of(message) == "cancelled"
    with pytest.raises(Conflict, match="withdrawn"):
        await house.daemon.mailbox.questions.answer(question.question_id, "once", OPERATOR)
    assert engine.answers == []


@pytest.mark.parametrize("told", [True, False])
async def test_own_calls_are_journaled_as_blind(household: Open, told: bool) -> None:
    house = await household(agent("ann", permission_mode="bypassPermissions"))
    played(house, "ann", OwnEngine(READ, BASH, told=told))
    await house.ask("ann", "go")
    rows = await house.sql("SELECT name, effect, state, result FROM tool_calls")
    text = "it went well" if told else "(The turn ended after it; its output was not told.)"
    assert rows == [("Bash", "blind", "done", text)]


async def test_an_own_call_of_unknown_outcome_is_asked_about(household: Open) -> None:
    house = await household(agent("ann", permission_mode="bypassPermissions"))
    engine = played(house, "ann", OwnEngine(BASH, told=False, breaks=True))
    message = await house.said("ann", "go")
    await house.until(lambda: any("interrupted while doing" in text for text in house.texts()))
    engine._breaks = False
    await house.command("ann", "/answer it happened")
    await house.daemon.mailbox.queue.wait_done(message, 600)
    assert [answer.allowed for answer in engine.answers] == [True, False]
    assert "was done before the turn was interrupted" in engine.answers[1].reason


@pytest.mark.parametrize(
    "edit, reason", [("ls -l", ""), ("sudo ls", "sudo is refused")], ids=["edited", "refused"]
)
async def test_an_own_call_waits_in_place_and_its_edit_stands_under_the_policy_too(
    household: Open, edit: str, reason: str
) -> None:
    asking = Asking(edit={"command": edit})
    house = await household(agent("ann"), approver=asking)
    engine = played(house, "ann", OwnEngine(BASH))
    message = await house.said("ann", "go")
    await house.until(asking.waited.is_set)
    assert await house.state_of(message) == "leased"
    asking.go_on.set()
    await house.daemon.mailbox.queue.wait_done(message, 60)
    (answer,) = engine.answers
    assert (answer.allowed, reason in answer.reason) == (not reason, True)
    assert reason or answer.args == {"command": edit}


async def test_a_stage_that_fails_denies_and_withholds(household: Open) -> None:
    async def broken(call: CallFacts) -> Verdict:
        raise RuntimeError("boom")

    async def leaking(call: CallFacts, result: ToolResult) -> ToolResult:
        raise RuntimeError("boom")

    house = await household(agent("ann", rule("go", use("fs_stat", path="."), SAY)))
    hooks = house.daemon.calls.pipeline.hooks
    hooks.add(ChangeHook(name="leaking", phase=Phase.REDACT, about="", run=leaking))
    assert (await house.ask("ann", "go")).result_text.startswith(
        "(the result of fs_stat is withheld"
    )
    hooks.add(GateHook(name="broken", phase=Phase.POLICY, about="", run=broken))
    assert (await house.ask("ann", "go")).result_text == "the check broken failed (RuntimeError)"


def test_effects_of_the_tools() -> None:
    """What is written down here is what a turn that runs again relies on."""
    found = {tool.name: tool for tool in (*file_tools(), exec_tool(dict), web_tool())}
    assert {name: (t.effect, t.safety, t.is_optional) for name, t in found.items()} == {
        "fs_read": (Effect.READ, Safety.SAFE, False),
        "fs_list": (Effect.READ, Safety.SAFE, False),
        "fs_stat": (Effect.READ, Safety.SAFE, False),
        "fs_write": (Effect.IDEMPOTENT, Safety.MODERATE, False),
        "fs_edit": (Effect.BLIND, Safety.MODERATE, False),
        "fs_mkdir": (Effect.IDEMPOTENT, Safety.MODERATE, False),
        "fs_delete": (Effect.IDEMPOTENT, Safety.DANGEROUS, True),
        "exec": (Effect.BLIND, Safety.DANGEROUS, True),
        "web_fetch": (Effect.READ, Safety.MODERATE, True),
    }


async def test_hooks_are_shown_from_the_live_registry(household: Open) -> None:
    house = await household(agent("ann"), config="[hooks]\nredact = false\n")
    shown = (await house.command("ann", "/hooks")).text
    order = [line.split(" › ")[0] for line in shown.splitlines() if " › " in line]
    wanted = "trace policy ceiling approval budget journal execute redact store observe"
    assert list(dict.fromkeys(order)) == wanted.split()
    assert "redact › personal_data (off)" in shown
    assert "redact › redact (always on)" in shown
    assert "[hooks] names what has no switch: redact" in shown
    assert house.daemon.calls.documents()[0]["name"] == "trace"
