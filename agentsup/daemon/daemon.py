"""A daemon as its entry point and tests see it."""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.agents.host import HostServices
from agentsup.agents.processes import ProcessTable
from agentsup.api.server import ApiServer
from agentsup.channels.inbox import Inbox
from agentsup.daemon.alarm import Alarm
from agentsup.daemon.control import DaemonControl
from agentsup.daemon.fleet import Fleet
from agentsup.daemon.reconcile import Reconciler
from agentsup.daemon.supervisor import AgentSupervisor
from agentsup.daemon.tracing import DaemonTraces
from agentsup.engines.registry import EngineRegistry
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.bus import InterAgentBus
from agentsup.mailbox.dispatcher import Dispatcher
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.relay import Relay
from agentsup.observe.metrics import Metrics
from agentsup.supervision.board import Board


@dataclass(frozen=True, slots=True)
class Daemon:
    """The built parts that the entry point and tests speak to."""

    supervisor: AgentSupervisor
    control: DaemonControl
    mailbox: Mailbox
    bus: InterAgentBus
    post: Dispatcher
    inbox: Inbox
    fleet: Fleet
    reconciler: Reconciler
    processes: ProcessTable
    alarm: Alarm
    api: ApiServer
    engines: EngineRegistry
    board: Board
    relay: Relay
    metrics: Metrics
    calls: HostServices
    traces: DaemonTraces
    tasks: TaskOwner
