"""Kept events on their way to their rooms: in order, and no more of them in memory than there is
room for. The rest lies in the store, where it was kept before anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from agentsup.channels import poison
from agentsup.channels.desk import is_over
from agentsup.channels.lanes import Lanes
from agentsup.channels.matrix import kept
from agentsup.channels.matrix.desk import Item
from agentsup.channels.matrix.event import Event, EventKind
from agentsup.channels.matrix.kept import Owner, Row
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.store.database import Database, Tx

__all__ = ["Feeder"]

_STORE_PAUSE_S = 1.0


class Feeder:
    """Hands the rows of one bot to its lanes."""

    def __init__(
        self,
        *,
        lanes: Lanes[Item],
        read: Callable[[Row], Item],
        is_late: Callable[[Item], bool],
        counted: Callable[[int], None],
        database: Database,
        clock: Clock,
        owner: Owner,
        name: str,
    ) -> None:
        """``counted`` hears how many events are in quarantine after some were taken out."""
        self._lanes = lanes
        self._read = read
        self._is_late = is_late
        self._counted = counted
        self._database = database
        self._clock = clock
        self._whose = owner
        self._name = name
        self._tasks = TaskOwner(f"feeder of {name}")
        self._is_feeding = self._has_more = False
        self._fed_to = 0
        """The last row that was given to its lane; what comes after it is in the store."""
        self._passed: set[int] = set()
        """Rows after it that passed."""
        self._found: set[int] = set()
        """Rows that feeding has read, until it ends."""
        self._looking = asyncio.Lock()
        """Held while rows are looked up and noted, so that nobody else finds them meanwhile."""

    async def take(self, rows: Sequence[Row]) -> None:
        """Hand over new rows. Never waits for room, so that a stop is heard whatever waits.

        They were kept a moment ago, so feeding may have come to them before.
        """
        rows = [row for row in rows if row.row_id > self._fed_to and self._is_new(row)]
        items = self._pass(rows)
        if self._is_feeding:
            self._has_more = True
            return
        for item in items:
            if self._lanes.is_full:
                self.start()
                return
            await self._put(item)
        if rows:
            self._fed_to = rows[-1].row_id
            self._passed.clear()

    async def try_again(self) -> None:
        """Take up what an operator wants to be tried again; lasts until it is cancelled."""
        whose, changed = self._whose, asyncio.Event()
        topic = poison.topic(kept.CHANNEL, whose.user_id)
        unlisten = self._database.listen(topic, changed.set)

        def step(tx: Tx) -> tuple[list[Row], int]:
            return kept.again_tx(tx, whose), kept.quarantined(tx, whose)

        try:
            while True:
                await changed.wait()
                changed.clear()
                try:
                    async with self._looking:
                        rows, count = await self._database.write(step, name="matrix.again")
                        self._forget(rows)
                        self._passed |= {row.row_id for row in rows}
                except (StoreUnavailable, Overloaded):
                    changed.set()
                    await self._clock.sleep(_STORE_PAUSE_S)
                    continue
                for row in rows:
                    await self._lanes.put(row.room_id, self._read(row))
                self._counted(count)
        finally:
            unlisten()

    def start(self) -> None:
        """Hand over what lies in the store, in the background."""
        feeding = self._feed()
        try:
            self._tasks.spawn(feeding, name=f"matrix-feed:{self._name}")
        except OwnerClosed:
            feeding.close()
        else:
            self._is_feeding = True

    async def close(self) -> None:
        """No more; what was not handed over is kept for the next life."""
        await self._tasks.close(1.0)

    def _is_new(self, row: Row) -> bool:
        return row.row_id not in self._passed and row.row_id not in self._found

    def _forget(self, rows: Sequence[Row]) -> None:
        """They are to be tried again, so whatever was done with them before has ended."""
        again = {row.row_id for row in rows}
        self._passed -= again
        self._found -= again

    def _pass(self, rows: Sequence[Row]) -> list[Item]:
        """The rows as read, but for those that pass everything that waits."""
        items = []
        for row in rows:
            item = self._read(row)
            queue = "" if self._is_late(item) else _queue(item.event)
            if queue and self._lanes.pass_by(row.room_id, item, queue):
                self._passed.add(row.row_id)
            else:
                items.append(item)
        return items

    async def _put(self, item: Item) -> None:
        await self._lanes.put(item.row.room_id, item)
        self._fed_to = item.row.row_id

    async def _feed(self) -> None:
        while True:
            self._has_more = False
            try:
                async with self._looking:
                    rows = await self._look()
                    new = [row for row in rows if self._is_new(row)]
                    self._found |= {row.row_id for row in new}
            except (StoreUnavailable, Overloaded) as error:
                if is_over(error):
                    return
                await self._clock.sleep(_STORE_PAUSE_S)
                continue
            if not rows and not self._has_more:
                self._is_feeding = False
                self._passed.clear()
                self._found.clear()
                return
            for item in self._pass(new):
                await self._put(item)
            self._fed_to = max(self._fed_to, rows[-1].row_id if rows else 0)

    async def _look(self) -> list[Row]:
        """The next rows that nobody was given."""
        # What an operator wants to be tried again is found now too, and by nobody else.
        again = partial(kept.again_tx, owner=self._whose, after=self._fed_to)
        self._forget(await self._database.write(again, name="matrix.again"))
        return await self._database.read(
            partial(kept.received, owner=self._whose, after=self._fed_to), name="matrix.received"
        )


def _queue(event: Event | None) -> str:
    """The queue in which an event passes what waits in its room; empty where it waits too."""
    if event is None:
        return ""
    if event.kind is EventKind.REACTION:
        return "press"
    return "urgent" if event.is_stop and not event.is_doubtful else ""
