"""httpx's client, for the libraries that use it: it counts the bytes and the time of each answer.

The libraries ask servers that the operator has configured, and unpack and parse answers in their
own ways. So there is one limit of bytes as they arrive, besides the times.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping

import httpx2

from agentsup.kit.outbound.limits import ENCODING, AnswerLimits, LimitExceeded, check_size
from agentsup.kit.outbound.proxy import proxy_of

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
        super().__init__(
            headers={**(headers or {}), "Accept-Encoding": ENCODING},
            timeout=httpx2.Timeout(limits.idle_s, connect=limits.connect_s),
            transport=_Transport(limits, tls),
            trust_env=False,
            follow_redirects=follow_redirects,
            max_redirects=limits.redirects,
        )


class _Transport(httpx2.AsyncBaseTransport):
    """Connections to servers, and to the proxies of those that have one."""

    def __init__(self, limits: AnswerLimits, tls: ssl.SSLContext) -> None:
        self._limits = limits
        self._tls = tls
        self._open: dict[str | None, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request. Raises ``ProxyUnusable``, and what httpx raises."""
        proxy = proxy_of(str(request.url))
        if proxy not in self._open:
            self._open[proxy] = httpx2.AsyncHTTPTransport(
                verify=self._tls, limits=_CONNECTIONS, proxy=proxy, trust_env=False
            )
        limit_s = self._limits.headers_s
        try:
            async with asyncio.timeout(limit_s):
                response = await self._open[proxy].handle_async_request(request)
        except TimeoutError:
            raise httpx2.ReadTimeout(f"no answer within {limit_s:g} s", request=request) from None
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Body(response.stream, self._limits, request)
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        for each in self._open.values():
            await each.aclose()


class _Body(httpx2.AsyncByteStream):
    """A body that is counted as it is read."""

    def __init__(
        self, inner: httpx2.AsyncByteStream, limits: AnswerLimits, request: httpx2.Request
    ) -> None:
        self._inner = inner
        self._limits = limits
        self._request = request
        total_s = limits.total_s
        now = asyncio.get_running_loop().time()
        self._ends_at = None if total_s is None else now + total_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        incoming, size = aiter(self._inner), 0
        try:
            while True:
                async with asyncio.timeout_at(self._ends_at):
                    data = await anext(incoming, None)
                if data is None:
                    return
                size += len(data)
                check_size(size, self._limits)
                yield data
        except LimitExceeded as error:
            raise HttpxAnswerRefused(error, self._request) from None
        except TimeoutError:
            raise httpx2.ReadTimeout(
                f"the answer took over {self._limits.total_s:g} s", request=self._request
            ) from None

    async def aclose(self) -> None:
        """Close the connection's stream."""
        await self._inner.aclose()
