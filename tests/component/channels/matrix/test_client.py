"""What a homeserver answers, as everything behind the client gets it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agentsup.channels.core.receiving.rows import load
from agentsup.channels.core.sending import HttpPool
from agentsup.channels.matrix.batch import read_batch
from agentsup.channels.matrix.client import MatrixClient, MatrixSession
from agentsup.channels.matrix.received import RoomNews, row_owner, store_tx
from tests.support.mailbox_fixture import MailboxFixture

ME = "@bot:here"
LONE = "\\ud83d"
WHOLE = "\\ud83d\\ude00"


@asynccontextmanager
async def answering(body: bytes) -> AsyncIterator[MatrixClient]:
    """A client of a homeserver that knows one answer."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    http = HttpPool()
    client = MatrixClient(f"http://127.0.0.1:{runner.addresses[0][1]}", http=http)
    client.use(MatrixSession(ME, "D", "token"))
    try:
        yield client
    finally:
        await client.close()
        await http.close()
        await runner.cleanup()


def answer_of(event: str) -> bytes:
    room = '{"timeline": {"events": [' + event + '], "prev_batch": "p"}}'
    return ('{"next_batch": "s1", "rooms": {"join": {"!r:here": ' + room + "}}}").encode()


EVENTS = {
    "the text": f'{{"event_id": "$1", "content": {{"body": "a{LONE}b{WHOLE}"}}',
    "a key": f'{{"event_id": "$1", "content": {{"body": "x", "{LONE}": 1}}',
    "the id of the event": f'{{"event_id": "$1{LONE}", "content": {{"body": "x"}}',
    "what it edits": (
        '{"event_id": "$1", "content": {"m.new_content": {"body": "x"}, "m.relates_to":'
        f' {{"rel_type": "m.replace", "event_id": "$0{LONE}"}}}}'
    ),
}


@pytest.mark.parametrize("where", EVENTS)
async def test_half_a_character_costs_nobody_a_sync(tmp_path: Path, where: str) -> None:
    event = EVENTS[where] + ', "type": "m.room.message", "sender": "@ann:here"}'
    other = '{"event_id": "$2", "type": "m.room.message", "sender": "@ann:here", "content": {}}'
    async with answering(answer_of(f"{event}, {other}")) as client:
        batch = await read(client)
    rig = await MailboxFixture.open(tmp_path)
    try:
        (room,) = batch.joined
        news = [RoomNews(room.room_id, room.timeline, room.last_event_id)]
        rows = await rig.db.write(
            lambda tx: store_tx(tx, row_owner("a", ME), news, since="s", at=0)
        )
    finally:
        await rig.close()
    assert [row.external_id for row in rows][-1] == "$2"
    assert len(rows) == 2
    json.dumps([load(row.raw) for row in rows], ensure_ascii=False).encode()
    if where == "the text":
        assert load(rows[0].raw)["content"]["body"] == "a\ufffdb😀"


async def test_half_a_character_in_bytes_and_what_is_no_number(tmp_path: Path) -> None:
    event = b'{"event_id": "$1", "type": "m.room.message", "sender": "@a:h", "content": {"body": '
    event += b'"a\xed\xa0\xbdb", "n": NaN, "m": -Infinity}}'
    body = answer_of("EVENT").replace(b"EVENT", event)
    async with answering(body) as client:
        (room,) = (await read(client)).joined
    assert room.timeline[0]["content"] == {"body": "a\ufffdb", "n": None, "m": None}


async def read(client: MatrixClient) -> Any:
    return read_batch(await client.sync(None, filter_={}, wait_s=0.0, timeout_s=5.0), ME)
