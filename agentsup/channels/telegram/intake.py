"""Kept updates on their way to their chats: what must not wait passes, what memory can't hold stays
in the store until there is room, and what is to be tried again comes once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from agentsup.channels import poison
from agentsup.channels.cards import QUESTION
from agentsup.channels.desk import is_over
from agentsup.channels.telegram import updates
from agentsup.channels.telegram.desk import SayDeps
from agentsup.channels.telegram.event import EventKind, Malformed, read
from agentsup.channels.telegram.lanes import Item, Lanes
from agentsup.channels.telegram.updates import Row
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.store.database import Tx

__all__ = ["Intake"]

_STORE_PAUSE_S: Final = 1.0
_PAGE: Final = 500
_LEFT_MAX: Final = 50_000
"""As many kept updates may wait outside of memory before the next poll waits for them."""


class Intake:
    """The door between the store and the lanes of one bot."""

    def __init__(
        self,
        deps: SayDeps,
        lanes: Lanes,
        *,
        is_late: Callable[[Item], bool],
        counted: Callable[[int], None],
    ) -> None:
        """``counted`` hears how many updates are in quarantine after some were taken out."""
        self._deps = deps
        self._lanes = lanes
        self._is_late = is_late
        self._counted = counted
        self._owner = TaskOwner(f"telegram intake of {deps.agent_name}")
        self._left_to: int | None = None
        """The last row that waits in the store for room in memory; None if none does."""
        self._left = 0
        self._passed: set[int] = set()
        """Rows that were quicker than those left in the store."""
        self._caught = asyncio.Event()

    async def take(self, rows: Sequence[Row]) -> None:
        """Hand rows to their chats, in order. Where memory is full they stay in the store until
        there is room, so that what must not wait is read on; waits only while too many do."""
        for row in rows:
            item = self._read(row)
            if self._passes(item):
                self._passed.add(row.row_id)
            elif self._left_to is not None or self._lanes.is_full:
                while self._left >= _LEFT_MAX:
                    self._caught.clear()
                    await self._caught.wait()
                self._leave(row.row_id)
            else:
                await self._lanes.put(_chat_of(item), item)
        if self._left_to is None:
            self._passed.clear()

    async def take_leftovers(self) -> None:
        """What earlier lives kept and did not finish; it is handled before what comes now."""
        last = await self._deps.database.read(
            partial(updates.last_received, bot_id=self._deps.bot_id), name="telegram.received"
        )
        if last:
            self._leave(last, after=0)

    async def try_again(self) -> None:
        """Take up what an operator wants to be tried again; lasts until it is cancelled."""
        deps, bot_id, changed = self._deps, self._deps.bot_id, asyncio.Event()
        topic = poison.topic(updates.CHANNEL, bot_id)
        unlisten = deps.database.listen(topic, changed.set)

        def step(tx: Tx) -> tuple[list[Row], int]:
            return updates.again_tx(tx, bot_id), updates.quarantined(tx, bot_id)

        try:
            while True:
                await changed.wait()
                try:
                    rows, count = await deps.database.write(step, name="telegram.again")
                except (StoreUnavailable, Overloaded):
                    await deps.clock.sleep(_STORE_PAUSE_S)
                    continue
                changed.clear()
                self._passed |= {row.row_id for row in rows}
                for item in map(self._read, rows):
                    await self._lanes.put(_chat_of(item), item)
                self._counted(count)
        finally:
            unlisten()

    def _passes(self, item: Item) -> bool:
        """Let it by if it must not wait: a stop, a press; and an answer waits for no menu."""
        event = item.event
        if event is None or self._is_late(item):
            return False
        if event.kind is EventKind.PRESS:
            queue = "answer" if event.data.startswith(QUESTION) else "press"
        elif event.is_stop and event.kind is EventKind.MESSAGE:
            queue = "stop"
        else:
            return False
        return self._lanes.pass_by(_chat_of(item), item, queue)

    def _leave(self, row_id: int, *, after: int | None = None) -> None:
        """It stays in the store for now, like all that come until there is room."""
        self._left += 1
        if self._left_to is None:
            start = row_id - 1 if after is None else after
            name = f"catch-up:{self._deps.agent_name}"
            self._owner.spawn(self._catch_up(start), name=name)
        self._left_to = row_id

    async def _catch_up(self, after: int) -> None:
        """Hand over what was left in the store, in order, until nothing is."""
        while self._left_to is not None and after < self._left_to:
            try:
                rows = await self._deps.database.read(
                    partial(updates.received, bot_id=self._deps.bot_id, after=after, limit=_PAGE),
                    name="telegram.received",
                )
            except (StoreUnavailable, Overloaded) as error:
                if is_over(error):
                    return
                await self._deps.clock.sleep(_STORE_PAUSE_S)
                continue
            # What is younger was kept, but not given to `take` yet.
            rows = [row for row in rows if row.row_id <= self._left_to]
            items = [self._read(row) for row in rows if row.row_id not in self._passed]
            waiting = [item for item in items if not self._passes(item)]
            for item in waiting:
                await self._lanes.put(_chat_of(item), item)
            after = rows[-1].row_id if rows else self._left_to
            self._left = max(0, self._left - len(rows))
            self._caught.set()
        self._left_to, self._left = None, 0
        self._passed.clear()
        self._caught.set()

    async def close(self) -> None:
        """Hand over nothing more."""
        await self._owner.close(1.0)

    def _read(self, row: Row) -> Item:
        try:
            return Item(row, read(updates.load(row.raw), self._deps.me))
        except (Malformed, ValueError) as error:
            return Item(row, None, str(error))
        except Exception as error:  # noqa: BLE001
            # supervision boundary: whatever one update holds, the next ones must be read
            return Item(row, None, f"{type(error).__name__}: {error}")


def _chat_of(item: Item) -> int:
    return 0 if item.event is None or item.event.chat_id is None else item.event.chat_id
