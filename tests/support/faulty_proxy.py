"""A reverse proxy on the loopback with trouble on demand, before any HTTP server.

    async with FaultyProxy(synapse.url) as proxy:
        proxy.fault("lost", path=r"/send/m\\.room\\.message", count=1)
        ... a client of ``proxy.url`` ...
        assert proxy.hits("lost") == 1

What each kind does to a request:
    slow     forwards it after ``seconds``
    late     forwards it at once and answers after ``seconds``
    hang     neither forwards nor answers, until the client goes or the fault is cleared
    status   answers ``status`` with ``body`` (HTML, as gateways do); the server never sees it
    limited  answers 429 with ``retry_after_ms`` as Matrix says it (and Retry-After)
    cut      closes the connection; the server never sees it
    lost     forwards it, the server acts, and the connection is closed without an answer
    half     as ``lost``, but half of the answer is sent
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import aiohttp
from aiohttp import web

KINDS: Final = ("slow", "late", "hang", "status", "limited", "cut", "lost", "half")
_OWN_HEADERS: Final = {"host", "connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(slots=True)
class Fault:
    """One trouble: which requests, how often, what."""

    kind: str
    path: str = ""
    """Regular expression searched in the path with its query; empty fits all."""
    method: str = ""
    count: int = 0
    """How many requests it hits; 0: all until cleared."""
    skip: int = 0
    """Fitting requests that pass before."""
    probability: float = 1.0
    seconds: float = 0.0
    status: int = 502
    body: str = "<html><body><h1>502 Bad Gateway</h1></body></html>"
    retry_after_ms: int = 1_000
    hits: int = 0
    passed: int = 0
    cleared: asyncio.Event = field(default_factory=asyncio.Event)

    def takes(self, method: str, path: str, chance: random.Random) -> bool:
        """Whether it hits this request; counts."""
        if self.count and self.hits >= self.count:
            return False
        if (self.method and self.method != method) or not re.search(self.path, path):
            return False
        self.passed += 1
        if self.passed <= self.skip or chance.random() >= self.probability:
            return False
        self.hits += 1
        return True


class FaultyProxy:
    """Forwards everything to ``target``, except what a fault says."""

    def __init__(self, target: str, *, seed: int = 0) -> None:
        """``seed`` decides for faults with a probability."""
        self.target = target
        self.requests: list[tuple[str, str, str]] = []
        """method, path, and what was done: passed, or the kind of fault."""
        self._chance = random.Random(seed)
        self._faults: list[Fault] = []
        self._hits: Counter[str] = Counter()
        self._runner: web.AppRunner | None = None
        self._http: aiohttp.ClientSession | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Where clients find it; the same after ``down`` and ``up``."""
        return f"http://127.0.0.1:{self._port}"

    # -- trouble -----------------------------------------------------------------------------------

    def fault(
        self,
        kind: str,
        *,
        path: str = "",
        method: str = "",
        count: int = 0,
        skip: int = 0,
        probability: float = 1.0,
        seconds: float = 0.0,
        status: int = 502,
        retry_after_ms: int = 1_000,
    ) -> Fault:
        """Order a fault; the one ordered first that fits a request has it."""
        assert kind in KINDS, f"{kind} is none of {KINDS}"
        made = Fault(
            kind,
            path=path,
            method=method,
            count=count,
            skip=skip,
            probability=probability,
            seconds=seconds,
            status=status,
            retry_after_ms=retry_after_ms,
        )
        self._faults.append(made)
        return made

    def clear(self, fault: Fault | None = None) -> None:
        """Take back one fault or all; whoever hangs in it is let go with a cut."""
        for one in [fault] if fault is not None else list(self._faults):
            one.cleared.set()
            with suppress(ValueError):
                self._faults.remove(one)

    def hits(self, kind: str) -> int:
        """How many requests had this trouble so far."""
        return self._hits[kind]

    # -- life --------------------------------------------------------------------------------------

    async def up(self) -> None:
        """Listen (again)."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def down(self) -> None:
        """Refuse connections, and cut those that are open."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def __aenter__(self) -> Self:
        """Listen."""
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        await self.up()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        self.clear()
        await self.down()
        if self._http is not None:
            await self._http.close()

    # -- a request ---------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path_qs
        fault = next(
            (one for one in self._faults if one.takes(request.method, path, self._chance)), None
        )
        self.requests.append((request.method, path, fault.kind if fault else "passed"))
        if fault is None:
            return await self._forward(request)
        self._hits[fault.kind] += 1
        match fault.kind:
            case "slow":
                await asyncio.sleep(fault.seconds)
                return await self._forward(request)
            case "late":
                answer = await self._forward(request)
                await asyncio.sleep(fault.seconds)
                return answer
            case "hang":
                await fault.cleared.wait()
                return _cut(request)
            case "status":
                return web.Response(status=fault.status, text=fault.body, content_type="text/html")
            case "limited":
                return _limited(fault.retry_after_ms)
            case "cut":
                return _cut(request)
            case "lost":
                await self._forward(request)
                return _cut(request)
            case _:
                return await _half(request, await self._forward(request))

    async def _forward(self, request: web.Request) -> web.Response:
        assert self._http is not None
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _OWN_HEADERS}
        body = await request.read()
        try:
            async with self._http.request(
                request.method,
                f"{self.target}{request.path_qs}",
                headers=headers,
                data=body or None,
                allow_redirects=False,
            ) as answer:
                return web.Response(
                    status=answer.status,
                    body=await answer.read(),
                    headers={
                        k: v for k, v in answer.headers.items() if k.lower() not in _OWN_HEADERS
                    },
                )
        except aiohttp.ClientError:
            return web.Response(status=502, text="the server behind is away")


def _limited(retry_after_ms: int) -> web.Response:
    document = {
        "errcode": "M_LIMIT_EXCEEDED",
        "error": "Too Many Requests",
        "retry_after_ms": retry_after_ms,
    }
    return web.Response(
        status=429,
        text=json.dumps(document),
        content_type="application/json",
        headers={"Retry-After": str(-(-retry_after_ms // 1_000))},
    )


def _cut(request: web.Request) -> web.Response:
    """Close the connection as if the network had failed; nobody gets the response."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=499)


async def _half(request: web.Request, answer: web.Response) -> web.StreamResponse:
    """Headers and half of the body, then nothing."""
    body = answer.body if isinstance(answer.body, bytes) else b""
    sent = web.StreamResponse(status=answer.status, headers={"Content-Length": str(len(body))})
    await sent.prepare(request)
    await sent.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.abort()
    return sent
