"""The composition root: the only place that knows concrete classes. No decisions are made here."""

from __future__ import annotations

import logging
import os

from agentsup import __version__
from agentsup.agents.processes import ProcessTable
from agentsup.agents.stack import AgentStack
from agentsup.agents.turn_services import TurnServices
from agentsup.api.ports import ApiDeps, ApiLimits
from agentsup.api.server import ApiServer
from agentsup.channels.inbox import Inbox
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon import measures, remembering, services
from agentsup.daemon.alarm import Alarm
from agentsup.daemon.calls import calls_of
from agentsup.daemon.channels import Channels, ChannelServices
from agentsup.daemon.commanding import chat_commands_of
from agentsup.daemon.control import DaemonControl, DaemonFacts
from agentsup.daemon.daemon import Daemon
from agentsup.daemon.engines import DaemonEngines, engines_of
from agentsup.daemon.fleet import Fleet
from agentsup.daemon.ground import (
    Ground,
    hex_digits,
    mailbox_limits,
    own_channels,
    redact_secrets,
    tell_address,
    web_deps,
)
from agentsup.daemon.mcp import DaemonMcp
from agentsup.daemon.people import People
from agentsup.daemon.personas import DaemonOthers, place_of
from agentsup.daemon.post import DaemonPost
from agentsup.daemon.reconcile import Reconciler
from agentsup.daemon.recorder import Recorder
from agentsup.daemon.roles import DaemonRoles
from agentsup.daemon.spending import DaemonSpending
from agentsup.daemon.stopping import Stopper
from agentsup.daemon.supervisor import AgentSupervisor
from agentsup.daemon.tasks import DaemonTasks
from agentsup.daemon.tooling import Means, given_tools
from agentsup.daemon.tracing import DaemonTraces
from agentsup.kit import descriptors
from agentsup.kit.lag import LagProbe
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.journal import Journal
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.relay import Relay
from agentsup.model.agent import AgentSpec
from agentsup.model.ids import AgentId, InstanceId
from agentsup.observe.live import LiveHub
from agentsup.store.events import EventLog
from agentsup.supervision.board import Board
from agentsup.supervision.child import SupervisedChild
from agentsup.supervision.spec import Grace
from agentsup.supervision.spine import Spine

__all__ = ["Daemon", "Ground", "build"]


def build(ground: Ground) -> Daemon:
    """Wire one boot. Nothing runs yet."""
    return _Assembly(ground).daemon()


class _Assembly:
    """The parts in the order in which they rest on each other.

    Where an earlier part must reach a later one (the listener's address, the end of the daemon) it
    gets a callable that looks here when it is called.
    """

    turn_services: TurnServices

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.snapshot = ground.snapshot
        self.tasks = TaskOwner("daemon")
        self.board = Board()
        self._mail()
        self._agents()
        self._turns()
        self._measures()
        self._people()
        self._supervision()

    def daemon(self) -> Daemon:
        return Daemon(
            supervisor=self.supervisor,
            control=self.control,
            mailbox=self.mailbox,
            bus=self.bus,
            post=self.post.dispatcher,
            inbox=self.inbox,
            fleet=self.fleet,
            reconciler=self.reconciler,
            processes=self.processes,
            alarm=self.alarm,
            api=self.api,
            engines=self.registry,
            board=self.board,
            relay=self.relay,
            metrics=self.metrics,
            calls=self.calls,
            traces=self.traces,
            tasks=self.tasks,
        )

    # -- how work travels --------------------------------------------------------------------------

    def _mail(self) -> None:
        g = self.ground
        boot_id, limits = g.boot.boot_id, mailbox_limits(g, lambda: self.snapshot)
        self.mailbox = Mailbox(g.database, g.clock, g.entropy, boot_id=boot_id, limits=limits)
        self.post = DaemonPost(g, self.mailbox)
        self.bus = self.post.bus
        self.live = LiveHub()
        self.events = EventLog(g.database)
        self.relay_channels = dict(g.channels or own_channels())
        steady = self.mailbox.desk.steady
        self.relay = Relay(
            g.database, g.clock, g.entropy, self.relay_channels, boot_id=boot_id, steady=steady
        )

    # -- who works ---------------------------------------------------------------------------------

    def _agents(self) -> None:
        g = self.ground
        limits = g.snapshot.settings.limits
        self.people = People(lambda: self.snapshot)
        self.alarm = Alarm(
            database=g.database,
            clock=g.clock,
            roster=g.roster,
            connected=lambda channel: self.channels.connected(channel),  # noqa: PLW0108 - later
            operators=self.people,
            alone_with=lambda *place: self.channels.alone_with(*place),  # noqa: PLW0108 - later
        )
        self.recorder = Recorder(
            database=g.database,
            clock=g.clock,
            roster=g.roster,
            board=self.board,
            boot_id=g.boot.boot_id,
            tasks=self.tasks,
            tell=self.alarm.tell,
            ending=lambda: self.supervisor.ends_with,
        )
        self.processes = ProcessTable(g.database, g.clock, g.boot.boot_id, g.reaper)
        self.registry = g.engines or engines_of(g, lambda: self.snapshot)
        self.engines = DaemonEngines(self.registry, g.home.root, g.environ)
        self.channels = Channels(
            clock=g.clock,
            entropy=g.entropy,
            board=self.board,
            relay_channels=self.relay_channels,
            on_change=lambda agent_id, _: self.fleet.look_again(agent_id),
            services=self._channel_services,
            after_imports=g.after_imports,
        )
        self.fleet = Fleet(
            clock=g.clock,
            entropy=g.entropy,
            board=self.board,
            make_stack=self._make_stack,
            on_main_exit=lambda code: self.supervisor.end(code, "main ended"),
            grace=Grace(drain_s=limits.drain_s),
            ready_timeout_s=limits.ready_timeout_s,
            main_restarts=lambda: self.snapshot.settings.main_crash == "restart",
            channel_untried=self.channels.untried,
            trouble=lambda agent_id: self.roles.trouble(self.fleet.get(agent_id), self.channels),
        )
        g.roster.watch_status(self.fleet.status)
        self.knowledge = remembering.shared_knowledge(g, self.fleet, self.tasks, self.alarm.tell)
        self.reconciler = Reconciler(
            home=g.home,
            snapshot=g.snapshot,
            database=g.database,
            clock=g.clock,
            roster=g.roster,
            fleet=self.fleet,
            tasks=self.tasks,
            tell=self.alarm.tell,
            on_snapshot=self._on_snapshot,
            on_removed=self._on_removed,
            engine_of=lambda spec: self.engines.choice(spec)[0],
            channels=self.channels,
            files=g.config_files,
        )

    def _turns(self) -> None:
        g = self.ground
        self.traces = DaemonTraces(g, lambda: self.snapshot)
        self.work = DaemonTasks(
            g, lambda: self.snapshot, self.mailbox, lambda m: self.stopper.cancel_turns((m,))
        )
        tracer, later = self.traces.tracer, (self.tasks, lambda: self.turn_services)
        means = Means(self.bus, self.fleet, self.knowledge, self.work, tracer, self.post, *later)
        given = given_tools(g, lambda: self.snapshot, means)
        self.spending = DaemonSpending(g, lambda: self.snapshot, self.alarm.tell)
        spent = self.spending.turns.exhausted
        self.calls = calls_of(g, lambda: self.snapshot, self.processes, self.mailbox, given, spent)
        self.mcp = DaemonMcp(g, lambda: self.snapshot, self.processes, self.fleet.stacks)
        tools = self.mcp.with_tools_of(self.calls.tools.all)
        self.roles = DaemonRoles(g, lambda: self.snapshot, tools)
        self.roles.tell(self.fleet, self.reconciler, self.tasks)
        self.calls.pipeline.tracer = self.traces.tracer
        self.turn_services = TurnServices(
            database=g.database,
            mailbox=self.mailbox,
            journal=Journal(g.database, g.clock),
            live=self.live,
            clock=g.clock,
            calls=self.calls,
            tokens=g.tokens,
            tracer=self.traces.tracer,
            redactor=g.redactor,
            before_turn=remembering.before_turn(g),
            brief=self.work.brief,
            roles=self.roles.turns,
            spending=self.spending.turns,
            turn_ended=lambda *facts: self.metrics.turn_ended(*facts),  # noqa: PLW0108 - built later
        )

    def _make_stack(
        self, spec: AgentSpec, agent_id: AgentId, instance_id: InstanceId
    ) -> AgentStack:
        g = self.ground
        place = place_of(g, spec.name, lambda: self.api.url)
        return AgentStack(
            spec=spec,
            agent_id=agent_id,
            instance_id=instance_id,
            place=place,
            services=self.turn_services,
            engines=self.engines,
            directory=g.roster,
            knowledge=self.knowledge,
            handler=g.handler_of(spec, self.mailbox),
            drain_s=g.snapshot.settings.limits.drain_s,
            mcp=self.mcp.services,
            others=DaemonOthers(g, lambda: self.snapshot, self.fleet),
            background=self.work.background,
        )

    async def _on_snapshot(self, snapshot: ConfigSnapshot) -> None:
        g = self.ground
        await redact_secrets(g.redactor, snapshot, g.home.root, g.environ, g.config_files)
        self.snapshot = snapshot
        logging.getLogger().setLevel(snapshot.settings.log.level.upper())
        self.api.people_changed()
        self.work.background.resized()
        self.fleet.look_again()

    def _on_removed(self, agent_id: str) -> None:
        self.ground.tokens.revoke_agent(agent_id)
        self.metrics.forget_agent(self.ground.roster.name_of(agent_id))

    # -- how it is ---------------------------------------------------------------------------------

    def _measures(self) -> None:
        g = self.ground
        stalls = measures.StallTeller(g.clock, self.tasks, self.alarm.tell)
        self.lag = LagProbe(on_stall=stalls.heard)
        probes = measures.probes(g, self.fleet, self.channels)
        self.watchdog = measures.watchdog_of(self.lag, probes, g.clock)
        self.metrics = measures.metrics_of(
            g,
            mailbox=self.mailbox,
            fleet=self.fleet,
            relay=self.relay,
            lag=self.lag,
            channels=self.channels,
            traces=self.traces.counts,
            programs=self.mcp.with_gauges_of(self.registry.gauges),
        )

    # -- who speaks to it --------------------------------------------------------------------------

    def _people(self) -> None:
        g = self.ground
        self.stopper = Stopper(
            mailbox=self.mailbox,
            processes=self.processes,
            clock=g.clock,
            stacks=self.fleet.stacks,
            name_of=g.roster.name_of,
            tasks=self.tasks,
        )
        boot, home = g.boot, str(g.home.root)
        facts = DaemonFacts(
            __version__, boot.boot_id, boot.node_id, os.getpid(), home, boot.started_at
        )
        self.control = DaemonControl(
            facts=facts,
            clock=g.clock,
            roster=g.roster,
            fleet=self.fleet,
            reconciler=self.reconciler,
            stopper=self.stopper,
            mailbox=self.mailbox,
            engines=self.engines,
            channels=self.channels,
            role_problem=self.roles.problem,
            endings=g.endings,
            health=self.watchdog.health,
            state=lambda: self.supervisor.state,
            url=lambda: self.api.url,
            end=lambda code, reason: self.supervisor.end(code, reason),  # noqa: PLW0108 - as above
            extra_warnings=lambda: (
                *self.roles.warnings(self.knowledge, self.channels),
                *self.mcp.warnings(),
                *self.traces.warnings(),
            ),
        )
        shown = (self.roles, self.mcp, self.spending, self.traces, self.work.hub)
        post = self.post.dispatcher
        self.commands = chat_commands_of(g, self.control, self.mailbox, self.calls, *shown, post)
        self.inbox = Inbox(
            mailbox=self.mailbox,
            events=self.events,
            directory=g.roster,
            commands=self.commands,
            hex_digits=hex_digits(g.entropy),
        )
        given = g.snapshot.settings.api
        port = given.port if g.port is None else g.port
        self.api = ApiServer(self._api_deps(), host=given.bind, port=port)

    def _channel_services(self) -> ChannelServices:
        g = self.ground
        return ChannelServices(
            home=g.home,
            environ=g.environ,
            database=g.database,
            mailbox=self.mailbox,
            inbox=self.inbox,
            commands=self.commands,
            events=self.events,
            live=self.live,
            people=self.people,
            files=g.files,
            tell=self.alarm.tell,
        )

    def _api_deps(self) -> ApiDeps:
        g = self.ground
        settings = g.snapshot.settings
        return ApiDeps(
            boot_id=g.boot.boot_id,
            control=self.control,
            tokens=g.tokens,
            bus=self.bus,
            post=self.post.dispatcher,
            letters=self.post.history,
            directory=g.roster,
            mailbox=self.mailbox,
            events=self.events,
            inbox=self.inbox,
            live=self.live,
            metrics=self.metrics.scrape,
            abort_turn=lambda message_id: self.stopper.cancel_turns((message_id,)),
            asker_of=lambda who: self.fleet.turn_behind(who.message_id),
            clock=g.clock,
            entropy=g.entropy,
            version=__version__,
            web=web_deps(g, lambda: self.snapshot, self.commands.offered),
            is_allowed=self.people.allows,
            served=self.turn_services.served.find,
            hooks=self.calls.documents,
            roles=self.roles.desk,
            traces=self.traces,
            cost=self.spending.desk,
            tasks=self.work.hub,
            mcp=self.mcp.document,
            allowed_hosts=settings.api.allowed_hosts,
            limits=ApiLimits(
                body_bytes=settings.limits.body_bytes,
                # The other half is for the store, for programs and for bots.
                connections=min(settings.api.connections, descriptors.limit() // 2),
            ),
        )

    # -- what keeps it running ---------------------------------------------------------------------

    def _supervision(self) -> None:
        g = self.ground
        spine = Spine(
            (
                *services.own_process_specs(self.lag, g.reaper, self.processes),
                services.relay_spec(self.relay),
                services.housekeeping_spec(
                    g.database,
                    self.mailbox,
                    g.clock,
                    lambda: self.snapshot.settings.limits.keep_days,
                    self.work.purge,
                    g.keep_lock,
                    g.keepers(self.alarm.tell),
                ),
                services.watchdog_spec(self.watchdog),
                self.roles.spec(),
                self.spending.spec(),
                self.traces.spec(),
                *self.work.specs(),
            ),
            clock=g.clock,
            entropy=g.entropy,
            board=self.board,
        )
        watcher = SupervisedChild(
            services.watcher_spec(g.home, self.reconciler, self.knowledge.refresh, g.clock),
            clock=g.clock,
            entropy=g.entropy,
            record=self.board.record,
        )
        self.supervisor = AgentSupervisor(
            clock=g.clock,
            api=self.api,
            spine=spine,
            fleet=self.fleet,
            reconciler=self.reconciler,
            knowledge=self.knowledge.refresh,
            watcher=watcher,
            tasks=self.tasks,
            grace=lambda: Grace(drain_s=self.snapshot.settings.limits.drain_s),
            main_ready_timeout_s=lambda: self.snapshot.settings.limits.ready_timeout_s,
            first_complaint=g.first_complaint,
            on_listening=lambda port: tell_address(g, self.recorder, self.api),
            check_health=self.watchdog.check,
            close_channels=self.channels.close,
        )
