"""The composition root: the only place that knows concrete classes. No decisions are made here."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentsup import __version__
from agentsup.agents.commands import ChatCommands
from agentsup.agents.commands.chat import CommandServices, chat_commands
from agentsup.agents.commands.main_chat import main_commands
from agentsup.agents.knowledge import SharedKnowledge
from agentsup.agents.processes import ProcessTable
from agentsup.agents.stack import AgentStack, StackPlace
from agentsup.agents.tools import Tools, peer_tools, shared_memory_tool
from agentsup.agents.turn import TurnServices
from agentsup.api.ports import ApiDeps, ApiLimits
from agentsup.api.server import ApiServer
from agentsup.channels.console import ConsoleChannel
from agentsup.channels.inbox import Inbox
from agentsup.config.home import Home
from agentsup.config.secrets import resolve
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon import boot as boots
from agentsup.daemon import services
from agentsup.daemon.control import DaemonControl, DaemonFacts
from agentsup.daemon.engines import DaemonEngines
from agentsup.daemon.fleet import Fleet
from agentsup.daemon.reconcile import Reconciler
from agentsup.daemon.recorder import Recorder
from agentsup.daemon.roster import Roster
from agentsup.daemon.stopping import Stopper
from agentsup.daemon.supervisor import AgentSupervisor
from agentsup.daemon.tokens import TokenBook
from agentsup.engines.registry import EngineRegistry, default_registry
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.lag import LagProbe
from agentsup.kit.procgroup import child_env
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.bus import Asker, InterAgentBus
from agentsup.mailbox.journal import Journal
from agentsup.mailbox.mailbox import Mailbox, MailboxLimits
from agentsup.mailbox.relay import Relay
from agentsup.model.agent import AgentSpec
from agentsup.model.channel import Channel
from agentsup.model.control import TokenIdentity
from agentsup.model.errors import ConfigError, ConfigErrors
from agentsup.model.ids import AgentId, InstanceId
from agentsup.observe.live import LiveHub
from agentsup.observe.redact import Redactor
from agentsup.store.database import Database
from agentsup.store.events import EventLog
from agentsup.store.probe import probe
from agentsup.supervision.board import Board
from agentsup.supervision.child import SupervisedChild
from agentsup.supervision.spec import Grace
from agentsup.supervision.spine import Spine
from agentsup.supervision.watchdog import Probe, Watchdog


@dataclass(frozen=True, slots=True)
class Ground:
    """What exists before anything is built: the home, its store, this boot."""

    home: Home
    database: Database
    clock: Clock
    entropy: Entropy
    boot: boots.Boot
    endings: dict[str, list[boots.Ending]]
    roster: Roster
    snapshot: ConfigSnapshot
    first_complaint: ConfigErrors | None
    tokens: TokenBook
    redactor: Redactor
    environ: Mapping[str, str]
    port: int | None = None
    engines: EngineRegistry | None = None
    """Replaces the engines that come with agentsup; for hosts and tests."""
    channels: Mapping[str, Channel] | None = None


@dataclass(frozen=True, slots=True)
class Daemon:
    """The built parts that the entry point and tests speak to."""

    supervisor: AgentSupervisor
    control: DaemonControl
    mailbox: Mailbox
    bus: InterAgentBus
    inbox: Inbox
    fleet: Fleet
    reconciler: Reconciler
    processes: ProcessTable
    recorder: Recorder
    api: ApiServer
    engines: EngineRegistry
    board: Board


def build(ground: Ground) -> Daemon:
    """Wire one boot. Nothing runs yet."""
    g = ground
    tasks = TaskOwner("daemon")
    board = Board()
    holder: list[ConfigSnapshot] = [g.snapshot]
    limits = g.snapshot.settings.limits

    def settings() -> ConfigSnapshot:
        return holder[0]

    mailbox = Mailbox(
        g.database, g.clock, g.entropy, boot_id=g.boot.boot_id, limits=_mailbox_limits(g, settings)
    )
    journal = Journal(g.database, g.clock)
    live = LiveHub()
    processes = ProcessTable(g.database, g.clock, g.boot.boot_id)
    recorder = Recorder(g.database, g.clock, g.roster, board, g.boot.boot_id, tasks)
    registry = g.engines or default_registry(g.clock, g.environ)
    engines = DaemonEngines(registry, g.home.root, g.environ)
    bus = InterAgentBus(
        mailbox=mailbox, database=g.database, directory=g.roster, hex_digits=_hex(g.entropy)
    )

    def url() -> str:
        return api.url

    def make_stack(spec: AgentSpec, agent_id: AgentId, instance_id: InstanceId) -> AgentStack:
        place = StackPlace(
            g.home.root, g.home.workspace(spec.name), url, lambda: child_env(source=g.environ)
        )
        return AgentStack(
            spec=spec,
            agent_id=agent_id,
            instance_id=instance_id,
            place=place,
            services=turn_services,
            engines=engines,
            directory=g.roster,
            knowledge=knowledge,
        )

    fleet = Fleet(
        clock=g.clock,
        entropy=g.entropy,
        board=board,
        make_stack=make_stack,
        on_main_exit=lambda code: supervisor.end(code, "main ended"),
        grace=Grace(drain_s=limits.drain_s),
        ready_timeout_s=limits.ready_timeout_s,
        main_restarts=lambda: settings().settings.main_crash == "restart",
    )
    g.roster.watch_status(fleet.status)
    knowledge = SharedKnowledge(
        g.home.shared_memory, lambda: [stack.workspace for stack in fleet.stacks()]
    )
    tools = Tools((*peer_tools(bus, g.roster, fleet), shared_memory_tool(knowledge)))
    turn_services = TurnServices(
        database=g.database,
        mailbox=mailbox,
        journal=journal,
        live=live,
        clock=g.clock,
        processes=processes,
        tools=tools,
        tokens=g.tokens,
    )

    def on_snapshot(snapshot: ConfigSnapshot) -> None:
        holder[0] = snapshot
        redact_secrets(g.redactor, snapshot, g.home.root, g.environ)

    reconciler = Reconciler(
        home=g.home,
        snapshot=g.snapshot,
        database=g.database,
        clock=g.clock,
        roster=g.roster,
        fleet=fleet,
        tasks=tasks,
        tell=recorder.tell_main,
        on_snapshot=on_snapshot,
        on_removed=g.tokens.revoke_agent,
    )
    lag = LagProbe()
    watchdog = Watchdog(lag, _probes(g, fleet), clock=g.clock)
    stopper = Stopper(
        mailbox=mailbox,
        processes=processes,
        clock=g.clock,
        stacks=fleet.stacks,
        name_of=g.roster.name_of,
        tasks=tasks,
    )
    control = DaemonControl(
        facts=DaemonFacts(
            __version__,
            g.boot.boot_id,
            g.boot.node_id,
            os.getpid(),
            str(g.home.root),
            g.boot.started_at,
        ),
        clock=g.clock,
        roster=g.roster,
        fleet=fleet,
        reconciler=reconciler,
        stopper=stopper,
        mailbox=mailbox,
        engines=engines,
        endings=g.endings,
        health=watchdog.health,
        state=lambda: supervisor.state,
        url=url,
        end=lambda code, reason: supervisor.end(code, reason),  # noqa: PLW0108 - bound later
        extra_warnings=lambda: (knowledge.problem,) if knowledge.problem else (),
    )
    command_services = CommandServices(control, mailbox, g.database, g.roster, g.clock, g.entropy)
    commands = ChatCommands(
        (*chat_commands(command_services), *main_commands(command_services)),
        lambda: g.roster.entry("main").agent_id,
    )
    events = EventLog(g.database)
    inbox = Inbox(
        mailbox=mailbox,
        events=events,
        directory=g.roster,
        commands=commands,
        hex_digits=_hex(g.entropy),
    )
    api = ApiServer(
        ApiDeps(
            control=control,
            tokens=g.tokens,
            bus=bus,
            directory=g.roster,
            mailbox=mailbox,
            events=events,
            inbox=inbox,
            live=live,
            metrics=lambda: b"",
            abort_turn=lambda message_id: stopper.cancel_turns((message_id,)),
            asker_of=_asker_of(fleet),
            clock=g.clock,
            entropy=g.entropy,
            version=__version__,
            allowed_hosts=g.snapshot.settings.api.allowed_hosts,
            limits=ApiLimits(body_bytes=limits.body_bytes),
        ),
        host=g.snapshot.settings.api.bind,
        port=g.snapshot.settings.api.port if g.port is None else g.port,
    )
    channels: Mapping[str, Channel] = g.channels or {"console": ConsoleChannel()}
    relay = Relay(g.database, g.clock, g.entropy, channels, boot_id=g.boot.boot_id)
    spine = Spine(
        (
            services.lag_spec(lag),
            services.relay_spec(relay),
            services.housekeeping_spec(
                g.database, mailbox, g.clock, lambda: settings().settings.limits.keep_days
            ),
            services.watchdog_spec(watchdog),
        ),
        clock=g.clock,
        entropy=g.entropy,
        board=board,
    )
    watcher = SupervisedChild(
        services.watcher_spec(g.home, reconciler, knowledge.refresh, g.clock),
        clock=g.clock,
        entropy=g.entropy,
        record=board.record,
    )
    supervisor = AgentSupervisor(
        clock=g.clock,
        api=api,
        spine=spine,
        fleet=fleet,
        reconciler=reconciler,
        knowledge=knowledge.refresh,
        watcher=watcher,
        tasks=tasks,
        grace=lambda: Grace(drain_s=settings().settings.limits.drain_s),
        main_ready_timeout_s=lambda: settings().settings.limits.ready_timeout_s,
        first_complaint=g.first_complaint,
        on_listening=lambda port: recorder.write_address(g.home.daemon_json, api.url),
        check_health=watchdog.check,
    )
    return Daemon(
        supervisor,
        control,
        mailbox,
        bus,
        inbox,
        fleet,
        reconciler,
        processes,
        recorder,
        api,
        registry,
        board,
    )


def redact_secrets(
    redactor: Redactor, snapshot: ConfigSnapshot, home: Path, environ: Mapping[str, str]
) -> None:
    """Let the log know every secret that can be resolved, so that it never shows one."""
    for secret in snapshot.secrets():
        try:
            redactor.add(resolve(secret, base=home, environ=environ).reveal())
        except ConfigError:
            continue


def _mailbox_limits(g: Ground, settings: Callable[[], ConfigSnapshot]) -> MailboxLimits:
    limits = g.snapshot.settings.limits

    def spec_of(agent_id: str) -> AgentSpec | None:
        return settings().find(g.roster.name_of(agent_id))

    def queue_limit_of(agent_id: str) -> int | None:
        spec = spec_of(agent_id)
        return spec.queue_limit if spec else None

    def slots_of(agent_id: str) -> int | None:
        spec = spec_of(agent_id)
        return spec.slots.interactive if spec else None

    return MailboxLimits(
        max_depth=limits.depth,
        max_messages_per_root=limits.messages_per_root,
        max_body_bytes=limits.body_bytes,
        max_attempts=limits.attempts,
        max_crashes=limits.crashes,
        queue_limit_of=queue_limit_of,
        slots_of=slots_of,
    )


def _hex(entropy: Entropy) -> Callable[[int], str]:
    """Random hex digits for trace ids, from the one source of chance."""

    def digits(count: int) -> str:
        return hashlib.sha256(entropy.token().encode()).hexdigest()[:count]

    return digits


def _asker_of(fleet: Fleet) -> Callable[[TokenIdentity], Asker | None]:
    def asker(identity: TokenIdentity) -> Asker | None:
        return fleet.asker(identity.message_id) if identity.message_id else None

    return asker


def _probes(g: Ground, fleet: Fleet) -> dict[str, Probe]:
    async def store() -> str | None:
        health = await probe(g.database, clock=g.clock)
        if not health.is_ok:
            return health.detail or health.reason
        return "the disk is nearly full" if health.is_disk_low else None

    async def main() -> str | None:
        entry = g.roster.entry("main")
        state, reason = fleet.status(entry.agent_id)
        return None if state in ("running", "degraded") else f"main is {state} {reason}".strip()

    return {"store": store, "main": main}
