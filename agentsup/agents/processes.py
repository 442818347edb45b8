"""Child process groups of an agent's turns: recorded before they work, ended on a stop, swept at
the next boot. The engine ends its own group when it is cancelled; what is still there after the
graces is killed here, by recorded group and start time, so that a recycled pid is never hit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from agentsup.kit import procgroup, proctable
from agentsup.kit.clock import Clock
from agentsup.kit.procgroup import GroupRecord
from agentsup.store.database import Database, Reader, Tx


class ProcessTable:
    """The groups of one daemon boot, by the message whose turn started them."""

    def __init__(self, database: Database, clock: Clock, boot_id: str) -> None:
        self._database = database
        self._clock = clock
        self._boot_id = boot_id
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
        """The group is gone."""
        groups = self._groups.get(message_id, {})
        groups.pop(pgid, None)
        if not groups:
            self._groups.pop(message_id, None)
        await self._database.write(
            lambda tx: tx.execute("DELETE FROM processes WHERE pgid = ?", (pgid,)).rowcount,
            name="processes.forget",
            closing=True,
        )

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
        """SIGKILL what is left of ``groups``."""
        if groups:
            await asyncio.to_thread(procgroup.sweep, groups)

    async def sweep_earlier_boots(self) -> list[GroupRecord]:
        """End what an earlier boot left running; returns what was ended."""

        def leftovers(reader: Reader) -> list[GroupRecord]:
            rows = reader.all(
                "SELECT pgid, started_ticks, argv0 FROM processes WHERE boot_id <> ?",
                (self._boot_id,),
            )
            return [GroupRecord(r["pgid"], r["started_ticks"], r["argv0"]) for r in rows]

        records = await self._database.read(leftovers)
        if not records:
            return []
        ended = await asyncio.to_thread(procgroup.sweep, records)
        await self._database.write(
            lambda tx: (
                tx.execute("DELETE FROM processes WHERE boot_id <> ?", (self._boot_id,)).rowcount
            ),
            name="processes.sweep",
        )
        return ended
