"""Tools as values: what an engine may call, with effect class and safety."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from agentsup.model.ids import AgentId, CallId, MessageId, SessionId
from agentsup.model.message import Lease

ASK_PERSON = "ask_person"
"""The tool by which a program asks a person."""
OUR_MCP_SERVER = "agentsup"
"""The name of the daemon's own server among the MCP servers of an engine."""


class Effect(StrEnum):
    """The consequence of repeating a call.

    ``read`` changes nothing and is not journaled; ``idempotent`` may be retried freely; ``keyed``
    may be repeated with the same key; ``blind`` is never repeated automatically.
    """

    READ = "read"
    IDEMPOTENT = "idempotent"
    KEYED = "keyed"
    BLIND = "blind"


class Safety(StrEnum):
    SAFE = "safe"
    MODERATE = "moderate"
    DANGEROUS = "dangerous"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call. ``ok=False``: the model reads ``text`` and may react; ``code`` is the
    error's code."""

    ok: bool
    text: str
    code: str = ""
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The turn in which a tool runs.

    ``agent_name`` is the agent that works on the message, a different one than the message's if the
    turn is done in another agent's persona. ``call_id`` is deterministic, so that a resumed turn
    finds its own journal entries; it is also the key that a ``keyed`` tool passes on.
    """

    lease: Lease
    slot: WaitSlot
    agent_name: str
    call_id: CallId
    workspace: str = ""
    """The directory of the agent's files; empty if it has none."""
    children: Children | None = None
    """Records the programs that a tool starts; None: the tool must not start any."""
    acts_as: AgentId | None = None
    """The agent in whose persona and with whose memory the turn works; None: its own."""

    @property
    def agent_id(self) -> AgentId:
        """The agent whose message it is."""
        return self.lease.message.agent_id

    @property
    def message_id(self) -> MessageId:
        return self.lease.message.message_id

    @property
    def session_id(self) -> SessionId:
        return self.lease.message.session_id

    @property
    def person(self) -> str:
        """The person for whom the turn works."""
        return self.lease.message.person

    @property
    def self_id(self) -> AgentId:
        """The agent whose memory the tool uses."""
        return self.agent_id if self.acts_as is None else self.acts_as


class Children(Protocol):
    """The record of process groups, by which a later boot ends those that are left."""

    async def spawned(self, pgid: int, started_ticks: int, argv0: str) -> None:
        """Record a group that was started and does not work yet."""

    async def reaped(self, pgid: int) -> None:
        """Record that the group has ended."""


class WaitSlot(Protocol):
    """The slot of a turn, which is released while the turn waits for something."""

    def released(self) -> Any:
        """An async context manager: the slot is free inside it and taken again after it."""


class ReleasableSlot(WaitSlot, Protocol):
    """A slot with callbacks for its release and return."""

    def watched(
        self, rest: Callable[[], object], wake: Callable[[], object]
    ) -> AbstractContextManager[None]:
        """Inside the block, ``rest`` is called when the slot is released, and ``wake`` when it is
        held again."""

    def suspend(self) -> bool:
        """End the turn for now, if it only waits for a person. Returns whether it ends; it is
        started again when there is an answer."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool in the registry. ``parameters`` is a JSON Schema object for the arguments, or what makes
    it when it is first asked for (``schema``).

    An optional tool is offered only to agents whose ``tools`` name it, an essential one to every
    agent that has any tools. The result of an ``is_outside`` tool may have been written by anyone,
    and is marked so for the model. ``check`` returns, without any I/O, why arguments are not
    allowed.
    """

    name: str
    description: str
    parameters: dict[str, Any] | Callable[[], dict[str, Any]]
    run: Callable[[ToolContext, dict[str, Any]], Awaitable[str]]
    effect: Effect = Effect.BLIND
    safety: Safety = Safety.DANGEROUS
    is_optional: bool = False
    is_essential: bool = False
    is_outside: bool = False
    is_paged: bool = False
    """Its result is already a page: it is never stored, only cut to the room that is left."""
    check: Callable[[dict[str, Any]], str | None] | None = None
    is_for_programs: bool = False
    """Offered only over MCP, to programs that have no such tool themselves."""
    is_for_runs: bool = False
    """Offered only to runs."""
    commands: Callable[[dict[str, Any]], tuple[tuple[str, ...], ...]] | None = None
    """For a tool that runs commands: returns their words from the arguments; empty if they can't be
    determined."""
    is_poll: bool = False
    """Whether what it reports changes by itself: asking again is no loop."""
    is_for_people: bool = False
    """It asks somebody, one question at a time."""
    is_wait: bool = False
    """It waits for the work of others, and may run concurrently with other calls."""
    version: str = ""
    """A digest of the definition of a tool that somebody else may change; a grant holds for this
    version only."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return self.parameters() if callable(self.parameters) else self.parameters

    @property
    def may_overlap(self) -> bool:
        """Whether it may run concurrently with other calls of one model message: it changes nothing
        here."""
        is_harmless = self.effect is Effect.READ and self.safety is Safety.SAFE
        return self.is_wait or (is_harmless and not self.is_for_people)


class ToolRegistry(Protocol):
    """Lookup of the tools an agent may use, by name."""

    def get(self, name: str) -> Tool | None: ...

    def all(self) -> tuple[Tool, ...]: ...

    async def wait_for_tool(self, name: str) -> Tool | None:
        """A tool that ``get`` does not know yet; waits a moment for it. Raises ``AgentsupError``
        with the reason why it can't be called now."""
