"""What is taken of an answer: steps of a compressed body, whole events, and JSON not yet parsed."""

from __future__ import annotations

import asyncio
import json
import random
import zlib
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.kit.json_size import values_in
from agentsup.kit.outbound.decoding import Decoder, EventCutter
from agentsup.kit.outbound.httpx_client import BoundedClient
from agentsup.kit.outbound.limits import AnswerLimits, AnswerMeter, LimitExceeded, exceeded
from agentsup.kit.outbound.tls import context

LIMITS = AnswerLimits(event_bytes=1000, values=100)
BARE, GZIP, ZLIB = -zlib.MAX_WBITS, zlib.MAX_WBITS | 16, zlib.MAX_WBITS
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(',[{"\\ab', max_size=20),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(',[{"\\a', max_size=5), inner),
)


def packed(text: bytes, wbits: int) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(text) + packer.flush()


def count(value: Any) -> int:
    """Commas and brackets that open, as they stand outside of strings."""
    if isinstance(value, dict):
        return 1 + max(0, len(value) - 1) + sum(map(count, value.values()))
    if isinstance(value, list):
        return 1 + max(0, len(value) - 1) + sum(map(count, value))
    return 0


@given(JSON, st.booleans())
def test_signs_are_counted_outside_of_strings_only(value: Any, is_ascii: bool) -> None:
    text, values = json.dumps(value, ensure_ascii=is_ascii).encode(), count(value)
    assert values_in(text, values) <= values
    assert values == 0 or values_in(text, values - 1) > values - 1


def test_a_long_string_is_no_crowd_of_values_even_where_steps_cut_it() -> None:
    text = json.dumps({"a": 'x,[{"\\' * 300_000}).encode()
    assert values_in(text, 50) == 1
    assert values_in(b'"' + b"\\\\" * 1_000_000 + b'",' + b"[],[]," * 50, 50) > 50


FORMS = [("gzip", GZIP), ("deflate", ZLIB), ("deflate", BARE)]


@pytest.mark.parametrize("encoding, wbits", FORMS)
@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
def test_a_compressed_body_is_unpacked_in_steps(encoding: str, wbits: int, size: int) -> None:
    text = bytes(range(256)) * 2000
    assert unpacked(packed(text, wbits), encoding, size) == text


def unpacked(raw: bytes, encoding: str, size: int) -> bytes:
    """Whole, though it comes ``size`` bytes at a time."""
    decoder, found = Decoder(encoding), bytearray()
    for start in range(0, len(raw), size):
        for step in decoder.decode(raw[start : start + size]):
            assert len(step) <= 64 * 1024
            found += step
    decoder.end()
    return bytes(found)


@pytest.mark.parametrize("encoding, wbits", FORMS)
def test_nothing_is_lost_at_the_border_of_a_step(encoding: str, wbits: int) -> None:
    for size in (*range(65_530, 65_545), *range(131_065, 131_080)):
        for text in (b"a" * size, random.Random(size).randbytes(size)):
            raw = packed(text, wbits)
            for at_once in (len(raw), max(1, len(raw) - 3)):
                assert unpacked(raw, encoding, at_once) == text


@pytest.mark.parametrize("encoding, wbits", FORMS)
def test_a_body_that_ends_too_early_is_refused(encoding: str, wbits: int) -> None:
    raw = packed(b"a text that is whole" * 9, wbits)
    for size in (1, len(raw) // 2, len(raw) - 1):
        with pytest.raises(LimitExceeded, match="too early"):
            unpacked(raw[:size], encoding, 7)
    assert unpacked(b"", encoding, 1) == b"", "an answer without a body has no compressed one"


@pytest.mark.parametrize("size", [1, 5, 1 << 20])
def test_a_body_of_several_is_unpacked_to_its_end(size: int) -> None:
    raw = packed(b"one ", GZIP) + packed(b"two", GZIP)
    assert unpacked(raw + b"\0" * 100, "gzip", size) == b"one two"
    with pytest.raises(LimitExceeded, match="too early"):
        unpacked(raw[:-1], "gzip", size)
    with pytest.raises(LimitExceeded, match="damaged"):
        unpacked(raw + b"no gzip", "gzip", size)
    with pytest.raises(LimitExceeded, match="over 1000"):
        unpacked(packed(b"", GZIP) * 1001, "gzip", size)


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "gzip, gzip", "x" * 1000])
def test_another_compression_is_refused_by_name(encoding: str) -> None:
    with pytest.raises(LimitExceeded, match="was not asked for") as refused:
        Decoder(encoding)
    assert refused.value.limit == "encoding"
    assert len(str(refused.value)) < 200


def test_damage_is_told_as_damage() -> None:
    with pytest.raises(LimitExceeded, match="damaged"):
        list(Decoder("gzip").decode(b"no gzip at all"))


@given(
    st.lists(st.sampled_from(["data: a", "event: b", ": c", "id: 1"]), min_size=1, max_size=5),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(1, 9),
)
def test_events_are_whole_however_they_come(lines: list[str], end: str, size: int) -> None:
    event = (end.join(lines) + end + end).encode()
    stream, cutter = event * 3 + b"data: rest", EventCutter(LIMITS)
    found = [
        each
        for start in range(0, len(stream), size)
        for each in cutter.cut(stream[start : start + size])
    ]
    assert [each.split() for each in found] == [event.split()] * 3
    assert b"".join([*found, cutter.rest()]).split() == stream.split()


@pytest.mark.parametrize(
    "piece, limit",
    [(b"data: " + b"a" * 400, "event_bytes"), (b"data: [" + b"{}," * 200 + b"1]\n\n", "values")],
)
def test_an_event_is_bounded_in_bytes_and_values(piece: bytes, limit: str) -> None:
    cutter = EventCutter(LIMITS)
    with pytest.raises(LimitExceeded) as refused:
        [list(cutter.cut(piece)) for _ in range(10)]
    assert refused.value.limit == limit


def test_bytes_and_pieces_of_an_answer_are_counted() -> None:
    for limits, limit in (
        (replace(LIMITS, body_bytes=10), "bytes"),
        (replace(LIMITS, pieces=3), "pieces"),
    ):
        meter = AnswerMeter(limits)
        with pytest.raises(LimitExceeded) as refused:
            [meter.add(3) for _ in range(5)]  # type: ignore[func-returns-value]
        assert refused.value.limit == limit


def test_a_limit_is_found_behind_the_errors_of_a_library() -> None:
    inner = LimitExceeded("bytes", "too much")
    outer = RuntimeError("a library's")
    outer.__cause__ = inner
    assert exceeded(outer) is inner
    assert exceeded(ExceptionGroup("several", [ValueError(), inner])) is inner
    assert exceeded(ValueError()) is None
    assert exceeded(None) is None


class Answers(httpx2.AsyncBaseTransport):
    """Answers at once, and counts."""

    def __init__(self) -> None:
        self.asked = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        return httpx2.Response(200, content=b"{}")


@pytest.mark.virtual
@pytest.mark.parametrize("rate, least_s", [(None, 0.0), (10, 4.0)])
async def test_a_server_that_has_itself_asked_again_is_asked_at_a_pace(
    rate: int | None, least_s: float
) -> None:
    transport = Answers()
    limits = replace(LIMITS, requests_a_second=rate)
    async with BoundedClient(limits, context()) as client:
        client._transport = transport
        began = asyncio.get_running_loop().time()
        for _ in range(50):
            await client.get("http://peer.example/")
        took_s = asyncio.get_running_loop().time() - began
    assert transport.asked == 50
    assert least_s <= took_s < least_s + 1.2
