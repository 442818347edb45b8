"""Buttons in the store: whose they are, used once, and found again after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agentsup.channels.core.sending import buttons
from agentsup.channels.core.sending.buttons import Pressed, PressRefusal, RefusedPress
from agentsup.model.control import CommandButton
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from tests.support.mailbox_fixture import MailboxFixture

ANN = Principal(PrincipalKind.PERSON, "ann", "Ann", PersonRole.USER)
BEN = Principal(PrincipalKind.PERSON, "ben", "Ben", PersonRole.USER)
OLA = Principal(PrincipalKind.PERSON, "ola", "Ola", PersonRole.OPERATOR)
VIC = Principal(PrincipalKind.PERSON, "vic", "Vic", PersonRole.VIEWER)

LOOK = CommandButton("Look", "/agents bob")
STOP = CommandButton("Stop", "/agent_stop bob", once=True, operator=True)
NEW = CommandButton("New", "/new", once=True)
DROP = CommandButton("Drop", "/dead drop m", once=True, confirm="Sure?")


class Fixture:
    def __init__(self, rig: MailboxFixture) -> None:
        self.rig = rig
        self.presses = 0

    async def mint(self, *row: CommandButton, **changed: Any) -> list[str]:
        place = {
            "agent_id": "a",
            "channel": "telegram",
            "conversation": "7",
            "origin": "/agents",
            **changed,
        }
        rows = await self.rig.db.write(
            lambda tx: buttons.mint_tx(
                tx, [row, ()], at=self.rig.clock.now_ms(), entropy=self.rig.entropy, **place
            )
        )
        assert [b["label"] for b in rows[0]] == [b.label for b in row]
        assert len(rows) == 1
        return [b["data"] for b in rows[0]]

    async def press(
        self, data: str, who: Principal = ANN, **changed: Any
    ) -> Pressed | RefusedPress:
        self.presses += 1
        press = {
            "agent_id": "a",
            "channel": "telegram",
            "conversation": "7",
            "press_id": f"p{self.presses}",
            **changed,
        }
        return await self.rig.db.write(
            lambda tx: buttons.press_tx(
                tx, data, principal=who, at=self.rig.clock.now_ms(), **press
            )
        )

    async def refusal(self, data: str, who: Principal = ANN, **changed: Any) -> PressRefusal:
        said = await self.press(data, who, **changed)
        assert isinstance(said, RefusedPress)
        return said.reason


@pytest_asyncio.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Fixture]:
    rig = await MailboxFixture.open(tmp_path)
    yield Fixture(rig)
    await rig.close()


async def test_a_page_may_be_turned_as_often_as_one_likes(shop: Fixture) -> None:
    (data,) = await shop.mint(LOOK)
    assert len(data.encode()) <= 64
    for who in (ANN, BEN, ANN):
        pressed = await shop.press(data, who)
        assert isinstance(pressed, Pressed)
        assert (pressed.command, pressed.origin, pressed.label) == (
            "/agents bob",
            "/agents",
            "Look",
        )


async def test_what_changes_something_works_once(shop: Fixture) -> None:
    (data,) = await shop.mint(NEW)
    before = shop.rig.clock.now_ms()
    first = await shop.press(data, ANN)
    after = shop.rig.clock.now_ms()
    assert isinstance(first, Pressed)
    assert not first.is_repeated
    shop.rig.later(60)
    second = await shop.press(data, BEN)
    assert isinstance(second, RefusedPress)
    assert (second.reason, second.by) == (PressRefusal.USED, "Ann")
    assert before <= second.at <= after


async def test_the_same_press_found_again_after_a_crash_is_not_done_twice(shop: Fixture) -> None:
    (data,) = await shop.mint(NEW)
    assert isinstance(await shop.press(data, press_id="same"), Pressed)
    again = await shop.press(data, press_id="same")
    assert isinstance(again, Pressed)
    assert again.is_repeated


async def test_a_press_whose_command_was_refused_can_be_made_again(shop: Fixture) -> None:
    (data,) = await shop.mint(NEW)
    pressed = await shop.press(data, press_id="one")
    assert isinstance(pressed, Pressed)
    await shop.rig.db.write(lambda tx: buttons.release_tx(tx, pressed.token, "another"))
    assert await shop.refusal(data) is PressRefusal.USED
    await shop.rig.db.write(lambda tx: buttons.release_tx(tx, pressed.token, "one"))
    assert isinstance(await shop.press(data, BEN), Pressed)


async def test_a_question_before_it_uses_nothing_up(shop: Fixture) -> None:
    (data,) = await shop.mint(DROP)
    for _ in range(2):
        pressed = await shop.press(data)
        assert isinstance(pressed, Pressed)
        assert pressed.confirm == "Sure?"
        assert not pressed.is_repeated


async def test_only_an_operator_uses_an_operator_s_button(shop: Fixture) -> None:
    (data,) = await shop.mint(STOP)
    assert await shop.refusal(data, ANN) is PressRefusal.OPERATORS
    assert await shop.refusal(data, VIC) is PressRefusal.VIEWER
    assert isinstance(await shop.press(data, OLA), Pressed)


@pytest.mark.parametrize(
    "changed", [{"agent_id": "b"}, {"conversation": "8"}, {"conversation": "7/2"}, {"channel": "x"}]
)
async def test_a_button_belongs_to_one_chat_of_one_bot(shop: Fixture, changed: Any) -> None:
    (data,) = await shop.mint(NEW)
    assert await shop.refusal(data, OLA, **changed) is PressRefusal.ELSEWHERE
    assert isinstance(await shop.press(data), Pressed)


async def test_what_nobody_minted_is_unknown(shop: Fixture) -> None:
    await shop.mint(NEW)
    for data in ("b:", "b:nothing", "", "garbage", "b:%", "b:' OR 1"):
        assert await shop.refusal(data) is PressRefusal.UNKNOWN


async def test_old_buttons_are_forgotten(shop: Fixture) -> None:
    (old,) = await shop.mint(NEW)
    shop.rig.later(31 * 86_400)
    assert await shop.refusal(old) is PressRefusal.UNKNOWN
    await shop.mint(LOOK)
    left = await shop.rig.db.read(lambda r: r.scalar("SELECT count(*) FROM buttons"))
    assert left == 1


async def test_handled_presses_are_remembered_for_days(shop: Fixture) -> None:
    async def note(press_id: str, outcome: str) -> None:
        at = shop.rig.clock.now_ms()
        await shop.rig.db.write(lambda tx: buttons.note_tx(tx, press_id, outcome, at))

    async def known(press_id: str) -> str | None:
        return await shop.rig.db.read(lambda r: buttons.handled(r, press_id))

    assert await known("u1") is None
    await note("u1", "blue")
    await note("u1", "red")
    assert await known("u1") == "blue"
    shop.rig.later(4 * 86_400)
    await note("u2", "x")
    assert await known("u1") is None
