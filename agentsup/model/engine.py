"""The engine port: what thinks.

A turn is one or more *segments*; each segment is one ``EngineSession.run``. It yields events and
ends with exactly one ``Done`` or ``Suspended``; the guard in ``engines.guard`` enforces that for
every engine, so that no engine's bug becomes the stack's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from agentsup.model.message import Part
from agentsup.model.question import NO_CALL, AskedCall, Who
from agentsup.model.tool import Effect, Tool, ToolResult, TurnPlace

# -- what an engine is given -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EngineCaps:
    streaming: bool = False
    tools: bool = False
    suspend: bool = False
    usage: bool = False
    state_is_history: bool = False
    """Its ``engine_state`` holds the session's history and nothing else, so that the transcript can
    take its place."""
    only_thinks: bool = False
    """Without tools of ours a run has no effect in the world."""
    may_not_tell: bool = False
    """It may use tokens and tell none, as a program of somebody else's may, or an endpoint."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The engine part of an agent's spec. ``options`` is ``engine_options`` with secrets resolved."""

    engine: str
    model: str = ""
    provider: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    home: str = ""
    workspace: str = ""
    env: dict[str, str] = field(default_factory=dict)
    """Environment for child processes: allow-listed names plus AGENTSUP_URL, _TOKEN, _AGENT."""
    agent: str = ""
    """Whose engine it is, by name."""
    person: str = ""
    """Whose work the turn is (``Message.person``)."""
    permission_mode: str = ""
    reasoning_effort: str = ""
    max_steps: int | None = None
    max_usd: float | None = None
    """The most that one turn may cost, where the engine can see to it itself."""
    mcp_servers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """MCP servers for engines that are clients of their own, by name: ``type`` (http or stdio)
    with ``url`` and ``headers``, or ``command``, ``args`` and ``env``. May hold secrets."""
    folders: tuple[str, ...] = ()
    """Places beside the workspace that its programs may use, such as a task's."""


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """One finished entry of the session's transcript, oldest first."""

    role: Literal["user", "assistant", "note"]
    text: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Why this segment is not the first: the checkpoint it left, and the answer it waited for.

    ``checkpoint`` is None after a crash: the engine starts the turn again and finds its finished
    calls in the journal (``EngineHost.call`` returns them without running them).
    """

    checkpoint: bytes | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """One engine run. ``text`` is the message's own text without any envelope; ``prompt`` what a
    model should read (sender and thread named); ``system`` the agent's standing instructions."""

    message_id: str
    session_id: str
    text: str
    prompt: str
    system: str
    parts: tuple[Part, ...] = ()
    history: tuple[HistoryItem, ...] = ()
    engine_state: bytes | None = None
    """What the engine itself kept of the session after its last turn (opaque)."""
    resume: Resume | None = None
    nudge: Literal["", "hint", "wrap_up"] = ""
    """Why the engine is asked once more in this turn: it said nothing (``hint``), or is at its limit
    of steps (``wrap_up``: one request, no tools, no question). ``prompt`` says it in words."""


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A call that an engine with tools of its own (a coding CLI) wants leave for.

    ``request_id`` is the engine's own id of the call, the same when it asks for it again.
    """

    request_id: str
    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    title: str = ""
    """What the call does, in the engine's words; for the person."""


@dataclass(frozen=True, slots=True)
class Permission:
    """The answer: allowed, with other arguments if ``args`` is set; or denied, and the model reads
    ``reason``."""

    allowed: bool
    reason: str = ""
    args: dict[str, Any] | None = None
    words: str = ""
    """What a person said with a denial, for engines that tell their model only that it was denied."""


class EngineHost(Protocol):
    """What the stack lends to an engine for one session."""

    def tools(self) -> tuple[Tool, ...]:
        """The tools this agent may use."""

    async def call(self, name: str, args: dict[str, Any]) -> ToolResult:
        """Call a registered tool through the pipeline.

        Raises ``model.hook.CallSuspended`` where a person is asked first: end the segment with its
        ``ending`` and make the same call again when the turn goes on.
        """

    async def perform(
        self, name: str, effect: Effect, args: dict[str, Any], run: Callable[[], Awaitable[str]]
    ) -> ToolResult:
        """Journal an effect of the engine's own (not a registered tool) around ``run``."""

    async def permit(self, request: PermissionRequest) -> Permission:
        """Decide about a call that the engine makes itself. May wait for a person, for hours; the
        engine keeps its process meanwhile."""

    async def spawned(self, pgid: int, started_ticks: int, argv0: str) -> None:
        """Record a child process group before it works, so that a later boot can sweep it."""

    async def reaped(self, pgid: int) -> None:
        """The group is gone."""

    @property
    def slot(self) -> TurnPlace | None:
        """The turn's place among others, which it gives back while it waits; None: it has none."""


# -- what an engine yields -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    name: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolFinished:
    name: str
    ok: bool
    preview: str


@dataclass(frozen=True, slots=True)
class FileOut:
    """Send a file of the workspace to the person. ``path`` is relative to the workspace."""

    path: str


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The engine sends a request to its model, or has its answer (``has_ended``) and tells its
    ``Usage`` next. One that is not ended by the end of the run has failed with it."""

    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None
    is_estimated: bool = False
    """Reckoned by the length of texts, because the engine tells no tokens."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A line for the person that is not part of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Suspended:
    """The segment ends and waits for a person or an agent. ``timeout_s`` None: no deadline."""

    checkpoint: bytes
    text: str
    options: tuple[str, ...] = ()
    timeout_s: float | None = None
    kind: str = "question"
    who: Who = Who.PEOPLE
    call_id: str = ""
    """The call that waits for leave, if it is one: it is made again, and meets the answer."""
    tool: str = ""
    """Whose call it is."""
    call: AskedCall = NO_CALL
    """What of it is kept with the question."""


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a turn. ``outcome`` failed carries ``error`` (a sentence) and ``permanent``.

    ``exit_code``: the stack is asked to end with this code, after the turn is committed.
    ``retry_after_s``: how long the provider asked to wait before a transient failure is retried.
    """

    outcome: Literal["ok", "failed", "cancelled"]
    text: str = ""
    error: str = ""
    code: str = ""
    permanent: bool = True
    engine_state: bytes | None = None
    exit_code: int | None = None
    retry_after_s: float | None = None


EngineEvent = (
    TextDelta
    | ThinkingDelta
    | ToolStarted
    | ToolFinished
    | FileOut
    | ModelRequest
    | Usage
    | Notice
    | Suspended
    | Done
)


class EngineSession(Protocol):
    def run(self, segment: Segment) -> AsyncIterator[EngineEvent]:
        """Run one segment. Cancelling the consuming task cancels the run."""

    async def close(self) -> None:
        """Release what the session holds; bounded by the caller."""


class Engine(Protocol):
    name: str
    caps: EngineCaps

    async def open(self, spec: EngineSpec, host: EngineHost) -> EngineSession:
        """Open a session for one turn. Raises ``EngineFailed`` with the remedy."""
