"""`/traces`: what turns did, piece by piece, and how long each took."""

from __future__ import annotations

from typing import Annotated, Any, Final

from aiohttp import web
from pydantic import Field

from agentsup.api.access import Access
from agentsup.api.bodies import PageQuery, Query
from agentsup.api.documents import name_of
from agentsup.api.route import Call, Route, reply
from agentsup.api.shapes import Document
from agentsup.model.errors import NotFound
from agentsup.model.principal import PrincipalKind
from agentsup.model.trace import SpanKind, SpanState
from agentsup.observe.traces import reading, said
from agentsup.observe.traces.reading import SpanNode, Tally, TraceRow, TraceTree
from agentsup.store.database import Reader

HOUR_MS: Final = 3_600_000
_TELLING: Final = (SpanKind.TOOL, SpanKind.PERSON, SpanKind.DELIVERY)
"""Whose names tell what somebody's turn was about, or where its answer went."""


class TracesQuery(PageQuery):
    """Which traces to list: by the agent, session and state of their first turn."""

    agent: str | None = None
    session: str | None = None
    state: SpanState | None = None


class FiguresQuery(Query):
    """Over how many hours, and of which agent."""

    hours: Annotated[int, Field(ge=1, le=24 * 366)] = 24
    agent: str | None = None


class TraceDocument(Document):
    trace_id: str
    message_id: str = Field(description="of the first turn")
    agent: str
    state: str
    code: str
    started_at: int
    ended_at: int | None
    duration_ms: float | None
    spans: int
    failed: int = Field(description="turns and calls that failed")
    agents: int
    text: str = Field(description="how the first message begins; short and without secrets")
    private: bool = Field(description="its words are somebody else's and left out")


class TraceList(Document):
    traces: list[TraceDocument]
    next_cursor: int | None


class SpanDocument(Document):
    span_id: str
    parent_id: str
    depth: int = Field(description="0 at the top; a span stands below the one that caused it")
    kind: str = Field(description="turn, segment, engine, model, tool, agent, person or delivery")
    name: str
    agent: str
    message_id: str
    session: str
    state: str
    code: str
    detail: str = Field(description="arguments, or an error; short and without secrets")
    attributes: dict[str, Any]
    started_at: int
    ended_at: int | None
    offset_ms: int = Field(description="since the beginning of the trace")
    duration_ms: float | None
    private: bool = Field(description="what it was about is somebody else's and left out")


class TraceShown(Document):
    trace_id: str
    state: str
    started_at: int
    duration_ms: float | None
    agents: list[str]
    spans: list[SpanDocument]
    truncated: bool = Field(description="there are more spans than are shown")


class TimesDocument(Document):
    name: str
    count: int
    states: dict[str, int]
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


class AgentFigures(Document):
    agent: str
    turns: TimesDocument | None
    segments: TimesDocument | None
    engines: list[TimesDocument]
    tools: list[TimesDocument]
    waits: list[TimesDocument] = Field(description="for other agents, by name")


class ErrorCount(Document):
    agent: str
    kind: str
    code: str
    count: int


class FiguresDocument(Document):
    hours: int
    spans: int = Field(description="that were counted")
    truncated: bool = Field(description="there were more; the latest were counted")
    agents: list[AgentFigures]
    errors: list[ErrorCount]
    recorder: dict[str, int] = Field(description="since the start of the daemon")


async def listing(call: Call) -> web.Response:
    """Traces by their first turn, newest first."""
    query: TracesQuery = call.query
    agent_id = call.deps.directory.lookup(query.agent).agent_id if query.agent else None
    await _flush(call)

    def read(reader: Reader) -> tuple[list[TraceRow], dict[str, dict[str, Any]], dict[str, str]]:
        found = reading.newest(
            reader,
            agent_id=agent_id,
            session_id=query.session,
            state=query.state.value if query.state else None,
            before=query.cursor,
            limit=query.limit + 1,
        )
        first = [one.message_id for one in found]
        return found, reading.owners(reader, first), said.texts(reader, first)

    found, owners, texts = await call.deps.web.database.read(read, name="traces.list")
    page = found[: query.limit]
    cursor = page[-1].cursor if len(found) > query.limit else None
    listed = [
        _row(call, one, owners.get(one.message_id), texts.get(one.message_id, "")) for one in page
    ]
    return reply({"traces": listed, "next_cursor": cursor})


async def show(call: Call) -> web.Response:
    """One trace as a tree; by its id or the beginning of it, by a message's id, or `last`."""
    wanted = call.named("id")
    await _flush(call)

    def read(reader: Reader) -> tuple[TraceTree, dict[str, dict[str, Any]]] | None:
        trace = reading.find(reader, wanted)
        found = reading.tree(reader, trace) if trace else None
        if found is None:
            return None
        return found, reading.owners(reader, (span.message_id for span in found.spans))

    found = await call.deps.web.database.read(read, name="traces.show")
    if found is None:
        raise NotFound(f"no trace is known of {wanted}", trace=wanted)
    return reply(_tree(call, *found))


async def figures(call: Call) -> web.Response:
    """How often and how long: turns, segments, engines, tools and waits, by agent."""
    query: FiguresQuery = call.query
    agent_id = call.deps.directory.lookup(query.agent).agent_id if query.agent else None
    await _flush(call)
    since = call.deps.clock.now_ms() - query.hours * HOUR_MS
    found = await call.deps.web.database.read(
        lambda reader: reading.figures(reader, since, agent_id=agent_id), name="traces.figures"
    )
    errors = sorted(found.errors.items(), key=lambda pair: -pair[1])
    return reply(
        {
            "hours": query.hours,
            "spans": found.counted,
            "truncated": found.is_cut,
            "agents": _by_agent(call, found.tallies),
            "errors": [
                {"agent": _name(call, agent), "kind": kind, "code": code, "count": count}
                for (agent, kind, code), count in errors[:200]
            ],
            "recorder": dict(call.deps.traces.counts()) if call.deps.traces else {},
        }
    )


async def _flush(call: Call) -> None:
    if call.deps.traces is not None:
        await call.deps.traces.flush()


def _name(call: Call, agent_id: str) -> str:
    return name_of(call.deps.directory, agent_id)


def _ms(duration_us: int | None) -> float | None:
    return None if duration_us is None else round(duration_us / 1000, 3)


def _row(call: Call, one: TraceRow, owner: dict[str, Any] | None, text: str) -> dict[str, Any]:
    is_private, traces = not _is_own(call, owner), call.deps.traces
    shown = traces.excerpt(text) if traces is not None and not is_private else ""
    return {
        "trace_id": one.trace_id,
        "message_id": one.message_id,
        "agent": _name(call, one.agent_id),
        "state": one.state,
        "code": one.code,
        "started_at": one.started_at,
        "ended_at": one.ended_at,
        "duration_ms": _ms(one.duration_us),
        "spans": one.spans,
        "failed": one.failed,
        "agents": one.agents,
        "text": shown,
        "private": is_private,
    }


def _tree(call: Call, found: TraceTree, owners: dict[str, dict[str, Any]]) -> dict[str, Any]:
    spans = found.spans
    began = min(span.started_at for span in spans)
    ends = [span.ended_at for span in spans if span.ended_at is not None]
    top = next((span for span in spans if span.kind == SpanKind.TURN), spans[0])
    is_over = top.ended_at is not None
    return {
        "trace_id": found.trace_id,
        "state": top.state,
        "started_at": began,
        "duration_ms": float(max(ends) - began) if ends and is_over else None,
        "agents": sorted({_name(call, span.agent_id) for span in spans}),
        "spans": [_span(call, span, began, owners) for span in spans],
        "truncated": found.is_cut,
    }


def _span(
    call: Call, span: SpanNode, began: int, owners: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    is_private = not _is_own(call, owners.get(span.message_id))
    is_telling = is_private and span.kind in _TELLING
    return {
        "span_id": span.span_id,
        "parent_id": span.parent_id,
        "depth": span.depth,
        "kind": span.kind,
        "name": "" if is_telling else span.name,
        "agent": _name(call, span.agent_id),
        "message_id": span.message_id,
        "session": span.session_id,
        "state": span.state,
        "code": span.code,
        "detail": "" if is_private else span.detail,
        "attributes": {} if is_private else _attributes(call, span),
        "started_at": span.started_at,
        "ended_at": span.ended_at,
        "offset_ms": span.started_at - began,
        "duration_ms": _ms(span.duration_us),
        "private": is_private,
    }


def _attributes(call: Call, span: SpanNode) -> dict[str, Any]:
    """Where a provider is, which may be an endpoint, is for operators."""
    if call.by.is_operator:
        return span.attributes
    return {name: value for name, value in span.attributes.items() if name != "provider"}


def _is_own(call: Call, owner: dict[str, Any] | None) -> bool:
    """Whether all of it began with this person's words; of what is pruned that is not known."""
    by = call.by
    if by.is_operator:
        return True
    return (
        owner is not None
        and owner.get("kind") == PrincipalKind.PERSON
        and owner.get("subject") == by.subject
    )


def _by_agent(call: Call, tallies: dict[tuple[str, str, str], Tally]) -> list[dict[str, Any]]:
    made: dict[str, dict[str, Any]] = {}
    single = {SpanKind.TURN.value: "turns", SpanKind.SEGMENT.value: "segments"}
    many = {
        SpanKind.ENGINE.value: "engines",
        SpanKind.TOOL.value: "tools",
        SpanKind.AGENT.value: "waits",
    }
    for (kind, agent_id, name), tally in sorted(tallies.items()):
        name_shown = _name(call, agent_id)
        agent = made.setdefault(
            name_shown,
            {
                "agent": name_shown,
                "turns": None,
                "segments": None,
                "engines": [],
                "tools": [],
                "waits": [],
            },
        )
        times = {
            "name": name,
            "count": tally.count,
            "states": tally.states,
            "p50_ms": tally.quantile_ms(0.5),
            "p95_ms": tally.quantile_ms(0.95),
            "p99_ms": tally.quantile_ms(0.99),
        }
        if kind in single:
            agent[single[kind]] = times
        elif kind in many:
            agent[many[kind]].append(times)
    return list(made.values())


ROUTES = (
    Route(
        "GET",
        "/traces",
        listing,
        "Traces of requests, newest first",
        {200: TraceList},
        access=Access.LOOK,
        query=TracesQuery,
        refusals=(404, 410),
    ),
    Route(
        "GET",
        "/traces/metrics",
        figures,
        "How often and how long: turns, engines, tools and waits",
        {200: FiguresDocument},
        access=Access.STEER,
        query=FiguresQuery,
        refusals=(404, 410),
    ),
    Route(
        "GET",
        "/traces/{id}",
        show,
        "One trace as a tree, by its id, a message's id, or `last`",
        {200: TraceShown},
        access=Access.LOOK,
        refusals=(404,),
    ),
)
