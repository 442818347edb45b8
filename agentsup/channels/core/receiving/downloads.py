"""Downloads of files sent to one bot: a bounded number in parallel, each ended by a stop.

A stop may be given in any chat, channel or program. The code that writes it touches the topic
``STOPPED``; each download then reads from the store whether its own message was dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from agentsup.channels.core.files.fetching import Fetched, discard
from agentsup.channels.core.receiving.messages import ReceiveDependencies
from agentsup.channels.core.receiving.stop_marks import STOPPED
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.model.message import Part
from agentsup.store import Reader, is_over

T = TypeVar("T")
_STORE_PAUSE_S = 1.0
_CLOSE_S = 1.0


class MessageDropped(Exception):
    """A stop has dropped the message before it was accepted."""


class Downloads:
    """The downloads of one bot."""

    def __init__(self, deps: ReceiveDependencies, *, at_once: int) -> None:
        """``at_once`` messages are fetched in parallel."""
        self._deps = deps
        self._name = f"{deps.channel}-{deps.agent_name}"
        self._slots = asyncio.Semaphore(at_once)
        self._tasks = TaskOwner(f"downloads of {self._name}")

    async def all_of(
        self, fetches: Iterable[Awaitable[Fetched]], away: AbstractAsyncContextManager[None]
    ) -> tuple[tuple[Part, ...], list[str]]:
        """Fetch the files of one message, in order, within the context ``away``.

        Returns the files, and the texts for the person about those that failed. A cancellation
        removes the fetched files.
        """
        parts: list[Part] = []
        problems: list[str] = []
        try:
            async with away, self._slots:
                for fetch in fetches:
                    got = await fetch
                    if got.part is not None:
                        parts.append(got.part)
                    else:
                        problems.append(got.problem)
        except asyncio.CancelledError:
            await discard(parts, self._deps)
            raise
        return tuple(parts), problems

    async def run(
        self, fetching: Coroutine[Any, Any, T], row_id: int, is_dropped: Callable[[Reader], bool]
    ) -> T:
        """Run ``fetching`` and return its result; cancel it as soon as ``is_dropped`` is true.

        ``fetching`` must clean up when it is cancelled. ``row_id`` of the message is for the tasks'
        names. Raises ``MessageDropped``, and ``StoreUnavailable`` once the store is closed.
        """
        changed = asyncio.Event()
        changed.set()  # the stop may have come before we listen
        subject = f"{self._name}/{row_id}"
        download = self._tasks.spawn(fetching, name=f"fetch:{subject}")
        looking = self._tasks.spawn(
            self._until_dropped(changed, is_dropped), name=f"look:{subject}"
        )
        unlisten = self._deps.database.listen(STOPPED, changed.set)
        try:
            await asyncio.wait({download, looking}, return_when=asyncio.FIRST_COMPLETED)
            if not download.done():
                download.cancel()
                await asyncio.wait({download})
            if download.cancelled() and looking.done():
                looking.result()
                raise MessageDropped
            return download.result()
        finally:
            unlisten()
            looking.cancel()
            download.cancel()

    async def close(self) -> None:
        """Cancel the downloads. Takes a bounded time."""
        await self._tasks.close(_CLOSE_S)

    async def _until_dropped(
        self, changed: asyncio.Event, is_dropped: Callable[[Reader], bool]
    ) -> None:
        while True:
            await changed.wait()
            changed.clear()
            try:
                if await self._deps.database.read(is_dropped, name="channel.is_dropped"):
                    return
            except (StoreUnavailable, Overloaded) as error:
                if is_over(error):
                    raise
                await self._deps.clock.sleep(_STORE_PAUSE_S)
                changed.set()
