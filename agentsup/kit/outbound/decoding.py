"""Decompression in bounded steps, and event streams cut into whole events."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from functools import partial
from typing import Final

from agentsup.kit.compute import compute
from agentsup.kit.json_size import values_in
from agentsup.kit.outbound.limits import AnswerLimits, LimitExceeded

ENCODING: Final = "identity"
"""The requested encoding. Compression saves little here, and costs time to unpack."""
_STEP_BYTES: Final = 64 * 1024
_HEAD_BYTES: Final = 2
_MEMBERS: Final = 1000
"""A gzip body may be several bodies, one behind the other."""
_GZIP: Final = zlib.MAX_WBITS | 16
_IN_THREAD_BYTES: Final = 256 * 1024
_END_OF_EVENT: Final = re.compile(rb"(?>\r\n|\r|\n){2}")


class Decoder:
    """Unpacks a body that the server compresses anyway, 64 KiB at a time."""

    def __init__(self, encoding: str) -> None:
        """``encoding`` is the answer's Content-Encoding. Raises ``LimitExceeded`` for another than
        gzip and deflate, and for more than one."""
        names = [name for each in encoding.split(",") if (name := each.strip().lower())]
        names = [name for name in names if name != ENCODING]
        self._inflate: zlib._Decompress | None = None
        self._is_deflate = False
        """Whether the form of deflate (zlib or bare) is not yet known."""
        self._is_gzip = False
        self._head = b""
        self._members = 0
        self._has_begun = False
        if not names:
            return
        if len(names) > 1 or names[0] not in ("gzip", "x-gzip", "deflate"):
            raise LimitExceeded(
                "encoding",
                f"the answer is compressed by {encoding[:60]!r}, which was not asked for",
            )
        self._inflate = zlib.decompressobj(_GZIP)
        self._is_deflate = names[0] == "deflate"
        self._is_gzip = not self._is_deflate

    def decode(self, data: bytes) -> Iterator[bytes]:
        """The unpacked content of ``data``, in steps. Raises ``LimitExceeded`` if it is damaged."""
        if self._inflate is None:
            yield data
            return
        self._has_begun |= bool(data)
        if self._is_deflate:
            data = self._head = self._head + data
            if len(data) < _HEAD_BYTES:
                return
            self._is_deflate = False
            # Some servers mean by "deflate" the bare form, without zlib's header.
            is_bare = data[0] & 0x0F != zlib.DEFLATED or int.from_bytes(data[:2]) % 31
            self._inflate = zlib.decompressobj(-zlib.MAX_WBITS if is_bare else zlib.MAX_WBITS)
        is_full = False
        while data or is_full:
            if self._inflate.eof and not (data := self._next_member(data)):
                return
            step = self._step(data)
            # A full step may have left output behind that needs no further input.
            is_full = len(step) == _STEP_BYTES and not self._inflate.eof
            data = self._inflate.unused_data or self._inflate.unconsumed_tail
            if step:
                yield step

    def end(self) -> None:
        """Note the end of the body. Raises ``LimitExceeded`` if its compressed content is
        incomplete."""
        if self._inflate is not None and self._has_begun and not self._inflate.eof:
            raise LimitExceeded("encoding", "the answer's compressed body ends too early")

    def _next_member(self, data: bytes) -> bytes:
        """The data to unpack behind an end: none, unless another gzip body begins there."""
        data = data.lstrip(b"\0") if self._is_gzip else b""
        if data:
            self._members += 1
            if self._members >= _MEMBERS:
                raise LimitExceeded("encoding", f"the answer is over {_MEMBERS} compressed bodies")
            self._inflate = zlib.decompressobj(_GZIP)
        return data

    def _step(self, data: bytes) -> bytes:
        assert self._inflate is not None
        try:
            return self._inflate.decompress(data, _STEP_BYTES)
        except zlib.error:
            raise LimitExceeded("encoding", "the answer's compression is damaged") from None


class EventCutter:
    """Cuts a stream of events (``text/event-stream``) into whole events of bounded size."""

    def __init__(self, limits: AnswerLimits) -> None:
        self._limits = limits
        self._rest = bytearray()

    def cut(self, data: bytes) -> Iterator[bytes]:
        """The events that end in ``data``. Raises ``LimitExceeded`` for one that is too large."""
        searched = max(0, len(self._rest) - 3)
        self._rest += data
        begin = 0
        for found in _END_OF_EVENT.finditer(self._rest, searched):
            event = bytes(self._rest[begin : found.end()])
            begin = found.end()
            self._check(len(event))
            if event.strip(b"\r\n"):
                check_values(event, self._limits)
                yield event
        del self._rest[:begin]
        self._check(len(self._rest))

    def rest(self) -> bytes:
        """The data after the last whole event, at the end of the stream."""
        check_values(bytes(self._rest), self._limits)
        return bytes(self._rest)

    def _check(self, size: int) -> None:
        limit = self._limits.event_bytes
        if size > limit:
            raise LimitExceeded("event_bytes", f"an event is over the limit of {limit} bytes")


def check_values(data: bytes, limits: AnswerLimits) -> None:
    """Raise ``LimitExceeded`` if JSON in ``data`` has more values than may be read at once."""
    if limits.values is not None and values_in(data, limits.values) > limits.values:
        raise LimitExceeded(
            "values", f"the answer has over {limits.values} JSON values at once, the limit"
        )


async def check_body(body: bytes, limits: AnswerLimits) -> None:
    """As ``check_values`` for a whole answer; a long one is checked in a thread."""
    if len(body) > _IN_THREAD_BYTES:
        await compute(partial(check_values, body, limits), key="answers")
    else:
        check_values(body, limits)
