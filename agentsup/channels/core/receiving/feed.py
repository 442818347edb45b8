"""Received rows on their way to the lanes of their chats.

Urgent ones pass the others, those that do not fit into memory stay in the store until there is
room, and those that an operator released from quarantine come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final, Generic

from agentsup.channels.core.receiving import quarantine
from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving.lanes import ChatLanes
from agentsup.channels.core.receiving.messages import AnyEventT, ReceiveDependencies, ReceivedItem
from agentsup.channels.core.receiving.rows import ReceivedRow
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.store import Tx, is_over

_STORE_PAUSE_S: Final = 1.0
_PAGE: Final = 500
_DEFERRED_MAX: Final = 50_000
"""Most rows that wait in the store only; beyond that the source of the bot waits."""


class Feed(Generic[AnyEventT]):
    """Feeds the lanes of one bot from the store."""

    def __init__(
        self,
        deps: ReceiveDependencies,
        lanes: ChatLanes[ReceivedItem[AnyEventT]],
        *,
        read: Callable[[ReceivedRow], ReceivedItem[AnyEventT]],
        chat_of: Callable[[ReceivedItem[AnyEventT]], Hashable],
        urgent: Callable[[ReceivedItem[AnyEventT]], str],
        deferred_max: int = _DEFERRED_MAX,
    ) -> None:
        """``chat_of`` names the lane of an item.

        ``urgent`` returns the queue in which an item passes those that wait in its chat, or "".
        """
        self._deps = deps
        self._lanes = lanes
        self._read = read
        self._chat_of = chat_of
        self._urgent = urgent
        self._deferred_max = deferred_max
        self._owner = TaskOwner(f"{deps.channel} feed of {deps.agent_name}")
        self._reached = 0
        """The last row that ``take`` or ``take_leftovers`` has seen."""
        self._deferred_to: int | None = None
        """The last row that waits in the store for room; None if none does."""
        self._deferred = 0
        self._passed: set[int] = set()
        """Rows that were handed over before older rows that wait in the store."""
        self._progress = asyncio.Event()
        """Set after each page of rows that had waited in the store."""
        self._looking = asyncio.Lock()
        """Held while rows are read and noted, so that none is found both here and as a retry."""

    async def take(self, rows: Sequence[ReceivedRow]) -> None:
        """Queue new rows for their chats, in order.

        If memory is full they stay in the store until there is room, so that urgent rows behind
        them are still read. Blocks only while too many rows wait in the store.
        """
        for row in rows:
            if row.row_id <= self._reached:
                continue
            item = self._read(row)
            if self._passes(item):
                self._passed.add(row.row_id)
            elif self._deferred_to is not None or self._lanes.is_full:
                while self._deferred >= self._deferred_max:
                    self._progress.clear()
                    await self._progress.wait()
                self._defer(row.row_id)
            else:
                await self._lanes.put(self._chat_of(item), item)
            self._reached = row.row_id
        if self._deferred_to is None:
            self._passed.clear()

    async def take_leftovers(self) -> None:
        """Queue the unfinished rows of earlier lives; they are handled before new ones."""
        count, last = await self._deps.database.read(
            stored.count_open, self._deps.owner, name=f"{self._deps.channel}.received"
        )
        if count:
            self._reached = last
            self._defer(last, after=0, count=count)

    async def try_again(self) -> None:
        """Queue rows that an operator released from quarantine; runs until it is cancelled."""
        deps, changed = self._deps, asyncio.Event()
        changed.set()  # some may have been released while the bot did not run
        topic = quarantine.topic(deps.channel, deps.owner.account)
        unlisten = deps.database.listen(topic, changed.set)

        def step(tx: Tx) -> tuple[list[ReceivedRow], int]:
            return stored.take_retries_tx(tx, deps.owner), stored.quarantined(tx, deps.owner)

        try:
            while True:
                await changed.wait()
                changed.clear()  # before the rows are taken: a wish that comes meanwhile is seen
                try:
                    async with self._looking:
                        rows, count = await deps.database.write(step, name=f"{deps.channel}.again")
                        self._passed |= {row.row_id for row in rows}
                except (StoreUnavailable, Overloaded):
                    changed.set()
                    await deps.clock.sleep(_STORE_PAUSE_S)
                    continue
                for item in map(self._read, rows):
                    await self._lanes.put(self._chat_of(item), item)
                deps.set_aside(count)
        finally:
            unlisten()

    async def close(self) -> None:
        """Queue nothing more; the next life handles what waits in the store."""
        await self._owner.close(1.0)

    def _passes(self, item: ReceivedItem[AnyEventT]) -> bool:
        """Let an urgent item pass those that wait in its chat, if it is one."""
        queue = self._urgent(item)
        return bool(queue) and self._lanes.pass_by(self._chat_of(item), item, queue)

    def _defer(self, row_id: int, *, after: int | None = None, count: int = 1) -> None:
        """Note that a row waits in the store, as all later ones do until there is room."""
        self._deferred += count
        if self._deferred_to is None:
            start = row_id - 1 if after is None else after
            name = f"{self._deps.channel}-feed:{self._deps.agent_name}"
            self._owner.spawn(self._catch_up(start), name=name)
        self._deferred_to = row_id

    async def _catch_up(self, after: int) -> None:
        """Queue the rows that wait in the store, in order, until none is left."""
        while self._deferred_to is not None and after < self._deferred_to:
            try:
                async with self._looking:
                    rows, items = await self._page(after, self._deferred_to)
            except (StoreUnavailable, Overloaded) as error:
                if is_over(error):
                    return
                await self._deps.clock.sleep(_STORE_PAUSE_S)
                continue
            for item in [item for item in items if not self._passes(item)]:
                await self._lanes.put(self._chat_of(item), item)
            after = rows[-1].row_id if rows else self._deferred_to
            self._passed = {row_id for row_id in self._passed if row_id > after}
            self._deferred = max(0, self._deferred - len(items))
            self._progress.set()
        self._deferred_to, self._deferred = None, 0
        self._passed.clear()
        self._progress.set()

    async def _page(
        self, after: int, last: int
    ) -> tuple[list[ReceivedRow], list[ReceivedItem[AnyEventT]]]:
        """Return the next rows up to ``last``, and those of them that were not handed over yet."""
        found = await self._deps.database.read(
            partial(stored.open_rows, owner=self._deps.owner, after=after, limit=_PAGE),
            name=f"{self._deps.channel}.received",
        )
        # Younger rows are stored, but were not given to ``take`` yet.
        rows = [row for row in found if row.row_id <= last]
        return rows, [self._read(row) for row in rows if row.row_id not in self._passed]
