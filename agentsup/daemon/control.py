"""Control: what commands and HTTP may ask of the running daemon, implemented once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from agentsup.agents.recovery.tiers import fallback_name
from agentsup.config.explain import explain_agent
from agentsup.daemon.boot import Ending
from agentsup.daemon.channels import Channels
from agentsup.daemon.engines import DaemonEngines
from agentsup.daemon.fleet import Fleet, Unit
from agentsup.daemon.overriding import Overriding, RoleProblem
from agentsup.daemon.reconcile import Reconciler
from agentsup.daemon.roster import Roster, RosterEntry
from agentsup.daemon.stopping import Stopper
from agentsup.kit.clock import Clock
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.agent import MAIN, OFFLINE, AgentSpec
from agentsup.model.control import AgentView, DaemonView, OverridableField, StopReport
from agentsup.model.errors import Conflict, NotReady
from agentsup.model.health import AgentState, Desired, HealthReport
from agentsup.model.principal import Principal
from agentsup.observe.logging import get_logger
from agentsup.supervision.board import ChildStatus
from agentsup.supervision.policy import EndKind

_log = get_logger(__name__)

ACT_WAIT_S = 10.0
"""How long a start, stop or restart is awaited before the view is returned as it is then."""


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """What does not change during a boot."""

    version: str
    boot_id: str
    node_id: str
    pid: int
    home: str
    started_at: int


class DaemonControl:
    """Implements ``model.control.Control``."""

    def __init__(
        self,
        *,
        facts: DaemonFacts,
        clock: Clock,
        roster: Roster,
        fleet: Fleet,
        reconciler: Reconciler,
        stopper: Stopper,
        mailbox: Mailbox,
        engines: DaemonEngines,
        channels: Channels,
        role_problem: RoleProblem,
        endings: dict[str, list[Ending]],
        health: Callable[[], HealthReport],
        state: Callable[[], str],
        url: Callable[[], str],
        end: Callable[[int, str], None],
        extra_warnings: Callable[[], tuple[str, ...]],
    ) -> None:
        self._facts = facts
        self._clock = clock
        self._roster = roster
        self._fleet = fleet
        self._reconciler = reconciler
        self._stopper = stopper
        self._mailbox = mailbox
        self._engines = engines
        self._channels = channels
        self._overriding = Overriding(roster, reconciler, engines, role_problem)
        self._endings = endings
        self._health = health
        self._state = state
        self._url = url
        self._end = end
        self._extra_warnings = extra_warnings

    @property
    def draining(self) -> bool:
        return self._state() == "draining"

    # -- agents ------------------------------------------------------------------------------------

    async def agents(self) -> tuple[AgentView, ...]:
        counts = await self._mailbox.counts()
        return tuple(self._view(e, counts.get(e.agent_id, {})) for e in self._roster.present())

    async def agent(self, name: str) -> AgentView:
        entry = self._roster.entry(name)
        counts = await self._mailbox.counts()
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
        await self._roster.set_desired(entry.name, Desired.UP)
        self._check_not_draining()
        self._reconciler.connect(unit, retry=True)
        unit.child.start()
        return await self._settled(name, unit.child.until_settled_or_ready())

    async def stop_agent(self, name: str, by: Principal) -> AgentView:
        entry, unit = self._unit(name)
        if unit.spec.is_main:
            raise Conflict(
                "main can't be stopped alone; `agentsup stop` ends the daemon", agent=MAIN
            )
        _log.info("agent stop", agent=entry.name, by=by.label)
        await self._roster.set_desired(entry.name, Desired.DOWN)
        self._reconciler.wake(unit)
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
        self._reconciler.connect(unit, retry=True)

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

    def _unit(self, name: str) -> tuple[RosterEntry, Unit]:
        entry = self._roster.entry(name)
        unit = self._fleet.get(entry.agent_id)
        if unit is None:
            spec = self._reconciler.snapshot.require(entry.name)
            unit = self._fleet.add(entry.agent_id, spec)
        return entry, unit

    def _view(self, entry: RosterEntry, counts: dict[str, int]) -> AgentView:
        spec = self._reconciler.snapshot.require(entry.name)
        unit = self._fleet.get(entry.agent_id)
        status = unit.child.status if unit is not None else None
        past = self._endings.get(entry.agent_id, [])
        engine, why = self._engines.choice(spec)
        since = status.running_since_at if status else None
        last_reason = _last_reason(status, past)
        working = unit.stack.in_flight if unit is not None and unit.stack is not None else ()
        running = [w for w in working if not w.stopped]
        return AgentView(
            name=spec.name,
            agent_id=entry.agent_id,
            instance_id=unit.instance_id if unit and unit.stack else "",
            status=status.state.value if status else AgentState.STOPPED.value,
            desired=self._desired(entry, spec.enabled or spec.is_main),
            role=spec.role or "",
            engine=engine,
            model=spec.model or "",
            uptime_s=(self._clock.now_ms() - since) / 1000 if since is not None else None,
            restarts=self._restarts(unit),
            last_reason=last_reason,
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
                        # Why a better one answers is no trouble.
                        why if engine == OFFLINE else "",
                        self._engines.problem(spec),
                        *self._missing_channels(spec),
                        *self._channels.notes(entry.agent_id),
                        *(unit.stack.provider_notes() if unit and unit.stack else ()),
                    ),
                )
            ),
            work=tuple(w.note or "thinking" for w in running),
            engine_reason=why,
        )

    def _provider_warnings(self) -> tuple[str, ...]:
        notes = (note for stack in self._fleet.stacks() for note in stack.provider_notes())
        return tuple(dict.fromkeys(notes))

    def _restarts(self, unit: Unit | None) -> int:
        """Restarts that still count; a stable life has wiped the slate clean."""
        if unit is None:
            return 0
        since = unit.child.status.running_since_at
        stable_ms = unit.child.spec.policy.stable_s * 1000
        if since is not None and self._clock.now_ms() - since >= stable_ms:
            return 0
        return unit.child.restarts_in_window

    def _pending(self, unit: Unit | None) -> str:
        if unit is None:
            return ""
        fields = self._reconciler.rebuild_fields(unit)
        return unit.pending or (f"rebuild pending: {', '.join(fields)}" if fields else "")

    @staticmethod
    def _desired(entry: RosterEntry, enabled: bool) -> str:
        return entry.desired.value if enabled else Desired.DOWN.value

    @staticmethod
    def _missing_channels(spec: AgentSpec) -> tuple[str, ...]:
        notes: tuple[str, ...] = ()
        if "telegram" in spec.channels and spec.telegram_token is None:
            notes += ("the Telegram channel can't start without telegram_token",)
        if "matrix" in spec.channels and not spec.matrix.is_usable:
            lacks = "matrix.homeserver, matrix.user_id and matrix.access_token or matrix.password"
            notes += (f"the Matrix channel can't start without {lacks}",)
        return notes

    # -- work --------------------------------------------------------------------------------------

    async def stop(self, scope: str, by: Principal, *, given_in: str = "") -> StopReport:
        report = await self._stopper.stop(scope, by, given_in=given_in)
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
        return await self._stopper.interrupt(session_id, by)

    async def cancel(self, message_id: str, by: Principal) -> None:
        cancelled = await self._mailbox.cancel(message_id, by)
        await self._stopper.cancel_turns((cancelled.message_id, *cancelled.with_it))

    # -- configuration -----------------------------------------------------------------------------

    async def diff(self) -> dict[str, Any]:
        pending = []
        for unit in self._fleet.units():
            text = self._pending(unit)
            if text:
                pending.append(f"{unit.spec.name}: {text}")
        overrides = [
            f"{name}: {path} = {override.value!r}"
            for name, fields in self._roster.overrides().items()
            for path, override in fields.items()
        ]
        return {
            "pending": pending,
            "overrides": overrides,
            "process": list(self._reconciler.needs_restart),
            "config_error": self._reconciler.config_error,
        }

    async def explain(self, name: str) -> list[dict[str, Any]]:
        spec = self._reconciler.snapshot.require(name)
        return [
            {"field": row.field, "value": row.value, "origin": row.origin}
            for row in explain_agent(self._reconciler.snapshot, spec.name)
        ]

    async def overridable(self, name: str) -> tuple[OverridableField, ...]:
        return self._overriding.fields(name)

    async def set_override(
        self, name: str, field: str, value: Any, by: Principal
    ) -> OverridableField:
        return await self._overriding.set(name, field, value, by)

    # -- the daemon --------------------------------------------------------------------------------

    async def status(self) -> DaemonView:
        _, sums = await self._mailbox.conservation()
        present = self._roster.present()
        up = sum(
            1
            for e in present
            if self._fleet.status(e.agent_id)[0] in (AgentState.RUNNING, AgentState.DEGRADED)
        )
        warnings = [str(w) for w in self._reconciler.snapshot.warnings]
        return DaemonView(
            version=self._facts.version,
            boot_id=self._facts.boot_id,
            node_id=self._facts.node_id,
            pid=self._facts.pid,
            home=self._facts.home,
            started_at=self._facts.started_at,
            uptime_s=(self._clock.now_ms() - self._facts.started_at) / 1000,
            state=self._state(),
            url=self._url(),
            agents_up=up,
            agents_total=len(present),
            config_error=self._reconciler.config_error,
            warnings=(*warnings, *self._extra_warnings(), *self._provider_warnings()),
            conservation=sums,
        )

    async def health(self) -> HealthReport:
        return self._health()

    async def drain(self, by: Principal) -> None:
        self._end(0, f"drained by {by.label}")

    async def exit(self, code: int, by: Principal) -> None:
        self._end(code, f"asked for by {by.label}")


_UNWANTED = (EndKind.CRASHED, EndKind.START_FAILED, EndKind.EXIT_REQUESTED)


def _last_reason(status: ChildStatus | None, past: list[Ending]) -> str:
    """Why it is in its state, else how its last life ended that nobody had asked to end."""
    if status is not None:
        if status.reason:
            return status.reason
        if status.last_end is not None:
            return "" if status.last_end.wanted else status.last_end.reason
    unwanted = (end.reason for end in reversed(past) if end.kind in _UNWANTED)
    return next(unwanted, "")
