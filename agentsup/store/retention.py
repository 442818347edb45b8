"""Retention: old rows are deleted by rules, in batches so small that the writer is never held long.

Deleted rows are counted in the same transaction, so that sums over past and present rows are right
at every instant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from agentsup.kit.clock import Clock
from agentsup.store.database import Database
from agentsup.store.migrate import PUT_META
from agentsup.store.transaction import Tx

AT_START_MS = 24 * 3_600_000
"""The most ms by which the pruning time advances with the first pruning of a process."""
CATCH_UP = 4
"""After that it advances at most this many times faster than real time."""

_FIRST_BATCH = 32
_GOOD_MS = 5.0
_LONG_MS = 10.0


@dataclass(frozen=True, slots=True)
class Retention:
    """One rule: rows of ``table`` that match ``where`` and are older than ``keep_ms`` are deleted.

    ``where`` is SQL over the table's columns with the parameter ``:cutoff`` (wall ms, now minus
    ``keep_ms``), for instance ``"state = 'done' AND ended_at < :cutoff"``. ``key`` is a unique
    column, or several with commas, needed if the table has no rowid. ``count_by`` are the columns
    by which pruned rows are counted. ``batch_max`` is the most rows deleted at once; fewer if
    deleting is slow.
    """

    table: str
    where: str
    keep_ms: int
    key: str = "rowid"
    count_by: tuple[str, ...] = ()
    batch_max: int = 500


@dataclass(frozen=True, slots=True)
class Pruned:
    """Rows deleted by one rule in one batch, counted by the values of its ``count_by`` columns."""

    rule: Retention
    rows: int
    counts: Counter[tuple[object, ...]]


OnPruned = Callable[[Tx, Pruned], None]


def add_to_totals(tx: Tx, pruned: Pruned) -> None:
    """The hook for messages: adds counts by ``("agent_id", "state")`` to the table ``totals``."""
    if pruned.rule.count_by != ("agent_id", "state"):
        return
    tx.executemany(
        "INSERT INTO totals (agent_id, state, count) VALUES (?, ?, ?) "
        "ON CONFLICT (agent_id, state) DO UPDATE SET count = count + excluded.count",
        [(*values, count) for values, count in pruned.counts.items()],
    )


def trusted_ms(last_ms: int | None, wall_ms: int, passed_ms: int | None) -> int:
    """The time against which rows are old: the wall clock, but never far ahead of the last pruning.

    ``last_ms`` is the time used by the last pruning, None if there was none; ``passed_ms`` is how
    long ago that was, None if another process did it. If the clock is a year ahead for an hour,
    rows of a day or two are deleted, not all. After a long time switched off, the rest is deleted
    within days.
    """
    if last_ms is None:
        return wall_ms
    room_ms = AT_START_MS if passed_ms is None else CATCH_UP * passed_ms
    return min(wall_ms, last_ms + room_ms)


class PruningClock:
    """Stores the time used by the last pruning."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._pruned_s: float | None = None

    async def now_ms(self) -> int:
        """The pruning time to use now. Raises what ``Database.write`` raises."""
        now_s, wall_ms = self._clock.monotonic(), self._clock.now_ms()
        passed_ms = None if self._pruned_s is None else round((now_s - self._pruned_s) * 1000)

        def move(tx: Tx) -> int:
            stored = tx.scalar("SELECT value FROM store_meta WHERE key = 'pruned_by'")
            by_ms = trusted_ms(None if stored is None else int(stored), wall_ms, passed_ms)
            tx.execute(PUT_META, ("pruned_by", str(by_ms)))
            return by_ms

        by_ms = await self._database.write(move, name="retention.clock")
        self._pruned_s = now_s
        return by_ms


async def prune(
    database: Database,
    rules: Sequence[Retention],
    *,
    clock: Clock,
    now_ms: int | None = None,
    on_pruned: OnPruned = add_to_totals,
    pause_s: float = 0.02,
) -> dict[str, int]:
    """Apply ``rules`` once, in order; returns the number of rows deleted per table.

    ``now_ms`` is the wall time for their age (default: the clock's). ``on_pruned`` runs in the
    transaction of each batch. Between batches the writer is free for ``pause_s`` seconds. Raises
    what ``Database.write`` raises; earlier batches stay deleted.
    """
    deleted: Counter[str] = Counter()
    now_ms = clock.now_ms() if now_ms is None else now_ms
    for rule in rules:
        cutoff = now_ms - rule.keep_ms
        limit = min(_FIRST_BATCH, rule.batch_max)
        while True:
            step = partial(_prune_some, rule, cutoff, limit, clock, on_pruned)
            rows, elapsed_ms = await database.write(step, name=f"retention:{rule.table}")
            deleted[rule.table] += rows
            if rows < limit:
                break
            limit = _next_limit(limit, elapsed_ms, rule.batch_max)
            await clock.sleep(pause_s)
    return dict(deleted)


def _next_limit(limit: int, elapsed_ms: float, most: int) -> int:
    """Twice as many rows if the last batch was quick, half as many if it was slow."""
    if elapsed_ms > _LONG_MS:
        return max(1, limit // 2)
    return min(limit * 2, most) if elapsed_ms < _GOOD_MS else limit


def _prune_some(
    rule: Retention, cutoff: int, limit: int, clock: Clock, on_pruned: OnPruned, tx: Tx
) -> tuple[int, float]:
    began_at = clock.monotonic()
    columns = ", ".join(rule.count_by) or "1"
    rows = tx.all(
        f"DELETE FROM {rule.table} WHERE ({rule.key}) IN "  # noqa: S608 - rules are code, not input
        f"(SELECT {rule.key} FROM {rule.table} WHERE {rule.where} LIMIT :batch) "
        f"RETURNING {columns}",
        {"cutoff": cutoff, "batch": limit},
    )
    if rows:
        counts = Counter(tuple(row) for row in rows)
        on_pruned(tx, Pruned(rule, len(rows), counts))
    return len(rows), (clock.monotonic() - began_at) * 1000
