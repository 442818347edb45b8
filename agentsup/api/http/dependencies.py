"""The services of the daemon that the API needs, and the bundles that pass them to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agentsup.agents.budget import CostReport
from agentsup.agents.memory import AgentMemory
from agentsup.agents.roles import RoleCatalog
from agentsup.agents.turn import TurnEndpoint
from agentsup.api.documents.blocks import Blocks
from agentsup.approvals import Grants
from agentsup.channels.core.receiving import Inbox
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.mailbox import Mailbox
from agentsup.mailbox.mail import AgentDirectory, AgentMailbox, Asker, Dispatcher, InterAgentBus
from agentsup.model.control import CommandInfo, Control, TokenIdentity, Tokens
from agentsup.model.managed_bots import BotMaker
from agentsup.model.pairing import Pairing
from agentsup.model.principal import PersonRole
from agentsup.model.setup import Setup
from agentsup.observe import LiveHub
from agentsup.store import Database, EventLog
from agentsup.tasks import TaskHub

MIB = 1024 * 1024


class Traces(Protocol):
    """Facts about traces that are not in the store."""

    def counts(self) -> Mapping[str, int]:
        """Spans that the OTLP receiver took and did not take, since the start."""

    def excerpt(self, text: str) -> str:
        """The first words of a message, short and without secrets."""


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """Bounds of the listener. Times in seconds."""

    body_bytes: int = MIB
    body_s: float = 60.0
    """For a whole body; one that takes longer is refused."""
    open_body_bytes: int = 4 * 1024
    open_body_s: float = 10.0
    """Both for a route that needs no token."""
    connections: int = 512
    """At the same time; at the limit, those without a valid token are closed first."""
    idle_s: float = 75.0
    """From a connection or the end of a request to the end of the next request's headers."""
    event_streams: int = 64
    """Open ``/events`` streams; one more is refused."""
    sockets: int = 64
    """Open ``/ws`` connections; one more is refused."""
    waiting: int = 512
    """Calls that wait for a result at the same time."""
    uploads: int = 8
    """Files on their way in at the same time."""
    upload_bytes: int = 50 * MIB
    """The largest file that a person may send."""
    stored_upload_bytes: int = 1024 * MIB
    """Size of one person's files of the last seven days in one agent's inbox.
    ``stored_uploads`` limits their number."""
    stored_uploads: int = 1000
    heartbeat_s: float = 15.0
    """Seconds between comments that keep an idle event stream open, and between checks of a waiting
    call whether its client is still there."""
    ping_s: float = 15.0
    """Seconds between pings of a WebSocket. It is closed if no pong arrives within half of this."""
    stall_s: float = 20.0
    """A reader that takes nothing for this long is disconnected."""
    hello_s: float = 10.0
    outgoing_frames: int = 256
    """Frames that may wait in one socket's outgoing queue."""
    says_in_flight: int = 32
    close_s: float = 2.0
    """Seconds that open requests may go on once the listener closes."""


@dataclass(frozen=True, slots=True)
class WebDependencies:
    """The services that only the web page needs."""

    people: Callable[[], Mapping[str, PersonRole]]
    """The persons of [people] with their current roles."""
    operator_key: Callable[[], str]
    """A key that changes with the operator's token and does not reveal it."""
    node_id: str
    workspace: Callable[[str], Path]
    """The workspace of an agent, by its name."""
    log_file: Path | None
    offered: Callable[[str, str], Sequence[CommandInfo]]
    """The chat commands of an agent, by its id, in a language."""
    language: Callable[[str], str] = lambda person: ""
    """The language of a person of [people], or empty."""
    files: BoundedPool = field(default_factory=lambda: BoundedPool("files"))
    """The pool that runs file operations on workspaces."""
    blocks: Blocks = field(default_factory=Blocks)
    """Parses texts of agents for the page."""


@dataclass(frozen=True, slots=True)
class ApiDependencies:
    """Every service that the API calls. ``metrics`` renders the Prometheus text."""

    control: Control
    tokens: Tokens
    bus: InterAgentBus
    dispatcher: Dispatcher
    mail: AgentMailbox
    directory: AgentDirectory
    mailbox: Mailbox
    memory: AgentMemory
    grants: Grants
    database: Database
    events: EventLog
    inbox: Inbox
    live: LiveHub
    metrics: Callable[[], Awaitable[bytes]]
    abort_turn: Callable[[str], Awaitable[None]]
    """Ends the turn of a message that was cancelled just now, if one runs."""
    delegating_turn_of: Callable[[TokenIdentity], Asker | None]
    """The running turn that a run's token stands for, so that its requests keep their path."""
    clock: Clock
    entropy: Entropy
    version: str
    web: WebDependencies
    served: Callable[[str], TurnEndpoint | None]
    """The running turn whose program calls our tools with this token."""
    hooks: Callable[[], Sequence[Mapping[str, Any]]]
    """The stages that a call passes now, one document each."""
    is_allowed: Callable[[str, str, str, str], bool]
    """Whether an agent may still use a conversation: agent name, channel, conversation, person."""
    roles: RoleCatalog
    traces: Traces
    mcp: Callable[[str], Mapping[str, Any]]
    """The tool servers of an agent by its name, as a document; raises ``NotFound``."""
    cost: CostReport
    boot_id: str
    pairing: Pairing | None = None
    """None: this daemon lets nobody in."""
    bots: BotMaker | None = None
    """None: no bots are created over HTTP."""
    setup: Setup | None = None
    """None: this daemon is not set up over HTTP."""
    tasks: TaskHub | None = None
    """None: tasks are switched off."""
    allowed_hosts: tuple[str, ...] = ()
    limits: ApiLimits = field(default_factory=ApiLimits)
