"""One scenario language, played by every engine."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from agentsup.engines.acp.engine import AcpEngine
from agentsup.engines.claude import ClaudeEngine
from agentsup.engines.command import CommandEngine
from agentsup.engines.guard import GuardedSession, SegmentLimits, open_guarded
from agentsup.engines.llm import LlmEngine
from agentsup.engines.process import ProcessLauncher
from agentsup.engines.scripted.engine import ScriptedEngine
from agentsup.kit.clock import SystemClock
from agentsup.model.engine import (
    EngineDone,
    EngineEvent,
    EngineHost,
    EngineSpec,
    Segment,
    Suspended,
    TextDelta,
)
from tests.support import acp_agent, scripted_program
from tests.support.bound import BOUND_S
from tests.support.model_server import Asked, Call, ModelServer, Reply


@dataclass(frozen=True)
class Say:
    chunks: tuple[str, ...]
    every_s: float = 0.0


@dataclass(frozen=True)
class Use:
    tool: str
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ask:
    text: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fail:
    text: str = "broken on purpose"


@dataclass(frozen=True)
class Hang:
    """Says nothing for ever."""


Scene = Say | Use | Ask | Fail | Hang


class EngineFixture(Protocol):
    """An engine with its surroundings, ready to play scenes."""

    name: str
    has_host_tools: bool
    """It calls the tools of the stack; else those are its own."""
    can_ask: bool
    """A question ends its segment, and the answer begins another."""

    def play(self, *scenes: Scene) -> None: ...

    async def open(
        self, host: EngineHost, limits: SegmentLimits | None = None
    ) -> GuardedSession: ...

    async def close(self) -> None: ...


def _patient(limits: SegmentLimits | None) -> SegmentLimits:
    """The limits of a test, with more time for an engine to stop than a busy machine needs."""
    return replace(limits or SegmentLimits(), cancel_s=BOUND_S)


class ScriptedHarness:
    name = "scripted"
    has_host_tools = True
    can_ask = True

    def __init__(self, workspace: Path) -> None:
        self._engine = ScriptedEngine(SystemClock())
        self._workspace = workspace
        self._rules: list[dict[str, Any]] = []

    def play(self, *scenes: Scene) -> None:
        steps: list[dict[str, Any]] = []
        for scene in scenes:
            match scene:
                case Say(chunks, every_s):
                    steps.append({"stream": {"chunks": list(chunks), "every": every_s}})
                    steps.append({"usage": {"input": 11, "output": 7}})
                case Use(tool, args):
                    steps.append({"tool": {"name": tool, "args": args}})
                    steps.append({"usage": {"input": 11, "output": 7}})
                case Ask(text, options):
                    steps.append({"question": {"text": text, "options": list(options)}})
                case Fail(text):
                    steps.append({"fail": text})
                case Hang():
                    steps.append({"sleep": 3600})
        self._rules = [{"match": ".*", "steps": steps}]

    async def open(self, host: EngineHost, limits: SegmentLimits | None = None) -> GuardedSession:
        spec = EngineSpec(
            "scripted", options={"rules": self._rules}, workspace=str(self._workspace)
        )
        return await open_guarded(self._engine, spec, host, limits=_patient(limits))

    async def close(self) -> None:
        await self._engine.close()


class LlmHarness:
    has_host_tools = True
    can_ask = True

    def __init__(self, dialect: str, server: ModelServer) -> None:
        self.name = f"llm-{dialect}"
        self._dialect = dialect
        self.server = server
        self._engine = LlmEngine(env={})
        self.options: dict[str, Any] = {"template_opens_thought": False}
        self._replies: list[Reply] = []

    def play(self, *scenes: Scene) -> None:
        for scene in scenes:
            match scene:
                case Say(chunks, every_s):
                    self._replies.append(Reply(chunks, every_s=every_s))
                case Use(tool, args):
                    self._replies.append(Reply(calls=(Call(tool, args),)))
                case Ask(text, options):
                    args = {"text": text, "options": list(options)}
                    self._replies.append(Reply(calls=(Call("ask_user", args),)))
                case Fail(text):
                    self._replies.append(Reply(status=400, error=text))
                case Hang():
                    self._replies.append(Reply(hang_after=0))

    def choose(self, asked: Asked) -> Reply:
        """The next reply; ``$result`` in it becomes what the last tool message says."""
        reply = self._replies.pop(0)
        result = _last_result(asked)
        text = tuple(chunk.replace("$result", result) for chunk in reply.deltas)
        return Reply(**{**_fields(reply), "text": text})

    async def open(self, host: EngineHost, limits: SegmentLimits | None = None) -> GuardedSession:
        url = self.server.base_url if self._dialect == "openai" else self.server.anthropic_url
        options = {"base_url": url, "api_key": "sk-loopback", "provider": self._dialect}
        options |= self.options
        spec = EngineSpec("llm", model="test-model", options=options)
        return await open_guarded(self._engine, spec, host, limits=_patient(limits))

    async def close(self) -> None:
        await self._engine.close()


class ProgramHarness:
    """An engine whose thinking is done by a child process; the stub plays the scenes.

    Further steps of the stub (dicts with ``do``) may stand among the scenes.
    """

    has_host_tools = False

    def __init__(self, name: str, place: Path, **manager: Any) -> None:
        self.name = name
        self.can_ask = name == "command"
        self.children = ProcessLauncher(SystemClock(), **manager)
        self.env: dict[str, str] = {}
        self.options: dict[str, Any] = {}
        self.spec: dict[str, Any] = {}
        self.workspace = place / "agents" / "ada" / "workspace"
        self.workspace.mkdir(parents=True)
        self.scenes = place / "scenes.json"
        self._steps: list[dict[str, Any]] = []
        daemon = {"ANTHROPIC_API_KEY": "sk-loopback"}
        self._engine: CommandEngine | ClaudeEngine = (
            CommandEngine(self.children)
            if name == "command"
            else ClaudeEngine(self.children, SystemClock(), daemon)
        )

    @property
    def home(self) -> Path:
        return self.workspace.parent / "engine-home" / self.name

    def play(self, *scenes: Scene | dict[str, Any]) -> None:
        for scene in scenes:
            step = scene if isinstance(scene, dict) else {**asdict(scene), "do": _DO[type(scene)]}
            self._steps.append(step)
        self.scenes.write_text(json.dumps(self._steps))

    async def open(self, host: EngineHost, limits: SegmentLimits | None = None) -> GuardedSession:
        stub = [sys.executable, "-S", "-E", scripted_program.__file__, self.name, str(self.scenes)]
        spec = EngineSpec(
            self.name,
            options={"command": stub, "env": self.env, **self.options},
            workspace=str(self.workspace),
            agent="ada",
            **{"env": {"PATH": "/usr/bin:/bin", "AGENTSUP_TOKEN": "run-token-1"}, **self.spec},
        )
        return await open_guarded(self._engine, spec, host, limits=_patient(limits))

    async def close(self) -> None:
        await self._engine.close()
        await self.children.close()
        wrong = Path(f"{self.scenes}.wrong")
        assert not wrong.exists(), wrong.read_text()


class AcpHarness:
    """A coding agent over the Agent Client Protocol; a strict one plays the scenes."""

    name = "acp"
    has_host_tools = False
    can_ask = False

    def __init__(self, place: Path) -> None:
        self.children = ProcessLauncher(SystemClock())
        self.workspace = place / "agents" / "ada" / "workspace"
        self.workspace.mkdir(parents=True)
        self.script = place / "script.json"
        self._turns: list[list[dict[str, Any]]] = [[]]
        self._engine = AcpEngine(self.children, {})

    def play(self, *scenes: Scene) -> None:
        for scene in scenes:
            steps = self._turns[-1]
            match scene:
                case Say(chunks, every_s):
                    pieces = [chunk.replace("$result", "$answer") for chunk in chunks]
                    # The protocol tells what a turn has used with its end: one request more than calls.
                    requests = 1 + sum("tool" in step for step in steps)
                    used = {"input": 11 * requests, "output": 7 * requests}
                    steps.append({"usage": used})
                    steps.append({"say": pieces, "every_s": every_s})
                case Use(tool, args):
                    ok, result = scripted_program.use_tool(tool, args)
                    steps.append({"tool": {"name": tool, "args": args, "ok": ok, "result": result}})
                    continue
                case Fail(text):
                    steps.append({"error": {"code": -32602, "message": text}})
                case Hang():
                    steps.append({"deaf": 3600})
            self._turns.append([])
        self.script.write_text(json.dumps({"turns": [turn for turn in self._turns if turn]}))

    async def open(self, host: EngineHost, limits: SegmentLimits | None = None) -> GuardedSession:
        command = [sys.executable, "-S", "-E", acp_agent.__file__, str(self.script)]
        spec = EngineSpec(
            self.name,
            options={"command": command},
            workspace=str(self.workspace),
            agent="ada",
            env={"PATH": "/usr/bin:/bin", "AGENTSUP_TOKEN": "run-token-1"},
        )
        return await open_guarded(self._engine, spec, host, limits=_patient(limits))

    async def close(self) -> None:
        await self.children.close()
        journal = self.script.with_suffix(".journal")
        assert not journal.exists() or '"violation"' not in journal.read_text()


_DO: dict[type, str] = {Say: "say", Use: "use", Ask: "ask", Fail: "fail", Hang: "hang"}


def _fields(reply: Reply) -> dict[str, Any]:
    return {name: getattr(reply, name) for name in Reply.__slots__}


def _last_result(asked: Asked) -> str:
    if not asked.messages:
        return ""
    content: Any = asked.messages[-1].get("content")
    if asked.dialect == "anthropic" and isinstance(content, list):
        results = [block for block in content if block.get("type") == "tool_result"]
        content = results[-1]["content"] if results else ""
    if isinstance(content, list):
        content = "".join(block.get("text", "") for block in content)
    return content if isinstance(content, str) else json.dumps(content)


PROGRAMS = ("command", "claude")


@pytest.fixture(params=["scripted", "openai", "anthropic", *PROGRAMS, "acp"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineFixture]:
    """Each engine in turn."""
    async for each in _rig(request.param, tmp_path):
        yield each


@pytest.fixture(params=["scripted", "openai", "anthropic"])
async def tooled(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineFixture]:
    """Each engine that uses the tools of the stack."""
    async for each in _rig(request.param, tmp_path):
        yield each


@pytest.fixture(params=["scripted", "openai", "anthropic", "command"])
async def asking(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineFixture]:
    """Each engine whose segment may end with a question."""
    async for each in _rig(request.param, tmp_path):
        yield each


@pytest.fixture(params=PROGRAMS)
async def program(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ProgramHarness]:
    """Each engine that is a child process."""
    made = ProgramHarness(request.param, tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def claude(tmp_path: Path) -> AsyncIterator[ProgramHarness]:
    """Claude Code alone."""
    made = ProgramHarness("claude", tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def command(tmp_path: Path) -> AsyncIterator[ProgramHarness]:
    """The one-shot program alone."""
    made = ProgramHarness("command", tmp_path)
    yield made
    await made.close()


async def _rig(name: str, place: Path) -> AsyncIterator[EngineFixture]:
    if name == "scripted":
        yield ScriptedHarness(place)
        return
    if name in PROGRAMS or name == "acp":
        made = AcpHarness(place) if name == "acp" else ProgramHarness(name, place)
        yield made
        await made.close()
        return
    async for each in _llm(name):
        yield each


@pytest.fixture(params=["openai", "anthropic"])
async def llm(request: pytest.FixtureRequest) -> AsyncIterator[LlmHarness]:
    """The model engine in both dialects."""
    async for each in _llm(request.param):
        yield each


async def _llm(dialect: str) -> AsyncIterator[LlmHarness]:
    def choose(asked: Asked) -> Reply:
        return made.choose(asked)

    async with ModelServer(choose) as server:
        made = LlmHarness(dialect, server)
        yield made
        await made.close()
        assert not server.violations


async def allowing_for_start(rig: EngineFixture, limit_s: float) -> float:
    """``limit_s`` of silence, and as much more as the start of a program may take on this machine
    now: nothing is heard of it until it runs. At least two seconds, as the load may grow."""
    if rig.name == "scripted" or rig.name.startswith("llm"):
        return limit_s
    loop = asyncio.get_running_loop()
    began = loop.time()
    program = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-S", "-E", "-c", "import json, queue"], check=True
    )
    assert program.returncode == 0
    return limit_s + max(2.0, 15 * (loop.time() - began))


async def collect(session: GuardedSession, segment: Segment) -> list[EngineEvent]:
    """Every event of one run; asserts that it ends once, and last."""
    events: list[EngineEvent] = []
    async with aclosing(session.run(segment)) as run:
        events.extend([event async for event in run])
    ends = [event for event in events if isinstance(event, EngineDone | Suspended)]
    assert len(ends) == 1
    assert events[-1] is ends[0]
    return events


def done(events: list[EngineEvent]) -> EngineDone:
    end = events[-1]
    assert isinstance(end, EngineDone), end
    return end


def spoken(events: list[EngineEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))
