"""How often and how long: turns, segments, engines, calls and requests to other agents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from agentsup.model.trace import SpanKind
from agentsup.observe.traces.tree import TURN_STATE
from agentsup.store import Reader, names

MOST_TURNS = 20_000
_RECENT = f"""
WITH recent AS MATERIALIZED (
    SELECT m.*, {TURN_STATE} AS turn_state FROM messages m
    WHERE (m.finished_at >= :since OR m.state IN ('queued', 'leased', 'parked'))
    AND m.started_at >= :since
    AND (:agent IS NULL OR m.agent_id = :agent OR m.sender_agent_id = :agent)
    ORDER BY m.seq DESC LIMIT {MOST_TURNS})
"""  # noqa: S608 - constants
_PARTS = (
    "SELECT 'turn', agent_id, '', turn_state, error_code, started_at, finished_at FROM recent"
    " WHERE finished_at IS NOT NULL"
    " UNION ALL"
    " SELECT 'agent', sender_agent_id, agent_id, turn_state, '', accepted_at, finished_at"
    " FROM recent WHERE finished_at IS NOT NULL AND sender_agent_id <> '' AND sender_agent_id <> agent_id AND kind <> 'reply'"
    " UNION ALL"
    " SELECT 'segment', m.agent_id, s.engine, CASE WHEN s.state IN ('suspended', 'resumed')"
    " THEN 'parked' WHEN s.state = 'lost' THEN 'interrupted' WHEN s.state = 'running'"
    " THEN iif(m.turn_state = 'failed', 'crashed', m.turn_state) ELSE m.turn_state END, '',"
    " s.started_at, coalesce(s.ended_at, m.finished_at)"
    " FROM recent m JOIN segments s USING (message_id)"
    " WHERE coalesce(s.ended_at, m.finished_at) IS NOT NULL"
    " UNION ALL"
    " SELECT 'tool', m.agent_id, t.name, CASE t.state WHEN 'done' THEN 'ok' ELSE t.state END,"
    " t.code, t.started_at, t.ended_at FROM recent m JOIN tool_calls t USING (message_id)"
    " WHERE t.ended_at IS NOT NULL"
)


@dataclass(slots=True)
class StatisticsRow:
    """The number of spans, their states and their durations."""

    count: int = 0
    states: dict[str, int] = field(default_factory=dict)
    times_us: list[int] = field(default_factory=list)

    def add(self, state: str, duration_us: int) -> None:
        """Count one span."""
        self.count += 1
        self.states[state] = self.states.get(state, 0) + 1
        self.times_us.append(duration_us)

    def quantile_ms(self, fraction: float) -> float | None:
        """The ``fraction`` quantile (0..1), by nearest rank; None without data."""
        if not self.times_us:
            return None
        ordered = sorted(self.times_us)
        rank = max(0, math.ceil(fraction * len(ordered) - 1e-9) - 1)
        return ordered[rank] / 1000


@dataclass(frozen=True, slots=True)
class TraceStatistics:
    """Rows by (kind, agent_id, name), and errors by (agent_id, kind, code)."""

    tallies: dict[tuple[str, str, str], StatisticsRow]
    errors: dict[tuple[str, str, str], int]
    counted: int
    is_cut: bool
    """Whether there were more turns than counted; the counted ones are the latest."""


def statistics(reader: Reader, since_ms: int, *, agent_id: str | None = None) -> TraceStatistics:
    """Statistics over what has ended of the turns that began since then."""
    given: dict[str, object] = {"since": since_ms, "agent": agent_id}
    turns = int(reader.scalar(f"{_RECENT} SELECT count(*) FROM recent", given) or 0)  # noqa: S608 - a constant
    tallies: dict[tuple[str, str, str], StatisticsRow] = {}
    errors: dict[tuple[str, str, str], int] = {}
    counted = 0
    for kind, agent, name, state, code, us in _spans(reader, given):
        if agent_id is not None and agent != agent_id:
            continue
        counted += 1
        tallies.setdefault((kind, agent, name), StatisticsRow()).add(state, us)
        if code and kind in (SpanKind.TURN, SpanKind.TOOL):
            key = (agent, kind, code)
            errors[key] = errors.get(key, 0) + 1
    return TraceStatistics(tallies, errors, counted, turns >= MOST_TURNS)


def _spans(
    reader: Reader, given: Mapping[str, object]
) -> Iterator[tuple[str, str, str, str, str, int]]:
    """Kind, agent, name, state, code and duration of each; engines ran as long as their segments."""
    named = names(reader)
    for kind, agent, name, state, code, began, ended in reader.all(f"{_RECENT} {_PARTS}", given):
        us = 1000 * max(0, ended - began)
        if kind == SpanKind.SEGMENT:
            yield kind, agent, "", state, code, us
            if not name:
                continue
            kind = SpanKind.ENGINE.value  # noqa: PLW2901 - the segment's row is the engine's, too
        yield (
            kind,
            agent,
            named.get(name, name) if kind == SpanKind.AGENT else name,
            state,
            code,
            us,
        )
