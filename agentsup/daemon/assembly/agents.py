"""The second step of the composition: agents, their bots, tools and turns."""

from __future__ import annotations

from agentsup.agents import AgentStack, StackServices
from agentsup.agents.media import Hearing, MediaReader
from agentsup.agents.memory import KnownNotes, TurnPreparer
from agentsup.agents.recovery import EngineProblems
from agentsup.agents.turn import HostServices, TurnServices
from agentsup.agents.workspace import EngineSetup, ProcessTable, SharedKnowledge
from agentsup.channels import LocalChannel
from agentsup.config import ConfigSnapshot, resolve
from agentsup.daemon.assembly import metrics
from agentsup.daemon.assembly.budgets import DaemonSpending
from agentsup.daemon.assembly.parts import AgentParts, Assembly, RunningParts
from agentsup.daemon.assembly.roles import DaemonRoles
from agentsup.daemon.assembly.tasks import DaemonTasks
from agentsup.daemon.assembly.tool_pipeline import DaemonMcp, calls_of
from agentsup.daemon.assembly.tools import DaemonOthers, daemon_tools
from agentsup.daemon.assembly.traces import DaemonTraces
from agentsup.daemon.runtime.alarm import Alarm
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.channels import Channels
from agentsup.daemon.runtime.engines import DaemonEngines, engines_of, fencing_of
from agentsup.daemon.runtime.fleet import Fleet, StackMaker
from agentsup.daemon.runtime.reconcile import Reconciler, ReconcilerParts
from agentsup.daemon.runtime.recorder import LifeRecorder
from agentsup.daemon.runtime.stop import Stopper
from agentsup.kit import sdnotify
from agentsup.kit.childenv import child_env
from agentsup.kit.lag import LagProbe
from agentsup.mailbox.delivery import Relay
from agentsup.mailbox.work import Journal
from agentsup.model.agent import AgentSpec
from agentsup.model.ids import AgentId, InstanceId
from agentsup.model.secret import Secret
from agentsup.observe import Metrics
from agentsup.observe.traces import OtelTracer
from agentsup.supervision import Grace, Watchdog


def build_agents(assembly: Assembly) -> AgentParts:
    """Everything that works on messages. The caller sets ``assembly.agents`` to what this returns."""
    boot_context, mail = assembly.boot, assembly.mail
    running = _running(assembly)
    tell, fleet, stopper = running.alarm.tell, running.fleet, running.stopper
    tasks = DaemonTasks(
        boot_context,
        mail.mailbox,
        mail.directory,
        lambda m: stopper.cancel_turns((m,)),
        tell,
    )
    traces = DaemonTraces(boot_context)
    spending = DaemonSpending(boot_context, mail.directory, tell)
    calls = calls_of(
        boot_context,
        running.processes,
        mail.mailbox,
        daemon_tools(assembly, running, tasks),
        spending.turns.refusal_of,
        traces.tracer,
    )
    mcp = DaemonMcp(boot_context, running.processes, fleet.stacks)
    stalls = metrics.StallReporter(boot_context.clock, mail.tasks, tell)
    lag = LagProbe(on_stall=stalls.report)
    measured = metrics.metrics_of(
        boot_context,
        running,
        mailbox=mail.mailbox,
        lag=lag,
        unsent_spans=lambda: traces.tracer.unsent,
        programs=lambda: {**running.registry.gauges(), **mcp.services.programs.gauges()},
    )
    reconciler = _reconciler(assembly, running, measured)
    roles = DaemonRoles(
        boot_context,
        mcp.with_tools_of(calls.tools.all),
        fleet=fleet,
        reconciler=reconciler,
        tasks=mail.tasks,
        tell=tell,
    )
    return AgentParts(
        running=running,
        tasks=tasks,
        traces=traces,
        spending=spending,
        calls=calls,
        mcp=mcp,
        lag=lag,
        watchdog=Watchdog(
            lag,
            metrics.probes(boot_context, fleet, running.channels),
            clock=boot_context.clock,
            interval_s=min(
                metrics.WATCHDOG_S, sdnotify.watchdog_interval_s() or metrics.WATCHDOG_S
            ),
        ),
        metrics=measured,
        reconciler=reconciler,
        roles=roles,
        turns=_turns(assembly, calls, tasks, traces.tracer, roles, spending, running, measured),
    )


# -- agents and bots -------------------------------------------------------------------------------


def _running(assembly: Assembly) -> RunningParts:
    boot, mail = assembly.boot, assembly.mail
    boot_id = boot.boot.boot_id
    relay_channels = dict(
        boot.channels or {name: LocalChannel(name) for name in ("console", "web")}
    )
    channels = Channels(
        mail.board,
        relay_channels,
        on_change=lambda agent_id, _: assembly.agents().running.fleet.check_again(agent_id),
        services=lambda: assembly.borders().channel_services,
    )
    alarm = Alarm(
        database=boot.database,
        clock=boot.clock,
        entropy=boot.entropy,
        roster=boot.roster,
        connected=channels.connected,
        people=mail.people,
        alone_with=channels.alone_with,
    )
    recorder = LifeRecorder(
        boot,
        board=mail.board,
        tasks=mail.tasks,
        tell=alarm.tell,
        ending=mail.ending,
    )
    processes = ProcessTable(boot.database, boot.clock, boot_id, boot.reaper)
    registry = boot.engines or engines_of(boot)
    fleet = _fleet(assembly, channels)
    steady = mail.mailbox.context.steady
    return RunningParts(
        channels=channels,
        relay=Relay(
            boot.database, boot.clock, boot.entropy, relay_channels, boot_id=boot_id, steady=steady
        ),
        alarm=alarm,
        recorder=recorder,
        processes=processes,
        registry=registry,
        engines=DaemonEngines(registry, boot.home.root, boot.environ),
        fleet=fleet,
        stopper=Stopper(
            mailbox=mail.mailbox,
            processes=processes,
            clock=boot.clock,
            stacks=fleet.stacks,
            name_of=boot.roster.name_of,
            tasks=mail.tasks,
        ),
        knowledge=SharedKnowledge(
            boot.home.shared_memory,
            lambda: [stack.workspace for stack in fleet.stacks()],
            config_files=boot.config_files,
            files=boot.files,
            tasks=mail.tasks,
            tell=alarm.tell,
        ),
    )


def _fleet(assembly: Assembly, channels: Channels) -> Fleet:
    boot, mail = assembly.boot, assembly.mail
    limits = boot.snapshot.settings.limits

    def degraded_reason(agent_id: str) -> str | None:
        agents = assembly.agents()
        return agents.roles.degraded_reason(agents.running.fleet.get(agent_id), channels)

    return Fleet(
        clock=boot.clock,
        entropy=boot.entropy,
        board=mail.board,
        make_stack=_stack_maker(assembly),
        on_main_exit=lambda code: mail.ending.end(code, "main ended"),
        grace=Grace(drain_s=limits.drain_s),
        ready_timeout_s=limits.ready_timeout_s,
        main_restarts=lambda: boot.current().settings.main_crash == "restart",
        channel_untried=channels.untried,
        degraded_reason=degraded_reason,
    )


def _stack_maker(assembly: Assembly) -> StackMaker:
    boot, mail = assembly.boot, assembly.mail

    env_of_programs = child_env(source=boot.environ)

    def make(spec: AgentSpec, agent_id: AgentId, instance_id: InstanceId) -> AgentStack:
        agents = assembly.agents()
        setup = EngineSetup(
            boot.home.root,
            boot.home.workspace(spec.name),
            lambda: assembly.borders().api.url,
            env_of_programs,
        )
        services = StackServices(
            turns=agents.turns,
            engines=agents.running.engines,
            directory=mail.directory,
            knowledge=agents.running.knowledge,
            others=DaemonOthers(boot, agents.running.fleet),
            mcp=agents.mcp.services,
            background=agents.tasks.background,
            drain_s=boot.snapshot.settings.limits.drain_s,
        )
        handler = boot.handler_of(spec, mail.mailbox)
        return AgentStack(spec, agent_id, instance_id, setup, services, handler)

    return make


# -- turns and edits -------------------------------------------------------------------------------


def _turns(
    assembly: Assembly,
    calls: HostServices,
    tasks: DaemonTasks,
    tracer: OtelTracer,
    roles: DaemonRoles,
    spending: DaemonSpending,
    running: RunningParts,
    measured: Metrics,
) -> TurnServices:
    boot, mail = assembly.boot, assembly.mail
    return TurnServices(
        database=boot.database,
        mailbox=mail.mailbox,
        journal=Journal(boot.database, boot.clock),
        live=mail.live,
        clock=boot.clock,
        calls=calls,
        tokens=boot.tokens,
        tracer=tracer,
        redactor=boot.redactor,
        before_turn=TurnPreparer(
            boot.database,
            boot.clock,
            notes=KnownNotes(boot.files, boot.home.memory, boot.home.root),
            name_of=boot.roster.name_of,
        ),
        brief=tasks.brief,
        zone_of=tasks.zone_of,
        roles=roles.turns,
        media=MediaReader(boot.files, hear=hearing_of(boot).text_of),
        spending=spending.turns,
        turn_ended=measured.turn_ended,
        problems=EngineProblems(running.fleet.check_again),
    )


def _reconciler(assembly: Assembly, running: RunningParts, measured: Metrics) -> Reconciler:
    boot, mail = assembly.boot, assembly.mail

    def on_snapshot(snapshot: ConfigSnapshot) -> None:
        assembly.borders().api.people_changed()
        assembly.agents().tasks.background.resized()
        running.fleet.check_again()

    return Reconciler(
        boot,
        ReconcilerParts(
            ending=mail.ending,
            fleet=running.fleet,
            channels=running.channels,
            engines=running.engines,
            alarm=running.alarm,
            tasks=mail.tasks,
            on_snapshot=on_snapshot,
            on_removed=lambda agent_id: measured.forget_agent(boot.roster.name_of(agent_id)),
        ),
    )


def hearing_of(boot: BootContext) -> Hearing:
    """The service; its key is looked up for each recording, and masked in all output."""

    def key() -> str:
        given = boot.current().settings.voice.hear_key
        if not given:
            return ""
        found = resolve(Secret(given), base=boot.home.root, environ=boot.environ).reveal()
        boot.redactor.add_all([found])
        return found

    return Hearing(
        settings=lambda: boot.current().settings.voice,
        key=key,
        fencing=fencing_of(boot),
        environ=boot.environ,
        files=boot.files,
    )
