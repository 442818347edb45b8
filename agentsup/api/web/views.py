"""Statistics per agent, and the log of one agent."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from agentsup.api.documents import bodies
from agentsup.api.documents.web import AgentPageStatistics, Log, LogLine, PageStatisticsDocument
from agentsup.api.http.access import Access
from agentsup.api.http.route import Call, get
from agentsup.mailbox.queue import ended_since
from agentsup.mailbox.usage import reports
from agentsup.model.event import Event, EventType
from agentsup.store import Reader

HOUR_MS: Final = 3_600_000
SPANS: Final = 48
MOST_ENDED: Final = 20_000
"""The newest messages, which the statistics count; percentiles of more would not differ."""
LOG_TAIL: Final = 2 * 1024 * 1024
_SHOWN_EVENTS: Final = (
    EventType.AGENT_STATE,
    EventType.AGENT_ENDED,
    EventType.MESSAGE_RETRY,
    EventType.MESSAGE_DEAD,
    EventType.MESSAGE_CANCELLED,
    EventType.STOPPED,
    EventType.QUESTION_ASKED,
)


# -- statistics ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Sums:
    """The messages of one agent that ended in the time span."""

    took_ms: list[int] = field(default_factory=list)
    waited_ms: list[int] = field(default_factory=list)
    failed: int = 0
    cancelled: int = 0
    by_hour: list[int] = field(default_factory=list)


@get("/web/figures", access=Access.LOOK)
async def statistics(call: Call, query: bodies.PageStatisticsQuery) -> PageStatisticsDocument:
    """Turns, latency and cost per agent."""
    hours = query.hours
    until = call.deps.clock.now_ms()
    since = until - hours * HOUR_MS
    spans = min(hours, SPANS)
    sums, spent = await call.deps.database.read(
        lambda reader: (_ended(reader, since, until, spans), reports.by_agent(reader, since=since)),
        name="web.figures",
    )
    agents = []
    for name in call.deps.directory.names():
        agent_id = call.deps.directory.lookup(name).agent_id
        of = sums.get(agent_id) or _Sums(by_hour=[0] * spans)
        cost = spent.get(agent_id) or reports.UsageSum()
        agents.append(
            AgentPageStatistics.from_value(
                cost,
                agent=name,
                agent_id=agent_id,
                turns=len(of.took_ms),
                failed=of.failed,
                cancelled=of.cancelled,
                p50_s=quantile_s(of.took_ms, 0.5),
                p95_s=quantile_s(of.took_ms, 0.95),
                wait_p50_s=quantile_s(of.waited_ms, 0.5),
                by_hour=of.by_hour,
            )
        )
    return PageStatisticsDocument(since=since, until=until, hours=hours, agents=agents)


def _ended(reader: Reader, since: int, until: int, spans: int) -> dict[str, _Sums]:
    found: dict[str, _Sums] = defaultdict(lambda: _Sums(by_hour=[0] * spans))
    width = max(1, (until - since) // spans)
    for agent_id, state, outcome, accepted_at, started_at, finished_at in ended_since(
        reader, since, MOST_ENDED
    ):
        of = found[agent_id]
        if state == "cancelled":
            of.cancelled += 1
            continue
        of.failed += outcome != "ok"
        of.took_ms.append(finished_at - accepted_at)
        if started_at is not None:
            of.waited_ms.append(started_at - accepted_at)
        of.by_hour[min(spans - 1, (finished_at - since) // width)] += 1
    return found


def quantile_s(values_ms: Sequence[int], share: float) -> float | None:
    """The value below which ``share`` of the values lie, in seconds; None for no values."""
    if not values_ms:
        return None
    ordered = sorted(values_ms)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))] / 1000


# -- the log of one agent --------------------------------------------------------------------------


@get("/agents/{name}/log", access=Access.STEER, refusals=(404, 410))
async def log(call: Call, query: bodies.LogQuery) -> Log:
    """The latest log lines and events of an agent.

    Secrets are redacted when they are logged.
    """
    limit = query.limit
    entry = call.deps.directory.lookup(call.named("name"))
    lines = []
    if call.deps.web.log_file is not None:
        lines = await asyncio.to_thread(tail, call.deps.web.log_file, entry.name, limit)
    events = await call.deps.events.latest(entry.agent_id, types=_SHOWN_EVENTS, limit=limit)
    lines += [_event_line(event) for event in events]
    lines.sort(key=lambda line: line.at)
    return Log(lines=lines[-limit:])


def tail(path: Path, agent: str, limit: int) -> list[LogLine]:
    """The last lines of a log file that are about ``agent``. Blocks on the disk."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LOG_TAIL))
            data = file.read(LOG_TAIL)
    except OSError:
        return []
    marks = (json.dumps(agent), f':{agent}"')
    found: list[LogLine] = []
    for raw in reversed(data.decode("utf-8", "replace").splitlines()):
        if not any(mark in raw for mark in marks):
            continue  # most lines are about others, and parsing is slow
        line = _log_line(raw, agent)
        if line is not None:
            found.append(line)
            if len(found) == limit:
                break
    return found[::-1]


def _log_line(raw: str, agent: str) -> LogLine | None:
    try:
        line = json.loads(raw)
        at = datetime.fromisoformat(str(line["at"]))
    except (ValueError, KeyError, TypeError):
        return None  # cut off, or not ours
    about = {line.get("agent"), str(line.get("child", "")).rpartition(":")[2]}
    if agent not in about:
        return None
    facts = {key: value for key, value in line.items() if key not in ("at", "level", "event")}
    return LogLine(
        at=round(at.timestamp() * 1000),
        source="log",
        level=str(line.get("level", "info")),
        text=str(line.get("event", "")),
        facts=facts,
    )


def _event_line(event: Event) -> LogLine:
    data = {key: value for key, value in event.data.items() if value not in ("", None, [], {})}
    state = str(data.pop("state", "") or data.pop("reason", ""))
    is_bad = event.type == EventType.MESSAGE_DEAD or state in ("failed", "backoff", "degraded")
    facts = {**data, **({"message": event.message_id} if event.message_id else {})}
    return LogLine(
        at=event.at,
        source="event",
        level="warning" if is_bad else "info",
        text=f"{event.type}: {state}" if state else event.type,
        facts=facts,
    )
