"""One life of a child as a task: how its code is run and how its end is told."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from agentsup.model.errors import AgentsupError, ExitRequested
from agentsup.model.health import AgentState
from agentsup.supervision.policy import REBUILD_CODE, EndKind, Restart
from agentsup.supervision.spec import ChildContext, ChildSpec

__all__ = ["Life", "Outcome", "live", "state_after", "where"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the code of a life ended."""

    kind: EndKind
    code: int
    reason: str


@dataclass(slots=True)
class Life:
    """A life under way."""

    number: int
    spec: ChildSpec
    ctx: ChildContext
    task: "asyncio.Task[Outcome]"
    ready_at: float | None = None
    """Loop time at which it took work; None before."""
    degraded: str | None = None

    def outcome(self, *, was_cancelled_by_us: bool) -> Outcome:
        """How it ended, or that it did not."""
        if not self.task.done():
            return Outcome(EndKind.STOPPED, 1, "abandoned: it ignored every request to end")
        if not self.task.cancelled():
            return self.task.result()
        if was_cancelled_by_us:
            return Outcome(EndKind.STOPPED, 0, "cancelled")
        return Outcome(EndKind.CRASHED, 1, "it was cancelled from within")


def where(task: "asyncio.Task[Any]") -> str:
    """Where a waiting task stands, one line per await, outermost first."""
    lines = []
    waiting: Any = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        code = frame.f_code
        lines.append(f"  {code.co_qualname} ({code.co_filename}:{frame.f_lineno})")
        waiting = waiting.cr_await
    return "\n".join(lines)


async def live(spec: ChildSpec, ctx: ChildContext) -> Outcome:
    """Run the code of a life; whatever it raises becomes a value, except cancellation."""
    try:
        await spec.factory(ctx)
    except ExitRequested as request:
        return Outcome(EndKind.EXIT_REQUESTED, request.exit_code, str(request))
    except (Exception, SystemExit, BaseExceptionGroup) as error:  # noqa: BLE001
        # supervision boundary: a child's failure is a fact to decide on. SystemExit included:
        # code that calls sys.exit must not end the daemon.
        if isinstance(error, AgentsupError):  # raised on purpose: where does not matter
            _log.warning("child %s failed in life %d: %s", spec.child_id, ctx.life, error)
        else:
            _log.warning("child %s failed in life %d", spec.child_id, ctx.life, exc_info=error)
        return Outcome(EndKind.CRASHED, 1, f"{type(error).__name__}: {error}")
    return Outcome(EndKind.FINISHED, 0, "finished")


def state_after(outcome: Outcome, spec: ChildSpec) -> AgentState:
    """What to show while the end of a life that nobody asked for is dealt with."""
    is_calm = outcome.kind in {EndKind.FINISHED, EndKind.EXIT_REQUESTED} and outcome.code in {
        0,
        REBUILD_CODE,
    }
    is_final = outcome.kind is EndKind.EXIT_REQUESTED or spec.restart is not Restart.PERMANENT
    return AgentState.STOPPING if is_calm and is_final else AgentState.BACKOFF
