"""Control: what commands and HTTP may ask of the running daemon, implemented once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentsup import __version__
from agentsup.agents.recovery import fallback_name
from agentsup.config import explain_agent
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.channels import Channels
from agentsup.daemon.runtime.chat_models import ChatModels
from agentsup.daemon.runtime.ending import Ending
from agentsup.daemon.runtime.engines import DaemonEngines, ProviderModels
from agentsup.daemon.runtime.fleet import Fleet, FleetUnit
from agentsup.daemon.runtime.overrides import OverrideService, RoleProblem
from agentsup.daemon.runtime.reconcile import Reconciler
from agentsup.daemon.runtime.roster import RosterEntry
from agentsup.daemon.runtime.stop import Stopper
from agentsup.engines.registry import AUTO
from agentsup.kit.log import get_logger
from agentsup.mailbox import Mailbox
from agentsup.model.agent import MAIN, OFFLINE, AgentSpec
from agentsup.model.control import (
    AgentView,
    DaemonView,
    ModelPrice,
    OfferedModels,
    OverridableField,
    StopReport,
)
from agentsup.model.errors import Conflict, Forbidden, NotReady
from agentsup.model.health import AgentState, Desired, HealthReport
from agentsup.model.platforms import PLATFORMS
from agentsup.model.principal import Principal
from agentsup.supervision import ChildStatus, EndKind

_log = get_logger(__name__)

ACT_WAIT_S = 10.0
"""The time in seconds to wait for a start, stop or restart before the view is returned as it is
then."""


@dataclass(frozen=True, slots=True)
class ControlParts:
    """The parts of the daemon on which control acts."""

    ending: Ending
    fleet: Fleet
    reconciler: Reconciler
    stopper: Stopper
    mailbox: Mailbox
    engines: DaemonEngines
    channels: Channels
    role_problem: RoleProblem
    models: ProviderModels
    health: Callable[[], HealthReport]
    url: Callable[[], str]
    warnings: Callable[[], tuple[str, ...]]
    """Warnings besides those of the configuration and of providers."""


class DaemonControl:
    """Implements ``model.control.Control``."""

    def __init__(self, boot_context: BootContext, parts: ControlParts) -> None:
        self._boot_context = boot_context
        self._parts = parts
        self._overrides = OverrideService(
            boot_context.roster, parts.reconciler, parts.engines, parts.role_problem, parts.models
        )
        self.chat_models = ChatModels(
            boot_context, parts.reconciler, parts.engines, parts.models, parts.fleet
        )

    @property
    def draining(self) -> bool:
        return self._parts.ending.draining

    # -- agents ------------------------------------------------------------------------------------

    async def agents(self) -> tuple[AgentView, ...]:
        counts = await self._parts.mailbox.messages.counts()
        return tuple(
            self._view(e, counts.get(e.agent_id, {})) for e in self._boot_context.roster.present()
        )

    async def agent(self, name: str) -> AgentView:
        entry = self._boot_context.roster.entry(name)
        counts = await self._parts.mailbox.messages.counts()
        return self._view(entry, counts.get(entry.agent_id, {}))

    async def start_agent(self, name: str, by: Principal) -> AgentView:
        entry, unit = self._unit(name)
        self._check_not_draining()
        if not unit.spec.enabled:
            raise Conflict(
                f'{entry.name} is disabled in agents.json; set "enabled": true there',
                agent=entry.name,
            )
        _log.info("agent start", agent=entry.name, by=by.label)
        await self._boot_context.roster.set_desired(entry.name, Desired.UP)
        self._check_not_draining()
        self._parts.reconciler.connect(unit, retry=True)
        unit.child.start()
        return await self._settled(name, unit.child.until_settled_or_ready())

    async def stop_agent(self, name: str, by: Principal) -> AgentView:
        entry, unit = self._unit(name)
        if unit.spec.is_main:
            raise Conflict(
                "main can't be stopped alone; `agentsup stop` ends the daemon", agent=MAIN
            )
        _log.info("agent stop", agent=entry.name, by=by.label)
        await self._boot_context.roster.set_desired(entry.name, Desired.DOWN)
        self._parts.reconciler.wake(unit)
        # Not through the reconciler's lock: a stop cuts a rebuild short.
        return await self._settled(name, unit.child.stop())

    async def restart_agent(self, name: str, by: Principal) -> AgentView:
        entry, unit = self._unit(name)
        self._check_not_draining()
        if entry.desired is Desired.DOWN or unit.child.state in (
            AgentState.FAILED,
            AgentState.STOPPED,
        ):
            return await self.start_agent(name, by)
        _log.info("agent restart", agent=entry.name, by=by.label)
        self._parts.reconciler.connect(unit, retry=True)

        async def rebuilt() -> None:
            await unit.child.restart()
            await unit.child.until_settled_or_ready()

        return await self._settled(name, rebuilt())

    def _check_not_draining(self) -> None:
        if self.draining:
            raise NotReady("the daemon is ending; no agent is started any more")

    async def _settled(self, name: str, act: Awaitable[object]) -> AgentView:
        try:
            async with asyncio.timeout(ACT_WAIT_S):
                await act
        except TimeoutError:
            _log.info("still under way", agent=name)
        return await self.agent(name)

    def _unit(self, name: str) -> tuple[RosterEntry, FleetUnit]:
        entry = self._boot_context.roster.entry(name)
        unit = self._parts.fleet.get(entry.agent_id)
        if unit is None:
            spec = self._parts.reconciler.snapshot.require(entry.name)
            unit = self._parts.fleet.add(entry.agent_id, spec)
        return entry, unit

    def _view(self, entry: RosterEntry, counts: dict[str, int]) -> AgentView:
        spec = self._parts.reconciler.snapshot.require(entry.name)
        unit = self._parts.fleet.get(entry.agent_id)
        status = unit.child.status if unit is not None else None
        past = self._boot_context.endings.get(entry.agent_id, "")
        engine, why = self._parts.engines.choice(spec)
        since = status.running_since_at if status else None
        stack = unit.stack if unit is not None else None
        problem = self._parts.engines.shortfall(spec)
        if not problem and stack is not None:
            problem = stack.engine_problem
        if problem and unit is not None and unit.engine not in ("", engine, OFFLINE, AUTO):
            problem = f"{unit.engine}, with which it started, is gone: {problem}"
        running = [w for w in stack.in_flight if not w.stopped] if stack is not None else []
        return AgentView(
            name=spec.name,
            agent_id=entry.agent_id,
            instance_id=stack.instance_id if stack is not None else "",
            status=status.state.value if status else AgentState.STOPPED.value,
            desired=(entry.desired if spec.enabled or spec.is_main else Desired.DOWN).value,
            role=spec.role or "",
            engine=engine,
            model=spec.named_model or (stack.only_model if stack is not None else ""),
            uptime_s=(self._boot_context.clock.now_ms() - since) / 1000
            if since is not None
            else None,
            restarts=self._restarts(unit),
            last_reason=_last_reason(status, past),
            last_crash_error=unit.last_crash_error if unit else "",
            next_retry_at=status.next_retry_at if status else None,
            queued=counts.get("queued", 0),
            running=counts.get("leased", 0),
            parked=counts.get("parked", 0),
            is_main=spec.is_main,
            model_tier=spec.model_tier,
            fallback_model=fallback_name(spec),
            pending=self._pending(unit),
            warnings=tuple(
                filter(
                    None,
                    (
                        problem,
                        *self._missing_channels(spec),
                        *self._parts.channels.notes(entry.agent_id),
                        *(stack.provider_notes() if stack is not None else ()),
                    ),
                )
            ),
            work=tuple(w.note or "thinking" for w in running),
            engine_reason=why,
            engine_problem=problem,
        )

    def _provider_warnings(self) -> tuple[str, ...]:
        notes = (note for stack in self._parts.fleet.stacks() for note in stack.provider_notes())
        return tuple(dict.fromkeys(notes))

    def _restarts(self, unit: FleetUnit | None) -> int:
        """The restarts that still count; there are none after a stable life."""
        if unit is None:
            return 0
        since = unit.child.status.running_since_at
        stable_ms = unit.child.spec.policy.stable_s * 1000
        if since is not None and self._boot_context.clock.now_ms() - since >= stable_ms:
            return 0
        return unit.child.restarts_in_window

    def _pending(self, unit: FleetUnit | None) -> str:
        if unit is None:
            return ""
        fields = self._parts.reconciler.rebuild_fields(unit)
        return unit.pending or (f"rebuild pending: {', '.join(fields)}" if fields else "")

    @staticmethod
    def _missing_channels(spec: AgentSpec) -> tuple[str, ...]:
        return tuple(
            f"the {each.title} channel can't start without {each.needs}"
            for each in PLATFORMS
            if each.name in spec.channels and not each.has_account(spec)
        )

    # -- work --------------------------------------------------------------------------------------

    async def stop(self, scope: str, by: Principal, *, given_in: str = "") -> StopReport:
        report = await self._parts.stopper.stop(scope, by, given_in=given_in)
        _log.warning(
            "stop",
            scope=scope,
            by=by.label,
            running=report.running,
            queued=report.queued,
            parked=report.parked,
            processes=report.processes,
            elapsed_ms=round(report.elapsed_ms, 1),
            durable=report.durable,
        )
        return report

    async def interrupt(self, session_id: str, by: Principal) -> StopReport:
        return await self._parts.stopper.interrupt(session_id, by)

    async def cancel(self, message_id: str, by: Principal) -> None:
        cancelled = await self._parts.mailbox.control.cancel(message_id, by)
        await self._parts.stopper.cancel_turns((cancelled.message_id, *cancelled.with_it))

    # -- configuration -----------------------------------------------------------------------------

    async def diff(self) -> dict[str, Any]:
        pending = []
        for unit in self._parts.fleet.units():
            text = self._pending(unit)
            if text:
                pending.append(f"{unit.spec.name}: {text}")
        overrides = [
            f"{name}: {path} = {override.value!r}"
            for name, fields in self._boot_context.roster.overrides().items()
            for path, override in fields.items()
        ]
        return {
            "pending": pending,
            "overrides": overrides,
            "process": list(self._parts.reconciler.needs_restart),
            "config_error": self._parts.reconciler.config_error,
        }

    async def explain(self, name: str) -> list[dict[str, Any]]:
        spec = self._parts.reconciler.snapshot.require(name)
        return [
            {"field": row.field, "value": row.value, "origin": row.origin}
            for row in explain_agent(self._parts.reconciler.snapshot, spec.name)
        ]

    async def overridable(self, name: str) -> tuple[OverridableField, ...]:
        return self._overrides.fields(name)

    async def set_override(
        self, name: str, field: str, value: Any, by: Principal
    ) -> OverridableField:
        return await self._overrides.set(name, field, value, by)

    async def models(self, name: str, by: Principal) -> OfferedModels:
        if not by.is_operator:
            raise Forbidden("only an operator asks for the models of an agent's provider")
        return await self._parts.models.offered(self._spec(name))

    async def model_prices(self, name: str, models: Sequence[str]) -> tuple[ModelPrice | None, ...]:
        return await self._parts.models.prices_of(self._spec(name), models)

    def _spec(self, name: str) -> AgentSpec:
        return self._parts.reconciler.snapshot.require(self._boot_context.roster.entry(name).name)

    # -- the daemon --------------------------------------------------------------------------------

    async def status(self) -> DaemonView:
        boot = self._boot_context.boot
        _, sums = await self._parts.mailbox.messages.conservation()
        present = self._boot_context.roster.present()
        up = sum(
            1
            for e in present
            if self._parts.fleet.status(e.agent_id)[0] in (AgentState.RUNNING, AgentState.DEGRADED)
        )
        warnings = [str(w) for w in self._parts.reconciler.snapshot.warnings]
        return DaemonView(
            version=__version__,
            boot_id=boot.boot_id,
            node_id=boot.node_id,
            pid=os.getpid(),
            home=str(self._boot_context.home.root),
            started_at=boot.started_at,
            uptime_s=(self._boot_context.clock.now_ms() - boot.started_at) / 1000,
            state=self._parts.ending.state,
            url=self._parts.url(),
            agents_up=up,
            agents_total=len(present),
            config_error=self._parts.reconciler.config_error,
            warnings=(*warnings, *self._parts.warnings(), *self._provider_warnings()),
            conservation=sums,
        )

    async def health(self) -> HealthReport:
        return self._parts.health()

    async def drain(self, by: Principal) -> None:
        self._parts.ending.end(0, f"drained by {by.label}")

    async def exit(self, code: int, by: Principal) -> None:
        self._parts.ending.end(code, f"asked for by {by.label}")


def _last_reason(status: ChildStatus | None, past: str) -> str:
    """The reason for the present state, else that of the last end that nobody had asked for."""
    if status is not None:
        if status.reason:
            return status.reason
        if status.last_end is not None:
            end = status.last_end
            is_unasked = not end.wanted and end.kind is not EndKind.FINISHED  # as after a rebuild
            return end.reason if is_unasked else ""
    return past
