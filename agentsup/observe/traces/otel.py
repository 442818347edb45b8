"""The only module that uses OpenTelemetry: spans of turns, engines, requests to models and calls.

Without ``[otel]`` a span costs nothing. With it, the library's own batch exporter sends what has ended.
The library is imported in a thread. Its queue is bounded; a receiver that is down, slow or refuses
costs only spans.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from agentsup.kit.log import set_level
from agentsup.kit.tasks import is_set_within
from agentsup.model.errors import AgentsupError, ExitRequested
from agentsup.model.trace import parent_id, trace_id

QUEUE = 2048
BATCH = 256
EVERY_MS = 2_000
POST_TIMEOUT_S = 5.0
LAST_S = 1.5
"""The seconds for which the end of the daemon waits for the last spans."""
TEXT_CHARS = 512
_HINT = "pip install 'agentsup[otel]'"


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
class SentSpan:
    """A span while it runs; what is set until its end is sent with it."""

    facts: dict[str, Any] = field(default_factory=dict)
    """Attributes; those that are None are left out."""
    error: str = ""
    """The code of an error; empty: it went well."""
    text: str = ""
    """Words of people, of a model or of an error. They are sent only if ``content`` is on."""


class OtelTracer:
    """Makes spans. One per daemon; it sends nothing until ``open``."""

    def __init__(
        self, redact: Callable[[str, int], str] = lambda text, limit: text[:limit]
    ) -> None:
        """``redact`` removes secrets from a text, and cuts it at the limit."""
        self._redact = redact
        self._sending: _Sending | None = None

    @property
    def is_on(self) -> bool:
        """Whether spans are sent."""
        return self._sending is not None

    @property
    def unsent(self) -> int:
        """How many spans the receiver did not take, since the start."""
        return self._sending.exporter.failed if self._sending is not None else 0

    @property
    def sent(self) -> int:
        """How many spans the receiver took, since the start."""
        return self._sending.exporter.sent if self._sending is not None else 0

    async def open(self, target: OtelTarget) -> None:
        """Import the library and start its thread. Raises ``OtelMissing``."""
        try:
            # Making the sender takes as long as the import: it searches for its transports.
            self._sending = await asyncio.to_thread(_opened, target)
        except ImportError as error:
            raise OtelMissing from error

    async def close(self) -> None:
        """Send what waits for at most ``LAST_S``, then end, even if the receiver hangs."""
        sending, self._sending = self._sending, None
        if sending is None:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            sending.provider.shutdown()
            try:
                loop.call_soon_threadsafe(ended.set)
            except RuntimeError:
                return  # the loop has ended; nothing waits

        # A separate thread that nothing joins: the library may be in a post for seconds.
        threading.Thread(target=end, name="otel-end", daemon=True).start()
        if not await is_set_within(ended, LAST_S):
            sending.exporter.stop()

    @contextmanager
    def span(
        self, name: str, traceparent: str, *, span_id: str = "", is_request: bool = False
    ) -> Iterator[SentSpan]:
        """Around some work that ``traceparent`` names the cause of. ``span_id`` (16 hex digits) is
        known to others as the cause of their work; ``is_request``: somebody else does it."""
        sent, sending = SentSpan(), self._sending
        if sending is None or not trace_id(traceparent):
            yield sent
            return
        span = sending.start(name, traceparent, span_id, is_request=is_request)
        try:
            yield sent
        except ExitRequested:
            raise
        except Exception as error:
            sent.error = sent.error or getattr(error, "code", "") or type(error).__name__
            raise
        finally:
            facts = {key: value for key, value in sent.facts.items() if value not in (None, "")}
            if sent.text and sending.target.content:
                facts["agentsup.detail"] = self._redact(sent.text, TEXT_CHARS)
            if sent.error:
                facts["error.type"] = sent.error
                span.set_status(sending.api.Status(sending.api.StatusCode.ERROR, sent.error))
            span.set_attributes(facts)
            span.end()


class _Sending:
    """The library, loaded, and what was made of it."""

    def __init__(
        self, api: Any, provider: Any, ids: Any, exporter: Any, target: OtelTarget
    ) -> None:
        self.api, self.provider, self.exporter, self.target = api, provider, exporter, target
        self._ids = ids
        self._tracer = provider.get_tracer("agentsup")

    def start(self, name: str, traceparent: str, span_id: str, *, is_request: bool) -> Any:
        api, trace, parent = self.api, int(trace_id(traceparent), 16), parent_id(traceparent)
        context = None
        if parent:
            flags = api.TraceFlags(api.TraceFlags.SAMPLED)
            above = api.SpanContext(trace, int(parent, 16), is_remote=True, trace_flags=flags)
            context = api.set_span_in_context(api.NonRecordingSpan(above))
        kind = api.SpanKind.CLIENT if is_request else api.SpanKind.INTERNAL
        self._ids.trace, self._ids.span = trace, int(span_id, 16) if span_id else 0
        try:
            return self._tracer.start_span(name, context=context, kind=kind)
        finally:
            self._ids.span = 0


def _opened(target: OtelTarget) -> _Sending:
    """Import the library, and make what sends to ``target``. Raises ``ImportError``."""
    # It logs each failed post with a stack; the counts have the same, and the daemon logs it once.
    set_level("CRITICAL", "opentelemetry")
    api = importlib.import_module("opentelemetry.trace")
    sdk = importlib.import_module("opentelemetry.sdk.trace")
    export = importlib.import_module("opentelemetry.sdk.trace.export")
    resources = importlib.import_module("opentelemetry.sdk.resources")
    generators = importlib.import_module("opentelemetry.sdk.trace.id_generator")
    otlp = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    client = importlib.import_module("agentsup.kit.outbound.requests_client")
    inner: Any = otlp.OTLPSpanExporter

    class Ids(generators.RandomIdGenerator):  # type: ignore[misc, name-defined]  # a class of the library
        """The ids that messages carry, where there are some."""

        trace = 0
        span = 0

        def generate_trace_id(self) -> int:
            return self.trace or int(super().generate_trace_id())

        def generate_span_id(self) -> int:
            return self.span or int(super().generate_span_id())

    class Exporter(inner):  # type: ignore[misc]  # a class of the library
        """Counts what the receiver takes and what not; runs in the library's thread."""

        sent = 0
        failed = 0
        is_stopped = False

        def export(self, spans: Sequence[Any]) -> Any:
            result = export.SpanExportResult.FAILURE
            if not self.is_stopped:
                result = super().export(spans)
            if result is export.SpanExportResult.FAILURE:
                self.failed += len(spans)
            else:
                self.sent += len(spans)
            return result

        def stop(self) -> None:
            """Drop what waits."""
            self.is_stopped = True
            self.shutdown()

    ids, exporter = (
        Ids(),
        Exporter(
            endpoint=target.url,
            headers=dict(target.headers),
            timeout=POST_TIMEOUT_S,
            session=client.new_session(),
        ),
    )
    provider = sdk.TracerProvider(
        resource=resources.Resource(dict(target.resource)), id_generator=ids, shutdown_on_exit=False
    )
    provider.add_span_processor(
        export.BatchSpanProcessor(
            exporter,
            max_queue_size=QUEUE,
            max_export_batch_size=BATCH,
            schedule_delay_millis=EVERY_MS,
        )
    )
    return _Sending(api, provider, ids, exporter, target)
