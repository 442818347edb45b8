"""The engine port. An engine is what thinks.

A turn is one or more *segments*; each segment is one ``EngineSession.run``. It yields events and
ends with exactly one ``EngineDone`` or ``Suspended``. The guard in ``engines.guard`` enforces that
for every engine, so that a defect of an engine does not affect the stack.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from agentsup.model.message import Part
from agentsup.model.question import NO_CALL, AnswerableBy, AskedCall
from agentsup.model.tool import Effect, ReleasableSlot, Tool, ToolResult

# -- inputs of an engine ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServedContext:
    """The context that a model server serves: tokens of prompt and answer together."""

    tokens: int
    problem: str = ""
    """That it is too little for an agent, with what mends it; empty if it is enough."""


@dataclass(frozen=True, slots=True)
class RefusedTool:
    """A tool that a model's provider refuses, so that it is not offered. ``name`` is empty for all
    tools: the model takes none."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class EngineCaps:
    streaming: bool = False
    tools: bool = False
    suspend: bool = False
    usage: bool = False
    state_is_history: bool = False
    """Whether ``engine_state`` holds nothing but the session's history, so that the transcript can
    replace it."""
    only_thinks: bool = False
    """Whether a run without tools of ours has no external effect."""
    may_not_report: bool = False
    """Whether it may use tokens without reporting them, as a foreign program or endpoint may."""
    pictures: bool = False
    """Whether its model can be shown pictures."""
    served: Callable[[EngineSpec], ServedContext | None] = lambda spec: None
    """The context that the model server of a spec serves, as far as it is known already. Asks
    nobody."""
    refused: Callable[[EngineSpec], Iterable[RefusedTool]] = lambda spec: ()
    """The tools that the model's provider has refused since the start."""
    only_model: Callable[[EngineSpec], str] = lambda spec: ""
    """The model of a spec, or the only one of its server, as far as it is known. Asks nobody."""
    find_model: Callable[[EngineSpec], Awaitable[None]] | None = None
    """Asks the server of a spec that names no model for its only one, once and within seconds.
    Raises ``EngineFailed``."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The engine part of a spec. ``options`` is ``engine_options`` with secrets resolved."""

    engine: str
    model: str = ""
    provider: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    home: str = ""
    workspace: str = ""
    env: dict[str, str] = field(default_factory=dict)
    """Environment for child processes: allow-listed names plus AGENTSUP_URL, _TOKEN, _AGENT."""
    agent: str = ""
    """The name of the agent whose engine it is."""
    person: str = ""
    """The person for whom the turn works (``Message.person``)."""
    permission_mode: str = ""
    reasoning_effort: str = ""
    max_steps: int | None = None
    max_usd: float | None = None
    """The most that one turn may cost in US dollars, for engines that can enforce it themselves."""
    mcp_servers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """MCP servers for engines with an MCP client of their own, by name: ``type`` (http or stdio)
    with ``url`` and ``headers``, or ``command``, ``args`` and ``env``. May hold secrets."""
    folders: tuple[str, ...] = ()
    """Directories besides the workspace that its programs may use, such as a task's."""


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """One finished entry of the session's transcript, oldest first."""

    role: Literal["user", "assistant", "note"]
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that came with the message, as the model is shown it: a JPEG, scaled down."""

    path: str
    """The file in the workspace."""
    data: bytes = field(repr=False)


def unseen(path: str) -> str:
    """Return what an engine reads of a picture that it is not shown."""
    return f"[{path} is a picture, which can't be shown to you]"


@dataclass(frozen=True, slots=True)
class Resume:
    """Why this segment is not the first: the last one's checkpoint, and the awaited answer.

    ``checkpoint`` is None after a crash: the engine starts the turn again and finds its finished
    calls in the journal (``EngineHost.call`` returns them without running them).
    """

    checkpoint: bytes | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """The input of one engine run.

    ``text`` is the message's own text without any envelope; ``prompt`` is what a model should read
    (with sender and thread); ``system`` is the agent's permanent instructions.
    """

    message_id: str
    session_id: str
    text: str
    prompt: str
    system: str
    recalled: str = ""
    """Memories that fit this message: for this segment alone, not for the engine's own state, as
    other people may take part in the session."""
    parts: tuple[Part, ...] = ()
    pictures: tuple[Picture, ...] = ()
    """Only for an engine with ``caps.pictures``."""
    history: tuple[HistoryItem, ...] = ()
    engine_state: bytes | None = None
    """The engine's own state of the session after its last turn (opaque)."""
    resume: Resume | None = None
    nudge: Literal["", "hint", "wrap_up"] = ""
    """Why the engine is asked once more in this turn: it gave no answer (``hint``), or is at its
    limit of steps (``wrap_up``: one request, no tools, no question). ``prompt`` says it in
    words."""

    @property
    def instructions(self) -> str:
        """``system`` with ``recalled``, for an engine that is given both anew with each segment."""
        return "\n\n".join(part for part in (self.system, self.recalled) if part)


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A call that an engine with its own tools (a coding CLI) wants approved.

    ``request_id`` is the engine's own id of the call, the same if it asks again.
    """

    request_id: str
    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    title: str = ""
    """The engine's own description of the call, for the person."""


@dataclass(frozen=True, slots=True)
class Permission:
    """The answer: allowed, with other arguments if ``args`` is set; or denied, with a ``reason``
    for the model."""

    allowed: bool
    reason: str = ""
    args: dict[str, Any] | None = None
    words: str = ""
    """The person's text with a denial, for engines that only tell their model that the call was
    denied."""


class EngineHost(Protocol):
    """The services that the stack gives to an engine for one session."""

    def tools(self) -> tuple[Tool, ...]:
        """The tools this agent may use."""

    async def call(self, name: str, args: dict[str, Any]) -> ToolResult:
        """Call a registered tool through the pipeline.

        Raises ``model.hook.CallSuspended`` if a person must be asked first: end the segment with
        its ``ending`` and make the same call again when the turn continues.
        """

    async def perform(
        self, name: str, effect: Effect, args: dict[str, Any], run: Callable[[], Awaitable[str]]
    ) -> ToolResult:
        """Journal an effect of the engine's own (not of a registered tool) around ``run``."""

    async def permit(self, request: PermissionRequest) -> Permission:
        """Decide about a call that the engine makes itself. May wait hours for a person; the
        engine's process goes on running meanwhile."""

    async def spawned(self, pgid: int, started_ticks: int, argv0: str) -> None:
        """Record a child process group before it starts work, so that a later boot can end it."""

    async def reaped(self, pgid: int) -> None:
        """Record that the process group has ended."""

    @property
    def slot(self) -> ReleasableSlot | None:
        """The turn's slot, which is released while the turn waits; None if the turn has none."""


# -- events of an engine ---------------------------------------------------------------------------


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
    """The engine sends a request to its model, or has its answer (``has_ended``).

    After an answer its ``Usage`` comes next. A request that has not ended when the run ends has
    failed with it.
    """

    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None
    is_estimated: bool = False
    """Whether it is estimated from the length of texts, because the engine reports no tokens."""
    cache_read_tokens: int = 0
    """Of the input tokens, those that the provider had in its cache."""
    cache_write_tokens: int = 0
    """Of the input tokens, those that it put into its cache."""


@dataclass(frozen=True, slots=True)
class EngineNotice:
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
    who: AnswerableBy = AnswerableBy.PEOPLE
    call_id: str = ""
    """The call that waits for an approval, if any: it is made again and gets the answer."""
    tool: str = ""
    """The tool of that call."""
    call: AskedCall = NO_CALL
    """The part of the call that is stored with the question."""


@dataclass(frozen=True, slots=True)
class EngineDone:
    """The end of a turn. A failed ``outcome`` has ``error`` (a sentence) and ``permanent``.

    ``exit_code``: the stack is asked to end with this code, after the turn is committed.
    ``retry_after_s``: the pause that the provider asked for before a transient failure is retried.
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
    | EngineNotice
    | Suspended
    | EngineDone
)


class EngineSession(Protocol):
    def run(self, segment: Segment) -> AsyncIterator[EngineEvent]:
        """Run one segment. Cancelling the consuming task cancels the run."""

    async def close(self) -> None:
        """Release the session's resources; the caller bounds the time."""


class Engine(Protocol):
    name: str
    caps: EngineCaps

    async def open(self, spec: EngineSpec, host: EngineHost) -> EngineSession:
        """Open a session for one turn. Raises ``EngineFailed``, whose message names the remedy."""
