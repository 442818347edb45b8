"""Everything that goes out asks the proxy of the environment, and nothing of this machine does."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentsup.kit.outbound import proxy
from agentsup.observe.traces import otel
from tests.support.hostile_clients import CLIENTS

_S = 5.0


@dataclass
class Server:
    """Refuses every request with 502, and notes its first line."""

    port: int = 0
    lines: list[str] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.lines.append(head.decode().splitlines()[0])
            writer.write(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        writer.close()


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    for name in proxy.NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(otel, "EVERY_MS", otel.EVERY_MS)
    monkeypatch.setattr(otel, "POST_TIMEOUT_S", otel.POST_TIMEOUT_S)
    found = Server()
    listening = await asyncio.start_server(found.answer, "127.0.0.1", 0)
    found.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield found


async def asked(client: str, url: str) -> str:
    """What the client says about the answer."""
    try:
        async with asyncio.timeout(2 * _S):
            return str(await CLIENTS[client](url, _S))
    except Exception as error:  # noqa: BLE001 - all of them fail, each in its own way
        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        return str(first)


@pytest.mark.leaks("threads", reason="libraries keep threads that look names up")
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_asks_the_proxy(
    client: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.port}")
    await asked(client, "http://far.example:8099/way")
    assert server.lines, "the proxy was not asked"
    name = "page.example" if "127.0.0.1" in server.lines[0] else "far.example:8099"
    assert f"http://{name}" in server.lines[0]


@pytest.mark.leaks("threads", reason="libraries keep threads that look names up")
@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "page"])
async def test_a_client_asks_this_machine_directly(
    client: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    await asked(client, f"http://127.0.0.1:{server.port}/way")
    assert server.lines, "the server was not asked"
    assert "http://" not in server.lines[0]


@pytest.mark.leaks("threads", reason="libraries keep threads that look names up")
@pytest.mark.parametrize("client", ["openai", "model list", "tool server", "page", "telegram"])
async def test_a_proxy_that_speaks_socks_is_told_in_words(
    client: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("all_proxy", "socks5://me:secret@127.0.0.1:1")
    said = await asked(client, "http://far.example:8099/way")
    assert "ALL_PROXY names a proxy that speaks socks5" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    "url, more, expected",
    [
        ("https://far.example/x", {}, "http://p:1"),
        ("http://far.example/x", {}, None),
        ("http://far.example/x", {"ALL_PROXY": "q:2"}, "http://q:2"),
        ("wss://far.example/x", {}, "http://p:1"),
        ("https://localhost/x", {}, None),
        ("https://LOCALHOST./x", {}, None),
        ("https://a.localhost:9/x", {}, None),
        ("https://127.8.9.1/x", {}, None),
        ("https://[::1]:8/x", {}, None),
        ("https://far.example/x", {"NO_PROXY": "other, .example"}, None),
        ("https://far.example/x", {"NO_PROXY": "*.far.example"}, None),
        ("https://far.example/x", {"NO_PROXY": "ar.example"}, "http://p:1"),
        ("https://far.example/x", {"NO_PROXY": "*"}, None),
        ("https://far.example:9/x", {"NO_PROXY": "far.example:9"}, None),
        ("https://far.example:9/x", {"NO_PROXY": "far.example:8"}, "http://p:1"),
        ("https://10.1.2.3/x", {"no_proxy": "10.0.0.0/8"}, None),
        ("https://11.1.2.3/x", {"no_proxy": "10.0.0.0/8"}, "http://p:1"),
    ],
)
def test_the_rule(url: str, more: dict[str, str], expected: str | None) -> None:
    assert proxy.proxy_of(url, {"https_proxy": "http://p:1", **more}) == expected


def test_the_file_environment_counts_where_the_process_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in proxy.NAMES:
        monkeypatch.delenv(name, raising=False)
    try:
        proxy.use({"HTTPS_PROXY": "http://home:1", "OTHER": "x"})
        assert proxy.proxy_of("https://far.example") == "http://home:1"
        monkeypatch.setenv("https_proxy", "http://process:1")
        assert proxy.proxy_of("https://far.example") == "http://process:1"
    finally:
        proxy.use({})


@pytest.mark.parametrize("listed", ["", "intra.example"])
def test_a_program_gets_the_proxies_but_finds_the_daemon_directly(listed: str) -> None:
    from agentsup.kit.childenv import child_env

    source: dict[str, Any] = {"HTTPS_PROXY": "http://p:1", "SECRET": "s"}
    given = child_env((), source=source | ({"NO_PROXY": listed} if listed else {}))
    assert given["HTTPS_PROXY"] == "http://p:1"
    assert given["NO_PROXY"] == given["no_proxy"]
    assert given["NO_PROXY"].split(",") == [
        *([listed] if listed else []),
        "localhost",
        "127.0.0.1",
        "::1",
    ]
    assert child_env((), source={"PATH": os.defpath}) == {}
