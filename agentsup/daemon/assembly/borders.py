"""The third step of the composition: control, chat commands, the API, and the supervisor of all."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from agentsup import __version__
from agentsup.agents.memory import NotesFiles
from agentsup.api.http import MIB, ApiDependencies, ApiLimits
from agentsup.api.server import ApiServer
from agentsup.approvals import Grants
from agentsup.channels.core.receiving import Inbox
from agentsup.commands import (
    ChatCommands,
    CommandServices,
    approval_commands,
    chat_commands,
    cost_commands,
    hook_commands,
    main_commands,
    mcp_commands,
    memory_commands,
    pairing_command,
    remind_command,
    restart_command,
    role_commands,
    task_commands,
    trace_commands,
)
from agentsup.daemon.assembly import children
from agentsup.daemon.assembly.parts import Assembly, BorderParts
from agentsup.daemon.runtime.boot_context import hex_digits, web_deps
from agentsup.daemon.runtime.control import ControlParts, DaemonControl
from agentsup.daemon.runtime.engines import ProviderModels
from agentsup.daemon.runtime.housekeeping import ReceivedFiles, ReplacedFiles
from agentsup.daemon.runtime.managed_bots import DaemonManagedBots
from agentsup.daemon.runtime.pairing import DaemonPairing
from agentsup.daemon.runtime.setup import DaemonSetup, ask_bot
from agentsup.daemon.runtime.supervisor import AgentSupervisor, SupervisedParts
from agentsup.daemon.runtime.transports import ChannelServices
from agentsup.kit import descriptors, installation
from agentsup.mailbox.messages import sessions
from agentsup.model.agent import MAIN
from agentsup.model.control import Control
from agentsup.model.managed_bots import BotMaker
from agentsup.model.pairing import Pairing
from agentsup.supervision import REBUILD_CODE, RestForOneSupervisor, SupervisedChild


def build_borders(assembly: Assembly) -> BorderParts:
    """Build the parts that people and programs reach. The caller sets ``assembly.borders`` to the
    result."""
    boot_context, mail, agents = assembly.boot, assembly.mail, assembly.agents()
    replaced = _replaced_files(assembly)
    control = _control(assembly, replaced)
    running = agents.running
    pairing = DaemonPairing(boot_context, agents.reconciler, running.alarm.tell)
    bots = DaemonManagedBots(boot_context, agents.reconciler, running.channels, mail.people)
    commands = _chat_commands(assembly, control, pairing, bots)
    inbox = Inbox(
        mailbox=mail.mailbox,
        events=mail.events,
        directory=mail.directory,
        commands=commands,
        hex_digits=hex_digits(boot_context.entropy),
    )
    given = boot_context.snapshot.settings.api
    api = ApiServer(
        replace(_api_deps(assembly, control, commands, inbox), pairing=pairing, bots=bots),
        host=given.bind,
        port=given.port if boot_context.port is None else boot_context.port,
    )
    return BorderParts(
        control=control,
        commands=commands,
        inbox=inbox,
        channel_services=ChannelServices(
            home=boot_context.home,
            environ=boot_context.environ,
            database=boot_context.database,
            clock=boot_context.clock,
            entropy=boot_context.entropy,
            mailbox=mail.mailbox,
            inbox=inbox,
            commands=commands,
            events=mail.events,
            live=mail.live,
            people=mail.people,
            files=boot_context.files,
            tell=running.alarm.tell,
            after_imports=boot_context.after_imports,
            pairing=pairing,
            bots=bots,
        ),
        api=api,
        supervisor=_supervisor(assembly, api, replaced),
    )


def _replaced_files(assembly: Assembly) -> ReplacedFiles:
    boot_context, mail = assembly.boot, assembly.mail

    async def is_quiet() -> bool:
        counts = await mail.mailbox.messages.counts()
        return not any(each.get("leased") for each in counts.values())

    return ReplacedFiles(
        partial(boot_context.config_files.run, installation.change, key="installation"),
        assembly.agents().running.alarm.tell,
        is_quiet,
        partial(mail.ending.end, REBUILD_CODE) if boot_context.is_started_again else None,
    )


def _control(assembly: Assembly, replaced: ReplacedFiles) -> DaemonControl:
    boot_context, mail, agents = assembly.boot, assembly.mail, assembly.agents()
    running = agents.running

    def warnings() -> tuple[str, ...]:
        return (
            *agents.roles.warnings(running.knowledge, running.channels),
            *agents.mcp.warnings(),
            *agents.traces.warnings(),
            *replaced.warnings,
        )

    return DaemonControl(
        boot_context,
        ControlParts(
            ending=mail.ending,
            fleet=running.fleet,
            reconciler=agents.reconciler,
            stopper=running.stopper,
            mailbox=mail.mailbox,
            engines=running.engines,
            channels=running.channels,
            role_problem=agents.roles.problem,
            models=ProviderModels(running.engines, agents.spending.prices),
            health=agents.watchdog.health,
            url=lambda: assembly.borders().api.url,
            warnings=warnings,
        ),
    )


def _api_deps(
    assembly: Assembly, control: DaemonControl, commands: ChatCommands, inbox: Inbox
) -> ApiDependencies:
    boot_context, mail, agents = assembly.boot, assembly.mail, assembly.agents()
    settings, running = boot_context.snapshot.settings, agents.running
    return ApiDependencies(
        boot_id=boot_context.boot.boot_id,
        control=control,
        tokens=boot_context.tokens,
        bus=mail.bus,
        dispatcher=mail.dispatcher,
        mail=mail.history,
        directory=mail.directory,
        mailbox=mail.mailbox,
        memory=mail.memory,
        grants=Grants(boot_context.database, boot_context.clock),
        database=boot_context.database,
        events=mail.events,
        inbox=inbox,
        live=mail.live,
        metrics=agents.metrics.scrape,
        abort_turn=lambda message_id: running.stopper.cancel_turns((message_id,)),
        delegating_turn_of=lambda who: running.fleet.turn_behind(who.message_id),
        clock=boot_context.clock,
        entropy=boot_context.entropy,
        version=__version__,
        web=web_deps(boot_context, commands.offered),
        is_allowed=mail.people.allows,
        served=agents.turns.served.find,
        hooks=agents.calls.documents,
        roles=agents.roles.catalog,
        traces=agents.traces,
        cost=agents.spending.report,
        setup=DaemonSetup(
            boot_context, agents.reconciler, running.engines, agents.spending.prices, ask_bot
        ),
        tasks=agents.tasks.hub,
        mcp=agents.mcp.document,
        allowed_hosts=settings.api.allowed_hosts,
        limits=ApiLimits(
            body_bytes=settings.limits.body_bytes,
            # The other half is for the store, for programs and for bots.
            connections=min(settings.api.connections, descriptors.limit() // 2),
            stored_upload_bytes=settings.limits.upload_mb_per_person * MIB,
            stored_uploads=settings.limits.uploads_per_person,
        ),
    )


def _supervisor(assembly: Assembly, api: ApiServer, replaced: ReplacedFiles) -> AgentSupervisor:
    boot_context, mail, agents = assembly.boot, assembly.mail, assembly.agents()
    clock, entropy, running = boot_context.clock, boot_context.entropy, agents.running
    watcher = children.watcher_spec(
        boot_context.home, agents.reconciler, running.knowledge.refresh, clock
    )

    async def on_listening(port: int) -> None:
        await running.recorder.announce_address(api)
        mail.tasks.spawn(
            running.engines.log_shortfalls(boot_context.current().specs.values()),
            name="engines:shortfalls",
        )

    return AgentSupervisor(
        SupervisedParts(
            ending=mail.ending,
            api=api,
            spine=_spine(assembly, replaced),
            fleet=running.fleet,
            reconciler=agents.reconciler,
            watcher=SupervisedChild(
                watcher, clock=clock, entropy=entropy, record=mail.board.record
            ),
            tasks=mail.tasks,
            on_listening=on_listening,
            refresh_knowledge=running.knowledge.refresh,
            check_health=agents.watchdog.check,
            close_channels=running.channels.close,
            main_ready_timeout_s=lambda: boot_context.current().settings.limits.ready_timeout_s,
            first_complaint=boot_context.first_complaint,
        )
    )


def _spine(assembly: Assembly, replaced: ReplacedFiles) -> RestForOneSupervisor:
    """The services beside the agents, in the order in which they start."""
    boot_context, mail, agents = assembly.boot, assembly.mail, assembly.agents()
    running = agents.running
    received = ReceivedFiles(
        mail.directory.names,
        boot_context.home.workspace,
        boot_context.files,
        lambda: boot_context.current().settings.limits.received_days,
    )
    return RestForOneSupervisor(
        (
            *children.own_process_specs(agents.lag, boot_context.reaper, running.processes),
            children.relay_spec(running.relay),
            children.housekeeping_spec(
                boot_context.database,
                mail.mailbox,
                boot_context.clock,
                lambda: boot_context.current().settings.limits,
                (agents.tasks.purge, received.purge),
                boot_context.keep_lock,
                replaced.keep_up,
                partial(boot_context.start_modes.report, running.alarm.tell),
            ),
            children.cancelled_child("watchdog", agents.watchdog.run),
            agents.roles.spec(),
            children.scripts_spec(agents.reconciler),
            agents.spending.spec(),
            agents.traces.spec(),
            *agents.tasks.specs(),
        ),
        clock=boot_context.clock,
        entropy=boot_context.entropy,
        board=mail.board,
    )


def _chat_commands(
    assembly: Assembly, control: Control, pairing: Pairing, bots: BotMaker
) -> ChatCommands:
    """Every command of every chat."""
    boot_context, mail, agents = assembly.boot, assembly.mail, assembly.agents()
    given = CommandServices(
        control,
        mail.mailbox,
        boot_context.database,
        mail.directory,
        boot_context.clock,
        boot_context.entropy,
        boot_context.home.memory,
        NotesFiles(boot_context.files),
    )
    return ChatCommands(
        (
            *chat_commands(given),
            *trace_commands(given),
            *memory_commands(given, mail.memory),
            *hook_commands(agents.calls.pipeline.hooks),
            *role_commands(given, agents.roles.live_roles),
            *cost_commands(agents.spending.report.document),
            *mcp_commands(agents.mcp.document, boot_context.clock),
            *task_commands(given, agents.tasks.hub),
            remind_command(given, agents.tasks.hub),
            *approval_commands(
                Grants(boot_context.database, boot_context.clock), boot_context.roster.name_of
            ),
            restart_command(control),
            pairing_command(pairing, boot_context.clock),
            *main_commands(given, mail.dispatcher.reassign, bots),
        ),
        lambda: boot_context.roster.entry(MAIN).agent_id,
        partial(sessions.keep_own, boot_context.database, mail.mailbox.context),
    )
