"""What a stop in a room drops of what was kept and not yet read: whatever would become a message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving.gate import StopScope
from agentsup.channels.core.receiving.rows import ReceivedRow
from agentsup.channels.core.receiving.stop_marks import drop_tx
from agentsup.channels.matrix.event import BotUser
from agentsup.channels.matrix.incoming import MatrixMessages
from agentsup.channels.matrix.received import RoomNews, row_owner, store_tx
from tests.support.mailbox_fixture import MailboxFixture

pytestmark = pytest.mark.virtual

ME = BotUser("@bot:here", "Bob")
OWNER = row_owner("a", ME.user_id)
ROOM, OTHER = "!r:here", "!o:here"
FILE = {"url": "mxc://here/1", "body": "a.png", "info": {"size": 1}}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    made = await MailboxFixture.open(tmp_path)
    yield made
    await made.close()


async def come(
    rig: MailboxFixture, number: int, content: dict[str, Any], **more: Any
) -> ReceivedRow:
    """One event as a sync keeps it."""
    room = more.pop("room", ROOM)
    raw = {
        "event_id": f"${number}",
        "type": "m.room.message",
        "sender": "@ann:here",
        "content": content,
        **more,
    }
    news = RoomNews(room, (raw,), f"${number}")
    (row,) = await rig.db.write(lambda tx: store_tx(tx, OWNER, [news], since="s", at=0))
    return row


def text(body: str) -> dict[str, Any]:
    return {"msgtype": "m.text", "body": body}


async def test_a_stop_drops_whatever_would_become_a_message_and_came_before_it(
    rig: MailboxFixture,
) -> None:
    edit = {**text("* b"), "m.new_content": text("b"), "m.relates_to": {"rel_type": "m.replace"}}
    edit["m.relates_to"]["event_id"] = "$0"
    before = [
        await come(rig, 1, text("a text")),
        await come(rig, 2, FILE, type="m.sticker"),
        await come(rig, 3, {"msgtype": "m.image", **FILE}),
        await come(rig, 4, {"msgtype": "m.location", "body": "here", "geo_uri": "geo:1,2"}),
        await come(rig, 5, edit),
    ]
    kept_on = [
        await come(rig, 6, text("/status")),
        await come(rig, 7, {"m.relates_to": {"event_id": "$0", "key": "1"}}, type="m.reaction"),
        await come(rig, 8, FILE, type="m.sticker", room=OTHER),
    ]
    stop = await come(rig, 9, text("/stop"))
    kept_on.append(await come(rig, 10, FILE, type="m.sticker"))

    deps: Any = SimpleNamespace(me=ME)
    platform = MatrixMessages(deps, would_answer=lambda event: True)
    dropped = await rig.db.write(
        lambda tx: drop_tx(
            tx,
            StopScope("a", ROOM),
            stop,
            agent_id="a",
            conversation=ROOM,
            unread=platform.unread,
            is_command=lambda said: said.startswith("/"),
        )
    )
    assert [row.row_id for row, _ in dropped] == [row.row_id for row in before]
    left = await rig.db.read(lambda reader: stored.open_rows(reader, OWNER))
    assert {row.row_id for row in left} == {stop.row_id, *(row.row_id for row in kept_on)}
