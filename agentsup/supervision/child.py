"""One supervised child, through all its lives.

A controller task per child starts lives, waits for ends, asks ``decide`` and stops within limits,
so no child ever waits for another. Requests (start, stop, restart, replace) only change the intent
and wake the controller, which reads the intent again after every wait. Serves P3, P5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner
from agentsup.model.health import AgentState
from agentsup.supervision.life import ChildLife, live, state_after, where
from agentsup.supervision.policy import (
    REBUILD_CODE,
    Decision,
    Ended,
    EndHistory,
    ExitDaemon,
    Rebuild,
    Settle,
    decide,
)
from agentsup.supervision.spec import (
    READY_STATES,
    ChildContext,
    ChildSpec,
    ChildStatus,
    Grace,
)

_log = get_logger(__name__)
# Timers may fire early by the loop's resolution; a shorter rest counts as elapsed.
_INSTANT_S = 1e-6


class _Intent(Enum):
    UP = "up"
    REBUILD = "rebuild"
    DOWN = "down"


class SupervisedChild:
    """Runs ``spec`` again and again as its policy says, until stopped."""

    def __init__(
        self,
        spec: ChildSpec,
        *,
        clock: Clock,
        entropy: Entropy,
        record: Callable[[ChildStatus], None],
        on_exit: Callable[[int], None] | None = None,
    ) -> None:
        """``record`` is called with every change of status, ``on_exit(code)`` at an end."""
        self.spec = spec
        self._clock = clock
        self._entropy = entropy
        self._record = record
        self._on_exit = on_exit
        self._owner = TaskOwner(f"child {spec.child_id}", on_error=self._broke)
        self._intent = _Intent.DOWN
        self._grace: Grace | None = None
        self._skips_backoff = False
        self._controller: asyncio.Task[None] | None = None
        self._nudge: asyncio.Future[None] | None = None
        self._observers: set[tuple[Callable[[], bool], asyncio.Future[AgentState]]] = set()
        self._life: ChildLife | None = None
        self._lives = 0
        self._history = EndHistory()
        self._abandoned: set[asyncio.Task[Any]] = set()
        self._status = ChildStatus(spec.child_id, AgentState.STOPPED, clock.now_ms())

    @property
    def status(self) -> ChildStatus:
        """The present status."""
        return self._status

    @property
    def state(self) -> AgentState:
        """The present state."""
        return self._status.state

    @property
    def restarts_in_window(self) -> int:
        """Failures that count against the next one, as of now."""
        return self._history.restarts_in_window(self._clock.monotonic(), self.spec.policy)

    # -- requests ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it with an empty history: from stopped and failed, and at once from back-off.

        During a stop it is started again after the stop; a running child goes on unchanged. For an
        act of a person or a changed entry; a loop that merely compares should not call it for a
        child in back-off.
        """
        if self._controller is None:
            self._history = EndHistory()
            self._intent, self._grace = _Intent.UP, None
            self._set(AgentState.STARTING, "")
            self._controller = self._owner.spawn(
                self._control(), name=f"supervise:{self.spec.child_id}"
            )
        elif self._intent is _Intent.DOWN:
            self._intend(_Intent.REBUILD, None)
        elif self.state is AgentState.BACKOFF:
            self._history = EndHistory()
            self._skips_backoff = True
            self._wake()

    async def stop(self, grace: Grace | None = None) -> None:
        """Stop it and wait until it has stopped; never longer than the grace.

        ``grace`` replaces the spec's; of several concurrent stops the shorter steps hold.
        Cancelling this call does not undo the stop. Returns early if a start overtakes it.
        """
        if self._controller is None:
            if self.state is AgentState.FAILED:
                self._set(AgentState.STOPPED, "stopped")
            return
        self._intend(_Intent.DOWN, grace)
        await self._observe(lambda: self._controller is None or self._intent is not _Intent.DOWN)

    async def restart(self) -> None:
        """Stop the present life and wait until the next one has begun; starts it if it is down."""
        lives = self._lives
        if self._controller is None:
            self.start()
        else:
            self._intend(_Intent.REBUILD, None)
        await self._observe(
            lambda: self._lives > lives or self._intent is _Intent.DOWN or self._controller is None
        )

    def replace(self, spec: ChildSpec) -> None:
        """Take a changed spec. A running child is drained and rebuilt, one in back-off or failed
        starts at once, a stopped one stays stopped. Raises ``ValueError`` for another
        ``child_id``."""
        if spec.child_id != self.spec.child_id:
            raise ValueError(f"{self.spec.child_id} cannot become {spec.child_id}")
        if spec == self.spec:
            return
        self.spec = spec
        if self.state is AgentState.FAILED:
            self.start()
        elif self._controller is not None and self._intent is not _Intent.DOWN:
            self._intend(_Intent.REBUILD, None)

    async def until(self, *states: AgentState) -> AgentState:
        """Wait until the child is in one of ``states``, even briefly; returns that state."""
        return await self._observe(lambda: self.state in states)

    async def until_settled_or_ready(self) -> AgentState:
        """Wait for the result of a start: running, degraded, back-off, failed or stopped."""
        return await self.until(
            *READY_STATES, AgentState.BACKOFF, AgentState.FAILED, AgentState.STOPPED
        )

    # -- the controller --------------------------------------------------------------------------

    async def _control(self) -> None:
        while True:
            if self._intent is _Intent.DOWN:
                self._settle(AgentState.STOPPED, "stopped")
                return
            self._intent, self._grace, self._skips_backoff = _Intent.UP, None, False
            end = await self._run_life()
            if self._intent is _Intent.REBUILD:
                self._history = EndHistory()
                continue
            decision = self._decide(end)
            if isinstance(decision, Rebuild):
                await self._back_off(decision.delay_s, end.reason)
                continue
            if isinstance(decision, Settle):
                self._settle(decision.state, decision.reason)
            else:
                self._settle_significant(decision, end)
            return

    def _decide(self, end: Ended) -> Decision:
        spec = self.spec
        decision = decide(
            end,
            self._history,
            spec.policy,
            is_main=spec.significant,
            restart=spec.restart,
            unit=self._entropy.uniform(0.0, 1.0),
        )
        self._history = self._history.plus(end)
        return decision

    async def _run_life(self) -> Ended:
        """One life, from its start to its end."""
        life = self._begin()
        spec, task = life.spec, life.task
        ready_by = self._clock.monotonic() + spec.ready_timeout_s
        while not task.done() and self._intent is _Intent.UP:
            left_s = None if life.ready_at is not None else ready_by - self._clock.monotonic()
            if left_s is not None and left_s <= _INSTANT_S:
                break
            await self._pause(task, left_s)
        is_ended_by_us = not task.done()
        is_hung_start = is_ended_by_us and self._intent is _Intent.UP
        if is_ended_by_us:
            if not is_hung_start:
                self._set(AgentState.STOPPING, "")
            await self._end(life)
        outcome = life.outcome(was_cancelled_by_us=is_ended_by_us, is_hung_start=is_hung_start)
        self._life = None
        if not is_ended_by_us or is_hung_start:
            self._set(state_after(outcome, spec), outcome.reason)
        at = self._clock.monotonic()
        uptime_s = at - life.ready_at if life.ready_at is not None else 0.0
        # Read only now: a stop that came while the end was handled counts as wanted.
        is_wanted = self._intent is _Intent.DOWN
        end = Ended(at, outcome.kind, outcome.code, outcome.reason, uptime_s, is_wanted)
        self._status = replace(self._status, last_end=end)
        return end

    def _begin(self) -> ChildLife:
        self._lives += 1
        spec = self.spec
        ctx = ChildContext(
            spec.child_id,
            self._lives,
            ready=self._on_life_event(self._lives, self._on_ready),
            degraded=self._on_life_event(self._lives, self._on_degraded),
        )
        task = self._owner.spawn(live(spec, ctx), name=f"child:{spec.child_id}")
        self._life = ChildLife(self._lives, spec, ctx, task)
        self._set(AgentState.STARTING, self._status.reason)
        return self._life

    async def _end(self, life: ChildLife) -> None:
        """The stop protocol: drain, cancel, cancel again, abandon; each step is bounded."""
        task = life.task
        if life.ready_at is not None:
            life.ctx.draining.set()
            await self._ends_within(task, lambda grace: grace.drain_s)
        if not task.done():
            task.cancel()
            await self._ends_within(task, lambda grace: grace.cancel_s)
        if not task.done():
            task.cancel()
            await self._ends_within(task, lambda grace: grace.kill_s)
        if not task.done():
            self._abandon(life)

    async def _ends_within(self, task: asyncio.Task[Any], step_s: Callable[[Grace], float]) -> None:
        began = self._clock.monotonic()
        while not task.done():
            # Read again after each wait: a more urgent stop may have shortened the step.
            left_s = began + step_s(self._grace_now()) - self._clock.monotonic()
            if left_s <= _INSTANT_S:
                return
            await self._pause(task, left_s)

    def _abandon(self, life: ChildLife) -> None:
        self._abandoned.add(life.task)
        life.task.add_done_callback(self._abandoned_ended)
        _log.error(
            f"abandoned life {life.number} of child {life.spec.child_id}; it stands at:\n"
            f"{where(life.task)}"
        )

    def _abandoned_ended(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.discard(task)
        if self.state in READY_STATES:
            self._show_health()

    async def _back_off(self, delay_s: float, reason: str) -> None:
        """Wait before the next life; any request ends the wait."""
        if delay_s <= 0:
            return
        retry_by = self._clock.monotonic() + delay_s
        self._set(AgentState.BACKOFF, reason, retry_in_s=delay_s)
        while self._intent is _Intent.UP and not self._skips_backoff:
            left_s = retry_by - self._clock.monotonic()
            if left_s <= _INSTANT_S:
                return
            await self._pause(None, left_s)

    def _settle(self, state: AgentState, reason: str) -> None:
        passage = AgentState.BACKOFF if state is AgentState.FAILED else AgentState.STOPPING
        if self.state not in {AgentState.STOPPED, AgentState.FAILED}:
            self._set(passage, reason)
        self._controller = None
        self._set(state, reason)
        self._notify_observers()

    def _settle_significant(self, decision: ExitDaemon, end: Ended) -> None:
        is_calm = decision.code in {0, REBUILD_CODE}
        self._settle(AgentState.STOPPED if is_calm else AgentState.FAILED, end.reason)
        if self._on_exit is not None:
            self._on_exit(decision.code)

    def _broke(self, task: asyncio.Task[Any], error: BaseException) -> None:
        """Handle a defect of the supervisor itself: the child becomes failed and stays visible."""
        _log.critical(f"task {task.get_name()} of the supervisor broke", exc_info=error)
        if task is self._controller:
            self._controller = None
            if self._life is not None:
                self._life.task.cancel()
            reason = f"defect in supervision: {error!r}"
            self._publish(replace(self._status, state=AgentState.FAILED, reason=reason))

    # -- callbacks of a life -----------------------------------------------------------------------

    def _on_life_event(self, number: int, hear: Callable[..., None]) -> Callable[..., None]:
        """Ignore callbacks of a life that is not the present one, such as an abandoned one."""

        def forward(*args: Any) -> None:
            if self._life is not None and self._life.number == number:
                hear(self._life, *args)

        return forward

    def _on_ready(self, life: ChildLife) -> None:
        if life.ready_at is None:
            life.ready_at = self._clock.monotonic()
            if self.state is AgentState.STARTING:
                self._show_health()
            self._wake()

    def _on_degraded(self, life: ChildLife, reason: str | None) -> None:
        life.degraded = reason
        if self.state in READY_STATES:
            self._show_health()

    def _show_health(self) -> None:
        reason = self._life.degraded if self._life is not None else None
        if reason is None and self._abandoned:
            reason = f"{len(self._abandoned)} earlier lives could not be ended"
        self._set(AgentState.DEGRADED if reason else AgentState.RUNNING, reason or "")

    # -- status and waking ---------------------------------------------------------------------------

    def _set(self, state: AgentState, reason: str, *, retry_in_s: float | None = None) -> None:
        moved = self._status.moved(state, reason, at=self._clock.now_ms(), retry_in_s=retry_in_s)
        new = replace(moved, life=self._lives, abandoned=len(self._abandoned))
        if new != self._status:
            self._publish(new)

    def _publish(self, status: ChildStatus) -> None:
        self._status = status
        self._record(status)
        self._notify_observers()

    def _grace_now(self) -> Grace:
        return self._grace if self._grace is not None else self.spec.grace

    def _intend(self, intent: _Intent, grace: Grace | None) -> None:
        if grace is not None:
            is_under_way = self._intent is not _Intent.UP
            self._grace = self._grace_now().tightened(grace) if is_under_way else grace
        self._intent = intent
        self._wake()
        self._notify_observers()

    def _wake(self) -> None:
        if self._nudge is not None and not self._nudge.done():
            self._nudge.set_result(None)

    async def _pause(self, task: asyncio.Task[Any] | None, limit_s: float | None) -> None:
        """Wait for ``task``, a request or the limit, whichever comes first; nothing is raised."""
        self._nudge = asyncio.get_running_loop().create_future()
        waited: set[asyncio.Future[Any]] = {self._nudge}
        if task is not None:
            waited.add(task)
        await asyncio.wait(waited, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)

    def _notify_observers(self) -> None:
        for condition, met in self._observers:
            if not met.done() and condition():
                met.set_result(self.state)

    async def _observe(self, condition: Callable[[], bool]) -> AgentState:
        """Wait until ``condition`` holds, if only for a moment; returns the state at that time."""
        if condition():
            return self.state
        met: asyncio.Future[AgentState] = asyncio.get_running_loop().create_future()
        observer = (condition, met)
        self._observers.add(observer)
        try:
            return await met
        finally:
            self._observers.discard(observer)
