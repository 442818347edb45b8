"""The one unit of work, its states, and where its answer goes.

The state table below is the only place that says which change is legal; the mailbox asks it before
each write and the tests walk it whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Literal

from agentsup.model.errors import IllegalTransition
from agentsup.model.ids import AgentId, InstanceId, MessageId, SessionId
from agentsup.model.principal import Principal
from agentsup.model.question import Question

MAX_DEPTH = 8
"""Longest path of open requests (design, paths)."""
MAX_MESSAGES_PER_ROOT = 200
MAX_ATTEMPTS = 4
MAX_CRASHES = 2
LEASE_MS = 30_000
LEASE_RENEW_S = 10.0
AGING_MS = 30 * 60 * 1000
"""A message gains one priority level for each half hour it waits."""
RESUME_WITHIN_MS = 15 * 60 * 1000
"""A turn interrupted by a crash is resumed by itself if it is younger than this."""


class Kind(StrEnum):
    CHAT = "chat"
    TASK = "task"
    REPLY = "reply"
    BROADCAST = "broadcast"
    EVENT = "event"
    DIRECTIVE = "directive"


class Lane(StrEnum):
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


class State(StrEnum):
    QUEUED = "queued"
    LEASED = "leased"
    PARKED = "parked"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Outcome(StrEnum):
    OK = "ok"
    FAILED = "failed"


TERMINAL = frozenset({State.DONE, State.DEAD, State.CANCELLED})
OPEN = frozenset({State.QUEUED, State.LEASED, State.PARKED})

TRANSITIONS: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.LEASED, State.CANCELLED, State.DEAD, State.DONE}),
    State.LEASED: frozenset(
        {State.QUEUED, State.LEASED, State.PARKED, State.DONE, State.DEAD, State.CANCELLED}
    ),
    State.PARKED: frozenset({State.QUEUED, State.DONE, State.DEAD, State.CANCELLED}),
    State.DONE: frozenset(),
    State.DEAD: frozenset({State.QUEUED, State.CANCELLED}),
    State.CANCELLED: frozenset(),
}
"""``queued -> done`` is an expiry (failed, with a notice); ``leased -> leased`` is a take-over of a
void lease; ``dead -> queued`` is a requeue and ``dead -> cancelled`` a drop, by a person."""


def check_transition(message_id: str, old: State, new: State) -> None:
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
        return cls(
            type=data["type"],
            text=data.get("text", ""),
            path=data.get("path", ""),
            name=data.get("name", ""),
            data=data.get("data"),
        )


def text_parts(text: str) -> tuple[Part, ...]:
    return (Part("text", text=text),)


def text_of(parts: tuple[Part, ...]) -> str:
    return "\n".join(p.text for p in parts if p.type == "text")


# -- where an answer goes ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeliverTo:
    """A tagged union: where the result of a message is delivered.

    ``chat``: ``channel`` + ``conversation`` of the agent ``agent_id``.
    ``mailbox``: a reply message into ``session_id`` of agent ``agent_id`` (the asker); ``waited``
    says that a caller waits on the completion event, so that no reply message is made.
    ``http``, ``store`` and ``none``: the result stays in the row, to be fetched (or not).
    ``webhook``: posted to ``url``.
    ``question``: the answer to the question ``question_id``, which an agent was asked.
    """

    kind: Literal["chat", "mailbox", "http", "webhook", "store", "question", "none"]
    agent_id: str = ""
    channel: str = ""
    conversation: str = ""
    session_id: str = ""
    url: str = ""
    question_id: str = ""
    waited: bool = False
    silent: bool = False
    then: DeliverTo | None = None
    """For ``mailbox``: where the answer to the reply goes (the asker's own conversation)."""

    def to_json(self) -> dict[str, Any]:
        full: dict[str, Any] = {
            "kind": self.kind,
            "agent_id": self.agent_id,
            "channel": self.channel,
            "conversation": self.conversation,
            "session_id": self.session_id,
            "url": self.url,
            "question_id": self.question_id,
            "waited": self.waited,
            "silent": self.silent,
            "then": self.then.to_json() if self.then else None,
        }
        return {k: v for k, v in full.items() if v}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> DeliverTo:
        then = data.get("then")
        return cls(**{**data, "then": cls.from_json(then) if then else None})


NOWHERE = DeliverTo("none")
IN_STORE = DeliverTo("store")


# -- the message -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewMessage:
    """What the mailbox is asked to accept.

    ``session_key`` names the session within the agent: ``chat:<channel>:<conversation>``,
    ``ia-<sender>``, ``task:<id>``, ``schedule:<id>`` or a thread's (see ``mailbox.naming``). ``new_session`` opens a fresh
    one under the same key. ``source`` + ``external_id`` is the ledger key of the platform;
    ``idempotency_key`` is the caller's own, scoped to its principal.
    """

    agent_id: AgentId
    session_key: str
    parts: tuple[Part, ...]
    principal: Principal
    kind: Kind = Kind.CHAT
    lane: Lane = Lane.INTERACTIVE
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
    """Stop epochs of the asker's scopes at acceptance; a reply of an older epoch is refused."""
    person: str = ""
    """Whose work it is (``Principal.person``), where neither its root nor its principal tells."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the mailbox answers. ``duplicate`` = the key was known; nothing new was stored."""

    message_id: MessageId
    session_id: SessionId
    state: State
    duplicate: bool = False
    position: int = 0
    """Messages that wait before it in its session."""
    eta_s: float | None = None
    """Seconds until it may be done; None where nobody can tell, as where a person is waited for."""
    waits_for: Question | None = None
    """The question to people that its session waits for."""


@dataclass(frozen=True, slots=True)
class Message:
    """A stored message, read whole."""

    message_id: MessageId
    seq: int
    agent_id: AgentId
    session_id: SessionId
    kind: Kind
    lane: Lane
    priority: Priority
    state: State
    outcome: Outcome | None
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
    """Whose work it is: the ``Principal.person`` of its root."""

    @property
    def text(self) -> str:
        return text_of(self.parts)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one message. ``fence`` is checked by every write that ends the work."""

    message: Message
    fence: int
    instance_id: InstanceId
    resumed: bool = False
    """An earlier segment of this turn exists: a crash, a release or an answered question."""
