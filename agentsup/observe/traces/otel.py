"""The one door to OpenTelemetry: ended spans go to an OTLP receiver, in a thread of their own.

The library is imported in a thread and only where an endpoint is set. What waits is bounded; a
receiver that is down, slow or refuses costs spans, which are counted, and nothing else.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentsup.kit.outbound.limits import MIB, AnswerLimits
from agentsup.model.errors import AgentsupError
from agentsup.model.trace import SpanKind, SpanState
from agentsup.observe.traces.span import Span

QUEUE = 2048
BATCH = 256
EVERY_MS = 2_000
POST_TIMEOUT_S = 5.0
ANSWER = AnswerLimits(body_bytes=MIB, total_s=10.0)
"""A receiver's answer says little."""
LAST_S = 1.5
"""How long the end of the daemon waits for the last spans."""
_HINT = "pip install 'agentsup[otel]'"
_ERRORS = (SpanState.FAILED, SpanState.CRASHED, SpanState.INTERRUPTED)


class OtelMissing(AgentsupError):
    """`[otel]` names an endpoint and the library is not installed."""

    code = "extra_missing"

    def __init__(self) -> None:
        super().__init__(
            "[otel] names an endpoint, and OpenTelemetry is not installed, so nothing is sent: "
            f"{_HINT}, then restart"
        )


@dataclass(frozen=True, slots=True)
class OtelTarget:
    """Where spans go. ``url`` has the path; ``resource`` says who sends; ``content``: words too."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    resource: Mapping[str, str] = field(default_factory=dict)
    content: bool = False


@dataclass(slots=True)
class OtelCounts:
    """Spans since the start."""

    handed: int = 0
    """To the thread that sends."""
    sent: int = 0
    failed: int = 0
    """The receiver did not take them."""
    dropped: int = 0
    """There was no room to wait."""


class _Sampled:
    """What the library asks of a context before it queues a span."""

    class trace_flags:  # noqa: N801 - the library's name
        sampled = True


class _Handed:
    """A span on its way to the sending thread, which makes the library's own of it."""

    context = _Sampled

    def __init__(self, span: Span) -> None:
        self.span = span


class OtelExport:
    """Sends spans. Made by ``open``."""

    def __init__(self, target: OtelTarget, library: _Library) -> None:
        self.counts = OtelCounts()
        self._target = target
        self._sender = _Sender(library, target, self.counts)
        self._processor = library.processor(
            self._sender,
            max_queue_size=QUEUE,
            max_export_batch_size=BATCH,
            schedule_delay_millis=EVERY_MS,
        )

    @classmethod
    async def open(cls, target: OtelTarget) -> OtelExport:
        """Import the library and start its thread. Raises ``OtelMissing``."""
        try:
            # Making the sender takes as long as the import: it looks for its ways to send.
            return await asyncio.to_thread(lambda: cls(target, _load()))
        except ImportError as error:
            raise OtelMissing from error

    def put(self, spans: Sequence[Span]) -> None:
        """Hand on what has ended; returns at once."""
        counts = self.counts
        for span in spans:
            if span.ended_at is None:
                continue
            if counts.handed - counts.sent - counts.failed >= QUEUE - BATCH:
                counts.dropped += 1
                continue
            counts.handed += 1
            self._processor.on_end(_Handed(span))

    async def close(self) -> None:
        """Send what waits, for a moment; then end, whatever the receiver does."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            self._processor.shutdown()
            try:
                loop.call_soon_threadsafe(ended.set)
            except RuntimeError:
                return  # the loop has ended meanwhile; nobody waits

        # A thread of its own that nothing waits for: the library may be in a post for seconds.
        threading.Thread(target=end, name="otel-end", daemon=True).start()
        try:
            async with asyncio.timeout(LAST_S):
                await ended.wait()
        except TimeoutError:
            self._sender.stop()


class _Sender:
    """The library's exporter, counted; runs in the library's thread."""

    def __init__(self, library: _Library, target: OtelTarget, counts: OtelCounts) -> None:
        self._library = library
        self._target = target
        self._counts = counts
        self._resource = library.resource(dict(target.resource))
        self._inner = library.exporter(
            endpoint=target.url,
            headers=dict(target.headers),
            timeout=POST_TIMEOUT_S,
            session=library.session(ANSWER),
        )
        self._is_stopped = False

    def export(self, handed: Sequence[_Handed]) -> Any:
        result = self._library.failure
        if not self._is_stopped:
            try:
                made = [self._made(one.span) for one in handed]
                result = self._inner.export(made)
            except Exception:  # noqa: BLE001 - supervision boundary: a batch must not end the thread
                result = self._library.failure
        if result is self._library.failure:
            self._counts.failed += len(handed)
        else:
            self._counts.sent += len(handed)
        return result

    def stop(self) -> None:
        """Give up what waits."""
        self._is_stopped = True
        self._inner.shutdown()

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True

    def _made(self, span: Span) -> Any:
        library = self._library
        began_ns = span.started_at * 1_000_000
        us = span.duration_us
        if us is None:
            us = 1000 * max(0, (span.ended_at or span.started_at) - span.started_at)
        status = library.status(library.unset)
        if span.state in _ERRORS:
            text = span.detail if self._target.content else ""
            status = library.status(
                library.error, f"{span.code or span.state}: {text}".rstrip(": ")
            )
        parent = None
        if span.parent_id:
            parent = library.context(
                int(span.trace_id, 16), int(span.parent_id, 16), is_remote=False
            )
        return library.span(
            name=f"{span.kind} {span.name}",
            context=library.context(
                int(span.trace_id, 16),
                int(span.span_id, 16),
                is_remote=False,
                trace_flags=library.sampled,
            ),
            parent=parent,
            resource=self._resource,
            attributes=_attributes(span, content=self._target.content),
            kind=library.client if span.kind in _ASKING else library.internal,
            status=status,
            start_time=began_ns,
            end_time=began_ns + us * 1000,
            instrumentation_scope=library.scope,
        )


_ASKING = (SpanKind.AGENT, SpanKind.MODEL)
"""Somebody else does the work."""
_GEN_AI = {
    "model": "gen_ai.request.model",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
}


def _attributes(span: Span, *, content: bool) -> dict[str, Any]:
    """Flat attributes with the names that others use, where there are such."""
    made: dict[str, Any] = {
        "agentsup.kind": span.kind.value,
        "agentsup.state": span.state.value,
        "agentsup.agent_id": span.agent_id,
        "agentsup.message_id": span.message_id,
        "session.id": span.session_id,
    }
    if span.kind is SpanKind.TOOL:
        made["gen_ai.tool.name"] = span.name
    if span.kind is SpanKind.MODEL:
        made["gen_ai.operation.name"] = "chat"
    if span.code:
        made["error.type"] = span.code
    for key, value in span.attributes.items():
        name = _GEN_AI.get(key, f"agentsup.{key}")
        if isinstance(value, dict):
            made.update({f"{name}.{inner}": str(each) for inner, each in value.items()})
        elif isinstance(value, str | int | float | bool):
            made[name] = value
    if content and span.detail:
        made["agentsup.detail"] = span.detail
    return made


@dataclass(frozen=True, slots=True)
class _Library:
    """What is used of OpenTelemetry."""

    processor: Any
    exporter: Any
    session: Any
    span: Any
    context: Any
    resource: Any
    status: Any
    scope: Any
    sampled: Any
    failure: Any
    unset: Any
    error: Any
    client: Any
    internal: Any


def _load() -> _Library:
    """Import it, without a collection among its many new classes. Raises ``ImportError``."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        api = importlib.import_module("opentelemetry.trace")
        sdk = importlib.import_module("opentelemetry.sdk.trace")
        export = importlib.import_module("opentelemetry.sdk.trace.export")
        resources = importlib.import_module("opentelemetry.sdk.resources")
        scope = importlib.import_module("opentelemetry.sdk.util.instrumentation")
        otlp = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        client = importlib.import_module("agentsup.kit.outbound.requests_client")
    finally:
        if was_enabled:
            gc.enable()
    # It tells each failed post with a stack; the counts say the same, and the daemon says it once.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    return _Library(
        processor=export.BatchSpanProcessor,
        exporter=otlp.OTLPSpanExporter,
        session=client.new_session,
        span=sdk.ReadableSpan,
        context=api.SpanContext,
        resource=resources.Resource,
        status=api.Status,
        scope=scope.InstrumentationScope("agentsup"),
        sampled=api.TraceFlags(api.TraceFlags.SAMPLED),
        failure=export.SpanExportResult.FAILURE,
        unset=api.StatusCode.UNSET,
        error=api.StatusCode.ERROR,
        client=api.SpanKind.CLIENT,
        internal=api.SpanKind.INTERNAL,
    )
