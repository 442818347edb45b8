"""The only module that uses OpenTelemetry: sends ended spans to an OTLP receiver in a thread.

The library is imported in a thread, and only if an endpoint is set. The queue is bounded. A
receiver that is down, slow or refuses costs only spans, which are counted.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentsup.kit.log import set_level
from agentsup.kit.tasks import is_set_within
from agentsup.model.errors import AgentsupError
from agentsup.model.trace import SpanKind, SpanState
from agentsup.observe.traces.span import Span

QUEUE = 2048
BATCH = 256
EVERY_MS = 2_000
POST_TIMEOUT_S = 5.0
LAST_S = 1.5
"""The seconds for which the end of the daemon waits for the last spans."""
_HINT = "pip install 'agentsup[otel]'"
_ERRORS = (SpanState.FAILED, SpanState.CRASHED, SpanState.INTERRUPTED)


class OtelMissing(AgentsupError):
    """``[otel]`` names an endpoint, but the library is not installed."""

    code = "extra_missing"

    def __init__(self) -> None:
        super().__init__(
            "[otel] names an endpoint, and OpenTelemetry is not installed, so nothing is sent: "
            f"{_HINT}, then restart"
        )


@dataclass(frozen=True, slots=True)
class OtelTarget:
    """The receiver. ``url`` has the path; ``resource`` names the sender; ``content``: send texts
    too."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    resource: Mapping[str, str] = field(default_factory=dict)
    content: bool = False


@dataclass(slots=True)
class OtelCounts:
    """Counts of spans since the start."""

    handed: int = 0
    """Given to the sending thread."""
    sent: int = 0
    failed: int = 0
    """Not accepted by the receiver."""
    dropped: int = 0
    """Lost because the queue was full."""


class _Sampled:
    """The attribute that the library checks before it queues a span."""

    class trace_flags:  # noqa: N801 - the library's name
        sampled = True


class _Handed:
    """A span in the library's queue; the sending thread converts it to the library's type."""

    context = _Sampled

    def __init__(self, span: Span) -> None:
        self.span = span


class OtelExport:
    """Sends spans. Created by ``open``."""

    def __init__(self, target: OtelTarget, library: _Library) -> None:
        self.counts = OtelCounts()
        self._target = target
        self._sender = _Sender(library, target, self.counts)
        self._processor = library.export.BatchSpanProcessor(
            self._sender,
            max_queue_size=QUEUE,
            max_export_batch_size=BATCH,
            schedule_delay_millis=EVERY_MS,
        )

    @classmethod
    async def open(cls, target: OtelTarget) -> OtelExport:
        """Import the library and start its thread. Raises ``OtelMissing``."""
        try:
            # Making the sender takes as long as the import: it searches for its transports.
            return await asyncio.to_thread(lambda: cls(target, _load()))
        except ImportError as error:
            raise OtelMissing from error

    def put(self, spans: Sequence[Span]) -> None:
        """Queue the spans that have ended; returns at once."""
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
        """Send queued spans for at most ``LAST_S``, then end, even if the receiver hangs."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            self._processor.shutdown()
            try:
                loop.call_soon_threadsafe(ended.set)
            except RuntimeError:
                return  # the loop has ended; nothing waits

        # A separate thread that nothing joins: the library may be in a post for seconds.
        threading.Thread(target=end, name="otel-end", daemon=True).start()
        if not await is_set_within(ended, LAST_S):
            self._sender.stop()


class _Sender:
    """The library's exporter with counts; runs in the library's thread."""

    def __init__(self, library: _Library, target: OtelTarget, counts: OtelCounts) -> None:
        self._library = library
        self._target = target
        self._counts = counts
        self._resource = library.resources.Resource(dict(target.resource))
        self._scope = library.scopes.InstrumentationScope("agentsup")
        self._inner = library.otlp.OTLPSpanExporter(
            endpoint=target.url,
            headers=dict(target.headers),
            timeout=POST_TIMEOUT_S,
            session=library.client.new_session(),
        )
        self._is_stopped = False

    def export(self, handed: Sequence[_Handed]) -> Any:
        result = failure = self._library.export.SpanExportResult.FAILURE
        if not self._is_stopped:
            try:
                made = [self._made(one.span) for one in handed]
                result = self._inner.export(made)
            except Exception:  # noqa: BLE001 - supervision boundary: a batch must not end the thread
                result = failure
        if result is failure:
            self._counts.failed += len(handed)
        else:
            self._counts.sent += len(handed)
        return result

    def stop(self) -> None:
        """Drop queued spans."""
        self._is_stopped = True
        self._inner.shutdown()

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True

    def _made(self, span: Span) -> Any:
        api = self._library.api
        began_ns = span.started_at * 1_000_000
        us = span.duration_us
        if us is None:
            us = 1000 * max(0, (span.ended_at or span.started_at) - span.started_at)
        status = api.Status(api.StatusCode.UNSET)
        if span.state in _ERRORS:
            text = span.detail if self._target.content else ""
            status = api.Status(
                api.StatusCode.ERROR, f"{span.code or span.state}: {text}".rstrip(": ")
            )
        trace_id, flags = int(span.trace_id, 16), api.TraceFlags(api.TraceFlags.SAMPLED)

        def context(span_id: str, **more: Any) -> Any:
            return api.SpanContext(trace_id, int(span_id, 16), is_remote=False, **more)

        return self._library.sdk.ReadableSpan(
            name=f"{span.kind} {span.name}",
            context=context(span.span_id, trace_flags=flags),
            parent=context(span.parent_id) if span.parent_id else None,
            resource=self._resource,
            attributes=_attributes(span, content=self._target.content),
            kind=api.SpanKind.CLIENT if span.kind in _ASKING else api.SpanKind.INTERNAL,
            status=status,
            start_time=began_ns,
            end_time=began_ns + us * 1000,
            instrumentation_scope=self._scope,
        )


_ASKING = (SpanKind.AGENT, SpanKind.MODEL)
"""Kinds of spans in which somebody else does the work."""
_GEN_AI = {
    "model": "gen_ai.request.model",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
}


def _attributes(span: Span, *, content: bool) -> dict[str, Any]:
    """Flat attributes, with OpenTelemetry's standard names if there are any."""
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
    """The modules of OpenTelemetry that are used, and our HTTP client for it."""

    api: Any
    sdk: Any
    export: Any
    resources: Any
    scopes: Any
    otlp: Any
    client: Any


def _load() -> _Library:
    """Import the library. Raises ``ImportError``."""
    # It logs each failed post with a stack; the counts have the same, and the daemon logs it once.
    set_level("CRITICAL", "opentelemetry")
    return _Library(
        api=importlib.import_module("opentelemetry.trace"),
        sdk=importlib.import_module("opentelemetry.sdk.trace"),
        export=importlib.import_module("opentelemetry.sdk.trace.export"),
        resources=importlib.import_module("opentelemetry.sdk.resources"),
        scopes=importlib.import_module("opentelemetry.sdk.util.instrumentation"),
        otlp=importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter"),
        client=importlib.import_module("agentsup.kit.outbound.requests_client"),
    )
