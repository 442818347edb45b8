"""The mailbox's own values: limits, how a turn ended, what a stop counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox.epoch import EpochMap
from agentsup.mailbox.pace import Pace
from agentsup.mailbox.steady import SteadyClock
from agentsup.model.message import (
    MAX_ATTEMPTS,
    MAX_CRASHES,
    MAX_DEPTH,
    MAX_MESSAGES_PER_ROOT,
    Lease,
    Message,
    Outcome,
    Part,
    State,
)
from agentsup.model.principal import Principal
from agentsup.model.question import Question
from agentsup.store.database import Tx

__all__ = [
    "Cancelled",
    "Claimed",
    "Completion",
    "Desk",
    "Expired",
    "Follower",
    "MailboxLimits",
    "Position",
    "StopCounts",
]


@dataclass(frozen=True, slots=True)
class MailboxLimits:
    """The bounds of P6. The two callables give per-agent settings (None: the common one)."""

    queue_limit: int = 1000
    """Most open messages per agent."""
    max_depth: int = MAX_DEPTH
    max_messages_per_root: int = MAX_MESSAGES_PER_ROOT
    max_body_bytes: int = 1024 * 1024
    max_attempts: int = MAX_ATTEMPTS
    max_crashes: int = MAX_CRASHES
    queue_limit_of: Callable[[str], int | None] | None = None
    slots_of: Callable[[str], int | None] | None = None
    """How many turns of an agent run at once; for the estimate of waiting time only."""

    def queue_limit_for(self, agent_id: str) -> int:
        """The limit of one agent."""
        own = self.queue_limit_of(agent_id) if self.queue_limit_of else None
        return self.queue_limit if own is None else own

    def slots_for(self, agent_id: str) -> int:
        """The slots of one agent, at least 1."""
        own = self.slots_of(agent_id) if self.slots_of else None
        return max(1, own or 1)


class Approvals(Protocol):
    """Hears of questions about calls, in the transaction in which they are asked or answered."""

    def asked_tx(self, tx: Tx, question: Question) -> Principal | None:
        """The question was put; if leave was given meanwhile: by whom, to close it at once."""

    def answered_tx(self, tx: Tx, question: Question, by: Principal) -> None:
        """It was answered. Raises what undoes the answer."""


class Follower(Protocol):
    """Hears that work on a message began or ended, in the transaction of that change."""

    def changed_tx(
        self, tx: Tx, message: Message, what: str, *, at: int, code: str = "", text: str = ""
    ) -> None:
        """``what``: started | finished | failed, the last with its code and sentence. Raises
        nothing for what it can't do itself."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What every function of the mailbox works with beside its transaction."""

    clock: Clock
    entropy: Entropy
    boot_id: str
    limits: MailboxLimits
    epochs: EpochMap
    pace: Pace
    steady: SteadyClock
    """By which deadlines and pauses are kept."""
    approvals: list[Approvals] = field(default_factory=list)
    """Who keeps the book of calls that wait for leave; at most one."""
    followers: list[Follower] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Completion:
    """How a turn ended. ``text`` is the answer; a failure carries code and sentence."""

    outcome: Outcome
    text: str = ""
    error_code: str = ""
    error_text: str = ""
    notice: str = ""
    """What a person reads of a failure, in their language; without it ``error_text``."""
    parts: tuple[Part, ...] = ()
    """Files for the person, in order."""
    engine: str = ""
    engine_state: bytes | None = None
    """What the engine keeps of the session; None leaves the last one."""


@dataclass(frozen=True, slots=True)
class StopCounts:
    """What a stop found, counted by the state it was in. ``message_ids`` were leased or parked;
    ``agent_ids`` are those of whom anything was stopped."""

    scope: str
    epoch: int
    running: int = 0
    queued: int = 0
    parked: int = 0
    message_ids: tuple[str, ...] = ()
    agent_ids: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Every message that became cancelled."""
        return self.running + self.queued + self.parked


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim got, and when the next delayed message may start (ms, by the steady clock), or None."""

    leases: tuple[Lease, ...]
    due_at: int | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """One message that was cancelled; ``was`` tells whether a turn has to be ended. ``with_it`` are
    the runs it had handed on and that had begun: their turns have to be ended too."""

    message_id: str
    agent_id: str
    session_id: str
    was: State
    with_it: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expired:
    """What a look at the deadlines closed."""

    question_ids: tuple[str, ...] = ()
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """Messages that run before this one, and the estimated wait; 0 and None once it runs."""

    position: int
    eta_s: float | None = field(default=None)
    waits_for: Question | None = None
    """The question to people that its session waits for; then nobody knows how long."""
