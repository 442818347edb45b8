"""The status of all children, for code that shows or stores it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentsup.kit.log import get_logger
from agentsup.model.health import AgentState
from agentsup.supervision.policy import Ended

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ChildStatus:
    """One child at one instant. Times ending in ``_at`` are wall milliseconds."""

    child_id: str
    state: AgentState
    changed_at: int
    reason: str = ""
    """Why it is in this state: the last failure, or why it is degraded."""
    life: int = 0
    """The number of its lives so far."""
    running_since_at: int | None = None
    next_retry_at: int | None = None
    abandoned: int = 0
    """The number of earlier lives that ignored every request to end and still run."""
    last_end: Ended | None = None


class Board:
    """Passes each change of a child's status on to its listeners."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[ChildStatus], None]] = []

    def listen(self, listener: Callable[[ChildStatus], None]) -> Callable[[], None]:
        """Call ``listener`` on each change, in order, on the loop. Returns a callable that ends
        this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def record(self, status: ChildStatus) -> None:
        """Call the listeners with a change."""
        for listener in tuple(self._listeners):
            try:
                listener(status)
            except Exception:  # noqa: BLE001 - supervision boundary: a listener must not stop a child
                _log.exception(f"a listener failed on a change of {status.child_id}")
