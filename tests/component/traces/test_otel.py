"""Spans sent to a receiver: what arrives, and what an endpoint costs that is down, slow or refuses."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from agentsup.model.trace import SpanKind, SpanState
from agentsup.observe.traces import otel
from agentsup.observe.traces.otel import OtelExport, OtelMissing, OtelTarget
from agentsup.observe.traces.span import Span
from tests.support.bound import BOUND_S

TRACE = "ab" * 16


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


def span(number: int, **more: Any) -> Span:
    given: dict[str, Any] = {
        "span_id": f"{number + 1:016x}",
        "trace_id": TRACE,
        "parent_id": "",
        "kind": SpanKind.TOOL,
        "name": "exec",
        "agent_id": "agt_1",
        "message_id": "msg_1",
        "state": SpanState.OK,
        "started_at": 1_000,
        "ended_at": 1_002,
        "duration_us": 2_500,
    }
    return Span(**{**given, **more})


async def test_what_ended_arrives_with_ids_times_and_names(receiver: Receiver) -> None:
    target = OtelTarget(receiver.url, {"authorization": "Bearer x"}, {"service.name": "house"})
    export = await OtelExport.open(target)
    usage = {"model": "big", "input_tokens": 3, "output_tokens": 4, "stages": {"policy": "allow"}}
    export.put(
        [
            span(0, kind=SpanKind.ENGINE, name="llm", attributes=usage),
            span(
                1,
                parent_id=f"{1:016x}",
                state=SpanState.FAILED,
                code="boom",
                detail="her words",
            ),
            span(2, ended_at=None),
        ]
    )
    await receiver.until(2)
    await export.close()
    engine, tool = sorted(receiver.spans, key=lambda one: one.name)
    assert (engine.name, tool.name) == ("engine llm", "tool exec")
    assert engine.trace_id.hex() == TRACE
    assert tool.parent_span_id == engine.span_id
    assert engine.parent_span_id == b""
    assert tool.start_time_unix_nano == 1_000_000_000
    assert tool.end_time_unix_nano == 1_002_500_000
    assert (tool.status.code, tool.status.message) == (2, "boom"), "no words unless asked for"
    told = {one.key: one.value for one in engine.attributes}
    assert told["gen_ai.usage.input_tokens"].int_value == 3
    assert told["agentsup.stages.policy"].string_value == "allow"
    assert receiver.headers[0]["authorization"] == "Bearer x"
    assert receiver.resources[0].attributes[0].value.string_value == "house"
    assert (export.counts.sent, export.counts.failed, export.counts.dropped) == (2, 0, 0)


async def test_a_request_to_a_model_goes_out_as_one_of_a_client(receiver: Receiver) -> None:
    export = await OtelExport.open(OtelTarget(receiver.url))
    facts = {"model": "big", "provider": "llm at here", "input_tokens": 3, "output_tokens": 4}
    export.put([span(0, kind=SpanKind.MODEL, name="big", attributes=facts)])
    await receiver.until(1)
    await export.close()
    (one,) = receiver.spans
    assert (one.name, one.kind) == ("model big", 3)
    told = {each.key: each.value.string_value for each in one.attributes}
    assert (told["gen_ai.operation.name"], told["gen_ai.request.model"]) == ("chat", "big")
    assert told["agentsup.provider"] == "llm at here"


async def test_words_are_sent_only_where_that_is_wanted(receiver: Receiver) -> None:
    export = await OtelExport.open(OtelTarget(receiver.url, content=True))
    export.put([span(1, state=SpanState.FAILED, code="boom", detail="her words")])
    await receiver.until(1)
    await export.close()
    assert "her words" in str(receiver.spans[0])


@pytest.mark.parametrize("trouble", ["down", "refuses", "hangs"])
async def test_a_receiver_in_trouble_costs_spans_and_no_time(
    receiver: Receiver, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "QUEUE", 64)
    monkeypatch.setattr(otel, "BATCH", 16)
    monkeypatch.setattr(otel, "LAST_S", 0.3)
    url = "http://127.0.0.1:1/v1/traces" if trouble == "down" else receiver.url
    receiver.status, receiver.delay_s = 400, 5.0 if trouble == "hangs" else 0.0
    export = await OtelExport.open(OtelTarget(url))
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for number in range(200):
        export.put([span(number)])
    assert loop.time() - began_s < 0.5
    counts = export.counts
    assert counts.dropped > 0, "what waits is bounded"
    assert counts.handed - counts.sent - counts.failed <= 64
    began_s = loop.time()
    await export.close()
    assert loop.time() - began_s < 2.0
    assert counts.sent == 0


async def test_the_library_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    with pytest.raises(OtelMissing, match=r"pip install 'agentsup\[otel\]'"):
        await OtelExport.open(OtelTarget("http://127.0.0.1:1/v1/traces"))
