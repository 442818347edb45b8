"""``/traces``: the spans of turns, and how long each took."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from agentsup.api.documents.bodies import PageQuery, Query
from agentsup.api.documents.document import Document, page_of
from agentsup.api.http.access import Access
from agentsup.api.http.route import Call, get
from agentsup.mailbox.mail import name_in
from agentsup.model.errors import NotFound
from agentsup.model.principal import PrincipalKind
from agentsup.model.trace import SpanKind, SpanState
from agentsup.observe.traces import SpanNode, StatisticsRow, TraceRow, TraceTree, tree, views
from agentsup.observe.traces import statistics as counting
from agentsup.store import Reader

HOUR_MS: Final = 3_600_000
_REVEALING_KINDS: Final = (SpanKind.TOOL, SpanKind.PERSON, SpanKind.DELIVERY)
"""The kinds of spans whose names reveal what a turn was about, or where its answer went."""


class TracesQuery(PageQuery):
    """Which traces to list: by the agent, session and state of their first turn."""

    agent: str | None = None
    session: str | None = None
    state: SpanState | None = None


class TraceStatisticsQuery(Query):
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
    depth: int = Field(description="0 at the top; a span is below the one that caused it")
    kind: str = Field(description="turn, segment, engine, tool, person, delivery or route")
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
    truncated: bool = Field(description="there are more turns than are shown")


class TimesDocument(Document):
    name: str
    count: int
    states: dict[str, int]
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


class AgentStatistics(Document):
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


class TraceStatisticsDocument(Document):
    hours: int
    spans: int = Field(description="that were counted")
    truncated: bool = Field(description="there were more turns; the latest were counted")
    agents: list[AgentStatistics]
    errors: list[ErrorCount]
    recorder: dict[str, int] = Field(
        description="spans that the OTLP receiver took and did not take, since the start"
    )


@get("/traces", access=Access.LOOK, refusals=(404, 410))
async def listing(call: Call, query: TracesQuery) -> TraceList:
    """Traces of requests, newest first."""
    agent_id = call.deps.directory.lookup(query.agent).agent_id if query.agent else None

    def read(reader: Reader) -> tuple[list[TraceRow], dict[str, dict[str, Any]], dict[str, str]]:
        found = views.newest(
            reader,
            agent_id=agent_id,
            session_id=query.session,
            state=query.state.value if query.state else None,
            before=query.cursor,
            limit=query.limit + 1,
        )
        first = [one.message_id for one in found]
        return found, views.owners(reader, first), views.texts(reader, first)

    found, owners, texts = await call.deps.database.read(read, name="traces.list")
    page, cursor = page_of(found, query.limit, lambda last: last.cursor)
    listed = [
        _row(call, one, owners.get(one.message_id), texts.get(one.message_id, "")) for one in page
    ]
    return TraceList(traces=listed, next_cursor=cursor)


@get("/traces/{id}", access=Access.LOOK, refusals=(404,))
async def show(call: Call) -> TraceShown:
    """One trace as a tree, by its id, a message's id, or `last`.

    The beginning of a trace's id is enough.
    """
    wanted = call.named("id")

    def read(reader: Reader) -> tuple[TraceTree, dict[str, dict[str, Any]]] | None:
        trace = views.find(reader, wanted)
        found = tree.tree(reader, trace) if trace else None
        if found is None:
            return None
        return found, views.owners(reader, (span.message_id for span in found.spans))

    found = await call.deps.database.read(read, name="traces.show")
    if found is None:
        raise NotFound(f"no trace is known of {wanted}", trace=wanted)
    return _tree(call, *found)


@get("/traces/metrics", access=Access.STEER, refusals=(404, 410))
async def statistics(call: Call, query: TraceStatisticsQuery) -> TraceStatisticsDocument:
    """Show counts and durations of turns, engines, tools and waits."""
    agent_id = call.deps.directory.lookup(query.agent).agent_id if query.agent else None
    since = call.deps.clock.now_ms() - query.hours * HOUR_MS
    found = await call.deps.database.read(
        lambda reader: counting.statistics(reader, since, agent_id=agent_id), name="traces.figures"
    )
    errors = sorted(found.errors.items(), key=lambda pair: -pair[1])
    return TraceStatisticsDocument(
        hours=query.hours,
        spans=found.counted,
        truncated=found.is_cut,
        agents=_by_agent(call, found.tallies),
        errors=[
            ErrorCount(agent=_name(call, agent), kind=kind, code=code, count=count)
            for (agent, kind, code), count in errors[:200]
        ],
        recorder=dict(call.deps.traces.counts()),
    )


def _name(call: Call, agent_id: str) -> str:
    return name_in(call.deps.directory, agent_id)


def _ms(duration_us: int | None) -> float | None:
    return None if duration_us is None else round(duration_us / 1000, 3)


def _row(call: Call, one: TraceRow, owner: dict[str, Any] | None, text: str) -> TraceDocument:
    is_private = not _is_own(call, owner)
    return TraceDocument.from_value(
        one,
        agent=_name(call, one.agent_id),
        duration_ms=_ms(one.duration_us),
        text="" if is_private else call.deps.traces.excerpt(text),
        private=is_private,
    )


def _tree(call: Call, found: TraceTree, owners: dict[str, dict[str, Any]]) -> TraceShown:
    spans = found.spans
    began = min(span.started_at for span in spans)
    ends = [span.ended_at for span in spans if span.ended_at is not None]
    top = next((span for span in spans if span.kind == SpanKind.TURN), spans[0])
    is_over = top.ended_at is not None
    return TraceShown(
        trace_id=found.trace_id,
        state=top.state,
        started_at=began,
        duration_ms=float(max(ends) - began) if ends and is_over else None,
        agents=sorted({_name(call, span.agent_id) for span in spans}),
        spans=[_span(call, span, began, owners) for span in spans],
        truncated=found.is_cut,
    )


def _span(
    call: Call, span: SpanNode, began: int, owners: dict[str, dict[str, Any]]
) -> SpanDocument:
    is_private = not _is_own(call, owners.get(span.message_id))
    is_telling = is_private and span.kind in _REVEALING_KINDS
    return SpanDocument.from_value(
        span,
        name="" if is_telling else span.name,
        agent=_name(call, span.agent_id),
        session=span.session_id,
        detail="" if is_private else span.detail,
        attributes={} if is_private else span.attributes,
        offset_ms=span.started_at - began,
        duration_ms=_ms(span.duration_us),
        private=is_private,
    )


def _is_own(call: Call, owner: dict[str, Any] | None) -> bool:
    """Whether this person's message began all of it; False if that is no longer known (pruned)."""
    by = call.by
    if by.is_operator:
        return True
    return (
        owner is not None
        and owner.get("kind") == PrincipalKind.PERSON
        and owner.get("subject") == by.subject
    )


def _by_agent(
    call: Call, tallies: dict[tuple[str, str, str], StatisticsRow]
) -> list[AgentStatistics]:
    made: dict[str, dict[str, Any]] = {}
    single = {SpanKind.TURN.value: "turns", SpanKind.SEGMENT.value: "segments"}
    many = {
        SpanKind.ENGINE.value: "engines",
        SpanKind.TOOL.value: "tools",
        SpanKind.AGENT.value: "waits",
    }
    for (kind, agent_id, name), tally in sorted(tallies.items()):
        empty: dict[str, Any] = {
            **dict.fromkeys(single.values()),
            **{each: [] for each in many.values()},
        }
        agent = made.setdefault(_name(call, agent_id), empty)
        times = TimesDocument.from_value(
            tally,
            name=name,
            p50_ms=tally.quantile_ms(0.5),
            p95_ms=tally.quantile_ms(0.95),
            p99_ms=tally.quantile_ms(0.99),
        )
        if kind in single:
            agent[single[kind]] = times
        elif kind in many:
            agent[many[kind]].append(times)
    return [AgentStatistics(agent=name, **found) for name, found in made.items()]
