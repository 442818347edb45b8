"""Process groups of agents' turns: recorded before they work, ended on a stop, swept at boot.

The engine ends its own group when it is cancelled. What is still there after the grace periods is
killed here, by recorded group and start time, so that a recycled pid is never hit. Processes that
left their groups are recorded too, once they have lived for a moment.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence

from agentsup.kit import process_tracker, proctable
from agentsup.kit.clock import Clock
from agentsup.kit.process_tracker import GroupRecord
from agentsup.kit.reaper import OrphansStuck, Reaper
from agentsup.model.errors import StoreUnavailable
from agentsup.store import Database, Reader, Tx

_CLEAR_S = 0.5
"""The longest wait of an ended group or a stop for orphaned processes; the reaper continues."""


class ProcessTable:
    """The groups of one daemon boot, by the message whose turn started them."""

    def __init__(
        self, database: Database, clock: Clock, boot_id: str, reaper: Reaper | None = None
    ) -> None:
        """``reaper`` ends processes that left their groups; None if we don't adopt orphans."""
        self._database = database
        self._clock = clock
        self._boot_id = boot_id
        self._reaper = reaper
        self._groups: dict[str, dict[int, GroupRecord]] = {}

    async def record(self, agent_id: str, message_id: str, record: GroupRecord) -> None:
        """Record a group in the store and in memory. Called before the group does any work."""
        self._groups.setdefault(message_id, {})[record.pgid] = record
        now = self._clock.now_ms()

        def insert(tx: Tx) -> None:
            tx.execute(
                "INSERT OR REPLACE INTO processes VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    record.pgid,
                    record.started_ticks,
                    self._boot_id,
                    agent_id,
                    message_id,
                    record.argv0,
                    now,
                ),
            )

        await self._database.write(insert, name="processes.record")

    async def forget(self, message_id: str, pgid: int) -> None:
        """Remove a group that is gone, and end the processes that left it."""
        groups = self._groups.get(message_id, {})
        groups.pop(pgid, None)
        if not groups:
            self._groups.pop(message_id, None)

        def delete(tx: Tx) -> None:
            tx.execute("DELETE FROM strays WHERE pgid = ?", (pgid,))
            tx.execute("DELETE FROM processes WHERE pgid = ?", (pgid,))

        await self._database.write(delete, name="processes.forget", closing=True)
        await self._end_orphans()

    async def record_detached(self, detached: Mapping[int, Sequence[GroupRecord]]) -> bool:
        """Store the processes that left their groups, by group id, and replace the earlier ones.
        False: the store can't be written now."""
        ours = {pgid for groups in self._groups.values() for pgid in groups} & detached.keys()

        def replace(tx: Tx) -> None:
            for pgid in ours:
                tx.execute("DELETE FROM strays WHERE pgid = ?", (pgid,))
                for each in detached[pgid]:
                    tx.execute(
                        "INSERT OR REPLACE INTO strays VALUES (?, ?, ?, ?, ?)",
                        (each.pgid, each.started_ticks, pgid, self._boot_id, each.argv0),
                    )

        try:
            if ours:
                await self._database.write(replace, name="processes.strays")
        except StoreUnavailable:
            return False
        return True

    def groups_of(self, message_ids: Iterable[str]) -> list[GroupRecord]:
        return [g for m in message_ids for g in self._groups.get(m, {}).values()]

    async def count(self, groups: list[GroupRecord]) -> int:
        """The number of living members of ``groups``."""
        if not groups:
            return 0
        wanted = {group.pgid for group in groups}

        def living() -> int:
            return sum(1 for row in proctable.table() if row.pgid in wanted and row.is_alive)

        return await asyncio.to_thread(living)

    async def kill(self, groups: list[GroupRecord]) -> None:
        """SIGKILL what is left of ``groups``, and orphaned processes."""
        if groups:
            await process_tracker.sweep(groups, clock=self._clock)
        await self._end_orphans()

    async def sweep_earlier_boots(self) -> list[GroupRecord]:
        """End what an earlier boot left running; returns what was ended."""

        def recorded(reader: Reader) -> list[list[GroupRecord]]:
            return [
                reader.values(lambda row: GroupRecord(*row), sql, (self._boot_id,))
                for sql in (
                    "SELECT pgid, started_ticks, argv0 FROM processes WHERE boot_id <> ?",
                    "SELECT pid, started_ticks, argv0 FROM strays WHERE boot_id <> ?",
                )
            ]

        records, detached = await self._database.read(recorded)
        if not records and not detached:
            return []
        ended = await process_tracker.sweep(records, detached, clock=self._clock)

        def delete(tx: Tx) -> None:
            for table in ("processes", "strays"):
                tx.execute(f"DELETE FROM {table} WHERE boot_id <> ?", (self._boot_id,))  # noqa: S608 - of ours

        await self._database.write(delete, name="processes.sweep")
        return ended

    async def _end_orphans(self) -> None:
        if self._reaper is not None:
            with contextlib.suppress(OrphansStuck):  # the reaper continues by itself and reports it
                await self._reaper.clear(_CLEAR_S)
