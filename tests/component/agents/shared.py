"""What the tests of whole agents share: rules of scripted models, a blind tool, commands of chats."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

from agentsup.agents.tools import file_tools
from agentsup.daemon.assembly import tool_pipeline
from agentsup.kit.pool import BoundedPool
from agentsup.model.control import CommandButton, CommandContext, CommandReply
from agentsup.model.engine import EngineCaps, EngineHost, EngineSpec, Segment
from agentsup.model.principal import Principal
from agentsup.model.question import Question
from agentsup.model.tool import Tool, ToolContext
from agentsup.tasks import TaskHub
from tests.support.virtual_daemon import VirtualDaemon

SAY = {"say": "$result"}
"""The step that answers with the result of the last tool."""
APPENDING = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}


def rule(match: str, *steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"match": match, "steps": list(steps), **more}


def use(name: str, **args: Any) -> dict[str, Any]:
    """The step that calls a tool."""
    return {"tool": {"name": name, "args": args}}


def trouble(code: str, **more: Any) -> dict[str, Any]:
    """A step that fails as a provider would."""
    return {"trouble": {"code": code, "text": f"it is {code}", **more}}


def give_append(
    monkeypatch: pytest.MonkeyPatch, *, is_by_call: bool = False, pause_s: float = 0.0
) -> None:
    """A blind, dangerous tool in every daemon, its effect counted in a file outside the store:
    its text, or the id of its call. ``pause_s`` is the time to die between effect and result."""

    async def append(context: ToolContext, args: dict[str, Any]) -> str:
        with (Path(context.workspace) / "log").open("a") as log:
            log.write(f"{context.call_id if is_by_call else args['text']}\n")
        if pause_s:
            await asyncio.sleep(pause_s)
        return f"appended {args['text']}"

    def tools(files: BoundedPool) -> tuple[Tool, ...]:
        return (*file_tools(files), Tool("append", "", APPENDING, append))

    monkeypatch.setattr(tool_pipeline, "file_tools", tools)


def log_of(house: VirtualDaemon, name: str = "ann") -> list[str]:
    """What ``append`` has done."""
    path = house.home.workspace(name) / "log"
    return path.read_text().splitlines() if path.exists() else []


async def run_command(
    house: VirtualDaemon,
    name: str,
    text: str,
    *,
    principal: Principal,
    chat: tuple[str, str] = ("console", "local"),
    **more: Any,
) -> CommandReply:
    """The reply to a command, with its buttons unless ``has_buttons`` is False."""
    fields: dict[str, Any] = {"has_buttons": True, **more}
    agent_id = house.roster.entry(name).agent_id
    context = CommandContext(agent_id, name, *chat, principal=principal, **fields)
    reply: CommandReply = await house.daemon.inbox._commands.run(text, context)
    return reply


Played = TypeVar("Played", bound="PlayedEngine")


class PlayedEngine:
    """An engine in place of an agent's own: its run is a function, or that of a class of its test."""

    name = "scripted"
    caps = EngineCaps(streaming=True, usage=True)

    def __init__(self, run: Any = None) -> None:
        self._run = run
        self.segments: list[Segment] = []
        self.spec: EngineSpec
        self.host: EngineHost

    async def open(self, spec: EngineSpec, host: EngineHost) -> Self:
        self.spec, self.host = spec, host
        return self

    def run(self, segment: Segment) -> Any:
        self.segments.append(segment)
        return self._run(segment)

    async def close(self) -> None:
        return


def played(house: VirtualDaemon, name: str, engine: Played) -> Played:
    """Let an agent think with an engine of a test until it is rebuilt."""
    stack = house.unit(name).stack
    assert stack is not None
    stack.engine = engine
    return engine


def replace_engine(house: VirtualDaemon, name: str, run: Any) -> PlayedEngine:
    return played(house, name, PlayedEngine(run))


def flat(reply: CommandReply) -> list[CommandButton]:
    return [button for row in reply.buttons for button in row]


async def until_state(house: VirtualDaemon, message_id: str, state: str) -> None:
    async def is_so() -> bool:
        return await house.state_of(message_id) == state

    await house.until(is_so)


def is_let_go(house: VirtualDaemon) -> bool:
    """Whether ann's only turn, which waits in place, could be let go."""
    stack = house.unit("ann").stack
    assert stack is not None
    (work,) = stack._pump.in_flight
    return work.slot.suspend()


async def let_go(house: VirtualDaemon, message_id: str) -> None:
    assert is_let_go(house)
    await until_state(house, message_id, "parked")


async def open_question(house: VirtualDaemon) -> Question:
    """The only open question, once there is one."""

    async def is_open() -> bool:
        return bool(await house.daemon.mailbox.questions.list())

    await house.until(is_open)
    (question,) = await house.daemon.mailbox.questions.list()
    return question


def hub_of(house: VirtualDaemon) -> TaskHub:
    hub = house.daemon.api._deps.tasks
    assert isinstance(hub, TaskHub)
    return hub
