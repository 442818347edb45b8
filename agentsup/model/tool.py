"""Tools as values: what an engine may call, with effect class and safety."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from agentsup.model.ids import AgentId, CallId, MessageId, SessionId

ASK_PERSON = "ask_person"
"""The tool with which a program asks a person."""
OUR_MCP_SERVER = "agentsup"
"""What the daemon's own server is called among the MCP servers of an engine."""


class Effect(StrEnum):
    """What repeating a call would do.

    ``read`` changes nothing and is not journaled; ``idempotent`` may be retried freely; ``keyed``
    may be repeated with the same key; ``blind`` is never repeated by itself.
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
class ToolCall:
    """One call. ``call_id`` is deterministic: message id + ordinal of the call in the turn, so that
    a resumed turn meets its own journal again; it is also the key that a ``keyed`` tool passes on."""

    call_id: CallId
    name: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """``ok=False``: the model is told ``text`` and may react; ``code`` is the error's code."""

    ok: bool
    text: str
    code: str = ""
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class ToolContext:
    """On whose behalf a tool runs: ``agent_id`` is whose message it is, ``agent_name`` the one who
    works on it, which is another where the agent has its work done in that one's place."""

    agent_id: AgentId
    agent_name: str
    message_id: MessageId
    session_id: SessionId
    fence: int
    call_id: CallId
    waiting: WaitSlot
    workspace: str = ""
    """Where the agent's files are; empty: it has none."""
    children: Children | None = None
    """Where a tool that starts programs records them; None: it must not start any."""
    acts_as: AgentId | None = None
    """In whose place it works, with that one's memory; None: its own."""
    person: str = ""
    """Whose work the turn is (``Message.person``)."""

    @property
    def self_id(self) -> AgentId:
        """Whose memory is the tool's."""
        return self.agent_id if self.acts_as is None else self.acts_as


class Children(Protocol):
    """The book of process groups, from which a later boot sweeps what was left."""

    async def spawned(self, pgid: int, started_ticks: int, argv0: str) -> None:
        """A group was started and does not work yet."""

    async def reaped(self, pgid: int) -> None:
        """The group is gone."""


class WaitSlot(Protocol):
    """A turn that blocks in a wait gives its slot back meanwhile."""

    def released(self) -> Any:
        """An async context manager: the slot is free inside it and held again after it."""


class TurnPlace(WaitSlot, Protocol):
    """A slot that tells who goes with it when it is given back."""

    def watched(
        self, rest: Callable[[], object], wake: Callable[[], object]
    ) -> AbstractContextManager[None]:
        """Inside the block ``rest`` is called when the slot is given back, ``wake`` when it is had
        again."""

    def let_go(self) -> bool:
        """End the turn for now, where it does nothing but wait for a person; whether it ends. It
        begins anew when there is an answer."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool in the registry. ``parameters`` is a JSON Schema object for the arguments.

    An optional tool is offered only to agents whose ``tools`` name it, an essential one to every
    agent that has any. What an ``is_outside`` tool brings back was written by anyone, and is marked
    so for the model. ``check`` says, without any I/O, why arguments are out of the question.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    run: Callable[[ToolContext, dict[str, Any]], Awaitable[str]]
    effect: Effect = Effect.BLIND
    safety: Safety = Safety.DANGEROUS
    is_optional: bool = False
    is_essential: bool = False
    is_outside: bool = False
    is_paged: bool = False
    """Its result is a page already: it is never stored, only cut to what there is room for."""
    check: Callable[[dict[str, Any]], str | None] | None = None
    is_for_programs: bool = False
    """Offered over MCP alone, to programs that have no such tool themselves."""
    is_for_runs: bool = False
    """Offered to runs alone."""
    commands: Callable[[dict[str, Any]], tuple[tuple[str, ...], ...]] | None = None
    """For a tool that runs commands: reads their words from the arguments; empty where they can't be
    told."""
    is_poll: bool = False
    """What it tells changes by itself: to ask again is no loop."""
    is_for_people: bool = False
    """It asks somebody, one question at a time."""
    is_wait: bool = False
    """It waits for the work of others, and may be made beside other calls."""
    version: str = ""
    """A digest of what it is, for a tool that somebody else may change; leave holds for it alone."""

    @property
    def may_overlap(self) -> bool:
        """Whether it may run beside other calls of one model message: it changes nothing here."""
        is_harmless = self.effect is Effect.READ and self.safety is Safety.SAFE
        return self.is_wait or (is_harmless and not self.is_for_people)


class ToolRegistry(Protocol):
    """Lookup of the tools an agent may use, by name."""

    def get(self, name: str) -> Tool | None: ...

    def all(self) -> tuple[Tool, ...]: ...

    async def coming(self, name: str) -> Tool | None:
        """A tool that ``get`` does not know yet, waited for a moment. Raises ``AgentsupError``, which
        says why it can't be called now."""
