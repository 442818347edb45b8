"""Strangers on Matrix: a code where nobody else reads, and no way through many rooms."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agentsup.channels.core.receiving import strangers
from agentsup.model.pairing import PairingRequest
from tests.component.channels.matrix.receive_fixture import (
    ANN,
    BEN,
    EVE,
    ME,
    ROOM,
    MatrixReceiveFixture,
    receiving,
)

pytestmark = pytest.mark.virtual
NEW = "!new:here"


@dataclass
class Fixture:
    on: bool = True
    requests: list[PairingRequest] = field(default_factory=list)

    def is_on(self) -> bool:
        return self.on

    async def asked(self, request: PairingRequest) -> None:
        self.requests.append(request)


@pytest_asyncio.fixture
async def desk() -> Fixture:
    return Fixture()


@pytest_asyncio.fixture
async def rig(tmp_path: Path, desk: Fixture) -> AsyncIterator[MatrixReceiveFixture]:
    async with receiving(tmp_path) as made:
        made.pairing = desk
        await made.reopen()
        yield made


def entered(by: str) -> list[dict[str, Any]]:
    """The bot's joining and its invitation, as the room tells them."""
    return [
        {
            "type": "m.room.member",
            "state_key": ME,
            "event_id": "$m",
            "sender": sender,
            "content": {"membership": what},
        }
        for what, sender in (("join", ME), ("invite", by))
    ]


async def test_who_invites_the_bot_alone_gets_a_code_there(
    rig: MatrixReceiveFixture, desk: Fixture
) -> None:
    rig.server.rooms[NEW] = {ME: {}, EVE: {}}
    rig.server.entries = list(entered(EVE))
    await rig.invited(by=EVE)
    ((room, text),) = await rig.notices()
    (request,) = desk.requests
    assert (room, request.stranger.user_id) == (NEW, EVE)
    assert f"{request.code[:4]}-{request.code[4:]}" in text
    row = await rig.say("let me in", room=NEW, sender=EVE)
    assert await rig.state(row) == ("skipped", "stranger")
    assert (len(await rig.notices()), await rig.heard()) == (1, [])
    assert not rig.server.count("leave", NEW)


@pytest.mark.parametrize("by, others", [(EVE, {ANN: {}}), (BEN, {})])
async def test_where_others_read_or_another_invited_the_bot_leaves(
    rig: MatrixReceiveFixture, desk: Fixture, by: str, others: dict[str, Any]
) -> None:
    rig.server.rooms[NEW] = {ME: {}, EVE: {}, **others}
    rig.server.entries = list(entered(by))
    await rig.invited(by=EVE)
    assert rig.server.count("leave", NEW) == 1
    assert await rig.notices() == []
    assert len(desk.requests) == 1


async def test_nobody_leads_the_bot_through_many_rooms(
    rig: MatrixReceiveFixture, desk: Fixture
) -> None:
    rooms = [f"!crowd{number}:here" for number in range(20)]
    rig.server.entries = list(entered(EVE))
    for room in rooms:
        rig.server.rooms[room] = {ME: {}, EVE: {}, ANN: {}}
        await rig.invited(by=EVE, room=room)
    assert sum(rig.server.count("join", room) for room in rooms) == 1
    for number, room in enumerate(rooms):
        await rig.invited(by=f"@eve{number}:there", room=room)
    assert sum(rig.server.count("join", room) for room in rooms) == strangers.OPEN_PER_AGENT


async def test_turned_off_a_stranger_is_refused_as_ever(
    rig: MatrixReceiveFixture, desk: Fixture
) -> None:
    desk.on = False
    rig.server.rooms[ROOM] = {ME: {}, EVE: {}}
    await rig.invited(by=EVE)
    await rig.say("hello", sender=EVE)
    assert (desk.requests, await rig.notices(), rig.server.count("join", NEW)) == ([], [], 0)


async def test_a_code_is_for_a_message_where_nobody_else_reads(
    rig: MatrixReceiveFixture, desk: Fixture
) -> None:
    rig.group()
    await rig.say("hello", sender=EVE)
    assert desk.requests == []
    rig.server.rooms[ROOM] = {ME: {}, EVE: {}}
    rig.rooms.forget(ROOM)
    await rig.react("$x", "👍", sender=EVE)
    assert desk.requests == []
    await rig.say("hello", sender=EVE)
    assert [each.stranger.user_id for each in desk.requests] == [EVE]
