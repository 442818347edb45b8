"""Every client of ours against a hostile server, in a process of its own: ``python -m`` it.

    python -m tests.support.hostile_clients CLIENT BASE TROUBLE...

tries the client on troubles of ``hostile_server`` below the address BASE, and prints one JSON object:
what became of each, the growth of memory and the longest time that the loop stood still.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote, urlsplit

from tests.support.bound import BOUND_S
from tests.support.hostile_server import SLOW, TIMED

_CALL_S: Final = 1.0
_ENOUGH_S: Final = 40.0
"""How long our clients are told to wait: for what ends by time alone, and for the rest."""
_MOST_S: Final = BOUND_S
_LOOK_S: Final = 0.005

Ask = Callable[[str, float], Awaitable[Any]]


async def _model(url: str, limit_s: float, **more: str) -> Any:
    from agentsup.engines.llm.engine import LlmEngine
    from agentsup.model.engine import EngineSpec, Segment
    from tests.support.engine_host import MemoryHost

    options = {"base_url": url, "api_key": "k", "request_timeout_s": limit_s, **more}
    engine = LlmEngine(env={})
    try:
        spec = EngineSpec("llm", model="m", options=options)
        session = await engine.open(spec, MemoryHost())
        segment = Segment("msg_1", "ses_1", "hello", "hello", "")
        async with asyncio.timeout(limit_s):
            return [event async for event in session.run(segment)]
    finally:
        await engine.close()


async def _openai(url: str, limit_s: float) -> Any:
    return await _model(url, limit_s)


async def _anthropic(url: str, limit_s: float) -> Any:
    return await _model(url, limit_s, provider="anthropic")


async def _recording(url: str, limit_s: float) -> Any:
    from agentsup.agents.media import Hearing
    from agentsup.agents.media.service import Unreadable
    from agentsup.config.settings_file import VoiceSettings
    from agentsup.engines.process import Fencing
    from agentsup.kit.pool import BoundedPool

    settings = VoiceSettings(hear_url=url, timeout_s=limit_s)
    hearing = Hearing(lambda: settings, lambda: "k", Fencing, {}, BoundedPool("files"))
    try:
        return await hearing.text_of("voice.ogg", b"OggS", Path("/nowhere/w"))
    except Unreadable as told:  # people are not told what a server sent
        raise (told.__context__ or told) from None


async def _model_list(url: str, limit_s: float) -> Any:
    from agentsup.engines.llm.settings import Endpoint
    from agentsup.engines.providers import ProviderClient

    return await ProviderClient(Endpoint("openai", url, "k", limit_s)).models(limit_s=limit_s)


async def _tool_server(url: str, limit_s: float) -> Any:
    from agentsup.agents.mcp import wire

    async with asyncio.timeout(limit_s), wire.over_http("s", url, {}, lambda: None) as link:
        await link.open()
        return await link.list(limit_s)


async def _page(url: str, limit_s: float) -> Any:
    from agentsup.agents.tools.web.fetch import WebRules, web_tool

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    url = url.replace("127.0.0.1", "page.example")
    port = urlsplit(url).port or 80
    rules = WebRules(resolve, lambda _: True, lambda _: False, frozenset((port,)), limit_s)
    context: Any = None
    text = await web_tool(rules).run(context, {"url": url})
    assert isinstance(text, str)
    assert len(text) < 3 * 1024 * 1024
    return "cut" if "[cut at" in text else text


async def _nowhere(piece: bytes) -> None:
    """Where a file goes of which only the trouble counts."""


async def _telegram(url: str, limit_s: float, *, download: bool = False) -> Any:
    from agentsup.channels.telegram import SharedHttp, TelegramClient
    from agentsup.model.secret import Secret

    http = SharedHttp()
    client = TelegramClient(Secret("1:a"), url, http=http)
    try:
        if download:
            async with asyncio.timeout(limit_s):
                return await client.download("photos/x.jpg", _nowhere, 20 * 1024 * 1024)
        return await client.call("getMe", timeout_s=limit_s)
    finally:
        await client.close()
        await http.close()


async def _telegram_file(url: str, limit_s: float) -> Any:
    return await _telegram(url, limit_s, download=True)


async def _matrix(url: str, limit_s: float, *, download: bool = False) -> Any:
    from agentsup.channels.core.sending import HttpPool
    from agentsup.channels.matrix.client import MatrixClient, MatrixSession

    http = HttpPool()
    client = MatrixClient(url, http=http)
    client.use(MatrixSession("@a:b", "D", "token"))
    try:
        async with asyncio.timeout(limit_s):
            if download:
                return await client.download("mxc://b/1", _nowhere, 20 * 1024 * 1024)
            return await client.sync(None, filter_={}, wait_s=0.0, timeout_s=limit_s)
    finally:
        await client.close()
        await http.close()


async def _matrix_file(url: str, limit_s: float) -> Any:
    return await _matrix(url, limit_s, download=True)


async def _traces(url: str, limit_s: float) -> Any:
    from agentsup.observe.traces import otel

    vars(otel).update(EVERY_MS=20, POST_TIMEOUT_S=0.3)
    tracer = otel.OtelTracer()
    await tracer.open(otel.OtelTarget(url))
    with tracer.span("tool exec", f"00-{'2' * 32}-{'1' * 16}-01"):
        pass
    try:
        async with asyncio.timeout(limit_s):
            # Counted in a thread of the library, which tells nobody.
            while not (tracer.unsent or tracer.sent):
                await asyncio.sleep(0.01)
        failed = tracer.unsent
    finally:
        await tracer.close()
    if failed:
        raise ConnectionError("not taken")
    return "sent"


CLIENTS: Final[Mapping[str, Ask]] = MappingProxyType(
    {
        "openai": _openai,
        "model list": _model_list,
        "recording": _recording,
        "anthropic": _anthropic,
        "tool server": _tool_server,
        "page": _page,
        "telegram": _telegram,
        "telegram file": _telegram_file,
        "matrix": _matrix,
        "matrix file": _matrix_file,
        "traces": _traces,
    }
)
DOORS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "agentsup.agents.mcp.exchange": ("tool server",),
        "agentsup.agents.tools.web.client": ("page",),
        "agentsup.channels.core.sending.http": (
            "telegram",
            "telegram file",
            "matrix",
            "matrix file",
        ),
        "agentsup.agents.media.voice": ("recording",),
        "agentsup.engines.llm.client": ("openai", "anthropic"),
        "agentsup.engines.providers.client": ("model list",),
        "agentsup.engines.llm.anthropic_client": ("anthropic",),
        "agentsup.engines.llm.openai_client": ("openai",),
        "agentsup.observe.traces.otel": ("traces",),
        # Asks nobody but the daemon of the person who runs it.
        "agentsup.cli.chat.link": (),
    }
)
"""Which of our modules open a client of ``kit.outbound``, and the clients here that try them."""


class _Lag:
    """The longest time that the loop stood still: what its thread computed between two looks, or a
    tenth of what passed by the clock, by which the other processes of the machine count, too."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def watch(self) -> None:
        while True:
            computed, before = time.thread_time(), time.monotonic()
            await asyncio.sleep(_LOOK_S)
            passed = time.monotonic() - before - _LOOK_S
            self.longest_s = max(self.longest_s, time.thread_time() - computed, passed / 10)


async def _tried(ask: Ask, base: str, trouble: str) -> str:
    limit_s = _CALL_S if trouble in SLOW else _ENOUGH_S
    url = f"{base}/{quote(trouble)}"
    try:
        async with asyncio.timeout(_MOST_S):
            return f"answered: {str(await ask(url, limit_s))[:100]}"
    except BaseException as error:  # noqa: BLE001 - told to whoever judges
        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        return f"{type(first).__name__}: {str(first)[:200]}"


def _peak_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


async def _all(ask: Ask, base: str, troubles: Sequence[str]) -> dict[str, Any]:
    await _tried(ask, base, "redirects")  # whatever has to be loaded is loaded now
    before, lag = _peak_mib(), _Lag()
    watching = asyncio.ensure_future(lag.watch())
    found: dict[str, str] = {}
    took_s: dict[str, float] = {}
    stood_s: dict[str, float] = {}
    for name in troubles:
        if name not in TIMED:
            began, lag.longest_s = time.monotonic(), 0.0
            found[name] = await _tried(ask, base, name)
            took_s[name], stood_s[name] = time.monotonic() - began, lag.longest_s
    timed = [name for name in troubles if name in TIMED]
    ends = await asyncio.gather(*(_tried(ask, base, name) for name in timed))
    found |= dict(zip(timed, ends, strict=True))
    watching.cancel()
    return {
        "found": found,
        "took_s": took_s,
        "stood_s": stood_s,
        "grown_mib": round(_peak_mib() - before, 1),
    }


def main() -> None:
    """Try one client on everything."""
    _, client, base, *troubles = sys.argv
    out = os.dup(1)
    os.dup2(2, 1)  # libraries print
    told = asyncio.run(_all(CLIENTS[client], base, troubles))
    os.write(out, json.dumps(told).encode())
    os._exit(0)  # a thread of a library may wait for its server still


if __name__ == "__main__":
    main()
