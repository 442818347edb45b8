"""One supervised child, through all its lives.

A controller task per child starts lives, waits for ends, asks `decide` and stops within limits,
so no child ever waits for another. Requests (start, stop, restart, replace) only change what is
intended and wake the controller; what is intended is read again after every wait. Serves P3, P5.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.tasks import TaskOwner
from agentsup.model.health import AgentState
from agentsup.supervision.board import ChildStatus
from agentsup.supervision.life import Life, Outcome, live, state_after, where
from agentsup.supervision.policy import (
    REBUILD_CODE,
    Decision,
    Ended,
    EndKind,
    ExitDaemon,
    History,
    Rebuild,
    Role,
    Settle,
    decide,
)
from agentsup.supervision.scope import Scope
from agentsup.supervision.spec import ChildContext, ChildSpec, Grace
from agentsup.supervision.states import check_transition

__all__ = ["SupervisedChild"]

_log = logging.getLogger(__name__)
# Timers may fire early by the loop's resolution; less than this is no wait.
_INSTANT_S = 1e-6
_MS_PER_S = 1000
_READY_STATES = frozenset({AgentState.RUNNING, AgentState.DEGRADED})


class _Intent(Enum):
    UP = "up"
    REBUILD = "rebuild"
    DOWN = "down"


class SupervisedChild:
    """Runs `spec` over and over as its policy says, until stopped."""

    def __init__(
        self,
        spec: ChildSpec,
        *,
        clock: Clock,
        entropy: Entropy,
        record: Callable[[ChildStatus], None],
        on_exit: Callable[[int], None] | None = None,
    ) -> None:
        """`record` hears of every change of status; `on_exit(code)` of a significant end."""
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
        self._life: Life | None = None
        self._lives = 0
        self._history = History()
        self._abandoned: set[asyncio.Task[Any]] = set()
        self._status = ChildStatus(spec.child_id, AgentState.STOPPED, clock.now_ms())

    @property
    def status(self) -> ChildStatus:
        """Where it stands."""
        return self._status

    @property
    def state(self) -> AgentState:
        """Its state alone."""
        return self._status.state

    @property
    def restarts_in_window(self) -> int:
        """Failures that count against the next one, as of now; the status has those of its time."""
        return self._history.restarts_in_window(self._clock.monotonic(), self.spec.policy)

    # -- requests ------------------------------------------------------------------------------

    def start(self) -> None:
        """Have it up, with a clean slate: from stopped and failed, at once from back-off.

        While a stop is under way, it is built again after that; a running one is left alone. An
        act of a person or a changed entry; a loop that merely compares should not call it for a
        child in back-off.
        """
        if self._controller is None:
            self._history = History()
            self._intent, self._grace = _Intent.UP, None
            self._set(AgentState.STARTING, "")
            self._controller = self._owner.spawn(
                self._control(), name=f"supervise:{self.spec.child_id}"
            )
        elif self._intent is _Intent.DOWN:
            self._intend(_Intent.REBUILD, None)
        elif self.state is AgentState.BACKOFF:
            self._history = History()
            self._skips_backoff = True
            self._wake()

    async def stop(self, grace: Grace | None = None) -> None:
        """Have it down and wait for that; never longer than the grace and its closing steps.

        `grace` replaces the spec's; of several stops under way the shorter steps hold. Cancelling
        this call does not undo the stop. Returns early if a start overtakes it.
        """
        if self._controller is None:
            if self.state is AgentState.FAILED:
                self._set(AgentState.STOPPED, "stopped")
            return
        self._intend(_Intent.DOWN, grace)
        await self._observe(lambda: self._controller is None or self._intent is not _Intent.DOWN)

    async def restart(self, grace: Grace | None = None) -> None:
        """Stop the life it has and wait until the next one has begun; starts it if it is down."""
        lives = self._lives
        if self._controller is None:
            self.start()
        else:
            self._intend(_Intent.REBUILD, grace)
        await self._observe(
            lambda: self._lives > lives or self._intent is _Intent.DOWN or self._controller is None
        )

    def replace(self, spec: ChildSpec) -> None:
        """Take a changed spec: a running one is drained and rebuilt, one in back-off or failed
        starts at once, a stopped one stays stopped until started.
        """
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
        """Wait until it is, if only for a moment, in one of `states`; returns which."""
        return await self._observe(lambda: self.state in states)

    async def until_settled_or_ready(self) -> AgentState:
        """Wait for the outcome of a start: running, degraded, back-off, failed or stopped."""
        return await self.until(
            *_READY_STATES, AgentState.BACKOFF, AgentState.FAILED, AgentState.STOPPED
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
                self._history = History()
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
            role=Role.MAIN if spec.significant else Role.CHILD,
            restart=spec.restart,
            unit=self._entropy.uniform(0.0, 1.0),
        )
        self._history = self._history.plus(end)
        return decision

    async def _run_life(self) -> Ended:
        """One life from start to its unwound scope."""
        life = self._begin()
        spec, ctx, task = life.spec, life.ctx, life.task
        ready_by = self._clock.monotonic() + spec.ready_timeout_s
        while not task.done() and self._intent is _Intent.UP:
            left_s = None if life.ready_at is not None else ready_by - self._clock.monotonic()
            if left_s is not None and left_s <= _INSTANT_S:
                break
            await self._pause(task, left_s)
        is_ended_by_us = not task.done()
        is_hung_start = is_ended_by_us and self._intent is _Intent.UP
        problems: list[str] = []
        if is_ended_by_us:
            if not is_hung_start:
                self._set(AgentState.STOPPING, "")
            problems += await self._end(life)
        outcome = life.outcome(was_cancelled_by_us=is_ended_by_us)
        if is_hung_start:
            reason = f"not ready within {spec.ready_timeout_s:g} s"
            outcome = Outcome(EndKind.START_FAILED, 1, reason)
        elif life.ready_at is None and outcome.kind in {EndKind.CRASHED, EndKind.FINISHED}:
            reason = f"ended before it was ready: {outcome.reason}"
            outcome = Outcome(EndKind.START_FAILED, 1, reason)
        self._life = None
        if not is_ended_by_us or is_hung_start:
            self._set(state_after(outcome, spec), outcome.reason)
        problems += ctx.scope.kill()
        at = self._clock.monotonic()
        uptime_s = at - life.ready_at if life.ready_at is not None else 0.0
        problems += await ctx.scope.unwind(self._grace_now().kill_s)
        for problem in problems:
            _log.warning("child %s, life %d: %s", spec.child_id, life.number, problem)
        # Read only now: a stop that came while the end was being dealt with counts as wanted.
        is_wanted = self._intent is _Intent.DOWN
        end = Ended(at, outcome.kind, outcome.code, outcome.reason, uptime_s, is_wanted)
        self._status = replace(self._status, last_end=end)
        return end

    def _begin(self) -> Life:
        self._lives += 1
        spec = self.spec
        ctx = ChildContext(
            spec.child_id,
            self._lives,
            Scope(self._owner),
            on_ready=self._heard_by(self._lives, self._on_ready),
            on_degraded=self._heard_by(self._lives, self._on_degraded),
        )
        task = self._owner.spawn(live(spec, ctx), name=f"child:{spec.child_id}")
        self._life = Life(self._lives, spec, ctx, task)
        self._set(AgentState.STARTING, self._status.reason)
        return self._life

    async def _end(self, life: Life) -> list[str]:
        """The stop protocol: drain, cancel, kill, abandon; each step bounded."""
        task = life.task
        if life.ready_at is not None:
            life.ctx.draining.set()
            await self._ends_within(task, lambda grace: grace.drain_s)
        if not task.done():
            task.cancel()
            await self._ends_within(task, lambda grace: grace.cancel_s)
        problems = []
        if not task.done():
            problems = life.ctx.scope.kill()
            task.cancel()
            await self._ends_within(task, lambda grace: grace.kill_s)
        if not task.done():
            self._abandon(life)
        return problems

    async def _ends_within(
        self, task: "asyncio.Task[Any]", step_s: Callable[[Grace], float]
    ) -> None:
        began = self._clock.monotonic()
        while not task.done():
            # Read anew after each wait: a more urgent stop may have shortened the step.
            left_s = began + step_s(self._grace_now()) - self._clock.monotonic()
            if left_s <= _INSTANT_S:
                return
            await self._pause(task, left_s)

    def _abandon(self, life: Life) -> None:
        self._abandoned.add(life.task)
        life.task.add_done_callback(self._abandoned_ended)
        _log.error(
            "abandoned life %d of child %s; it stands at:\n%s",
            life.number,
            life.spec.child_id,
            where(life.task),
        )

    def _abandoned_ended(self, task: "asyncio.Task[Any]") -> None:
        self._abandoned.discard(task)
        if self.state in _READY_STATES:
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
        self._tell_observers()

    def _settle_significant(self, decision: ExitDaemon, end: Ended) -> None:
        is_calm = decision.code in {0, REBUILD_CODE}
        self._settle(AgentState.STOPPED if is_calm else AgentState.FAILED, end.reason)
        if self._on_exit is not None:
            self._on_exit(decision.code)

    def _broke(self, task: "asyncio.Task[Any]", error: BaseException) -> None:
        """A defect of the supervisor itself: the child is failed, not forgotten."""
        _log.critical("task %s of the supervisor broke", task.get_name(), exc_info=error)
        if task is self._controller:
            self._controller = None
            if self._life is not None:
                self._life.task.cancel()
            reason = f"defect in supervision: {error!r}"
            self._publish(replace(self._status, state=AgentState.FAILED, reason=reason))

    # -- what a life says --------------------------------------------------------------------------

    def _heard_by(self, number: int, hear: Callable[..., None]) -> Callable[..., None]:
        """Hear a life only while it is the present one; an abandoned one has no say."""

        def heard(*args: Any) -> None:
            if self._life is not None and self._life.number == number:
                hear(self._life, *args)

        return heard

    def _on_ready(self, life: Life) -> None:
        if life.ready_at is None:
            life.ready_at = self._clock.monotonic()
            if self.state is AgentState.STARTING:
                self._show_health()
            self._wake()

    def _on_degraded(self, life: Life, reason: str | None) -> None:
        life.degraded = reason
        if self.state in _READY_STATES:
            self._show_health()

    def _show_health(self) -> None:
        reason = self._life.degraded if self._life is not None else None
        if reason is None and self._abandoned:
            reason = f"{len(self._abandoned)} earlier lives could not be ended"
        self._set(AgentState.DEGRADED if reason else AgentState.RUNNING, reason or "")

    # -- status and waking ---------------------------------------------------------------------------

    def _set(self, state: AgentState, reason: str, *, retry_in_s: float | None = None) -> None:
        old = self._status
        now_ms = self._clock.now_ms()
        if state is not old.state:
            check_transition(self.spec.child_id, old.state, state)
        since = old.running_since_at
        if state in _READY_STATES:
            since = since if old.state in _READY_STATES else now_ms
        elif state is not AgentState.STOPPING:
            since = None
        retry = None if retry_in_s is None else now_ms + round(retry_in_s * _MS_PER_S)
        new = replace(
            old,
            state=state,
            changed_at=old.changed_at if state is old.state else now_ms,
            reason=reason,
            life=self._lives,
            running_since_at=since,
            next_retry_at=retry,
            restarts_in_window=self._history.restarts_in_window(
                self._clock.monotonic(), self.spec.policy
            ),
            abandoned=len(self._abandoned),
        )
        if new != old:
            self._publish(new)

    def _publish(self, status: ChildStatus) -> None:
        self._status = status
        self._record(status)
        self._tell_observers()

    def _grace_now(self) -> Grace:
        return self._grace if self._grace is not None else self.spec.grace

    def _intend(self, intent: _Intent, grace: Grace | None) -> None:
        if grace is not None:
            is_under_way = self._intent is not _Intent.UP
            self._grace = self._grace_now().tightened(grace) if is_under_way else grace
        self._intent = intent
        self._wake()
        self._tell_observers()

    def _wake(self) -> None:
        if self._nudge is not None and not self._nudge.done():
            self._nudge.set_result(None)

    async def _pause(self, task: "asyncio.Task[Any] | None", limit_s: float | None) -> None:
        """Wait for `task`, a request or the limit, whatever comes first; nothing is raised."""
        self._nudge = asyncio.get_running_loop().create_future()
        waited: set[asyncio.Future[Any]] = {self._nudge}
        if task is not None:
            waited.add(task)
        await asyncio.wait(waited, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)

    def _tell_observers(self) -> None:
        for condition, met in self._observers:
            if not met.done() and condition():
                met.set_result(self.state)

    async def _observe(self, condition: Callable[[], bool]) -> AgentState:
        """Wait until `condition` holds, if only for a moment; the state it had then."""
        if condition():
            return self.state
        met: asyncio.Future[AgentState] = asyncio.get_running_loop().create_future()
        observer = (condition, met)
        self._observers.add(observer)
        try:
            return await met
        finally:
            self._observers.discard(observer)
