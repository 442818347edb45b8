"""A model that was talked into calls beyond its ceiling, over a real socket and the real pipeline."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from agentsup.agents.roles.limits import RoleLimits
from agentsup.agents.tools import exec_tool, file_tools, web_tool
from agentsup.agents.turn.calls import CallContext
from agentsup.agents.turn.engine_host import TurnHost
from agentsup.agents.workspace import ProcessTable
from agentsup.daemon.assembly.tool_pipeline import CallSettings, host_services
from agentsup.engines.guard import open_guarded
from agentsup.engines.llm import LlmEngine
from agentsup.mailbox.work import Work
from agentsup.mailbox.work.slots import SlotPool, TurnSlot
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import EngineDone, EngineSpec
from agentsup.model.ids import AgentId
from agentsup.model.message import LaneName
from tests.support.engine_host import segment
from tests.support.mailbox_fixture import MailboxFixture
from tests.support.mode_approver import ModeApprover
from tests.support.model_server import Asked, Call, ModelServer, Reply


async def play(
    rig: MailboxFixture, workspace: Path, spec: AgentSpec, *calls: Call, at_once: bool = True
) -> tuple[EngineDone, list[str]]:
    """One turn in which the model makes ``calls``: its end, and what it was told."""
    told: list[str] = []

    def choose(asked: Asked) -> Reply:
        told[:] = [str(m["content"]) for m in asked.messages if m["role"] == "tool"]
        if len(told) == len(calls):
            return Reply(("that was all",))
        return Reply(calls=calls if at_once else (calls[len(told)],))

    await rig.put()
    lanes = dict.fromkeys(LaneName, 1)
    host = TurnHost(
        host_services(
            rig.db,
            rig.clock,
            rig.entropy,
            ProcessTable(rig.db, rig.clock, "boot"),
            (*file_tools(), exec_tool(lambda: {"PATH": os.environ["PATH"]}), web_tool()),
            CallSettings(ModeApprover()),
        ),
        CallContext(
            work=Work(
                await rig.one(), TurnSlot(SlotPool(lanes, lambda: None), LaneName.INTERACTIVE)
            ),
            agent_id=AgentId("ann"),
            spec=spec,
            bounds=RoleLimits(spec.tools),
            workspace=str(workspace),
            can_suspend=True,
        ),
    )
    engine = LlmEngine(env={})
    async with ModelServer(choose) as server:
        options = {"base_url": server.base_url, "api_key": "sk-loopback", "provider": "openai"}
        session = await open_guarded(
            engine, EngineSpec("llm", model="test-model", options=options), host
        )
        events = [event async for event in session.run(segment())]
        await session.close()
        await engine.close()
    assert isinstance(events[-1], EngineDone)
    return events[-1], told


def use(name: str, **args: Any) -> Call:
    return Call(name, args)


async def test_no_call_beyond_the_ceiling_happens(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    rig = await MailboxFixture.open(tmp_path)
    try:
        end, told = await play(
            rig,
            workspace,
            AgentSpec("ann", tools=("fs_r*", "fs_l*"), permission_mode="bypassPermissions"),
            use("exec", argv=["touch", "made"]),
            use("web_fetch", url="http://169.254.169.254/"),
            use("fs_write", path="made", content="x"),
            use("fs_read", path="../state.db"),
            use("fs_read", path="/etc/passwd"),
            use("fs_list", path="."),
        )
        rows = await rig.sql("SELECT name FROM tool_calls")
    finally:
        await rig.close()
    assert end.text == "that was all"
    assert len(told) == 6
    assert not any("root:" in text for text in told)
    assert "(empty)" in told[-1]
    assert list(workspace.iterdir()) == []
    assert rows == []


async def test_the_fifth_of_equal_calls_ends_the_turn(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    rig = await MailboxFixture.open(tmp_path)
    try:
        end, _ = await play(
            rig,
            workspace,
            AgentSpec("ann", tools=("fs_*",)),
            *[use("fs_mkdir", path="d")] * 6,
            at_once=False,
        )
        rows = await rig.sql("SELECT call_id, state FROM tool_calls ORDER BY rowid")
    finally:
        await rig.close()
    assert end.outcome == "failed"
    assert "5 times in a row" in end.error
    assert [state for _, state in rows] == ["done"] * 4
    assert [call_id.rsplit(":", 1)[1] for call_id, _ in rows] == ["1", "2", "3", "4"]
