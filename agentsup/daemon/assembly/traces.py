"""The traces of this daemon: spans of turns are recorded, sent, and kept for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agentsup import __version__
from agentsup.config import ConfigSnapshot, resolve
from agentsup.daemon.assembly.services import service
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import AgentsupError, ConfigError, StoreUnavailable
from agentsup.model.secret import Secret
from agentsup.model.trace import SpanKind, SpanState
from agentsup.observe.traces import (
    OtelExport,
    OtelTarget,
    Span,
    SpanRecorder,
    SpanTracer,
    excerpts,
    retention_rules,
    views,
)
from agentsup.store import Reader, prune
from agentsup.supervision import ChildContext, ChildSpec

_log = get_logger(__name__)

PRUNE_FIRST_S = 420.0
PRUNE_EVERY_S = 3600.0
_ENDED_ANYHOW = (SpanState.CANCELLED, SpanState.CRASHED)


class DaemonTraces:
    """The tracer, and the recorder and the exporter behind it."""

    def __init__(self, boot_context: BootContext, current: Callable[[], ConfigSnapshot]) -> None:
        self._boot_context = boot_context
        self._current = current
        self.recorder = SpanRecorder(
            boot_context.database,
            boot_context.clock,
            boot_context.boot.boot_id,
            on_written=self._send,
        )
        self.tracer = SpanTracer(
            self.recorder.put,
            boot_context.clock,
            boot_context.boot.boot_id,
            redact=boot_context.redactor.text,
            is_on=lambda: current().settings.traces.enabled,
        )
        self._otel: OtelExport | None = None
        self._problem = ""
        self._was_failing = 0
        self._tasks = TaskOwner("traces")

    def spec(self) -> ChildSpec:
        """The child that writes, sends and prunes spans."""

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

        return service("traces", life)

    def warnings(self) -> tuple[str, ...]:
        """Warnings for the daemon's status."""
        return (self._problem,) if self._problem else ()

    # -- for readers -------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Write the spans known by now, so that a reader sees them."""
        await self.recorder.flush()

    def counts(self) -> Mapping[str, int]:
        """Counts of spans since the start of the daemon."""
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
        return excerpts.excerpt(text, self._boot_context.redactor.text)

    # -- sending -----------------------------------------------------------------------------------

    async def _open_otel(self) -> None:
        settings = self._current().settings.otel
        if not settings.endpoint or self._otel is not None:
            return
        boot_context = self._boot_context
        try:
            headers = await asyncio.to_thread(self._headers)
            boot_context.redactor.add_all(headers.values())
            resource = {
                "service.name": settings.service_name,
                "service.version": __version__,
                "service.instance.id": boot_context.boot.node_id,
            }
            target = OtelTarget(settings.url, headers, resource, settings.content)
            self._otel = await OtelExport.open(target)
        except (AgentsupError, ConfigError) as error:
            self._problem = error.message
            _log.warning("spans are not sent", reason=error.message)
            return
        boot_context.after_imports()
        _log.info("spans are sent", to=settings.url)

    def _headers(self) -> dict[str, str]:
        """The headers with secrets resolved; blocks, since secrets may be files."""
        boot_context, given = self._boot_context, self._current().settings.otel.headers
        return {
            name: resolve(
                Secret(value), base=boot_context.home.root, environ=boot_context.environ
            ).reveal()
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
        """Send the waits for people as spans; they are derived from the stored questions."""

        def read(reader: Reader) -> list[views.SpanNode]:
            return views.waits(reader, sorted(turns))

        try:
            nodes = await self._boot_context.database.read(read, name="traces.waits")
        except AgentsupError:
            return  # exporting is best effort
        trace_ids = {each: turn.trace_id for each, turn in turns.items()}
        otel.put([replace(n, trace_id=trace_ids[n.message_id], attributes={}) for n in nodes])

    # -- retention ---------------------------------------------------------------------------------

    async def _prune(self) -> None:
        clock = self._boot_context.clock
        await clock.sleep(PRUNE_FIRST_S)
        while True:
            settings = self._current().settings.traces
            rules = retention_rules(keep_days=settings.keep_days, most=settings.max_spans)
            try:
                await prune(self._boot_context.database, rules, clock=clock)
            except StoreUnavailable as error:
                _log.warning("old traces are kept for now", reason=error.message)
            await clock.sleep(PRUNE_EVERY_S)


def _as_ended(span: Span) -> Span:
    """The span as ended, if its turn was cancelled or crashed: it may be resumed, but the receiver
    must be told by now."""
    if span.kind is SpanKind.TURN and span.is_open and span.state in _ENDED_ANYHOW:
        us = span.duration_us or 0
        return replace(span, ended_at=span.started_at + us // 1000, duration_us=us)
    return span
