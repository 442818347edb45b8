"""The hooks around every call: stages as values, their verdicts, and the ports behind them.

A call passes its stages in the order of ``Phase``. Gates decide whether it may happen, and with
which arguments. It is journaled and executed; then change hooks and watch hooks get its result. The
hooks of sub-agents are stages of the same kind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from agentsup.model.engine import Suspended
from agentsup.model.errors import AgentsupError
from agentsup.model.ids import AgentId, CallId, MessageId, SessionId
from agentsup.model.question import NO_CALL, AnswerableBy, AskedCall, call_digest, permission_key
from agentsup.model.tool import Effect, Safety, ToolResult


class Phase(StrEnum):
    """The position of a stage; a call passes the first ten from top to bottom."""

    TRACE = "trace"
    POLICY = "policy"
    CEILING = "ceiling"
    APPROVAL = "approval"
    BUDGET = "budget"
    JOURNAL = "journal"
    EXECUTE = "execute"
    REDACT = "redact"
    STORE = "store"
    OBSERVE = "observe"
    SUBAGENT_SPAWNING = "subagent_spawning"
    SUBAGENT_ENDED = "subagent_ended"


class CallOrigin(StrEnum):
    """The executor of a call."""

    TOOL = "tool"
    """A registered tool, called through the host."""
    ENGINE = "engine"
    """An effect of the engine's own code, such as a step of a script."""
    OWN = "own"
    """A coding CLI itself: we only decide whether it may."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The tools that somebody may use: own ``patterns`` (None: those offered to everyone), and the
    patterns of their role (None: no role)."""

    name: str
    patterns: tuple[str, ...] | None = None
    role: str = ""
    role_patterns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class CallFacts:
    """One call as its stages see it.

    ``patterns`` is the agent's ceiling (None: the tools offered to everyone). ``answer`` is a
    person's answer to the question for which this same call was suspended: None if it never was,
    empty if nobody answered in time. ``room_chars()`` returns how many more characters the model
    may be shown in this turn.
    """

    call_id: CallId
    name: str
    args: dict[str, Any]
    effect: Effect
    safety: Safety
    origin: CallOrigin
    agent_id: AgentId
    agent_name: str
    message_id: MessageId
    session_id: SessionId
    ordinal: int = 1
    """The number of the call within the turn, from 1."""
    title: str = ""
    own_name: str = ""
    """The CLI's name for it; ``name`` is then the class it belongs to."""
    version: str = ""
    """The version of a tool that somebody else may change; a grant holds for one version only."""
    is_optional: bool = False
    """Whether only agents whose ``tools`` name it may use it."""
    is_essential: bool = False
    """Whether it is inside every ceiling."""
    is_outside: bool = False
    """Whether its result comes from outside, and so may have been written by anyone."""
    is_paged: bool = False
    """Whether its result is a page of a stored one, or as short as one."""
    check: Callable[[dict[str, Any]], str | None] | None = None
    """The tool's own rule: returns why these arguments are not allowed, or None."""
    patterns: tuple[str, ...] | None = None
    role: str = ""
    role_patterns: tuple[str, ...] | None = None
    """The ceiling of the agent's role (None: it has no role)."""
    callers: tuple[Reach, ...] = ()
    """The rights of those for whom the agent works: each must be allowed the call too."""
    permission_mode: str = ""
    answer: str | None = None
    room_chars: Callable[[], int] = lambda: 1 << 30
    essence: dict[str, Any] | None = None
    """The arguments that have an effect, if others only describe it; None: all of them."""
    commands: Callable[[dict[str, Any]], tuple[tuple[str, ...], ...]] | None = None
    """Returns the command lines that arguments make it run, as words; empty if they can't be
    determined. None for calls that run no commands."""
    workspace: str = ""
    """The directory in which they are run."""

    @property
    def permission(self) -> str:
        """The permission key for approvals and grants of this call."""
        return permission_key(self.name, self.version)

    @property
    def digest(self) -> str:
        """The digest to which an approval of this exact call is bound."""
        return call_digest(self.permission, self.args if self.essence is None else self.essence)


# -- verdicts --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Allow:
    """Go on, with other arguments if ``args`` is set."""

    args: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Deny:
    """The call does not happen; the model reads ``reason``."""

    reason: str
    code: str = "denied"
    words: str = ""
    """The person's text with the denial."""


@dataclass(frozen=True, slots=True)
class Suspend:
    """Ask first. The segment ends if it can, and the same call is made again with the answer."""

    text: str
    options: tuple[str, ...] = ()
    timeout_s: float | None = None
    kind: str = "approval"
    who: AnswerableBy = AnswerableBy.PEOPLE
    call: AskedCall = NO_CALL


Verdict = Allow | Deny | Suspend


class CallSuspended(AgentsupError):
    """A call waits for a person. The engine ends its segment with ``ending`` and makes the same
    call again when the turn continues."""

    code = "call_suspended"
    status = 409

    def __init__(self, call_id: str, name: str, ask: Suspend) -> None:
        super().__init__(f"the call of {name} waits for an answer", call_id=call_id, tool=name)
        self.call_id = call_id
        self.tool = name
        self.ask = ask

    def ending(self, checkpoint: bytes) -> Suspended:
        """The end of the segment; ``checkpoint`` is how the engine returns to this call."""
        ask = self.ask
        return Suspended(
            checkpoint=checkpoint,
            text=ask.text,
            options=ask.options,
            timeout_s=ask.timeout_s,
            kind=ask.kind,
            who=ask.who,
            call_id=self.call_id,
            tool=self.tool,
            call=ask.call,
        )


# -- ports -----------------------------------------------------------------------------------------


class Approver(Protocol):
    """Decides whether a call that is within policy and ceiling may happen."""

    async def decide(self, call: CallFacts) -> Verdict:
        """Decide at once. ``call.answer`` is set if the call's question has ended."""

    async def wait(self, call: CallFacts, ask: Suspend) -> Allow | Deny:
        """Ask and wait, for a call whose engine can't end its segment. Its slot is released
        meanwhile."""


# -- stages ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A stage. Lower ``priority`` runs first within a phase; an ``is_fixed`` one has no switch."""

    name: str
    phase: Phase
    about: str
    priority: int = 50
    is_on: bool = True
    is_fixed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GateHook(Hook):
    """Decides whether a call may happen. An error in it denies the call."""

    run: Callable[[CallFacts], Awaitable[Verdict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeHook(Hook):
    """Replaces the result of a call. If it fails, the result is withheld."""

    run: Callable[[CallFacts, ToolResult], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchHook(Hook):
    """Gets the result of a call and how many seconds it took."""

    run: Callable[[CallFacts, ToolResult, float], None]


@dataclass(frozen=True, slots=True)
class SubagentFacts:
    """A run that an agent starts, or one that has ended (then ``outcome`` is set)."""

    run_id: str
    parent: str
    role: str = ""
    instruction: str = ""
    tools: tuple[str, ...] | None = None
    outcome: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentGate(Hook):
    """Decides whether a run may be started."""

    run: Callable[[SubagentFacts], Awaitable[Verdict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentWatch(Hook):
    """Is called when a run has ended."""

    run: Callable[[SubagentFacts], None]
