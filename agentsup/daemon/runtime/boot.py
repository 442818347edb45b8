"""One boot of the daemon: its identity, the ends of earlier boots and of children's lives."""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.model.ids import BootId
from agentsup.store import Database, Reader, Tx
from agentsup.supervision import ChildStatus, Ended, EndKind

MOST_ENDINGS = 50
"""The endings of each child that are looked at; four times as many are stored. The restart policy's
windows are minutes long."""


@dataclass(frozen=True, slots=True)
class EarlierBoot:
    """An earlier boot. ``exit_code`` is None if it was killed."""

    ended_at: int | None
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class Boot:
    boot_id: BootId
    node_id: str
    started_at: int
    earlier: tuple[EarlierBoot, ...]
    """Newest first."""


_UNWANTED = (EndKind.CRASHED, EndKind.START_FAILED, EndKind.EXIT_REQUESTED)


async def begin(database: Database, clock: Clock, boot_id: BootId, entropy: Entropy) -> Boot:
    """Record this boot and read the earlier ones."""
    now = clock.now_ms()
    fresh_node = entropy.new_id("node")

    def record(tx: Tx) -> Boot:
        tx.execute("INSERT INTO facts VALUES ('node_id', ?) ON CONFLICT DO NOTHING", (fresh_node,))
        node_id = str(tx.scalar("SELECT value FROM facts WHERE key = 'node_id'"))
        rows = tx.all("SELECT ended_at, exit_code FROM boots ORDER BY started_at DESC LIMIT 50")
        tx.execute(
            "INSERT INTO boots (boot_id, node_id, started_at) VALUES (?, ?, ?)",
            (boot_id, node_id, now),
        )
        return Boot(boot_id, node_id, now, tuple(EarlierBoot(*row) for row in rows))

    return await database.write(record, name="boot.begin")


async def end(database: Database, clock: Clock, boot_id: str, code: int, reason: str) -> None:
    """Record how this boot ended."""
    now = clock.now_ms()
    await database.write(
        lambda tx: (
            tx.execute(
                "UPDATE boots SET ended_at = ?, exit_code = ?, reason = ? WHERE boot_id = ?",
                (now, code, reason, boot_id),
            ).rowcount
        ),
        name="boot.end",
        closing=True,
    )


def restart_storm(boot: Boot, code: int, *, limit: int, window_ms: int) -> bool:
    """Whether more than ``limit`` boots, with this one, ended with ``code`` within ``window_ms``.

    If so, main restarts in a loop.
    """
    since = boot.started_at - window_ms
    recent = [b for b in boot.earlier if b.exit_code == code and (b.ended_at or 0) >= since]
    return len(recent) + 1 > limit


async def record_ending(
    database: Database, boot_id: str, at: int, status: ChildStatus, end: Ended
) -> None:
    """Store that a life of a child ended at ``at`` (wall ms), with its state after that, and remove
    the oldest endings of the same child."""
    child_id, uptime_ms = status.child_id, round(end.uptime_s * 1000)
    facts = (end.kind.value, end.code, end.reason[:2000], uptime_ms, status.state.value)

    def write(tx: Tx) -> None:
        tx.execute(
            "INSERT INTO endings (child_id, boot_id, at, kind, code, reason, uptime_ms, decision)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (child_id, boot_id, at, *facts),
        )
        tx.execute(
            "DELETE FROM endings WHERE child_id = ? AND ending_id <="
            " (SELECT max(ending_id) FROM endings WHERE child_id = ?) - ?",
            (child_id, child_id, MOST_ENDINGS * 4),
        )

    await database.write(write, name="boot.ending", closing=True)


async def load_endings(database: Database) -> dict[str, str]:
    """Of every child, the reason of its last end that nobody had asked for, if it had one lately."""

    def read(reader: Reader) -> dict[str, str]:
        rows = reader.all(
            "SELECT child_id, reason FROM (SELECT *, row_number() OVER"
            " (PARTITION BY child_id ORDER BY ending_id DESC) AS age FROM endings)"
            " WHERE age <= ? AND kind IN (?, ?, ?) ORDER BY ending_id",
            (MOST_ENDINGS, *_UNWANTED),
        )
        return {row["child_id"]: row["reason"] for row in rows}

    return await database.read(read, name="boot.endings")
