"""Reports of usage: one row per report of an engine, summed by agent, day and root."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentsup.model.engine import Usage
from agentsup.store import Reader, Tx, from_row

MOST_USD = 1_000_000.0
MOST_TOKENS = 1_000_000_000
"""No single report counts for more."""


@dataclass(frozen=True, slots=True)
class UsageSum:
    """A sum of rows.

    ``usd`` is None if no row had a price; ``unpriced`` counts rows without one, ``estimated`` the
    tokens that no engine has reported.
    """

    rows: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None
    unpriced: int = 0
    estimated: int = 0
    cache_read: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True)
class UsageSource:
    """The turn that a report is about, and what it ran with."""

    message_id: str
    agent_id: str
    session_id: str
    engine: str
    model: str


def record_tx(
    tx: Tx, usage: Usage, source: UsageSource, *, at: int, report_id: str | None = None
) -> Usage | None:
    """Store one report of an engine and return it as it was stored, with bounded numbers.

    ``at`` is wall ms. If a report with this ``report_id`` is stored already, nothing is stored and
    None is returned.
    """
    usage = _sound(usage)
    cursor = tx.execute(
        "INSERT INTO usage (message_id, agent_id, session_id, engine, model, input_tokens,"
        " output_tokens, usd, at, report_id, is_estimated, cache_read_tokens, cache_write_tokens)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (
            source.message_id,
            source.agent_id,
            source.session_id,
            source.engine,
            source.model,
            usage.input_tokens,
            usage.output_tokens,
            usage.usd,
            at,
            report_id,
            usage.is_estimated,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
        ),
    )
    return usage if cursor.rowcount else None


def _sound(usage: Usage) -> Usage:
    """The report with finite and bounded numbers, so that any sum of reports is a number."""
    usd = usage.usd
    if usd is not None:
        usd = min(max(0.0, usd), MOST_USD) if math.isfinite(usd) else None
    return Usage(
        min(max(0, usage.input_tokens), MOST_TOKENS),
        min(max(0, usage.output_tokens), MOST_TOKENS),
        usd,
        usage.is_estimated,
        min(max(0, usage.cache_read_tokens), MOST_TOKENS),
        min(max(0, usage.cache_write_tokens), MOST_TOKENS),
    )


def replace_estimate_tx(tx: Tx, report_ids: Sequence[str]) -> None:
    """Mark the reports as no estimates: the engine's own reports cover their tokens now."""
    tx.executemany(
        "UPDATE usage SET is_estimated = 0 WHERE report_id = ?", [(each,) for each in report_ids]
    )


_SUMS = (
    "count(*) AS rows, coalesce(sum(u.input_tokens), 0) AS input_tokens,"
    " coalesce(sum(u.output_tokens), 0) AS output_tokens, sum(u.usd) AS usd,"
    " count(*) - count(u.usd) AS unpriced,"
    " coalesce(sum(u.is_estimated * (u.input_tokens + u.output_tokens)), 0) AS estimated,"
    " coalesce(sum(u.cache_read_tokens), 0) AS cache_read,"
    " coalesce(sum(u.cache_write_tokens), 0) AS cache_write"
)

_BY_TURN = (
    "SELECT coalesce(sum(rows), 0) AS rows, coalesce(sum(input_tokens), 0) AS input_tokens,"  # noqa: S608 - constants
    " coalesce(sum(output_tokens), 0) AS output_tokens, sum(usd) AS usd,"
    " coalesce(sum(usd IS NULL AND input_tokens + output_tokens > 0), 0) AS unpriced,"
    " coalesce(sum(estimated), 0) AS estimated, coalesce(sum(cache_read), 0) AS cache_read,"
    " coalesce(sum(cache_write), 0) AS cache_write"
    f" FROM (SELECT {_SUMS} FROM usage u WHERE u.at >= :since AND u.at < :until"
    " AND (:agent IS NULL OR u.agent_id = :agent) GROUP BY u.message_id)"
)


def by_agent(reader: Reader, *, since: int = 0, until: int | None = None) -> dict[str, UsageSum]:
    """Sums per ``agent_id`` of what was used in [since, until), both wall ms."""
    rows = reader.all(
        f"SELECT u.agent_id, {_SUMS} FROM usage u WHERE u.at >= ? AND u.at < ?"  # noqa: S608 - a constant
        " GROUP BY u.agent_id",
        (since, _until(until)),
    )
    return {row["agent_id"]: _sum(row) for row in rows}


def total(
    reader: Reader, *, agent_id: str | None = None, since: int = 0, until: int | None = None
) -> UsageSum:
    """The sum of one agent, or of all, in [since, until), both wall ms.

    ``unpriced`` counts turns here: those with tokens but without a price.
    """
    found = {"since": since, "until": _until(until), "agent": agent_id}
    return _sum(reader.one(_BY_TURN, found))


def of_message(reader: Reader, message_id: str) -> UsageSum:
    """The sum of one message's turn."""
    row = reader.one(
        f"SELECT {_SUMS} FROM usage u WHERE u.message_id = ?",  # noqa: S608 - a constant
        (message_id,),
    )
    return _sum(row)


def _until(until: int | None) -> int:
    return 2**62 if until is None else until


def _sum(row: Any) -> UsageSum:
    return from_row(UsageSum, row)
