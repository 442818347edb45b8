"""What stands around every call: stages as values, their verdicts, and the ports behind them.

A call passes its stages in the order of ``Phase``. Gates say whether it may happen, and with which
arguments; it is journaled and carried out; changes and observers see what came of it. The hooks of
sub-agents are stages of the same kind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from agentsup.model.engine import Suspended
from agentsup.model.errors import AgentsupError
from agentsup.model.ids import AgentId, CallId, MessageId, SessionId
from agentsup.model.question import NO_CALL, AskedCall, Who, call_digest, leave_name
from agentsup.model.tool import Effect, Safety, ToolResult


class Phase(StrEnum):
    """Where a stage stands; a call passes the first ten from top to bottom."""

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


class Origin(StrEnum):
    """Who carries a call out."""

    TOOL = "tool"
    """A registered tool, called through the host."""
    ENGINE = "engine"
    """An effect of the engine's own code, such as a step of a script."""
    OWN = "own"
    """A coding CLI by itself: we only say whether it may."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What somebody may use: ``patterns`` of their own (None: whatever is offered to everyone), and
    those of their role (None: it is in none)."""

    name: str
    patterns: tuple[str, ...] | None = None
    role: str = ""
    role_patterns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class CallFacts:
    """One call as its stages see it.

    ``patterns`` is the agent's ceiling (None: whatever is offered to everyone). ``answer`` is what
    a person said to the question this very call was suspended for: None if it never was, empty if
    nobody answered in time. ``room_chars`` tells how much more the model may be shown in this turn.
    """

    call_id: CallId
    name: str
    args: dict[str, Any]
    effect: Effect
    safety: Safety
    origin: Origin
    agent_id: AgentId
    agent_name: str
    message_id: MessageId
    session_id: SessionId
    ordinal: int = 1
    """The how manieth call of the turn it is."""
    title: str = ""
    own_name: str = ""
    """What a CLI calls it; ``name`` is then the class it belongs to."""
    version: str = ""
    """The form of a tool that somebody else may change; leave for one is no leave for another."""
    is_optional: bool = False
    """Only for agents whose ``tools`` name it."""
    is_essential: bool = False
    """Inside every ceiling."""
    is_outside: bool = False
    """What it brings back was written by anyone."""
    is_paged: bool = False
    """Its result is a page of a stored one, or as short."""
    check: Callable[[dict[str, Any]], str | None] | None = None
    """The tool's own rule: why these arguments are out of the question, or None."""
    patterns: tuple[str, ...] | None = None
    role: str = ""
    role_patterns: tuple[str, ...] | None = None
    """The ceiling of the role that the agent is in (None: it is in none)."""
    callers: tuple[Reach, ...] = ()
    """What those may use for whom it works: each of them must be allowed the call as well."""
    permission_mode: str = ""
    answer: str | None = None
    room_chars: Callable[[], int] = lambda: 1 << 30
    essence: dict[str, Any] | None = None
    """What of the arguments has an effect, where some only describe it; None: all of them."""
    commands: Callable[[dict[str, Any]], tuple[tuple[str, ...], ...]] | None = None
    """Reads the command lines that arguments make it run, word by word; empty where they can't be
    told. None for calls that run no commands."""

    @property
    def leave(self) -> str:
        """What leave for it is given for."""
        return leave_name(self.name, self.version)

    @property
    def digest(self) -> str:
        """What an approval of this very call is bound to."""
        return call_digest(self.leave, self.args if self.essence is None else self.essence)


# -- verdicts --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Allow:
    """Go on, with other arguments if ``args`` is set."""

    args: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Deny:
    """It does not happen; the model reads ``reason``."""

    reason: str
    code: str = "denied"
    words: str = ""
    """What a person said with it."""


@dataclass(frozen=True, slots=True)
class Suspend:
    """Ask first. The segment ends where it can, and the same call comes again with the answer."""

    text: str
    options: tuple[str, ...] = ()
    timeout_s: float | None = None
    kind: str = "approval"
    who: Who = Who.PEOPLE
    call: AskedCall = NO_CALL


Verdict = Allow | Deny | Suspend


class CallSuspended(AgentsupError):
    """A call waits for a person: the engine ends its segment with ``ending`` and makes the same
    call again when the turn goes on."""

    code = "call_suspended"
    status = 409

    def __init__(self, call_id: str, name: str, ask: Suspend) -> None:
        super().__init__(f"the call of {name} waits for an answer", call_id=call_id, tool=name)
        self.call_id = call_id
        self.tool = name
        self.ask = ask

    def ending(self, checkpoint: bytes) -> Suspended:
        """The end of the segment, with what the engine needs to come back to this call."""
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
    """Who says whether a call that is within policy and ceiling may happen."""

    async def decide(self, call: CallFacts) -> Verdict:
        """At once. ``call.answer`` is set when it is the call of a question that has ended."""

    async def wait(self, call: CallFacts, ask: Suspend) -> Allow | Deny:
        """Ask and wait, for a call whose engine can't end its segment. Its slot is free meanwhile."""


# -- stages ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A stage. Lower ``priority`` runs first within a phase; a ``fixed`` one has no switch."""

    name: str
    phase: Phase
    about: str
    priority: int = 50
    is_on: bool = True
    is_fixed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(Hook):
    """Says whether a call may happen. One that fails denies."""

    run: Callable[[CallFacts], Awaitable[Verdict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Hook):
    """Replaces what came of a call. Where one fails the result is withheld."""

    run: Callable[[CallFacts, ToolResult], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch(Hook):
    """Hears what came of a call and how many seconds it took."""

    run: Callable[[CallFacts, ToolResult, float], None]


@dataclass(frozen=True, slots=True)
class SubagentFacts:
    """A run that an agent starts, or that has ended (``outcome`` is set then)."""

    run_id: str
    parent: str
    role: str = ""
    instruction: str = ""
    tools: tuple[str, ...] | None = None
    outcome: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentGate(Hook):
    """Says whether a run may be started."""

    run: Callable[[SubagentFacts], Awaitable[Verdict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentWatch(Hook):
    """Hears of a run that has ended."""

    run: Callable[[SubagentFacts], None]
