"""httpx's client, for the libraries that use it: one client that bounds every answer.

The libraries read an answer in their own ways. They get plain and counted data from here: a stream
comes in whole events, and JSON is checked before it is parsed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2

from agentsup.kit.clock import SystemClock
from agentsup.kit.fairness import Turns
from agentsup.kit.outbound.decoding import ENCODING, Decoder, EventCutter, check_body
from agentsup.kit.outbound.limits import AnswerLimits, AnswerMeter, LimitExceeded
from agentsup.kit.outbound.proxy import proxy_of

_EVENTS = "text/event-stream"
_AHEAD_S = 0.05
_CLOCK = SystemClock()
_CONNECTIONS = httpx2.Limits(max_connections=1000, max_keepalive_connections=20)


class HttpxAnswerRefused(LimitExceeded, httpx2.ReadError):
    """An answer over a limit, as an error of the connection, which httpx's users expect."""

    def __init__(self, why: LimitExceeded, request: httpx2.Request) -> None:
        httpx2.ReadError.__init__(self, why.text, request=request)
        self.limit, self.text = why.limit, why.text


class BoundedClient(httpx2.AsyncClient):
    """A client with limits on every answer. Its time limits apply in addition to those that a
    library sets for a single request."""

    def __init__(
        self,
        limits: AnswerLimits,
        tls: ssl.SSLContext,
        *,
        headers: Mapping[str, str] | None = None,
        follow_redirects: bool = False,
    ) -> None:
        """``tls`` comes from ``outbound.tls``: the library would read all roots for each client, on
        the loop."""
        self._bounds = limits
        self._asked_until = 0.0
        super().__init__(
            headers={**(headers or {}), "Accept-Encoding": ENCODING},
            timeout=httpx2.Timeout(limits.idle_s, connect=limits.connect_s),
            event_hooks={"response": [self._bound]},
            transport=_ByProxy(tls),
            trust_env=False,
            follow_redirects=follow_redirects,
            max_redirects=limits.redirects,
        )

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send the request and read the headers, and without ``stream`` also the body, within one
        time limit."""
        await self._pace()
        is_stream = options.get("stream", False)
        limit_s = self._bounds.headers_s if is_stream else self._bounds.total_s
        try:
            async with asyncio.timeout(limit_s):
                return await super().send(request, **options)
        except TimeoutError:
            raise httpx2.ReadTimeout(f"no answer within {limit_s:g} s", request=request) from None

    async def _pace(self) -> None:
        rate = self._bounds.requests_a_second
        if rate is None:
            return
        now = asyncio.get_running_loop().time()
        # Requests not made in the last second may be made at once.
        self._asked_until = max(self._asked_until, now - 1.0) + 1 / rate
        if self._asked_until > now:
            await _CLOCK.sleep(self._asked_until - now)

    async def _bound(self, response: httpx2.Response) -> None:
        """Replace the body's reader by ours (a hook for every response, also for redirects)."""
        sizes = sum(len(name) + len(value) for name, value in response.headers.raw)
        encoding = response.headers.get("content-encoding", "")
        request, limits = response.request, self._bounds
        try:
            if sizes > limits.header_bytes:
                raise LimitExceeded(
                    "header_bytes", f"the answer's headers are over {limits.header_bytes} bytes"
                )
            decoder = Decoder(encoding)
        except LimitExceeded as error:
            await response.aclose()
            raise HttpxAnswerRefused(error, request) from None
        for name in ("content-encoding", "content-length"):
            response.headers.pop(name, None)
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        response.stream = _Body(stream, kind, decoder, limits, request)


class _ByProxy(httpx2.AsyncBaseTransport):
    """Connections to servers, and to the proxies of those that have one."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._open: dict[str | None, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request. Raises ``ProxyUnusable``."""
        proxy = proxy_of(str(request.url))
        if proxy not in self._open:
            self._open[proxy] = httpx2.AsyncHTTPTransport(
                verify=self._tls, limits=_CONNECTIONS, proxy=proxy, trust_env=False
            )
        return await self._open[proxy].handle_async_request(request)

    async def aclose(self) -> None:
        """Close all connections."""
        for each in self._open.values():
            await each.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(
        self,
        inner: httpx2.AsyncByteStream,
        kind: str,
        decoder: Decoder,
        limits: AnswerLimits,
        request: httpx2.Request,
    ) -> None:
        self._inner = inner
        self._kind = kind
        self._decoder = decoder
        self._limits = limits
        self._request = request
        total_s = limits.total_s
        now = asyncio.get_running_loop().time()
        self._ends_at = None if total_s is None else now + total_s
        self._turns = Turns()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            read = self._events() if self._kind == _EVENTS else self._plain()
            async for piece in read:
                yield piece
        except LimitExceeded as error:
            raise HttpxAnswerRefused(error, self._request) from None
        except TimeoutError:
            raise httpx2.ReadTimeout(
                f"the answer took over {self._limits.total_s:g} s", request=self._request
            ) from None

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _decoded(self, meter: AnswerMeter) -> AsyncIterator[bytes]:
        incoming = aiter(self._inner)
        while True:
            async with asyncio.timeout_at(self._ends_at):
                data = await anext(incoming, None)
            if data is None:
                self._decoder.end()
                return
            for piece in self._decoder.decode(data):
                meter.add(len(piece))
                yield piece
            await self._turns.rest()

    async def _plain(self) -> AsyncIterator[bytes]:
        body = bytearray()
        async for piece in self._decoded(AnswerMeter(self._limits)):
            body += piece
        await check_body(bytes(body), self._limits)
        yield bytes(body)

    async def _events(self) -> AsyncIterator[bytes]:
        loop, cutter = asyncio.get_running_loop(), EventCutter(self._limits)
        cost_s, busy_until = 1 / (self._limits.events_a_second or 1_000_000), loop.time()
        async for piece in self._decoded(AnswerMeter(self._limits, is_stream=True)):
            for event in cutter.cut(piece):
                yield event
                busy_until = max(busy_until, loop.time()) + cost_s
                ahead_s = busy_until - loop.time()
                await self._turns.rest(ahead_s if ahead_s > _AHEAD_S else 0.0)
        if rest := cutter.rest():
            yield rest
