"""What the API needs of the daemon, as ports, and the bundle that hands them over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.mailbox.bus import AgentDirectory, Asker, BusReply, BusRequest
from agentsup.mailbox.history import Received
from agentsup.mailbox.letters import Sent
from agentsup.mailbox.values import Cancelled, Position
from agentsup.model.control import Button, CommandInfo, Control, TokenIdentity, Tokens
from agentsup.model.event import Event
from agentsup.model.message import Accepted, Message, NewMessage, Part, Priority, State
from agentsup.model.principal import PersonRole, Principal
from agentsup.model.question import Question, QuestionState, Seen
from agentsup.model.task import DeliveryState, NewSchedule, NewTask, Run, Schedule, Task, TaskState
from agentsup.model.tool import Tool, ToolResult
from agentsup.observe.live import LiveTurn
from agentsup.store.database import Database, Tx
from agentsup.store.events import EventLog

MIB = 1024 * 1024


class Bus(Protocol):
    """The part of `InterAgentBus` that HTTP callers use."""

    async def send(
        self,
        request: BusRequest,
        *,
        caller: Principal,
        timeout_s: float = ...,
        asker: Asker | None = ...,
    ) -> BusReply:
        """Ask and wait; a failure of the agent or its engine is raised, never answered."""

    async def send_async(
        self, request: BusRequest, *, caller: Principal, asker: Asker | None = ...
    ) -> Accepted:
        """Queue and return."""


class Post(Protocol):
    """The part of the dispatcher that the API uses."""

    async def reassign(self, message_id: str, to: str, by: Principal) -> Sent:
        """Give what waits or is dead to another agent, once."""


class Letters(Protocol):
    """The part of the mail between agents that the API shows and marks."""

    async def history(
        self,
        agent_id: str,
        *,
        limit: int = 50,
        before: int | None = None,
        unread_only: bool = False,
    ) -> Sequence[Received]: ...

    async def mark_read(self, agent_id: str, message_ids: Sequence[str]) -> int:
        """How many were not marked before. Raises `NotFound` for one that is not its mail."""

    async def mark_all_read(self, agent_id: str) -> int: ...

    async def unread_counts(self, agent_ids: Sequence[str]) -> Mapping[str, int]: ...


class Mail(Protocol):
    """The part of the mailbox that the API shows and steers."""

    async def get(self, message_id: str) -> Message: ...

    async def list(
        self,
        *,
        agent_id: str | None = None,
        state: State | None = None,
        session_id: str | None = None,
        thread_id: str | None = None,
        before_seq: int | None = None,
        removed: bool = False,
        limit: int = 100,
    ) -> Sequence[Message]: ...

    async def thread(self, thread_id: str) -> Sequence[Message]: ...

    async def position(self, message_id: str) -> Position: ...

    async def wait_done(self, message_id: str, timeout_s: float | None) -> Message: ...

    async def cancel(self, message_id: str, by: Principal) -> Cancelled: ...

    async def reprioritise(self, message_id: str, priority: Priority, by: Principal) -> Any: ...

    async def replay(self, message_id: str, by: Principal) -> Accepted: ...

    async def requeue(self, message_id: str, by: Principal) -> Any: ...

    async def drop(self, message_id: str, by: Principal) -> Any: ...

    async def questions(
        self, state: QuestionState | None = ..., *, limit: int = ...
    ) -> Sequence[Question]: ...

    async def question(self, question_id: str) -> Question: ...

    async def answer(
        self,
        question_id: str,
        answer: str,
        by: Principal,
        args: str = ...,
        seen: Seen = ...,
    ) -> Question: ...

    async def current_session(self, agent_id: str, key: str) -> str | None: ...

    async def point(self, agent_id: str, key: str, session_id: str) -> None: ...

    def accept_tx(self, tx: Tx, new: NewMessage) -> Accepted: ...

    def answer_tx(
        self, tx: Tx, question_id: str, answer: str, by: Principal, seen: Seen = ...
    ) -> Question: ...


class Said(Protocol):
    """What became of a text that a person typed."""

    @property
    def kind(self) -> Literal["accepted", "command"]: ...

    @property
    def message(self) -> Accepted | None: ...

    @property
    def text(self) -> str: ...

    @property
    def ok(self) -> bool: ...

    @property
    def code(self) -> str: ...

    @property
    def buttons(self) -> tuple[tuple[Button, ...], ...]: ...


class Inbox(Protocol):
    """Where a conversation's texts enter. A command runs at once and passes every queue."""

    async def say(
        self,
        *,
        agent_name: str,
        channel: str,
        conversation: str,
        text: str,
        principal: Principal,
        external_id: str,
        files: tuple[Part, ...] = ...,
        language: str = ...,
        has_buttons: bool = ...,
        is_private: bool = ...,
        also: Callable[[Tx, Accepted], None] | None = ...,
    ) -> Said: ...

    async def history(
        self, agent_name: str, channel: str, conversation: str, limit: int
    ) -> Sequence[Event]:
        """The latest chat events of the conversation, oldest first."""


class Traces(Protocol):
    """What writes traces beside the turns."""

    async def flush(self) -> None:
        """Write what is known by now, for a moment."""

    def counts(self) -> Mapping[str, int]:
        """Spans written, waiting, lost and sent since the start."""

    def excerpt(self, text: str) -> str:
        """The first words of a message, short and without secrets."""


class Tasks(Protocol):
    """The TaskHub. ``caller`` is who acts: another's task is `Forbidden`, an unknown one `NotFound`."""

    async def create(
        self, new: NewTask, *, caller: Principal, asker: Asker | None = ...
    ) -> Task: ...

    async def list(
        self,
        *,
        caller: Principal,
        states: Collection[TaskState] = ...,
        agent_id: str = ...,
        before: str = ...,
        limit: int = ...,
    ) -> Sequence[Task]:
        """Newest first."""

    async def get(self, task_id: str, *, caller: Principal) -> Task: ...

    async def runs(self, task_id: str, *, caller: Principal, limit: int = ...) -> Sequence[Run]: ...

    async def questions(self, task_id: str, *, caller: Principal) -> Sequence[Question]: ...

    async def schedule(self, task_id: str, *, caller: Principal) -> Schedule | None: ...

    async def delivery(self, task: Task) -> DeliveryState: ...

    async def log(self, task_id: str, *, caller: Principal, tail: int = ...) -> Sequence[Event]: ...

    async def resume(
        self,
        task_id: str,
        prompt: str,
        *,
        caller: Principal,
        asker: Asker | None = ...,
        idempotency_key: str = ...,
    ) -> Task: ...

    async def ask_parent(
        self, task_id: str, text: str, *, caller: Principal, options: Sequence[str] = ...
    ) -> Question: ...

    async def answer(
        self, task_id: str, text: str, *, caller: Principal, question_id: str = ...
    ) -> Question: ...

    async def cancel(self, task_id: str, *, caller: Principal) -> Task: ...

    async def delete(self, task_id: str, *, caller: Principal) -> None: ...

    async def update(
        self,
        task_id: str,
        *,
        caller: Principal,
        progress: str | None = ...,
        percent: int | None = ...,
        note: str = ...,
        state: TaskState | None = ...,
        name: str | None = ...,
    ) -> Task: ...

    async def pause(self, task_id: str, *, caller: Principal, is_paused: bool) -> Task: ...

    async def reschedule(
        self,
        task_id: str,
        schedule: NewSchedule,
        *,
        caller: Principal,
        asker: Asker | None = ...,
    ) -> Task: ...

    def folder_of(self, task_id: str) -> Path: ...


class RoleDesk(Protocol):
    """What there is to know about roles."""

    async def document(self) -> Mapping[str, Any]:
        """Every role, and what is wrong with their files."""

    async def problem_of(self, name: str) -> str:
        """Why nobody can be put into the role of that name; empty if one can."""

    async def route_document(self, text: str) -> Mapping[str, Any]:
        """Which role a text is for, and why."""


class Account(Protocol):
    """What was used."""

    async def document(self, name: str | None = None) -> Mapping[str, Any]:
        """Of every agent, or of one. Raises `NotFound` or `Gone`."""


class ServedTurn(Protocol):
    """A running turn, as a program outside sees it."""

    def tools(self) -> tuple[Tool, ...]:
        """What it may call."""

    async def call(self, name: str, args: dict[str, Any], request_id: str) -> ToolResult:
        """Make a call. Raises `Unauthorised` once the turn has ended."""

    def cancel(self, request_id: str) -> None:
        """Give a call up."""


class LiveFeed(Protocol):
    """What changes in the running texts of one conversation, frame by frame.

    The first frame is of type `live` and has what runs already in `turns`.
    """

    async def next(self) -> Mapping[str, Any]: ...

    def close(self) -> None: ...


class Live(Protocol):
    """Text of running turns; nothing of it is durable."""

    def subscribe(self, agent_id: str, conversation: str) -> LiveFeed: ...

    def follow(
        self, agent_id: str, channel: str, begin: Callable[[LiveTurn], None]
    ) -> Callable[[], None]:
        """Hear of each turn in a channel; returns the way to stop."""


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """Bounds of the listener. Times in seconds."""

    body_bytes: int = MIB
    body_s: float = 60.0
    """A body that is not whole by then is none."""
    open_body_bytes: int = 4 * 1024
    open_body_s: float = 10.0
    """The same of a route that needs no token."""
    connections: int = 512
    """At the same time; those that nobody vouches for make room for others."""
    header_s: float = 10.0
    """From a connection, or the first byte of a further request, to the end of the headers."""
    idle_s: float = 75.0
    """Between two requests of somebody known."""
    stranger_s: float = 20.0
    """For a request without a token, its body and answer included, and until the next one."""
    event_streams: int = 64
    """Open `/events` streams; one more is refused."""
    sockets: int = 64
    """Open `/ws` connections; one more is refused."""
    waiting: int = 512
    """Calls that wait for a result at the same time."""
    uploads: int = 8
    """Files on their way in at the same time."""
    upload_bytes: int = 50 * MIB
    """The largest file that a person may send."""
    heartbeat_s: float = 15.0
    stall_s: float = 20.0
    """A reader that takes nothing for this long is cut off."""
    hello_s: float = 10.0
    outgoing_frames: int = 256
    """Frames that may wait in one socket's outgoing queue."""
    says_in_flight: int = 32
    close_s: float = 2.0
    """How long open requests may go on once the listener closes."""


@dataclass(frozen=True, slots=True)
class WebDeps:
    """What the web page needs beside the rest."""

    database: Database
    people: Callable[[], Mapping[str, PersonRole]]
    """The persons of [people] and their roles, as they are now."""
    operator_key: Callable[[], str]
    """Changes with the operator's token; tells nothing of it."""
    node_id: str
    workspace: Callable[[str], Path]
    """Where an agent works, by its name."""
    log_file: Path | None
    offered: Callable[[str, str], Sequence[CommandInfo]]
    """The chat commands of an agent, by its id, in a language."""
    language: Callable[[str], str] = lambda person: ""
    """What a person of [people] reads, or empty."""
    files: BoundedPool = field(default_factory=lambda: BoundedPool("files"))
    """Where work on workspaces is done."""


@dataclass(frozen=True, slots=True)
class ApiDeps:
    """Everything the API speaks to. `metrics` renders the Prometheus text."""

    control: Control
    tokens: Tokens
    bus: Bus
    post: Post
    letters: Letters
    directory: AgentDirectory
    mailbox: Mail
    events: EventLog
    inbox: Inbox
    live: Live
    metrics: Callable[[], Awaitable[bytes]]
    abort_turn: Callable[[str], Awaitable[None]]
    """Ends the turn of a message that was cancelled just now, if one runs."""
    asker_of: Callable[[TokenIdentity], Asker | None]
    """The running turn that a run's token stands for, so that its requests keep their path."""
    clock: Clock
    entropy: Entropy
    version: str
    web: WebDeps
    served: Callable[[str], ServedTurn | None] = lambda token: None
    """The running turn whose program calls our tools with this token."""
    hooks: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    """The stages that a call passes now, one document each."""
    is_allowed: Callable[[str, str, str, str], bool] = lambda agent, channel, place, person: True
    """Whether an agent may still talk there: its name, channel, conversation, and whose it is."""
    roles: RoleDesk | None = None
    traces: Traces | None = None
    mcp: Callable[[str], Mapping[str, Any]] | None = None
    """The tool servers of an agent by its name, as a document; raises `NotFound`."""
    cost: Account | None = None
    tasks: Tasks | None = None
    """None: tasks are switched off."""
    boot_id: str = ""
    allowed_hosts: tuple[str, ...] = ()
    limits: ApiLimits = field(default_factory=ApiLimits)
