"""The table of spans: written in batches, settled by what the messages say, pruned by age and number."""

from __future__ import annotations

import json
from collections.abc import Sequence

from agentsup.model.trace import SpanState
from agentsup.observe.traces.span import Span
from agentsup.store.database import Tx
from agentsup.store.retention import Retention

DAY_MS = 86_400_000

_PUT = """
INSERT INTO spans (span_id, trace_id, parent_id, kind, name, agent_id, session_id, message_id,
                   boot_id, state, code, detail, signature, attributes, is_root, started_at,
                   ended_at, duration_us)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (span_id) DO UPDATE SET
    boot_id = excluded.boot_id, state = excluded.state, code = excluded.code,
    detail = excluded.detail, attributes = excluded.attributes, ended_at = excluded.ended_at,
    duration_us = excluded.duration_us
"""

_SETTLED = """
UPDATE spans SET
    state = CASE m.state WHEN 'done' THEN m.outcome WHEN 'dead' THEN 'failed'
            WHEN 'cancelled' THEN 'cancelled' WHEN 'parked' THEN 'parked'
            WHEN 'queued' THEN 'retry' ELSE spans.state END,
    code = m.error_code,
    ended_at = CASE WHEN m.state IN ('done', 'dead', 'cancelled')
               THEN max(spans.started_at, coalesce(m.finished_at, spans.started_at)) END,
    duration_us = CASE WHEN m.state IN ('done', 'dead', 'cancelled')
                  THEN 1000 * max(0, coalesce(m.finished_at, spans.started_at) - spans.started_at)
                  END
FROM messages AS m
WHERE m.message_id = spans.message_id AND spans.kind = 'turn' AND spans.ended_at IS NULL
"""


Row = tuple[object, ...]


def write_tx(tx: Tx, rows: Sequence[Row], turns: Sequence[str]) -> None:
    """Enter rows made by ``row_of``; ``turns`` are the ids of those that are turns. How a turn
    stands is what its message says: it goes on over segments and boots."""
    tx.executemany(_PUT, rows)
    for span_id in turns:
        tx.execute(f"{_SETTLED} AND spans.span_id = ?", (span_id,))


def row_of(span: Span, boot_id: str) -> Row:
    """The span as a row. Made where spans are told, since what is under way changes there."""
    return (
        span.span_id,
        span.trace_id,
        span.parent_id,
        span.kind.value,
        span.name,
        span.agent_id,
        span.session_id,
        span.message_id,
        boot_id,
        span.state.value,
        span.code,
        span.detail,
        span.signature,
        json.dumps(span.attributes, ensure_ascii=False) if span.attributes else "{}",
        int(span.is_root),
        span.started_at,
        span.ended_at,
        span.duration_us,
    )


def settle_tx(tx: Tx) -> None:
    """Turns that have ended without a segment (stopped while parked, expired, dropped) end too."""
    tx.execute(_SETTLED)


def interrupt_tx(tx: Tx, boot_id: str, at: int) -> int:
    """What was under way when an earlier boot ended is interrupted; how many there were."""
    changed = tx.execute(
        "UPDATE spans SET state = ?, ended_at = CASE kind WHEN 'turn' THEN NULL ELSE ? END"
        " WHERE ended_at IS NULL AND boot_id <> ? AND state = ?",
        (SpanState.INTERRUPTED, at, boot_id, SpanState.RUNNING),
    ).rowcount
    settle_tx(tx)
    return changed


def retention_rules(*, keep_days: int, most: int) -> tuple[Retention, ...]:
    """Spans go when they are too old or too many; none that is still open."""
    return (
        Retention(
            "spans",
            "started_at < :cutoff AND ended_at IS NOT NULL",
            keep_days * DAY_MS,
            key="span_no",
        ),
        Retention(
            "spans",
            f"span_no <= (SELECT max(span_no) FROM spans) - {int(most)}"  # noqa: S608 - a number
            " AND ended_at IS NOT NULL",
            0,
            key="span_no",
        ),
    )
