"""One life of a child as a task: how its code is run and how its end is reported."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from agentsup.kit.log import get_logger
from agentsup.model.errors import AgentsupError, ExitRequested
from agentsup.model.health import AgentState
from agentsup.supervision.policy import REBUILD_CODE, EndKind, Restart
from agentsup.supervision.spec import ChildContext, ChildSpec

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LifeOutcome:
    """The end of a life, by its code."""

    kind: EndKind
    code: int
    reason: str


@dataclass(slots=True)
class ChildLife:
    """A running life."""

    number: int
    spec: ChildSpec
    ctx: ChildContext
    task: asyncio.Task[LifeOutcome]
    ready_at: float | None = None
    """Loop time at which it became ready; None before."""
    degraded: str | None = None

    def outcome(self, *, was_cancelled_by_us: bool, is_hung_start: bool) -> LifeOutcome:
        """The end of the life, or that it was abandoned."""
        if is_hung_start:
            reason = f"not ready within {self.spec.ready_timeout_s:g} s"
            return LifeOutcome(EndKind.START_FAILED, 1, reason)
        found = self._outcome(was_cancelled_by_us=was_cancelled_by_us)
        if self.ready_at is None and found.kind in {EndKind.CRASHED, EndKind.FINISHED}:
            reason = f"ended before it was ready: {found.reason}"
            return LifeOutcome(EndKind.START_FAILED, 1, reason)
        return found

    def _outcome(self, *, was_cancelled_by_us: bool) -> LifeOutcome:
        if not self.task.done():
            return LifeOutcome(EndKind.STOPPED, 1, "abandoned: it ignored every request to end")
        if not self.task.cancelled():
            return self.task.result()
        if was_cancelled_by_us:
            return LifeOutcome(EndKind.STOPPED, 0, "cancelled")
        return LifeOutcome(EndKind.CRASHED, 1, "it was cancelled from within")


def where(task: asyncio.Task[Any]) -> str:
    """The places where a waiting task is suspended, one line per await, outermost first."""
    lines = []
    waiting: Any = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        code = frame.f_code
        lines.append(f"  {code.co_qualname} ({code.co_filename}:{frame.f_lineno})")
        waiting = waiting.cr_await
    return "\n".join(lines)


async def live(spec: ChildSpec, ctx: ChildContext) -> LifeOutcome:
    """Run the code of a life. Every exception becomes a value, except cancellation."""
    try:
        await spec.factory(ctx)
    except ExitRequested as request:
        return LifeOutcome(EndKind.EXIT_REQUESTED, request.exit_code, str(request))
    except (Exception, SystemExit, BaseExceptionGroup) as error:  # noqa: BLE001
        # supervision boundary: a child's failure is a fact to decide on. SystemExit included:
        # code that calls sys.exit must not end the daemon.
        if isinstance(error, AgentsupError):  # raised on purpose: needs no traceback
            _log.warning(f"child {spec.child_id} failed in life {ctx.life}: {error}")
        else:
            _log.warning(f"child {spec.child_id} failed in life {ctx.life}", exc_info=error)
        return LifeOutcome(EndKind.CRASHED, 1, f"{type(error).__name__}: {error}")
    return LifeOutcome(EndKind.FINISHED, 0, "finished")


def state_after(outcome: LifeOutcome, spec: ChildSpec) -> AgentState:
    """The state to show while an unrequested end of a life is handled."""
    is_calm = outcome.kind in {EndKind.FINISHED, EndKind.EXIT_REQUESTED} and outcome.code in {
        0,
        REBUILD_CODE,
    }
    is_final = outcome.kind is EndKind.EXIT_REQUESTED or spec.restart is not Restart.PERMANENT
    return AgentState.STOPPING if is_calm and is_final else AgentState.BACKOFF
