"""Cards that follow their tasks: what is edited, how often, what never is, and when one is let go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agentsup.channels.core.buttons.live_cards import PAUSE_S, LiveCards, live_fact
from agentsup.channels.core.errors import LowPriorityDropped, PlatformError, RequestRefused
from agentsup.channels.telegram.errors import NotModified
from agentsup.channels.telegram.menus import TelegramPress, TelegramPressDisplay, is_shared
from agentsup.channels.telegram.sender import SendPriority
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.delivery import outbox
from agentsup.model.control import CommandContext, CommandReply
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind
from agentsup.model.task import NewTask
from agentsup.store import Tx
from tests.component.conftest import Open
from tests.support.press_deps import FakePressDeps
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

EVE = Principal(PrincipalKind.PERSON, "eve", "Eve", PersonRole.USER)
CHAT, MESSAGE = "4711", 9
PRESS = TelegramPress("", "", "press:1", CHAT, 4711, MESSAGE)


class Platform:
    """Takes edits, or refuses them with what is in ``fails``."""

    def __init__(self) -> None:
        self.edits: list[dict[str, Any]] = []
        self.fails: list[PlatformError] = []
        self.hold: asyncio.Event | None = None
        self.tried = 0

    async def send(self, chat_id: int, method: str, **fields: Any) -> None:
        assert (chat_id, method) == (4711, "editMessageText")
        assert (fields["priority"], fields["droppable"]) == (SendPriority.EDIT, True)
        self.tried += 1
        if self.hold is not None:
            await self.hold.wait()
        if self.fails:
            raise self.fails.pop(0)
        self.edits.append(fields)

    @property
    def texts(self) -> list[str]:
        return [edit["text"] for edit in self.edits]


class Fixture:
    """One task, its card in a chat, and what follows it."""

    def __init__(self, house: VirtualDaemon) -> None:
        self.house = house
        self.roles: dict[str, PersonRole | None] = {}
        self.platform = Platform()
        self.agent_id = house.roster.entry("ann").agent_id
        deps = FakePressDeps(
            self.agent_id,
            house.db,
            house.daemon.mailbox,
            house.daemon.inbox._commands,
            house.clock,
            house.entropy,
            lambda: house.unit("ann").spec,
        )
        display = TelegramPressDisplay(deps, self.platform, None)  # type: ignore[arg-type]  # twins
        self.following = LiveCards(
            deps,  # type: ignore[arg-type]  # a twin of what is used
            "telegram",
            display.edit_card,
            is_shared,
            role_now=lambda subject: self.roles.get(subject, PersonRole.MANAGER),
        )
        self.hub = house.daemon.api._deps.tasks
        self.task_id = ""

    async def card(self, message_id: int = MESSAGE) -> None:
        """A task that is written down, and its card as a command of Eve's was answered with it."""
        assert self.hub is not None
        new = NewTask("count the birds", agent="ann", start=False)
        self.task_id = (await self.hub.create(new, caller=EVE)).task_id
        reply = await self.shown()
        body = {"text": reply.text, "plain": True, **live_fact(reply.live, EVE, "")}

        def write(tx: Tx) -> None:
            number = outbox.add_tx(
                tx,
                agent_id=self.agent_id,
                channel="telegram",
                conversation=CHAT,
                kind="notice",
                body=body,
                at=self.house.clock.now_ms(),
            )
            tx.execute(
                "UPDATE outbox SET state = 'delivered', platform_ids = ? WHERE outbox_id = ?",
                (json.dumps([str(message_id)]), number),
            )

        await self.house.db.write(write)

    async def shown(self) -> CommandReply:
        context = CommandContext(self.agent_id, "ann", "telegram", CHAT, EVE, has_buttons=True)
        commands = self.house.daemon.inbox._commands
        return await commands.run(f"/task {self.task_id}", context)

    async def progress(self, percent: int) -> None:
        assert self.hub is not None
        await self.hub.update(self.task_id, caller=OPERATOR, percent=percent)

    async def settled(self, seconds: float = 3 * PAUSE_S) -> None:
        await self.house.clock.sleep(seconds)

    async def is_followed(self) -> bool:
        rows = await self.house.sql(
            "SELECT body ->> '$.live.command' FROM outbox WHERE channel = 'telegram'"
        )
        return rows == [(f"/task {self.task_id}",)]


@asynccontextmanager
async def following(household: Open) -> AsyncIterator[Fixture]:
    rig = Fixture(await household(agent("ann")))
    await rig.card()
    draining, owner = asyncio.Event(), TaskOwner("test")
    owner.spawn(rig.following.run(draining), name="test:following")
    await rig.settled()
    try:
        yield rig
    finally:
        assert await owner.close(2.0) == []


async def test_what_changed_is_edited_in_place_and_at_its_pace(household: Open) -> None:
    async with following(household) as rig:
        seen = len(rig.platform.edits)
        assert seen == 1, "a life begins with a look at what may have changed meanwhile"
        await rig.progress(10)
        await rig.settled(1)
        assert "█░░░░░░░░░ 10 %" in rig.platform.texts[-1]
        for percent in range(11, 31):
            await rig.progress(percent)
            await rig.house.clock.sleep(0.5)
        await rig.settled()
        assert "30 %" in rig.platform.texts[-1], "the last word is always said"
        assert len(rig.platform.edits) - seen <= 2 + 10 / PAUSE_S
        await rig.house.said("ann", "something else")
        count = rig.platform.tried
        await rig.settled()
        assert rig.platform.tried == count, "nothing of it has changed"


async def test_of_many_that_change_at_once_each_is_edited_in_the_end(household: Open) -> None:
    async with following(household) as rig:
        assert rig.hub is not None
        tasks = [rig.task_id]
        for message_id in range(MESSAGE + 1, MESSAGE + 12):
            await rig.card(message_id)
            tasks.append(rig.task_id)
        await rig.settled(20 * PAUSE_S)
        rig.platform.edits.clear()
        for task_id in tasks:
            await rig.hub.cancel(task_id, caller=EVE)
        await rig.settled(PAUSE_S + 1)
        assert len(rig.platform.edits) <= 1 + 5, "the others wait, so that answers find room"
        await rig.settled(20 * PAUSE_S)
        edited = sorted(edit["message_id"] for edit in rig.platform.edits)
        assert edited == list(range(MESSAGE, MESSAGE + 12))


async def test_a_keyboard_stays_while_it_stands_for_the_same(household: Open) -> None:
    async with following(household) as rig:
        await rig.progress(10)
        await rig.settled()
        await rig.progress(20)
        await rig.settled()
        keyboards = [str(edit["reply_markup"]) for edit in rig.platform.edits]
        assert len(set(keyboards)) == 1
        await rig.following.shows(PRESS.card, live_fact((await rig.shown()).live, EVE, ""))
        await rig.progress(30)
        await rig.settled()
        assert str(rig.platform.edits[-1]["reply_markup"]) != keyboards[0], "a press uses it up"


async def test_what_finds_no_room_is_edited_later_and_in_the_end_let_go(household: Open) -> None:
    async with following(household) as rig:
        rig.platform.fails = [LowPriorityDropped("no room")] * 3
        await rig.progress(10)
        await rig.settled(10 * PAUSE_S)
        assert "10 %" in rig.platform.texts[-1]
        assert await rig.is_followed()
        rig.platform.fails = [LowPriorityDropped("no room")] * 1000
        tried = rig.platform.tried
        await rig.progress(20)
        await rig.settled(100 * PAUSE_S)
        assert rig.platform.tried - tried < 30
        assert not await rig.is_followed()


async def test_that_it_says_so_already_is_no_failure(household: Open) -> None:
    async with following(household) as rig:
        rig.platform.fails = [NotModified(400, "the same")]
        await rig.progress(10)
        await rig.settled()
        assert await rig.is_followed()


@pytest.mark.parametrize("how", ["refused", "deleted"])
async def test_a_card_that_can_not_be_shown_is_let_go(household: Open, how: str) -> None:
    async with following(household) as rig:
        assert rig.hub is not None
        if how == "refused":
            rig.platform.fails = [RequestRefused(400, "message to edit not found")]
            await rig.progress(10)
        else:
            await rig.hub.delete(rig.task_id, caller=EVE)
        await rig.settled()
        assert not await rig.is_followed()
        tried = rig.platform.tried
        if how == "refused":
            await rig.progress(20)
        await rig.settled()
        assert rig.platform.tried == tried


async def test_a_press_decides_what_stands_there(household: Open) -> None:
    async with following(household) as rig:
        edits = len(rig.platform.edits)
        with rig.following.left_alone(PRESS.card):
            await rig.progress(10)
            await rig.settled()
            assert len(rig.platform.edits) == edits
            await rig.following.shows(PRESS.card, {})  # a list, a question: nothing to follow
        await rig.progress(20)
        await rig.settled()
        assert len(rig.platform.edits) == edits
        assert not await rig.is_followed()

        with rig.following.left_alone(PRESS.card):
            await rig.following.shows(PRESS.card, live_fact((await rig.shown()).live, EVE, ""))
            await rig.progress(30)
            await rig.settled()
        await rig.settled()
        assert "30 %" in rig.platform.texts[-1], "what was missed meanwhile is shown"


async def test_a_press_takes_back_an_edit_that_waits_its_turn(household: Open) -> None:
    async with following(household) as rig:
        rig.platform.hold = asyncio.Event()
        await rig.progress(10)
        await rig.settled()
        edits, tried = len(rig.platform.edits), rig.platform.tried
        with rig.following.left_alone(PRESS.card):
            await rig.house.clock.sleep(0.1)
            rig.platform.hold.set()
            await rig.settled()
            assert len(rig.platform.edits) == edits
            await rig.following.shows(PRESS.card, live_fact((await rig.shown()).live, EVE, ""))
        await rig.settled()
        assert rig.platform.tried > tried
        assert "10 %" in rig.platform.texts[-1]


async def test_a_card_is_followed_no_more_for_somebody_who_was_removed(household: Open) -> None:
    async with following(household) as rig:
        rig.roles[EVE.subject] = None
        await rig.progress(40)
        await rig.settled()
        assert not any("40 %" in text for text in rig.platform.texts)
        assert not await rig.is_followed()
