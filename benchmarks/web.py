"""The web page and the OpenAI front: what agentsup adds between a person's text and the answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import aiohttp
from aiohttp import web

from benchmarks.daemon_fixture import write_home
from benchmarks.figure import BenchContext, Figure, median, percentile
from benchmarks.peers import RULES, scripted
from benchmarks.process import Process
from benchmarks.timing import each_ms

TRIPS = 300


async def measure(boot_context: BenchContext) -> list[Figure]:
    """One daemon with an engine that costs nothing, one browser, one API client; and a bare echo."""
    count = boot_context.size(TRIPS, 3)
    async with boot_context.fresh("web") as folder:
        home = folder / "home"
        write_home(home, scripted(1), RULES)
        process = Process(home)
        try:
            await process.ready()
            page_ms = await _page(process, count)
            api_ms = await _completions(process, count)
        finally:
            await process.end()
    async with _echo() as url, aiohttp.ClientSession() as http, http.ws_connect(url) as socket:

        async def echo(number: int) -> None:
            await socket.send_str(str(number))
            await socket.receive()

        bare_ms = await each_ms(count, echo)
    raw = median(bare_ms)
    raw_is = "a bare WebSocket echo"
    return [
        Figure(
            "web page: message in, answer out, added",
            median(page_ms) - raw,
            "ms",
            15,
            raw=raw,
            raw_is=raw_is,
            note=f"whole trip p50 {median(page_ms):.1f}, p99 {percentile(page_ms, 0.99):.1f} ms",
        ),
        Figure(
            "chat completion, p50",
            median(api_ms),
            "ms",
            raw=raw,
            raw_is=raw_is,
            note=f"p99 {percentile(api_ms, 0.99):.1f} ms",
        ),
    ]


async def _page(process: Process, count: int) -> list[float]:
    """As a browser does: sign in by a link, then one socket."""
    url = f"http://127.0.0.1:{process.port}"
    headers = {"Origin": url}
    async with aiohttp.ClientSession() as http:
        bearer = {"Authorization": f"Bearer {process.token}"}
        async with http.post(f"{url}/web/links", headers=bearer) as response:
            code = (await response.json())["code"]
        async with http.post(f"{url}/web/login", json={"code": code}, headers=headers) as response:
            response.raise_for_status()
            secret = (await response.json())["secret"]
        offered = ("agentsup", f"bearer.{secret}")
        async with http.ws_connect(f"{url}/ws", headers=headers, protocols=offered) as socket:
            await socket.send_json(
                {"type": "hello", "agent": "agent-0", "channel": "web", "conversation": "local"}
            )

            async def trip(number: int) -> None:
                await socket.send_json({"type": "say", "id": str(number), "text": "hello"})
                while not _is_answer(await socket.receive()):
                    pass

            await trip(-1)
            return await each_ms(count, trip)


def _is_answer(message: aiohttp.WSMessage) -> bool:
    if message.type is not aiohttp.WSMsgType.TEXT:
        raise RuntimeError(f"the socket said {message}")
    frame: dict[str, Any] = json.loads(message.data)
    if frame["type"] == "error":
        raise RuntimeError(f"refused: {frame}")
    return bool(frame["type"] == "event" and frame["event"]["type"] == "chat.out")


async def _completions(process: Process, count: int) -> list[float]:
    url = f"http://127.0.0.1:{process.port}/v1/chat/completions"
    headers = {"Authorization": f"Bearer {process.token}"}
    took: list[float] = []
    async with aiohttp.ClientSession(headers=headers) as http:
        for number in range(count):
            body = {"model": "agent-0", "messages": [{"role": "user", "content": str(number)}]}
            began_s = perf_counter()
            async with http.post(url, json=body) as response:
                response.raise_for_status()
                await response.read()
            took.append((perf_counter() - began_s) * 1_000)
    return took


@asynccontextmanager
async def _echo() -> AsyncIterator[str]:
    """A WebSocket that says everything back."""

    async def serve(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    app = web.Application()
    app.router.add_get("/", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()
