"""The traces of this daemon: told by turns, written and sent beside them, kept for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agentsup import __version__
from agentsup.config.secrets import resolve
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon.ground import Ground
from agentsup.daemon.services import FOR_EVER, SHORT
from agentsup.kit.tasks import TaskOwner
from agentsup.model.agent import Secret
from agentsup.model.errors import AgentsupError, ConfigError, StoreUnavailable
from agentsup.model.trace import SpanKind, SpanState
from agentsup.observe.logging import get_logger
from agentsup.observe.traces import reading, said
from agentsup.observe.traces.otel import OtelExport, OtelTarget
from agentsup.observe.traces.recorder import Recorder
from agentsup.observe.traces.rows import retention_rules
from agentsup.observe.traces.span import Span
from agentsup.observe.traces.tracer import SpanTracer
from agentsup.store.database import Reader
from agentsup.store.retention import prune
from agentsup.supervision.spec import ChildContext, ChildSpec, Restart

_log = get_logger(__name__)

PRUNE_FIRST_S = 420.0
PRUNE_EVERY_S = 3600.0
_ENDED_ANYHOW = (SpanState.CANCELLED, SpanState.CRASHED)


class DaemonTraces:
    """The tracer and what stands behind it."""

    def __init__(self, ground: Ground, current: Callable[[], ConfigSnapshot]) -> None:
        self._ground = ground
        self._current = current
        self.recorder = Recorder(
            ground.database, ground.clock, ground.boot.boot_id, on_written=self._send
        )
        self.tracer = SpanTracer(
            self.recorder.put,
            ground.clock,
            ground.boot.boot_id,
            redact=ground.redactor.text,
            is_on=lambda: current().settings.traces.enabled,
        )
        self._otel: OtelExport | None = None
        self._trouble = ""
        self._was_failing = 0
        self._tasks = TaskOwner("traces")

    def spec(self) -> ChildSpec:
        """The child that writes, sends and prunes."""

        async def life(ctx: ChildContext) -> None:
            tasks = TaskOwner("traces")
            self._tasks = tasks
            tasks.spawn(self._open_otel(), name="otel:open")
            tasks.spawn(self._prune(), name="prune:traces")
            try:
                await self.recorder.run(ctx.ready, ctx.draining)
            finally:
                await tasks.close(0.2)
                otel, self._otel = self._otel, None
                if otel is not None:
                    await otel.close()

        return ChildSpec("traces", life, Restart.PERMANENT, grace=SHORT, policy=FOR_EVER)

    def warnings(self) -> tuple[str, ...]:
        """What there is to tell of it."""
        return (self._trouble,) if self._trouble else ()

    # -- for those who read ------------------------------------------------------------------------

    async def flush(self) -> None:
        """Write what is known by now; a reader sees it then."""
        await self.recorder.flush()

    def counts(self) -> Mapping[str, int]:
        """Spans since the start of the daemon."""
        otel = self._otel.counts if self._otel is not None else None
        return {
            "written": self.recorder.written,
            "waiting": self.recorder.waiting,
            "dropped": self.recorder.dropped,
            "otel_sent": otel.sent if otel else 0,
            "otel_failed": otel.failed if otel else 0,
            "otel_dropped": otel.dropped if otel else 0,
        }

    def excerpt(self, text: str) -> str:
        """The first words of a message, without secrets."""
        return said.excerpt(text, self._ground.redactor.text)

    # -- sending -----------------------------------------------------------------------------------

    async def _open_otel(self) -> None:
        settings = self._current().settings.otel
        if not settings.endpoint or self._otel is not None:
            return
        ground = self._ground
        try:
            headers = await asyncio.to_thread(self._headers)
            ground.redactor.add_all(headers.values())
            resource = {
                "service.name": settings.service_name,
                "service.version": __version__,
                "service.instance.id": ground.boot.node_id,
            }
            target = OtelTarget(settings.url, headers, resource, settings.content)
            self._otel = await OtelExport.open(target)
        except (AgentsupError, ConfigError) as error:
            self._trouble = error.message
            _log.warning("spans are not sent", reason=error.message)
            return
        ground.after_imports()
        _log.info("spans are sent", to=settings.url)

    def _headers(self) -> dict[str, str]:
        """With secrets resolved, which may be files."""
        ground, given = self._ground, self._current().settings.otel.headers
        return {
            name: resolve(Secret(value), base=ground.home.root, environ=ground.environ).reveal()
            for name, value in given.items()
        }

    def _send(self, written: Sequence[Span]) -> None:
        otel = self._otel
        if otel is None:
            return
        ended = [_as_ended(span) for span in written]
        otel.put(ended)
        turns = {s.message_id: s for s in ended if s.kind is SpanKind.TURN and not s.is_open}
        if turns:
            self._tasks.spawn(self._send_waits(otel, turns), name="otel:waits")
        failed = otel.counts.failed
        if failed and not self._was_failing:
            _log.warning("the OTLP receiver takes no spans", url=self._current().settings.otel.url)
        self._was_failing = failed

    async def _send_waits(self, otel: OtelExport, turns: Mapping[str, Span]) -> None:
        """The waits for people lie with the questions."""

        def read(reader: Reader) -> list[reading.SpanNode]:
            return reading.waits(reader, sorted(turns))

        try:
            nodes = await self._ground.database.read(read, name="traces.waits")
        except AgentsupError:
            return  # what is sent is not owed
        otel.put([_wait(node, turns[node.message_id]) for node in nodes])

    # -- keeping -----------------------------------------------------------------------------------

    async def _prune(self) -> None:
        clock = self._ground.clock
        await clock.sleep(PRUNE_FIRST_S)
        while True:
            settings = self._current().settings.traces
            rules = retention_rules(keep_days=settings.keep_days, most=settings.max_spans)
            try:
                await prune(self._ground.database, rules, clock=clock)
            except StoreUnavailable as error:
                _log.warning("old traces are kept for now", reason=error.message)
            await clock.sleep(PRUNE_EVERY_S)


def _as_ended(span: Span) -> Span:
    """A turn that was cancelled may be taken up again; whoever watches hears of it by then."""
    if span.kind is SpanKind.TURN and span.is_open and span.state in _ENDED_ANYHOW:
        us = span.duration_us or 0
        return replace(span, ended_at=span.started_at + us // 1000, duration_us=us)
    return span


def _wait(node: reading.SpanNode, turn: Span) -> Span:
    return Span(
        span_id=node.span_id,
        trace_id=turn.trace_id,
        parent_id=node.parent_id,
        kind=SpanKind.PERSON,
        name=node.name,
        agent_id=node.agent_id,
        message_id=node.message_id,
        session_id=node.session_id,
        state=SpanState(node.state),
        code=node.code,
        detail=node.detail,
        started_at=node.started_at,
        ended_at=node.ended_at,
        duration_us=node.duration_us,
    )
