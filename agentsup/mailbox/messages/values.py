"""The mailbox's own values: limits, how a turn ended, what a stop counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox.messages.epoch import EpochMap
from agentsup.mailbox.messages.loads import AgentLoads, TurnDurations
from agentsup.mailbox.messages.steady_clock import SteadyClock
from agentsup.model.message import (
    MAX_ATTEMPTS,
    MAX_CRASHES,
    MAX_DEPTH,
    MAX_MESSAGES_PER_ROOT,
    LaneName,
    Lease,
    Message,
    MessageOutcome,
    MessageState,
    Part,
)
from agentsup.model.principal import PersonRole, Principal
from agentsup.model.question import Question
from agentsup.store import Tx


@dataclass(frozen=True, slots=True)
class MailboxLimits:
    """The bounds of P6. The two callables return an agent's own setting (None: the common one)."""

    queue_limit: int = 1000
    """Most open messages per agent."""
    max_depth: int = MAX_DEPTH
    max_messages_per_root: int = MAX_MESSAGES_PER_ROOT
    max_body_bytes: int = 1024 * 1024
    max_attempts: int = MAX_ATTEMPTS
    max_crashes: int = MAX_CRASHES
    queue_limit_of: Callable[[str], int | None] | None = None
    slots_of: Callable[[str], int | None] | None = None
    """Number of an agent's turns that run at once; for the estimate of waiting time only."""

    def queue_limit_for(self, agent_id: str) -> int:
        """The limit of one agent."""
        own = self.queue_limit_of(agent_id) if self.queue_limit_of else None
        return self.queue_limit if own is None else own

    def slots_for(self, agent_id: str) -> int:
        """The slots of one agent, at least 1."""
        own = self.slots_of(agent_id) if self.slots_of else None
        return max(1, own or 1)


class QuestionObserver(Protocol):
    """Is called for each question about a call, in the transaction that asks or answers it."""

    def asked_tx(self, ctx: MailboxContext, tx: Tx, question: Question) -> Principal | None:
        """Called for a new question. Returns who has approved its call meanwhile, or None.

        With an approval the question is closed at once.
        """

    def answered_tx(self, ctx: MailboxContext, tx: Tx, question: Question, by: Principal) -> None:
        """Called for an answer. An exception undoes the answer."""


RoleNow = Callable[[str], PersonRole | None]
"""The role that a person (``Principal.subject``) has now; None for one who may not talk here."""


def unchanged(subject: str) -> PersonRole | None:
    """A ``RoleNow`` for a host without a list of people: everybody keeps the role they had."""
    del subject
    return PersonRole.MANAGER


class MessageObserver(Protocol):
    """Is called when work on a message begins or ends, in the transaction of that change."""

    def changed_tx(
        self,
        ctx: MailboxContext,
        tx: Tx,
        message: Message,
        what: str,
        *,
        at: int,
        code: str = "",
        text: str = "",
    ) -> None:
        """``what``: started | finished | failed, the last with its ``code`` and ``text``.

        It must not raise for a failure of its own.
        """


@dataclass(frozen=True, slots=True)
class MailboxContext:
    """The dependencies that the functions of the mailbox get beside their transaction."""

    clock: Clock
    entropy: Entropy
    boot_id: str
    limits: MailboxLimits
    epochs: EpochMap
    durations: TurnDurations
    loads: AgentLoads
    steady: SteadyClock
    """The clock of deadlines and pauses."""
    role_now: RoleNow
    """The present role of a person, which limits work that starts later than it was requested
    (``mailbox.messages.current_rights``)."""
    question_observers: tuple[QuestionObserver, ...] = ()
    """The part that records decisions about calls that wait for an approval; at most one."""
    message_observers: tuple[MessageObserver, ...] = ()


@dataclass(frozen=True, slots=True)
class MessageEnd:
    """The end of a message, as its row tells it."""

    state: MessageState
    code: str = ""
    text: str = ""
    outcome: MessageOutcome | None = None
    answer: str = ""

    def of(self, message: Message, at: int) -> Message:
        """The message as it ended."""
        return replace(
            message,
            state=self.state,
            outcome=self.outcome,
            result_text=self.answer,
            error_code=self.code,
            error_text=self.text,
            finished_at=at,
        )


@dataclass(frozen=True, slots=True)
class Completion:
    """The end of a turn. ``text`` is the answer; a failure has ``error_code`` and
    ``error_text``."""

    outcome: MessageOutcome
    text: str = ""
    error_code: str = ""
    error_text: str = ""
    notice: str = ""
    """The failure for a person, in their language; if it is empty, they get ``error_text``."""
    parts: tuple[Part, ...] = ()
    """Files for the person, in order."""
    engine: str = ""
    engine_state: bytes | None = None
    """The engine's own state of the session; None keeps the stored one."""


@dataclass(frozen=True, slots=True)
class StopCounts:
    """The messages that a stop cancelled, counted by the state they were in.

    ``message_ids`` are those that were leased or parked; ``agent_ids`` are the agents of all.
    """

    scope: str
    epoch: int
    running: int = 0
    queued: int = 0
    parked: int = 0
    message_ids: tuple[str, ...] = ()
    agent_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Claimed:
    """The leases of a claim, and when the next delayed message may start.

    ``due_at`` is in ms, by the steady clock; None without a delayed message. ``begun`` is what
    ``BeginSegment`` returned, by message id, and ``left`` the lanes of messages that may start too, if
    there is a slot.
    """

    leases: tuple[Lease, ...]
    due_at: int | None = None
    begun: Mapping[str, int | None] = field(default_factory=dict)
    left: frozenset[LaneName] = frozenset()
    at_work: Mapping[str, LaneName] = field(default_factory=dict)
    """The lanes of messages that wait only for the turn of their session, by session."""
    epochs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The stop epochs of each leased message's session when it was claimed."""


BeginSegment = Callable[[Tx, Lease], int | None]
"""Begins the first segment of a turn in the transaction of its claim, and returns its number. None:
the turn begins it later."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """One message that was cancelled; ``was`` tells whether its turn has to be ended.

    ``with_it`` are the delegated runs that were cancelled with it after they had begun: their turns
    have to be ended too.
    """

    message_id: str
    agent_id: str
    session_id: str
    was: MessageState
    with_it: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expired:
    """The questions and messages that one check of the deadlines closed."""

    question_ids: tuple[str, ...] = ()
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """Messages that run before this one, and the estimated wait; 0 and None once it runs."""

    position: int
    eta_s: float | None = field(default=None)
    waits_for: Question | None = None
    """The question to people that its session waits for; the wait can't be estimated then."""
