"""The parts of a built daemon under one name, for tests and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.agents.turn import HostServices
from agentsup.agents.workspace import ProcessTable
from agentsup.api.server import ApiServer
from agentsup.channels.core.receiving import Inbox
from agentsup.daemon.assembly.build import build
from agentsup.daemon.assembly.tasks import DaemonTasks
from agentsup.daemon.assembly.traces import DaemonTraces
from agentsup.daemon.runtime.alarm import Alarm
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.control import DaemonControl
from agentsup.daemon.runtime.ending import Ending
from agentsup.daemon.runtime.fleet import Fleet
from agentsup.daemon.runtime.reconcile import Reconciler
from agentsup.daemon.runtime.roster import RosterDirectory
from agentsup.daemon.runtime.supervisor import AgentSupervisor
from agentsup.engines.registry import EngineRegistry
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox import Mailbox
from agentsup.mailbox.delivery import Relay
from agentsup.mailbox.mail import Dispatcher, InterAgentBus
from agentsup.observe import Metrics
from agentsup.supervision import Board


@dataclass(frozen=True, slots=True)
class Daemon:
    """The parts that tests speak to."""

    ending: Ending
    supervisor: AgentSupervisor
    control: DaemonControl
    mailbox: Mailbox
    bus: InterAgentBus
    dispatcher: Dispatcher
    directory: RosterDirectory
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
    work: DaemonTasks


def build_daemon(boot_context: BootContext) -> Daemon:
    """Wire one boot as the daemon does, and name its parts."""
    assembly = build(boot_context)
    mail, agents, borders = assembly.mail, assembly.agents(), assembly.borders()
    return Daemon(
        ending=mail.ending,
        supervisor=borders.supervisor,
        control=borders.control,
        mailbox=mail.mailbox,
        bus=mail.bus,
        dispatcher=mail.dispatcher,
        directory=mail.directory,
        inbox=borders.inbox,
        fleet=agents.running.fleet,
        reconciler=agents.reconciler,
        processes=agents.running.processes,
        alarm=agents.running.alarm,
        api=borders.api,
        engines=agents.running.registry,
        board=mail.board,
        relay=agents.running.relay,
        metrics=agents.metrics,
        calls=agents.calls,
        traces=agents.traces,
        tasks=mail.tasks,
        work=agents.tasks,
    )
