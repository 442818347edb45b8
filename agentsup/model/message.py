"""The one unit of work, its states, and where its answer goes.

The state table below alone decides which change is legal; the mailbox checks it before each write,
and the tests check it completely.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any, Literal

from agentsup.model.errors import IllegalTransition
from agentsup.model.ids import AgentId, InstanceId, MessageId, SessionId
from agentsup.model.principal import Principal
from agentsup.model.question import Question

MAX_DEPTH = 8
"""The longest path of open requests (design, paths)."""
MAX_MESSAGES_PER_ROOT = 200
MAX_ATTEMPTS = 4
MAX_CRASHES = 2
LEASE_MS = 30_000
LEASE_RENEW_S = 10.0
AGING_MS = 30 * 60 * 1000
"""The wait in ms after which a message gains one priority level: half an hour."""
RESUME_WITHIN_MS = 15 * 60 * 1000
"""A turn interrupted by a crash is resumed automatically if it is younger than this (ms)."""


class MessageKind(StrEnum):
    CHAT = "chat"
    TASK = "task"
    REPLY = "reply"
    BROADCAST = "broadcast"
    EVENT = "event"
    DIRECTIVE = "directive"


class LaneName(StrEnum):
    INTERACTIVE = "interactive"
    PEER = "peer"
    BACKGROUND = "background"


class Priority(IntEnum):
    """Lower runs first."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3

    @classmethod
    def parse(cls, text: str) -> Priority:
        return cls[text.upper()]


class MessageState(StrEnum):
    QUEUED = "queued"
    LEASED = "leased"
    PARKED = "parked"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


class MessageOutcome(StrEnum):
    OK = "ok"
    FAILED = "failed"


TERMINAL = frozenset({MessageState.DONE, MessageState.DEAD, MessageState.CANCELLED})
OPEN = frozenset({MessageState.QUEUED, MessageState.LEASED, MessageState.PARKED})

TRANSITIONS: dict[MessageState, frozenset[MessageState]] = {
    MessageState.QUEUED: frozenset(
        {MessageState.LEASED, MessageState.CANCELLED, MessageState.DEAD, MessageState.DONE}
    ),
    MessageState.LEASED: frozenset(MessageState),
    MessageState.PARKED: frozenset(
        {MessageState.QUEUED, MessageState.DONE, MessageState.DEAD, MessageState.CANCELLED}
    ),
    MessageState.DONE: frozenset(),
    MessageState.DEAD: frozenset({MessageState.QUEUED, MessageState.CANCELLED}),
    MessageState.CANCELLED: frozenset(),
}
"""``queued -> done`` is an expiry (failed, with a notice); ``leased -> leased`` is a take-over of a
void lease; ``dead -> queued`` is a requeue and ``dead -> cancelled`` a drop, both by a person."""


def check_transition(message_id: str, old: MessageState, new: MessageState) -> None:
    """Raise ``IllegalTransition`` unless the table allows ``old -> new``."""
    if new not in TRANSITIONS[old]:
        raise IllegalTransition(
            f"message {message_id} is {old.value} and can't become {new.value}",
            message_id=message_id,
            state=old.value,
        )


# -- content ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of content: ``text``, a ``file`` (path in a workspace) or ``data`` (JSON)."""

    type: Literal["text", "file", "data"]
    text: str = ""
    path: str = ""
    name: str = ""
    data: Any = None

    def to_json(self) -> dict[str, Any]:
        if self.type == "text":
            return {"type": "text", "text": self.text}
        if self.type == "file":
            return {"type": "file", "path": self.path, "name": self.name}
        return {"type": "data", "data": self.data}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Part:
        return cls(**data)


def text_parts(text: str) -> tuple[Part, ...]:
    return (Part("text", text=text),)


def text_of(parts: tuple[Part, ...]) -> str:
    return "\n".join(p.text for p in parts if p.type == "text")


# -- delivery --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeliverTo:
    """The destination of a message's result, as a tagged union.

    ``chat``: ``channel`` + ``conversation`` of the agent ``agent_id``. ``mailbox``: a reply message
    into ``session_id`` of agent ``agent_id`` (the asker); with ``waited``, a caller waits on the
    completion event, so no reply message is made. ``http``, ``store`` and ``none``: the result
    stays in the row, to be fetched (or not). ``question``: the answer to the question
    ``question_id``, which an agent was asked.
    """

    kind: Literal["chat", "mailbox", "http", "store", "question", "none"]
    agent_id: str = ""
    channel: str = ""
    conversation: str = ""
    session_id: str = ""
    question_id: str = ""
    waited: bool = False
    silent: bool = False
    then: DeliverTo | None = None
    """For ``mailbox``: where the answer to the reply goes (the asker's own conversation)."""

    def to_json(self) -> dict[str, Any]:
        full = {each: getattr(self, each) for each in self.__slots__}
        full["then"] = self.then.to_json() if self.then else None
        return {k: v for k, v in full.items() if v}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> DeliverTo:
        then = data.get("then")
        return cls(**{**data, "then": cls.from_json(then) if then else None})


NOWHERE = DeliverTo("none")
IN_STORE = DeliverTo("store")


# -- the message -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message for the mailbox to accept.

    ``session_key`` names the session within the agent: ``chat:<channel>:<conversation>``,
    ``ia-<sender>``, ``task:<id>``, ``schedule:<id>`` or a thread's (see ``mailbox.messages.keys``).
    ``new_session`` opens a new one under the same key. ``source`` + ``external_id`` is the ledger
    key of the platform; ``idempotency_key`` is the caller's own, scoped to its principal (or to
    ``key_by``).
    """

    agent_id: AgentId
    session_key: str
    parts: tuple[Part, ...]
    principal: Principal
    kind: MessageKind = MessageKind.CHAT
    lane: LaneName = LaneName.INTERACTIVE
    priority: Priority = Priority.NORMAL
    deliver_to: DeliverTo = NOWHERE
    new_session: bool = False
    thread_id: str = ""
    in_reply_to: str = ""
    root_id: str = ""
    path: tuple[str, ...] = ()
    traceparent: str = ""
    expires_at: int | None = None
    not_before: int = 0
    capability: str = ""
    source: str = ""
    external_id: str = ""
    idempotency_key: str = ""
    replay_of: str = ""
    sender_agent_id: str = ""
    summary: str = ""
    silent: bool = False
    epochs: dict[str, int] = field(default_factory=dict)
    """Stop epochs of the asker's scopes at acceptance; a reply with an older epoch is refused."""
    person: str = ""
    """The person for whom the work is done (``Principal.person``), if neither its root nor its
    principal tells."""
    key_by: Principal | None = None
    """The owner of ``idempotency_key``, if that is not its principal."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The mailbox's answer. ``duplicate``: the key was known, and nothing new was stored."""

    message_id: MessageId
    session_id: SessionId
    state: MessageState
    duplicate: bool = False
    position: int = 0
    """The number of messages before it in its session."""
    eta_s: float | None = None
    """Seconds until it may be done; None if unknown, for example while a person is waited for."""
    waits_for: Question | None = None
    """The question to people for which its session waits."""


@dataclass(frozen=True, slots=True)
class Message:
    """A stored message with all its fields."""

    message_id: MessageId
    seq: int
    agent_id: AgentId
    session_id: SessionId
    kind: MessageKind
    lane: LaneName
    priority: Priority
    state: MessageState
    outcome: MessageOutcome | None
    parts: tuple[Part, ...]
    principal: Principal
    deliver_to: DeliverTo
    in_reply_to: str
    thread_id: str
    root_id: str
    path: tuple[str, ...]
    traceparent: str
    sender_agent_id: str
    accepted_at: int
    started_at: int | None
    finished_at: int | None
    expires_at: int | None
    not_before: int
    attempts: int
    crashes: int
    fence: int
    result_text: str
    error_code: str
    error_text: str
    replay_of: str
    silent: bool
    summary: str
    epochs: dict[str, int]
    person: str = ""
    """The person for whom the work is done: the ``Principal.person`` of its root."""

    @property
    def text(self) -> str:
        return text_of(self.parts)

    def renewed(self, session_key: str) -> NewMessage:
        """The same request as a new message, of which nobody waits for the answer any more."""
        return NewMessage(
            agent_id=self.agent_id,
            session_key=session_key,
            parts=self.parts,
            principal=self.principal,
            kind=self.kind,
            lane=self.lane,
            priority=self.priority,
            deliver_to=replace(self.deliver_to, waited=False),
            thread_id=self.thread_id,
            in_reply_to=self.in_reply_to,
            root_id=self.root_id,
            path=self.path,
            traceparent=self.traceparent,
            replay_of=self.replay_of or self.message_id,
            sender_agent_id=self.sender_agent_id,
            summary=self.summary,
            silent=self.silent,
            epochs=self.epochs,
            person=self.person,
        )

    @property
    def is_said_in_chat(self) -> bool:
        """Whether a person wrote it in a chat and waits there for the answer.

        False for anything else that delivers to a chat: tasks, schedules, results, requests of
        programs.
        """
        return (
            self.kind is MessageKind.CHAT
            and self.lane is LaneName.INTERACTIVE
            and self.deliver_to.kind == "chat"
        )


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one message. Every write that ends the work checks ``fence``."""

    message: Message
    fence: int
    instance_id: InstanceId
    resumed: bool = False
    """Whether an earlier segment exists: after a crash, a release or an answered question."""
