"""After a conflict the next poll comes over another connection."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from agentsup.channels.telegram import SharedHttp, TelegramClient
from agentsup.channels.telegram.errors import PollConflict
from agentsup.model.secret import Secret


@pytest.fixture
async def server() -> AsyncIterator[tuple[str, list[int], list[int]]]:
    """Answers with the given statuses, then with nothing new; notes the ports of its callers."""
    ports: list[int] = []
    statuses: list[int] = []

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        status = statuses.pop(0) if statuses else 200
        document = {"ok": status == 200, "result": [], "error_code": status, "description": "no"}
        return web.Response(status=status, body=json.dumps(document).encode())

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield f"http://127.0.0.1:{port}", ports, statuses
    await runner.cleanup()


async def test_a_conflict_costs_the_connection_and_nothing_else_does(
    server: tuple[str, list[int], list[int]],
) -> None:
    url, ports, statuses = server
    http = SharedHttp()
    client = TelegramClient(Secret("5:x"), url, http=http)
    await client.call("getUpdates")
    await client.call("getUpdates")
    statuses[:] = [409, 409]
    for _ in range(2):
        with pytest.raises(PollConflict):
            await client.call("getUpdates")
    await client.call("getUpdates")
    await client.call("getUpdates")
    await client.close()
    await http.close()
    first, again, conflicted, other, last, same = ports
    assert first == again == conflicted
    assert len({conflicted, other, last}) == 3
    assert last == same
