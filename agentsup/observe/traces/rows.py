"""The table of spans: written in batches, settled by the state of messages, pruned by age and
number."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter

from agentsup.model.trace import SpanState
from agentsup.observe.traces.span import Span
from agentsup.store import Retention, Tx

DAY_MS = 86_400_000

_CONVERTED = ("kind", "state", "attributes", "is_root")
_PLAIN = tuple(each.name for each in fields(Span) if each.name not in _CONVERTED)
"""The columns that hold a field of a span as it is."""
_plain_of = attrgetter(*_PLAIN)

_PUT = f"""
INSERT INTO spans (boot_id, {", ".join(_CONVERTED + _PLAIN)})
VALUES (?{", ?" * len(_CONVERTED + _PLAIN)})
ON CONFLICT (span_id) DO UPDATE SET
    boot_id = excluded.boot_id, state = excluded.state, code = excluded.code,
    detail = excluded.detail, attributes = excluded.attributes, ended_at = excluded.ended_at,
    duration_us = excluded.duration_us
"""  # noqa: S608 - names are ours

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
    """Write rows made by ``row_of``; ``turns`` are the ids of those that are turns.

    The state of a turn is taken from its message, since a turn continues over segments and boots.
    """
    tx.executemany(_PUT, rows)
    for span_id in turns:
        tx.execute(f"{_SETTLED} AND spans.span_id = ?", (span_id,))


def row_of(span: Span, boot_id: str) -> Row:
    """The span as a row. Made before the write, since a running span still changes."""
    attributes = json.dumps(span.attributes, ensure_ascii=False) if span.attributes else "{}"
    converted = (span.kind.value, span.state.value, attributes, int(span.is_root))
    return boot_id, *converted, *_plain_of(span)


def settle_tx(tx: Tx) -> None:
    """End the spans of turns that ended without a segment (parked, expired, dropped)."""
    tx.execute(_SETTLED)


def interrupt_tx(tx: Tx, boot_id: str, at: int) -> int:
    """Mark spans as interrupted that ran when an earlier boot ended; returns their number."""
    changed = tx.execute(
        "UPDATE spans SET state = ?, ended_at = CASE kind WHEN 'turn' THEN NULL ELSE ? END"
        " WHERE ended_at IS NULL AND boot_id <> ? AND state = ?",
        (SpanState.INTERRUPTED, at, boot_id, SpanState.RUNNING),
    ).rowcount
    settle_tx(tx)
    return changed


def retention_rules(*, keep_days: int, most: int) -> tuple[Retention, ...]:
    """Spans are removed if they are too old or too many, but never while they are open."""
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
