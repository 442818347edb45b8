"""The roots that we trust are read once by a process, and never on its event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx2
import pytest

from agentsup.agents.mcp import wire
from agentsup.agents.mcp.failures import ServerUnavailable
from agentsup.channels.core import NotSent
from agentsup.channels.core.sending.http import HttpPool, HttpRequest
from agentsup.engines.llm import LlmEngine
from agentsup.kit.outbound import tls
from agentsup.model.engine import EngineSpec
from tests.support.engine_host import MemoryHost

NOBODY = "127.0.0.1:9"


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[threading.Thread]]:
    """The threads in which roots were read, since this process had none."""
    found: list[threading.Thread] = []

    def noted(real: Callable[..., None]) -> Callable[..., None]:
        def read(self: ssl.SSLContext, *given: Any) -> None:
            found.append(threading.current_thread())
            real(self, *given)

        return read

    for name in ("load_verify_locations", "load_default_certs"):
        monkeypatch.setattr(ssl.SSLContext, name, noted(getattr(ssl.SSLContext, name)))
    tls._read.cache_clear()
    yield found
    tls._read.cache_clear()


async def models(dialect: str) -> None:
    engine = LlmEngine(env={"HTTPS_PROXY": f"http://{NOBODY}"})
    for number in range(3):
        options = {
            "base_url": f"https://host{number}.example",
            "api_key": "k",
            "provider": dialect,
        }
        await engine.open(EngineSpec("llm", model="m", options=options), MemoryHost())
    await engine.close()


async def tool_servers() -> None:
    for _ in range(3):
        with contextlib.suppress(ServerUnavailable, httpx2.HTTPError):
            async with wire.over_http("s", f"http://{NOBODY}", {}, lambda: None):
                pass


async def bots() -> None:
    for _ in range(3):
        pool = HttpPool()
        with pytest.raises(NotSent):
            await pool.request(HttpRequest("GET", f"https://{NOBODY}", "the server", 5))
        await pool.close()


CLIENTS: dict[str, Callable[[], Awaitable[None]]] = {
    "openai": lambda: models("openai"),
    "anthropic": lambda: models("anthropic"),
    "tool servers": tool_servers,
    "bots": bots,
}


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_reads_the_roots_once_and_off_the_loop(
    client: str, readings: list[threading.Thread]
) -> None:
    await CLIENTS[client]()
    assert len(readings) == 1
    assert readings[0] is not threading.main_thread()


async def test_all_clients_share_what_was_read(readings: list[threading.Thread]) -> None:
    async with asyncio.TaskGroup() as group:
        for name, use in CLIENTS.items():

            async def used(use: Callable[[], Awaitable[None]] = use) -> None:
                await use()

            group.create_task(used(), name=f"client:{name}")
    assert len(readings) == 1
