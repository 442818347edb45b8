"""Children that depend on those before them: started in order, stopped in reverse order.

When one of them fails, those started after it are stopped in reverse order, and then all of these
are started again in order (``rest_for_one``). Too many such restarts are a failure of the
supervisor, and end the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from agentsup.kit.backoff import SlidingWindow
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.model.errors import AgentsupError
from agentsup.model.health import AgentState
from agentsup.supervision.child import SupervisedChild
from agentsup.supervision.policy import Restart
from agentsup.supervision.spec import Board, ChildSpec, ChildStatus, Grace

_UP = frozenset({AgentState.RUNNING, AgentState.DEGRADED})
_DOWN = frozenset({AgentState.FAILED, AgentState.STOPPED})


class RestForOneFailed(AgentsupError):
    """A child on which others depend could not be started, or failed too often.

    Raised by ``start`` and ``run``; the caller stops the supervisor and ends the daemon with code
    1.
    """

    code = "spine_failed"


class RestForOneSupervisor:
    """An ordered list of children in which each may depend on those before it."""

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        *,
        clock: Clock,
        entropy: Entropy,
        board: Board,
        max_restarts: int = 3,
        window_s: float = 60.0,
    ) -> None:
        """After ``max_restarts`` restarts within ``window_s`` seconds the next failure is final."""
        self._clock = clock
        self._board = board
        self._window = SlidingWindow(window_s)
        self._max_restarts = max_restarts
        self._restart = {spec.child_id: spec.restart for spec in specs}
        self._exit_code: int | None = None
        self._is_stopping = False
        self._changed = asyncio.Event()
        self._up: list[SupervisedChild] = []
        self._children = [
            SupervisedChild(
                # Restarts are done here, since a restart of one child concerns all later ones.
                spec if spec.significant else replace(spec, restart=Restart.TEMPORARY),
                clock=clock,
                entropy=entropy,
                record=self._record,
                on_exit=self._on_exit,
            )
            for spec in specs
        ]

    async def start(self) -> None:
        """Start the children one after the other, each when the one before it is ready.

        Raises ``RestForOneFailed`` if one cannot be started; those before it are stopped again. The
        end of a significant child does not raise: ``run`` returns its code. If cancelled, it stops
        what it has started.
        """
        try:
            failed = await self._start_from(0)
            if failed is not None and not self._is_stopping:
                raise RestForOneFailed(
                    f"{failed.spec.child_id} could not be started: {failed.status.reason}",
                    child_id=failed.spec.child_id,
                    reason=failed.status.reason,
                )
        except BaseException:
            await self.stop()
            raise

    async def run(self) -> int:
        """Watch the started children until the significant one ends; returns its code.

        Returns 0 when the supervisor is stopped. Raises ``RestForOneFailed`` when restarts do not
        help.
        """
        while True:
            self._changed.clear()
            if self._exit_code is not None:
                return self._exit_code
            if self._is_stopping:
                return 0
            failed = self._first_failed()
            if failed is None:
                await self._changed.wait()
            else:
                await self._restart_from(failed)

    async def stop(self, grace: Grace | None = None) -> None:
        """Stop all in reverse order, each within ``grace`` (default: that of its spec)."""
        self._is_stopping = True
        self._changed.set()
        for child in reversed(self._children):
            await child.stop(grace)
        self._up.clear()

    async def _start_from(self, index: int) -> SupervisedChild | None:
        """Start the children from ``index`` on, in order; returns the one that could not be
        started, if any."""
        for child in self._children[index:]:
            if self._is_stopping or self._exit_code is not None:
                return None
            child.start()
            self._up.append(child)
            if child.spec.significant:
                await child.until_settled_or_ready()
            elif await child.until(*_UP, *_DOWN) in _DOWN and not self._is_done(child):
                return child
        return None

    def _is_done(self, child: SupervisedChild) -> bool:
        """Whether a child that is down has finished as intended."""
        restart = self._restart[child.spec.child_id]
        is_clean = child.state is AgentState.STOPPED
        return restart is Restart.TEMPORARY or (is_clean and restart is Restart.TRANSIENT)

    def _first_failed(self) -> int | None:
        for index, child in enumerate(self._children):
            is_down = child in self._up and child.state in _DOWN
            if is_down and not child.spec.significant and not self._is_done(child):
                return index
        return None

    async def _restart_from(self, index: int) -> None:
        failed = self._children[index]
        now = self._clock.monotonic()
        if self._window.count(now) >= self._max_restarts:
            raise RestForOneFailed(
                f"{failed.spec.child_id} failed again after {self._max_restarts} restarts within "
                f"{self._window.span_s:g} s: {failed.status.reason}",
                child_id=failed.spec.child_id,
                reason=failed.status.reason,
            )
        self._window.add(now)
        for child in reversed(self._children[index + 1 :]):
            await child.stop()
        self._up = [child for child in self._up if child in self._children[:index]]
        await self._start_from(index)

    def _record(self, status: ChildStatus) -> None:
        self._board.record(status)
        self._changed.set()

    def _on_exit(self, code: int) -> None:
        if self._exit_code is None:
            self._exit_code = code
        self._changed.set()
