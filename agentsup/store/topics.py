"""Wakes after a commit: who listens to a topic is called once per batch that touched it.

A topic is a plain name such as `events` or `agent:<id>`. Nothing is carried but the fact that
something changed; the listener reads what it needs from the database.
"""

import logging
from collections.abc import Callable, Iterable

__all__ = ["Topics"]

_log = logging.getLogger(__name__)


class Topics:
    """Listeners by topic; used in the loop's thread only."""

    def __init__(self) -> None:
        """Nobody listens yet."""
        self._listeners: dict[str, dict[object, Callable[[], None]]] = {}

    def listen(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each commit that touched `topic`; returns how to stop that.

        The same callback may listen several times; stopping twice is harmless.
        """
        ticket = object()
        self._listeners.setdefault(topic, {})[ticket] = callback

        def unlisten() -> None:
            listeners = self._listeners.get(topic)
            if listeners is not None and listeners.pop(ticket, None) is not None and not listeners:
                del self._listeners[topic]

        return unlisten

    def announce(self, topics: Iterable[str]) -> int:
        """Call the listeners of each of `topics` once; returns how many of them raised."""
        errors = 0
        for topic in dict.fromkeys(topics):
            for callback in tuple(self._listeners.get(topic, {}).values()):
                try:
                    callback()
                except Exception:  # noqa: BLE001
                    # supervision boundary: the change is durable and others wait for their wake
                    errors += 1
                    _log.exception("a listener of %s failed", topic)
        return errors

    @property
    def count(self) -> int:
        """How many callbacks listen now."""
        return sum(map(len, self._listeners.values()))
