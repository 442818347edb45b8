"""Wake-ups after a commit: a listener is called once per batch that touched its topic.

A topic is a plain name such as ``events`` or ``agent:<id>``. A wake-up carries no data; the
listener reads what it needs from the database. Only a topic that is touched with a value, such as
``done:<id>`` at the end of a message, hands that value to those who expect it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from agentsup.kit.log import get_logger

_log = get_logger(__name__)


class Topics:
    """Listeners by topic; used in the loop's thread only."""

    def __init__(self) -> None:
        """Start without listeners."""
        self._listeners: dict[str, dict[object, Callable[[], None]]] = {}
        self._expected: dict[str, set[asyncio.Future[Any]]] = {}

    def listen(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` after commits that touched ``topic``; returns a way to stop this.

        The same callback may listen several times. Stopping twice does nothing.
        """
        ticket = object()
        self._listeners.setdefault(topic, {})[ticket] = callback

        def unlisten() -> None:
            listeners = self._listeners.get(topic)
            if listeners is not None and listeners.pop(ticket, None) is not None and not listeners:
                del self._listeners[topic]

        return unlisten

    def expect(self, topic: str) -> asyncio.Future[Any]:
        """The value of the next touch of ``topic`` that has one. Cancel it to expect no more."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._expected.setdefault(topic, set()).add(future)
        future.add_done_callback(partial(self._expect_no_more, topic))
        return future

    def _expect_no_more(self, topic: str, future: asyncio.Future[Any]) -> None:
        futures = self._expected.get(topic)
        if futures is not None:
            futures.discard(future)
            if not futures:
                del self._expected[topic]

    def announce(self, touches: Iterable[Mapping[str, Callable[[], Any] | None]]) -> None:
        """Call the listeners of each topic once, and hand its value, if any, to who expects it.

        ``touches`` has the topics of each function of a batch, with their values.
        """
        touched: dict[str, Callable[[], Any] | None] = {}
        for topics in touches:
            for topic, value in topics.items():
                touched[topic] = value or touched.get(topic)
        for topic, value in touched.items():
            if value is not None:
                self._hand_over(topic, value)
            for callback in tuple(self._listeners.get(topic, {}).values()):
                try:
                    callback()
                except Exception:  # noqa: BLE001
                    # supervision boundary: the change is durable, and other listeners must be woken
                    _log.exception(f"a listener of {topic} failed")

    def _hand_over(self, topic: str, value: Callable[[], Any]) -> None:
        for future in tuple(self._expected.get(topic, ())):
            if not future.done():
                try:
                    future.set_result(value())
                except Exception as error:  # noqa: BLE001
                    # supervision boundary: as below; who expects the value gets the error
                    future.set_exception(error)
