"""One boot of the daemon: who we are, how earlier boots ended, and how every child's life ended."""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.model.ids import BootId
from agentsup.store.database import Database, Reader, Tx

ENDINGS_KEPT = 50
"""Endings kept per child; the policy's windows are minutes long."""


@dataclass(frozen=True, slots=True)
class EarlierBoot:
    """A boot before this one. ``exit_code`` None: it was killed."""

    started_at: int
    ended_at: int | None
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class Boot:
    boot_id: BootId
    node_id: str
    started_at: int
    earlier: tuple[EarlierBoot, ...]
    """Newest first."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How one life of a child ended, as stored."""

    child_id: str
    at: int
    kind: str
    code: int | None
    reason: str
    uptime_ms: int
    decision: str


async def begin(database: Database, clock: Clock, boot_id: BootId, entropy: Entropy) -> Boot:
    """Record this boot and read the earlier ones."""
    now = clock.now_ms()
    fresh_node = entropy.new_id("node")

    def record(tx: Tx) -> Boot:
        tx.execute("INSERT INTO facts VALUES ('node_id', ?) ON CONFLICT DO NOTHING", (fresh_node,))
        node_id = str(tx.scalar("SELECT value FROM facts WHERE key = 'node_id'"))
        rows = tx.all(
            "SELECT started_at, ended_at, exit_code FROM boots ORDER BY started_at DESC LIMIT 50"
        )
        tx.execute(
            "INSERT INTO boots (boot_id, node_id, started_at) VALUES (?, ?, ?)",
            (boot_id, node_id, now),
        )
        earlier = tuple(EarlierBoot(r["started_at"], r["ended_at"], r["exit_code"]) for r in rows)
        return Boot(boot_id, node_id, now, earlier)

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
    """Whether this boot, ending with ``code``, is one of more than ``limit`` that did so within
    ``window_ms``: main loops."""
    since = boot.started_at - window_ms
    recent = [b for b in boot.earlier if b.exit_code == code and (b.ended_at or 0) >= since]
    return len(recent) + 1 > limit


async def record_ending(database: Database, boot_id: str, ending: Ending) -> None:
    """Keep one ending, and only the latest of its child."""

    def write(tx: Tx) -> None:
        tx.execute(
            "INSERT INTO endings (child_id, boot_id, at, kind, code, reason, uptime_ms, decision)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                ending.child_id,
                boot_id,
                ending.at,
                ending.kind,
                ending.code,
                ending.reason[:2000],
                ending.uptime_ms,
                ending.decision,
            ),
        )
        tx.execute(
            "DELETE FROM endings WHERE child_id = ? AND ending_id <="
            " (SELECT max(ending_id) FROM endings WHERE child_id = ?) - ?",
            (ending.child_id, ending.child_id, ENDINGS_KEPT * 4),
        )

    await database.write(write, name="boot.ending", closing=True)


async def load_endings(database: Database) -> dict[str, list[Ending]]:
    """The latest endings of every child, oldest first."""

    def read(reader: Reader) -> dict[str, list[Ending]]:
        found: dict[str, list[Ending]] = {}
        for r in reader.all("SELECT * FROM endings ORDER BY ending_id"):
            found.setdefault(r["child_id"], []).append(
                Ending(
                    r["child_id"],
                    r["at"],
                    r["kind"],
                    r["code"],
                    r["reason"],
                    r["uptime_ms"],
                    r["decision"],
                )
            )
        return {child: rows[-ENDINGS_KEPT:] for child, rows in found.items()}

    return await database.read(read, name="boot.endings")
