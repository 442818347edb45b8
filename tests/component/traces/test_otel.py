"""Spans sent to a receiver: what arrives, and what an endpoint costs that is down, slow or refuses."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from agentsup.model.trace import under
from agentsup.observe.traces import otel
from agentsup.observe.traces.otel import OtelMissing, OtelTarget, OtelTracer
from tests.support.bound import BOUND_S

TRACE = "ab" * 16
TURN = "cd" * 8
ROOT = f"00-{TRACE}-{TRACE[:16]}-01"
CAUSED = under(ROOT, TURN)


@dataclass
class Receiver:
    """A loopback OTLP receiver."""

    status: int = 200
    delay_s: float = 0.0
    spans: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    resources: list[Any] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def take(self, request: web.Request) -> web.Response:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        body = await request.read()
        await asyncio.sleep(self.delay_s)
        if self.status == 200:
            made = ExportTraceServiceRequest.FromString(body)
            for resource in made.resource_spans:
                self.resources.append(resource.resource)
                for scope in resource.scope_spans:
                    self.spans += scope.spans
            self.headers.append({k.lower(): v for k, v in request.headers.items()})
        self.news.set()
        return web.Response(status=self.status)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(BOUND_S):
            while len(self.spans) < count:
                self.news.clear()
                await self.news.wait()


@pytest.fixture
async def receiver(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Receiver]:
    monkeypatch.setattr(otel, "EVERY_MS", 50)
    monkeypatch.setattr(otel, "POST_TIMEOUT_S", 0.5)
    made = Receiver()
    app = web.Application()
    app.router.add_post("/v1/traces", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces"
    yield made
    await runner.cleanup()


async def test_spans_arrive_with_ids_times_and_names(receiver: Receiver) -> None:
    tracer = OtelTracer()
    await tracer.open(
        OtelTarget(receiver.url, {"authorization": "Bearer x"}, {"service.name": "house"})
    )
    with tracer.span("turn ann", ROOT, span_id=TURN) as turn:
        turn.facts = {"agentsup.outcome": "ok", "none": None}
    with tracer.span("model big", CAUSED, is_request=True) as request:
        request.text, request.error = "her words", "engine_failed"
    await receiver.until(2)
    await tracer.close()
    model, turn_span = sorted(receiver.spans, key=lambda one: one.name)
    assert (model.name, turn_span.name) == ("model big", "turn ann")
    assert model.trace_id.hex() == turn_span.trace_id.hex() == TRACE
    assert (turn_span.span_id.hex(), turn_span.parent_span_id) == (TURN, b"")
    assert model.parent_span_id == turn_span.span_id
    assert model.end_time_unix_nano >= model.start_time_unix_nano > 0
    assert (model.kind, model.status.code, model.status.message) == (3, 2, "engine_failed")
    told = {one.key: one.value.string_value for one in turn_span.attributes}
    assert told == {"agentsup.outcome": "ok"}
    assert "her words" not in str(receiver.spans), "no words unless asked for"
    assert receiver.headers[0]["authorization"] == "Bearer x"
    assert receiver.resources[0].attributes[0].value.string_value == "house"
    assert tracer.unsent == 0


async def test_words_are_sent_only_where_that_is_wanted(receiver: Receiver) -> None:
    tracer = OtelTracer(lambda text, limit: text.replace("hush", "[redacted]")[:limit])
    await tracer.open(OtelTarget(receiver.url, content=True))
    with tracer.span("tool exec", CAUSED) as sent:
        sent.text = "her words hush"
    await receiver.until(1)
    await tracer.close()
    assert "her words [redacted]" in str(receiver.spans[0])


@pytest.mark.parametrize("trouble", ["down", "refuses", "hangs"])
async def test_a_receiver_in_trouble_costs_spans_and_no_time(
    receiver: Receiver, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "QUEUE", 64)
    monkeypatch.setattr(otel, "BATCH", 16)
    monkeypatch.setattr(otel, "LAST_S", 0.3)
    url = "http://127.0.0.1:1/v1/traces" if trouble == "down" else receiver.url
    receiver.status, receiver.delay_s = 400, 5.0 if trouble == "hangs" else 0.0
    tracer = OtelTracer()
    await tracer.open(OtelTarget(url))
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for _ in range(200):
        with tracer.span("tool exec", CAUSED):
            pass
    assert loop.time() - began_s < 1.0
    began_s = loop.time()
    await tracer.close()
    assert loop.time() - began_s < 2.0
    assert receiver.spans == []


async def test_spans_of_a_turn_cost_nothing_without_an_endpoint() -> None:
    tracer = OtelTracer()
    with tracer.span("turn ann", ROOT) as sent:
        sent.facts = {"a": 1}
    assert not tracer.is_on


async def test_the_library_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    with pytest.raises(OtelMissing, match=r"pip install 'agentsup\[otel\]'"):
        await OtelTracer().open(OtelTarget("http://127.0.0.1:1/v1/traces"))
