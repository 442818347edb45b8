"""AgentSupervisor: the order in which everything starts, and its reverse.

1 store and bus (opened by the composition root), 2 the API, 3 the spine (relay, housekeeping,
watchdog), 4 main, 5 sub-agents together, 6 shared knowledge, 7 the watcher, 8 wait for the end. The
end is main's, an operator's, or a signal's; whichever comes first decides the exit code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from agentsup.daemon.fleet import Fleet
from agentsup.daemon.reconcile import Reconciler
from agentsup.kit import sdnotify
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import TaskOwner
from agentsup.model.agent import MAIN
from agentsup.model.errors import AgentsupError, ConfigErrors
from agentsup.model.health import AgentState
from agentsup.observe.logging import get_logger
from agentsup.supervision.child import SupervisedChild
from agentsup.supervision.spec import Grace
from agentsup.supervision.spine import Spine, SpineFailed

_log = get_logger(__name__)

FORCED = Grace(drain_s=0.0, cancel_s=0.5, kill_s=0.5)
REBUILD_CODE = 42


class Listener(Protocol):
    """The API's listener."""

    async def start(self) -> int: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class Ending:
    """Why and with what code the daemon ends."""

    code: int
    reason: str


class AgentSupervisor:
    """Runs one boot from open store to exit code."""

    def __init__(
        self,
        *,
        clock: Clock,
        api: Listener,
        spine: Spine,
        fleet: Fleet,
        reconciler: Reconciler,
        knowledge: Callable[[], Awaitable[object]],
        watcher: SupervisedChild,
        tasks: TaskOwner,
        grace: Callable[[], Grace],
        main_ready_timeout_s: Callable[[], float],
        first_complaint: ConfigErrors | None,
        on_listening: Callable[[int], Awaitable[None]],
        check_health: Callable[[], Awaitable[object]],
        close_channels: Callable[[], Awaitable[None]],
    ) -> None:
        self._clock = clock
        self._api = api
        self._spine = spine
        self._fleet = fleet
        self._reconciler = reconciler
        self._knowledge = knowledge
        self._watcher = watcher
        self._tasks = tasks
        self._grace = grace
        self._main_ready_timeout_s = main_ready_timeout_s
        self._first_complaint = first_complaint
        self._on_listening = on_listening
        self._check_health = check_health
        self._close_channels = close_channels
        self._end: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._forced = asyncio.Event()
        self.state = "starting"

    # -- requests ------------------------------------------------------------------------------------

    def end(self, code: int, reason: str) -> None:
        """Ask for the end; the first request decides code and reason."""
        if not self._end.done():
            self._end.set_result(Ending(code, reason))
            self.state = "draining"
            self._reconciler.close()
            limit_us = round((2 * self._grace().total_s + 10.0) * 1_000_000)
            sdnotify.notify(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={limit_us}")
            _log.info("ending", code=code, reason=reason)

    def force(self) -> None:
        """Skip what is left of the drain."""
        self._forced.set()

    @property
    def draining(self) -> bool:
        return self._end.done()

    @property
    def ends_with(self) -> int | None:
        """The exit code, once the end is decided."""
        return self._end.result().code if self._end.done() else None

    # -- life ----------------------------------------------------------------------------------------

    async def run(self) -> Ending:
        """Start, serve, stop in reverse; returns why it ended.

        Raises ``ConfigError`` where the API can't listen and ``SpineFailed`` where a part that
        everything needs can't start; then everything is closed again.
        """
        started = self._tasks.spawn(self._try_to_start(), name="daemon:start")
        try:
            first: set[asyncio.Future[Any]] = {started, self._end}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not started.done():
                started.cancel()
                await asyncio.wait({started}, timeout=1.0)
            elif refusal := started.result():
                self.end(1, f"the start failed: {refusal.message}")
                raise refusal
            return await asyncio.shield(self._end)
        finally:
            await self._stop()

    async def _try_to_start(self) -> AgentsupError | None:
        """What a person must mend is a value here, so that only defects are logged as such."""
        try:
            await self._start()
        except AgentsupError as error:
            return error
        return None

    async def _start(self) -> None:
        port = await self._api.start()
        await self._on_listening(port)
        await self._spine.start()
        self._tasks.spawn(self._watch_spine(), name="daemon:spine")
        await self._knowledge()
        await self._start_main()
        self._reconciler.converge_all()
        self._watcher.start()
        if self._first_complaint is not None:
            await self._reconciler.complain(self._first_complaint)
        await self._check_health()
        if not self.draining:
            self.state = "running"
            sdnotify.notify("READY=1")

    async def _start_main(self) -> None:
        """Main is ready, or has had its time; either is reported."""
        self._reconciler.converge_all(only_main=True)
        unit = next(u for u in self._fleet.units() if u.spec.name == MAIN)
        try:
            async with asyncio.timeout(self._main_ready_timeout_s()):
                state = await unit.child.until(
                    AgentState.RUNNING,
                    AgentState.DEGRADED,
                    AgentState.FAILED,
                )
        except TimeoutError:
            _log.error("main is not ready; the other agents start without it")
            return
        _log.info("main", state=state.value)

    async def _watch_spine(self) -> None:
        try:
            await self._spine.run()
        except SpineFailed as error:
            _log.critical("the spine gave up", reason=error.message)
            self.end(1, error.message)

    async def _stop(self) -> None:
        """The reverse of the start; bounded by the graces, shortened by ``force``."""
        forcing = self._tasks.spawn(self._force_when_asked(), name="daemon:force")
        await self._watcher.stop(FORCED)
        await self._fleet.stop_all(self._grace())
        forcing.cancel()
        # The relay's last deliveries still go through the bots; what these hear until then is kept
        # and waits for the next boot.
        await self._spine.stop(Grace(drain_s=2.0, cancel_s=1.0, kill_s=0.5))
        await self._close_channels()
        await self._api.close()
        abandoned = await self._tasks.close(1.0)
        if abandoned:
            _log.warning("left behind", tasks=abandoned)

    async def _force_when_asked(self) -> None:
        await self._forced.wait()
        _log.warning("forced: the drain is cut short")
        await self._fleet.stop_all(FORCED, main_last=False)
