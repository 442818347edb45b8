"""Tools as values: what an engine may call, with effect class and safety."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from agentsup.model.ids import AgentId, CallId, MessageId, SessionId


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
    """On whose behalf a tool runs."""

    agent_id: AgentId
    agent_name: str
    message_id: MessageId
    session_id: SessionId
    fence: int
    call_id: CallId
    waiting: WaitSlot


class WaitSlot(Protocol):
    """A turn that blocks in a wait gives its slot back meanwhile."""

    def released(self) -> Any:
        """An async context manager: the slot is free inside it and held again after it."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool in the registry. ``parameters`` is a JSON Schema object for the arguments."""

    name: str
    description: str
    parameters: dict[str, Any]
    run: Callable[[ToolContext, dict[str, Any]], Awaitable[str]]
    effect: Effect = Effect.BLIND
    safety: Safety = Safety.DANGEROUS


class ToolRegistry(Protocol):
    """Lookup of the tools an agent may use, by name."""

    def get(self, name: str) -> Tool | None: ...

    def all(self) -> tuple[Tool, ...]: ...
