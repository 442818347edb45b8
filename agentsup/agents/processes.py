"""Child process groups of an agent's turns: recorded before they work, ended on a stop, swept at
the next boot. The engine ends its own group when it is cancelled; what is still there after the
graces is killed here, by recorded group and start time, so that a recycled pid is never hit.
Processes that left their groups are recorded too, once they have lived for a moment.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence

from agentsup.kit import procgroup, proctable
from agentsup.kit.clock import Clock
from agentsup.kit.procgroup import GroupRecord
from agentsup.kit.reaper import OrphansStuck, Reaper
from agentsup.model.errors import StoreUnavailable
from agentsup.store.database import Database, Reader, Tx

_CLEAR_S = 0.5
"""How long the end of a group or a stop waits for processes of no group; the reaper goes on."""


class ProcessTable:
    """The groups of one daemon boot, by the message whose turn started them."""

    def __init__(
        self, database: Database, clock: Clock, boot_id: str, reaper: Reaper | None = None
    ) -> None:
        """``reaper`` ends what has left its group and hides; None where orphans don't fall to us."""
        self._database = database
        self._clock = clock
        self._boot_id = boot_id
        self._reaper = reaper
        self._groups: dict[str, dict[int, GroupRecord]] = {}

    async def record(self, agent_id: str, message_id: str, record: GroupRecord) -> None:
        """Remember a group in the store and here. Called before the group does any work."""
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
        """The group is gone; what of it has hidden is ended."""
        groups = self._groups.get(message_id, {})
        groups.pop(pgid, None)
        if not groups:
            self._groups.pop(message_id, None)

        def delete(tx: Tx) -> None:
            tx.execute("DELETE FROM strays WHERE pgid = ?", (pgid,))
            tx.execute("DELETE FROM processes WHERE pgid = ?", (pgid,))

        await self._database.write(delete, name="processes.forget", closing=True)
        await self._end_orphans()

    async def record_strays(self, strays: Mapping[int, Sequence[GroupRecord]]) -> bool:
        """Keep what left its group, in place of what was kept; by the group's number. False: the
        store can't be written now."""
        ours = {pgid for groups in self._groups.values() for pgid in groups} & strays.keys()

        def replace(tx: Tx) -> None:
            for pgid in ours:
                tx.execute("DELETE FROM strays WHERE pgid = ?", (pgid,))
                for each in strays[pgid]:
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
        """Living members of ``groups``."""
        if not groups:
            return 0
        wanted = {group.pgid for group in groups}

        def living() -> int:
            return sum(1 for row in proctable.table() if row.pgid in wanted and row.is_alive)

        return await asyncio.to_thread(living)

    async def kill(self, groups: list[GroupRecord]) -> None:
        """SIGKILL what is left of ``groups``, and what belongs to no group."""
        if groups:
            await asyncio.to_thread(procgroup.sweep, groups)
        await self._end_orphans()

    async def sweep_earlier_boots(self) -> list[GroupRecord]:
        """End what an earlier boot left running; returns what was ended."""

        def leftovers(reader: Reader) -> tuple[list[GroupRecord], list[GroupRecord]]:
            groups = reader.all(
                "SELECT pgid, started_ticks, argv0 FROM processes WHERE boot_id <> ?",
                (self._boot_id,),
            )
            strays = reader.all(
                "SELECT pid, started_ticks, argv0 FROM strays WHERE boot_id <> ?",
                (self._boot_id,),
            )
            return (
                [GroupRecord(r["pgid"], r["started_ticks"], r["argv0"]) for r in groups],
                [GroupRecord(r["pid"], r["started_ticks"], r["argv0"]) for r in strays],
            )

        records, strays = await self._database.read(leftovers)
        if not records and not strays:
            return []
        ended = await asyncio.to_thread(procgroup.sweep, records, strays)

        def delete(tx: Tx) -> None:
            for table in ("processes", "strays"):
                tx.execute(f"DELETE FROM {table} WHERE boot_id <> ?", (self._boot_id,))  # noqa: S608 - of ours

        await self._database.write(delete, name="processes.sweep")
        return ended

    async def _end_orphans(self) -> None:
        if self._reaper is not None:
            with contextlib.suppress(OrphansStuck):  # its own beat goes on, and tells
                await self._reaper.clear(_CLEAR_S)
