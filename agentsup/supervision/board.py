"""What runs and how it fares, for whoever shows or stores it."""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agentsup.model.health import AgentState
from agentsup.supervision.policy import Ended

__all__ = ["Board", "ChildStatus"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChildStatus:
    """One child at one instant. Times ending in `_at` are wall milliseconds."""

    child_id: str
    state: AgentState
    changed_at: int
    reason: str = ""
    """Why it is in this state: the last failure, or what is amiss."""
    life: int = 0
    """How many lives it has had."""
    running_since_at: int | None = None
    next_retry_at: int | None = None
    restarts_in_window: int = 0
    abandoned: int = 0
    """Earlier lives that ignored every request to end and still run."""
    last_end: Ended | None = None


class Board:
    """The latest status of each child, the last changes of each, and listeners."""

    def __init__(self, *, keep: int = 50) -> None:
        """Keep the last `keep` changes of each child."""
        self._keep = keep
        self._history: dict[str, deque[ChildStatus]] = {}
        self._listeners: list[Callable[[ChildStatus], None]] = []

    @property
    def statuses(self) -> Mapping[str, ChildStatus]:
        """The latest status of each child."""
        return MappingProxyType({name: past[-1] for name, past in self._history.items()})

    def history(self, child_id: str) -> tuple[ChildStatus, ...]:
        """The last changes of one child, oldest first; empty for an unknown one."""
        return tuple(self._history.get(child_id, ()))

    def listen(self, listener: Callable[[ChildStatus], None]) -> Callable[[], None]:
        """Call `listener` on each change, in order, on the loop; returns how to end that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def record(self, status: ChildStatus) -> None:
        """Take note of a change and tell the listeners."""
        self._history.setdefault(status.child_id, deque(maxlen=self._keep)).append(status)
        for listener in tuple(self._listeners):
            try:
                listener(status)
            except Exception:  # noqa: BLE001 - supervision boundary: a listener must not stop a child
                _log.exception("a listener failed on a change of %s", status.child_id)

    def forget(self, child_id: str) -> None:
        """Drop a removed child."""
        self._history.pop(child_id, None)
