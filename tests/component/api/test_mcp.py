"""Our tools over MCP: the protocol, by hand and by the official client; tokens; the end of a turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from agentsup.model.errors import StoreUnavailable
from agentsup.model.tool import Effect, Safety, Tool, ToolContext, ToolResult
from tests.component.api.conftest import ApiFixture

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


async def _unused(context: ToolContext, args: dict[str, Any]) -> str:
    raise AssertionError("the host is asked, not the tool")


@dataclass
class Host:
    """A turn's end of the door."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: list[str] = field(default_factory=list)

    def served(self) -> tuple[Tool, ...]:
        return (
            Tool("echo", "Say it back.", SCHEMA, _unused, Effect.READ, Safety.SAFE),
            Tool("hold", "Take for ever.", SCHEMA, _unused),
        )

    async def serve(self, name: str, args: dict[str, Any]) -> ToolResult:
        self.calls.append((name, args))
        if name == "hold":
            self.began.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.append(name)
        if name == "broken":
            raise StoreUnavailable("the store can't write")
        return ToolResult(name == "echo", f"{name} {args.get('text', '')}".strip())


@dataclass
class Fixture:
    """A running turn's token and what it leads to."""

    rig: ApiFixture
    token: str
    host: Host

    async def post(self, method: str, params: Any = None, **more: Any) -> tuple[int, Any]:
        message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params, **more}
        status, document, _ = await self.rig.call("POST", "/mcp", message, token=self.token)
        return status, document


@asynccontextmanager
async def a_turn(rig: ApiFixture) -> AsyncIterator[Fixture]:
    host, token = Host(), rig.tokens.issue_run("agt_worker", "worker", "msg_1")
    try:
        async with rig.served.serving(token, host.served, host.serve):
            yield Fixture(rig, token, host)
    finally:
        rig.tokens.revoke(token)


@asynccontextmanager
async def official(url: str, token: str = "", mode: str = "auto") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("is_in_address", [False, True], ids=["header", "address"])
async def test_the_official_client_lists_and_calls(
    rig: ApiFixture, mode: str, is_in_address: bool
) -> None:
    async with a_turn(rig) as door:
        place = f"{rig.url}/mcp/{door.token}" if is_in_address else f"{rig.url}/mcp"
        async with official(place, "" if is_in_address else door.token, mode) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == {"echo", "hold"}
            assert tools["echo"].input_schema == SCHEMA
            annotations = tools["echo"].annotations
            assert annotations is not None
            assert annotations.read_only_hint
            result = await client.call_tool("echo", {"text": "a"})
            assert [part.text for part in result.content] == ["echo a"]  # type: ignore[union-attr]
            assert not result.is_error
            assert (await client.call_tool("nothing", {})).is_error
    assert door.host.calls == [("echo", {"text": "a"}), ("nothing", {})]


async def test_versions_are_negotiated(rig: ApiFixture) -> None:
    async with a_turn(rig) as door:
        for asked, told in (("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")):
            _, document = await door.post("initialize", {"protocolVersion": asked})
            assert document["result"]["protocolVersion"] == told
        headers = {"MCP-Protocol-Version": "1999-01-01"}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        got = await rig.call("POST", "/mcp", ping, token=door.token, headers=headers)
        assert got[0] == 400
        headers = {"MCP-Protocol-Version": "2025-06-18"}
        got = await rig.call("POST", "/mcp", ping, token=door.token, headers=headers)
        assert got[:2] == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})


@pytest.mark.parametrize(
    "method, params, code",
    [
        ("resources/list", None, -32601),
        ("tools/list", {"cursor": "x"}, -32602),
        ("tools/call", None, -32602),
        ("tools/call", {"name": 5}, -32602),
        ("tools/call", {"name": "echo", "arguments": ["a"]}, -32602),
    ],
)
async def test_what_is_wrong_is_told_by_the_protocol(
    rig: ApiFixture, method: str, params: Any, code: int
) -> None:
    async with a_turn(rig) as door:
        status, document = await door.post(method, params)
        assert (status, document["error"]["code"], document["id"]) == (200, code, 7)
        assert door.host.calls == []


@pytest.mark.parametrize(
    "body", ["[]", "{", '{"jsonrpc":"2.0","id":1.5,"method":"ping"}', '{"id":1,"method":"ping"}']
)
async def test_what_is_no_message_is_refused(rig: ApiFixture, body: str) -> None:
    async with a_turn(rig) as door:
        headers = {"Content-Type": "application/json"}
        got = await rig.call("POST", "/mcp", data=body, token=door.token, headers=headers)
        assert got[0] == 400


async def test_a_notification_is_taken_and_not_answered(rig: ApiFixture) -> None:
    async with a_turn(rig) as door:
        message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        got = await rig.call("POST", "/mcp", message, token=door.token)
        assert got[:2] == (202, "")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_there_is_no_stream_and_no_session(rig: ApiFixture, method: str) -> None:
    async with a_turn(rig) as door:
        assert (await rig.call(method, "/mcp", token=door.token))[0] == 405
        assert (await rig.call(method, f"/mcp/{door.token}", token=None))[0] == 405


async def test_other_tokens_and_an_ended_turns_get_nothing(rig: ApiFixture) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert (await rig.call("POST", "/mcp", message))[0] == 403
    assert (await rig.call("POST", "/mcp", message, token=rig.agent_tokens["worker"]))[0] == 401
    assert (await rig.call("POST", "/mcp", message, token=None))[0] == 401
    async with a_turn(rig) as door:
        assert (await rig.call("POST", "/mcp", message, token=door.token))[0] == 200
        address = f"/mcp/{door.token}"
        assert (await rig.call("POST", address, message, token="wrong"))[0] == 401
    assert (await rig.call("POST", "/mcp", message, token=door.token))[0] == 401
    assert (await rig.call("POST", address, message, token=None))[0] == 401
    # The token of a turn between two segments stands for nothing that could be called.
    idle = rig.tokens.issue_run("agt_worker", "worker", "msg_2")
    assert (await rig.call("POST", "/mcp", message, token=idle))[0] == 401


async def test_a_call_ends_with_its_turn(rig: ApiFixture) -> None:
    async with a_turn(rig) as door:
        call = asyncio.ensure_future(door.post("tools/call", {"name": "hold"}))
        await door.host.began.wait()
    assert door.host.stopped == ["hold"]
    assert (await call)[0] == 401


async def test_a_call_that_the_program_gave_up_is_stopped(rig: ApiFixture) -> None:
    async with a_turn(rig) as door:
        call = asyncio.ensure_future(door.post("tools/call", {"name": "hold"}))
        await door.host.began.wait()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        for wrong in ("7", None):
            await rig.call(
                "POST", "/mcp", {**cancel, "params": {"requestId": wrong}}, token=door.token
            )
        assert door.host.stopped == []
        await rig.call("POST", "/mcp", {**cancel, "params": {"requestId": 7}}, token=door.token)
        await call
        assert door.host.stopped == ["hold"]
        assert (await door.post("ping"))[0] == 200, "the turn goes on"


async def test_what_ends_the_turn_is_told_in_a_sentence(rig: ApiFixture) -> None:
    async with a_turn(rig) as door:
        _, document = await door.post("tools/call", {"name": "broken"})
        assert document["result"]["isError"]
        assert "the store can't write" in document["result"]["content"][0]["text"]


async def test_a_token_in_an_address_is_never_written_down(
    rig: ApiFixture, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with a_turn(rig) as door:
        address = f"/mcp/{door.token}"
        answers = [
            await rig.call("POST", address, {"jsonrpc": "2.0", "id": 1, "method": "ping"}),
            await rig.call("POST", address, {"jsonrpc": "2.0"}, token=None),
            await rig.call("GET", address, token=None),
            await rig.call("POST", f"{address}/more", {}, token=None),
            await rig.call("POST", f"{address}/more", {}, token=door.token),
        ]
    assert [status for status, _, _ in answers] == [403, 202, 405, 401, 404]
    ours = [each for each in caplog.records if each.name.startswith("agentsup")]
    assert ours
    assert not [each for each in ours if door.token in each.getMessage()]
    assert not [document for _, document, _ in answers if door.token in str(document)]
