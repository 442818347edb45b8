"""The parts of the daemon, in the three groups in which they are built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from agentsup.agents.memory import AgentMemory
from agentsup.agents.turn import HostServices, TurnServices
from agentsup.agents.workspace import ProcessTable, SharedKnowledge
from agentsup.api.server import ApiServer
from agentsup.channels.core.receiving import Inbox
from agentsup.commands import ChatCommands
from agentsup.daemon.assembly.budgets import DaemonSpending
from agentsup.daemon.assembly.roles import DaemonRoles
from agentsup.daemon.assembly.tasks import DaemonTasks
from agentsup.daemon.assembly.tool_pipeline import DaemonMcp
from agentsup.daemon.assembly.traces import DaemonTraces
from agentsup.daemon.runtime.alarm import Alarm
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.channels import Channels
from agentsup.daemon.runtime.control import DaemonControl
from agentsup.daemon.runtime.ending import Ending
from agentsup.daemon.runtime.engines import DaemonEngines
from agentsup.daemon.runtime.fleet import Fleet
from agentsup.daemon.runtime.people import People
from agentsup.daemon.runtime.reconcile import Reconciler
from agentsup.daemon.runtime.recorder import LifeRecorder
from agentsup.daemon.runtime.roster import RosterDirectory
from agentsup.daemon.runtime.stop import Stopper
from agentsup.daemon.runtime.supervisor import AgentSupervisor
from agentsup.daemon.runtime.transports import ChannelServices
from agentsup.engines.registry import EngineRegistry
from agentsup.kit.lag import LagProbe
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox import Mailbox
from agentsup.mailbox.delivery import Relay
from agentsup.mailbox.mail import AgentMailbox, Dispatcher, InterAgentBus
from agentsup.observe import LiveHub, Metrics
from agentsup.store import EventLog
from agentsup.supervision import Board, Watchdog

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MailParts:
    """The first group: messages, and what all other parts share."""

    tasks: TaskOwner
    ending: Ending
    board: Board
    people: People
    mailbox: Mailbox
    directory: RosterDirectory
    bus: InterAgentBus
    dispatcher: Dispatcher
    history: AgentMailbox
    events: EventLog
    live: LiveHub
    memory: AgentMemory


@dataclass(frozen=True, slots=True)
class RunningParts:
    """Of the second group: agents as supervised children, with their bots."""

    channels: Channels
    relay: Relay
    alarm: Alarm
    recorder: LifeRecorder
    processes: ProcessTable
    registry: EngineRegistry
    engines: DaemonEngines
    fleet: Fleet
    stopper: Stopper
    knowledge: SharedKnowledge


@dataclass(frozen=True, slots=True)
class AgentParts:
    """The second group: agents, and what their turns use."""

    running: RunningParts
    tasks: DaemonTasks
    traces: DaemonTraces
    spending: DaemonSpending
    calls: HostServices
    mcp: DaemonMcp
    lag: LagProbe
    watchdog: Watchdog
    metrics: Metrics
    reconciler: Reconciler
    roles: DaemonRoles
    turns: TurnServices


@dataclass(frozen=True, slots=True)
class BorderParts:
    """The third group: what people and programs reach, and the supervisor of everything."""

    control: DaemonControl
    commands: ChatCommands
    inbox: Inbox
    channel_services: ChannelServices
    api: ApiServer
    supervisor: AgentSupervisor


class Late(Generic[T]):
    """Breaks a real cycle between parts: one of them gets this, and calls it while it works.

    It is set once, when the other part is built. Calling it earlier is a defect of the order in
    which parts are built, and raises.
    """

    __slots__ = ("_name", "_values")

    def __init__(self, name: str) -> None:
        """``name`` says in errors what is missing."""
        self._name = name
        self._values: tuple[T, ...] = ()

    def set(self, value: T) -> None:
        """Give the part. Raises ``RuntimeError`` if it was given before."""
        if self._values:
            raise RuntimeError(f"{self._name} is built twice")
        self._values = (value,)

    def __call__(self) -> T:
        """The part. Raises ``RuntimeError`` before it is built."""
        if not self._values:
            raise RuntimeError(f"{self._name} is used before it is built")
        return self._values[0]


@dataclass(frozen=True, slots=True)
class Assembly:
    """The daemon while it is built.

    The results of the second and the third group raise if they are read before they exist: turns
    have tools that use the fleet, and the fleet makes stacks with these turns.
    """

    boot: BootContext
    mail: MailParts
    agents: Late[AgentParts]
    borders: Late[BorderParts]
