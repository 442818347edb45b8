"""What turns cost: one row per report of an engine, summed by agent, day and root."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from agentsup.model.engine import Usage
from agentsup.store.database import Reader, Tx

__all__ = [
    "UsageSum",
    "by_agent",
    "by_day",
    "of_message",
    "of_root",
    "record_tx",
    "told_tx",
    "total",
]

MOST_USD = 1_000_000.0
MOST_TOKENS = 1_000_000_000
"""No single report counts for more."""
_DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class UsageSum:
    """A sum of rows. ``usd`` is None if no row had a price; ``unpriced`` counts those without, and
    ``estimated`` tokens that no engine has told."""

    rows: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None
    unpriced: int = 0
    estimated: int = 0


def record_tx(
    tx: Tx,
    usage: Usage,
    *,
    message_id: str,
    agent_id: str,
    session_id: str,
    engine: str,
    model: str,
    at: int,
    report_id: str | None = None,
) -> Usage | None:
    """Store one report of an engine in this transaction and return it as it counts; ``at`` is wall
    ms. A report of a ``report_id`` that is there already is not stored again: None."""
    usage = _sound(usage)
    cursor = tx.execute(
        "INSERT INTO usage (message_id, agent_id, session_id, engine, model, input_tokens,"
        " output_tokens, usd, at, report_id, is_estimated) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (
            message_id,
            agent_id,
            session_id,
            engine,
            model,
            usage.input_tokens,
            usage.output_tokens,
            usage.usd,
            at,
            report_id,
            usage.is_estimated,
        ),
    )
    return usage if cursor.rowcount else None


def _sound(usage: Usage) -> Usage:
    """A report whose sums stay numbers, whatever an engine tells."""
    usd = usage.usd
    if usd is not None:
        usd = min(max(0.0, usd), MOST_USD) if math.isfinite(usd) else None
    return Usage(
        min(max(0, usage.input_tokens), MOST_TOKENS),
        min(max(0, usage.output_tokens), MOST_TOKENS),
        usd,
        usage.is_estimated,
    )


def told_tx(tx: Tx, report_ids: Sequence[str]) -> None:
    """What these estimated is covered by the engine's own reports now: they are no estimates."""
    tx.executemany(
        "UPDATE usage SET is_estimated = 0 WHERE report_id = ?", [(each,) for each in report_ids]
    )


_SUMS = (
    "count(*) AS rows, coalesce(sum(u.input_tokens), 0) AS input_tokens,"
    " coalesce(sum(u.output_tokens), 0) AS output_tokens, sum(u.usd) AS usd,"
    " count(*) - count(u.usd) AS unpriced,"
    " coalesce(sum(u.is_estimated * (u.input_tokens + u.output_tokens)), 0) AS estimated"
)


_TURNS = (
    f" FROM (SELECT {_SUMS} FROM usage u WHERE u.at >= :since AND u.at < :until"  # noqa: S608 - constants
    " AND (:agent IS NULL OR u.agent_id = :agent) GROUP BY u.message_id)"
)
_BY_TURN = (
    "SELECT coalesce(sum(rows), 0) AS rows, coalesce(sum(input_tokens), 0) AS input_tokens,"
    " coalesce(sum(output_tokens), 0) AS output_tokens, sum(usd) AS usd,"
    " coalesce(sum(usd IS NULL AND input_tokens + output_tokens > 0), 0) AS unpriced,"
    " coalesce(sum(estimated), 0) AS estimated"
) + _TURNS


def by_agent(reader: Reader, *, since: int = 0, until: int | None = None) -> dict[str, UsageSum]:
    """Sums per ``agent_id`` of what was used in [since, until), both wall ms."""
    rows = reader.all(
        f"SELECT u.agent_id, {_SUMS} FROM usage u WHERE u.at >= ? AND u.at < ?"  # noqa: S608 - a constant
        " GROUP BY u.agent_id",
        (since, _until(until)),
    )
    return {row["agent_id"]: _sum(row) for row in rows}


def by_day(
    reader: Reader,
    *,
    agent_id: str | None = None,
    since: int = 0,
    until: int | None = None,
    utc_offset_s: int = 0,
) -> dict[str, UsageSum]:
    """Sums per day (``YYYY-MM-DD``, oldest first) of one agent or of all.

    A day begins at midnight at ``utc_offset_s`` east of UTC.
    """
    rows = reader.all(
        f"SELECT (u.at + :offset) / {_DAY_MS} AS day, {_SUMS} FROM usage u"  # noqa: S608 - constants
        " WHERE u.at >= :since AND u.at < :until AND (:agent IS NULL OR u.agent_id = :agent)"
        " GROUP BY day ORDER BY day",
        {
            "offset": utc_offset_s * 1000,
            "since": since,
            "until": _until(until),
            "agent": agent_id,
        },
    )
    return {(_EPOCH + timedelta(days=row["day"])).date().isoformat(): _sum(row) for row in rows}


def total(
    reader: Reader, *, agent_id: str | None = None, since: int = 0, until: int | None = None
) -> UsageSum:
    """The sum of one agent, or of all, in [since, until). ``unpriced`` counts whole turns here:
    those whose engine told tokens, and nobody a price."""
    row = reader.one(
        _BY_TURN,
        {"since": since, "until": _until(until), "agent": agent_id},
    )
    return _sum(row)


def of_message(reader: Reader, message_id: str) -> UsageSum:
    """The sum of one message's turn."""
    row = reader.one(
        f"SELECT {_SUMS} FROM usage u WHERE u.message_id = ?",  # noqa: S608 - a constant
        (message_id,),
    )
    return _sum(row)


def of_root(reader: Reader, root_id: str) -> UsageSum:
    """The sum of everything that one input set off, over all agents."""
    row = reader.one(
        f"SELECT {_SUMS} FROM usage u WHERE u.message_id = :root OR u.message_id IN (SELECT"  # noqa: S608 - a constant
        " message_id FROM messages WHERE root_id = :root AND root_id <> message_id)",
        {"root": root_id},
    )
    return _sum(row)


def _until(until: int | None) -> int:
    return 2**62 if until is None else until


def _sum(row: Any) -> UsageSum:
    return UsageSum(
        rows=row["rows"],
        input_tokens=row["input_tokens"],
        output_tokens=row["output_tokens"],
        usd=row["usd"],
        unpriced=row["unpriced"],
        estimated=row["estimated"],
    )
