"""AgentSupervisor: the order in which everything starts, and its reverse.

1 store (opened by ``daemon.main``), 2 the API, 3 the services (relay, housekeeping,
watchdog), 4 shared knowledge, 5 main, 6 sub-agents together, 7 the watcher, 8 wait for the end. The
end comes from main, an operator or a signal; the first decides the exit code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from agentsup.api.server import ApiServer
from agentsup.daemon.runtime.ending import DaemonExit, Ending
from agentsup.daemon.runtime.fleet import Fleet
from agentsup.daemon.runtime.reconcile import Reconciler
from agentsup.kit import sdnotify
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner
from agentsup.model.agent import MAIN
from agentsup.model.errors import AgentsupError, ConfigErrors
from agentsup.model.health import AgentState
from agentsup.supervision import Grace, RestForOneFailed, RestForOneSupervisor, SupervisedChild

_log = get_logger(__name__)

FORCED = Grace(drain_s=0.0, cancel_s=0.5, kill_s=0.5)


@dataclass(frozen=True, slots=True)
class SupervisedParts:
    """The parts that are started and stopped, and what else is done at the start and the end."""

    ending: Ending
    api: ApiServer
    spine: RestForOneSupervisor
    """The services: relay, housekeeping, watchdog and others."""
    fleet: Fleet
    reconciler: Reconciler
    watcher: SupervisedChild
    tasks: TaskOwner
    on_listening: Callable[[int], Awaitable[None]]
    """Called with the port of the API."""
    refresh_knowledge: Callable[[], Awaitable[object]]
    check_health: Callable[[], Awaitable[object]]
    close_channels: Callable[[], Awaitable[None]]
    main_ready_timeout_s: Callable[[], float]
    first_complaint: ConfigErrors | None
    """The errors of the configuration at the start."""


class AgentSupervisor:
    """Runs one boot, from the open store to the exit code."""

    def __init__(self, parts: SupervisedParts) -> None:
        self._parts = parts
        self._ending = parts.ending

    # -- life ----------------------------------------------------------------------------------------

    async def run(self) -> DaemonExit:
        """Start, serve, and stop in reverse order; returns why it ended.

        Raises ``ConfigError`` if the API can't listen and ``RestForOneFailed`` if a service can't
        start; everything is closed again then.
        """
        started = self._parts.tasks.spawn(self._try_to_start(), name="daemon:start")
        try:
            first: set[asyncio.Future[Any]] = {started, self._ending.decided}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not started.done():
                started.cancel()
                await asyncio.wait({started}, timeout=1.0)
            elif refusal := started.result():
                self._ending.end(1, f"the start failed: {refusal.message}")
                raise refusal
            return await asyncio.shield(self._ending.decided)
        finally:
            await self._stop()

    async def _try_to_start(self) -> AgentsupError | None:
        """Return an expected error as a value, so that only defects are logged as crashes of the
        task."""
        try:
            await self._start()
        except AgentsupError as error:
            return error
        return None

    async def _start(self) -> None:
        port = await self._parts.api.start()
        await self._parts.on_listening(port)
        await self._parts.spine.start()
        self._parts.tasks.spawn(self._watch_spine(), name="daemon:spine")
        await self._parts.refresh_knowledge()
        await self._start_main()
        self._parts.reconciler.converge_all()
        self._parts.watcher.start()
        if self._parts.first_complaint is not None:
            await self._parts.reconciler.complain(self._parts.first_complaint)
        await self._parts.check_health()
        if not self._ending.draining:
            self._ending.state = "running"
            sdnotify.notify("READY=1")

    async def _start_main(self) -> None:
        """Start main, and wait until it is ready or has failed, for a limited time."""
        self._parts.reconciler.converge_all(only_main=True)
        unit = next(u for u in self._parts.fleet.units() if u.spec.name == MAIN)
        try:
            async with asyncio.timeout(self._parts.main_ready_timeout_s()):
                state = await unit.child.until(
                    AgentState.RUNNING,
                    AgentState.DEGRADED,
                    AgentState.FAILED,
                )
        except TimeoutError:
            _log.error("main is not ready; the other agents start without it")
            return
        _log.debug("main has begun", state=state.value)

    async def _watch_spine(self) -> None:
        try:
            await self._parts.spine.run()
        except RestForOneFailed as error:
            _log.critical("the spine gave up", reason=error.message)
            self._ending.end(1, error.message)

    async def _stop(self) -> None:
        """Stop everything in reverse order; bounded by the graces, shortened by ``force``."""
        forcing = self._parts.tasks.spawn(self._force_when_asked(), name="daemon:force")
        await self._parts.watcher.stop(FORCED)
        await self._parts.fleet.stop_all(self._ending.grace())
        forcing.cancel()
        # The relay's last deliveries still need the bots. What the bots receive until then is
        # stored and handled after the next start.
        await self._parts.spine.stop(Grace(drain_s=2.0, cancel_s=1.0, kill_s=0.5))
        await self._parts.close_channels()
        await self._parts.api.close()
        abandoned = await self._parts.tasks.close(1.0)
        if abandoned:
            _log.warning("left behind", tasks=abandoned)

    async def _force_when_asked(self) -> None:
        await self._ending.forced.wait()
        _log.warning("forced: the drain is cut short")
        await self._parts.fleet.stop_all(FORCED, main_last=False)
