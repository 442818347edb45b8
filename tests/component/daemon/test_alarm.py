"""Where word about a bot in trouble is said: where an operator reads, never where only others do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from agentsup.daemon.runtime.alarm import Alarm
from agentsup.daemon.runtime.people import People
from agentsup.daemon.runtime.roster import Roster
from agentsup.model.agent import AgentSpec
from agentsup.model.message import DeliverTo
from agentsup.model.platforms import TELEGRAM, PlatformSpec
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from tests.support.mailbox_fixture import MailboxFixture

BOSS, BEN = 11, 22


class Operators:
    """The boss alone."""

    def operators(self, platform: PlatformSpec) -> frozenset[int | str]:
        return frozenset({BOSS} if platform is TELEGRAM else {"@boss:here"})


class Fixture:
    """A home with two agents, and conversations in the order they were used."""

    def __init__(self, rig: MailboxFixture, roster: Roster) -> None:
        self.rig = rig
        self.roster = roster
        self.hearing: set[str] = set()
        self.alarm = Alarm(
            database=rig.db,
            clock=rig.clock,
            entropy=rig.entropy,
            roster=roster,
            connected=lambda channel: frozenset(self.id_of(n) for n in self.hearing),
            people=cast(People, Operators()),
            alone_with=self._alone_with,
        )
        self.rooms: dict[str, str] = {}
        """Who is alone with the bot in a Matrix room."""
        self.asked: list[str] = []
        self.answers_after_s = 0.0
        self._last_at = 0

    async def _alone_with(self, channel: str, agent_id: str, conversation: str) -> str:
        assert channel == "matrix"
        self.asked.append(conversation)
        await asyncio.sleep(self.answers_after_s)
        return self.rooms.get(conversation, "")

    def id_of(self, name: str) -> str:
        return str(self.roster.entry(name).agent_id)

    async def talked(self, name: str, channel: str, conversation: str) -> None:
        """Somebody talked to the agent there, later than anywhere before."""
        self._last_at += 1
        row = (self.id_of(name), channel, conversation, self._last_at, self._last_at)
        await self.rig.db.write(
            lambda tx: tx.execute(
                "INSERT INTO conversations (agent_id, channel, conversation, first_at, last_at)"
                " VALUES (?, ?, ?, ?, ?)",
                row,
            )
        )

    async def told_at(self) -> tuple[str, str, str]:
        """Raise the alarm; where it was said."""
        await self.alarm.tell("a bot is deaf")
        row = await self.rig.db.read(
            lambda r: r.one(
                "SELECT agent_id, channel, conversation FROM outbox ORDER BY outbox_id DESC LIMIT 1"
            )
        )
        assert row is not None
        names = {self.id_of(name): name for name in ("main", "bob")}
        return names[row["agent_id"]], row["channel"], row["conversation"]


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Fixture]:
    rig = await MailboxFixture.open(tmp_path)
    roster = Roster(rig.db, rig.clock, rig.entropy)
    await roster.load()
    await roster.take_over({name: AgentSpec(name) for name in ("main", "bob")})
    yield Fixture(rig, roster)
    await rig.close()


async def test_an_operators_chat_is_preferred_to_the_latest_one(town: Fixture) -> None:
    town.hearing = {"main", "bob"}
    await town.talked("main", "telegram", str(BOSS))
    await town.talked("main", "telegram", "-100500")
    await town.talked("main", "telegram", str(BEN))
    await town.talked("bob", "telegram", str(BOSS))
    assert await town.told_at() == ("main", "telegram", str(BOSS))


async def test_while_main_is_deaf_another_bot_says_it(town: Fixture) -> None:
    await town.talked("main", "console", "local")
    await town.talked("bob", "telegram", str(BEN))
    await town.talked("bob", "telegram", str(BOSS))
    await town.talked("main", "telegram", str(BOSS))
    town.hearing = {"bob"}
    assert await town.told_at() == ("bob", "telegram", str(BOSS))
    town.hearing = set()
    assert await town.told_at() == ("main", "console", "local")


async def test_the_console_is_an_operators_place(town: Fixture) -> None:
    assert await town.told_at() == ("main", "console", "local"), "nobody ever talked to main"
    town.hearing = {"main", "bob"}
    await town.talked("main", "telegram", str(BOSS))
    await town.talked("main", "console", "desk")
    assert await town.told_at() == ("main", "console", "desk")


async def spoke(town: Fixture, conversation: str, role: PersonRole = PersonRole.OPERATOR) -> None:
    """Somebody said something to main in a Matrix room, later than anything before."""
    main_id = town.id_of("main")
    await town.talked("main", "matrix", conversation)
    by = Principal(PrincipalKind.PERSON, "x", "x", role)
    to = DeliverTo("chat", agent_id=main_id, channel="matrix", conversation=conversation)
    await town.rig.put("hello", main_id, principal=by, deliver_to=to)


async def test_a_room_in_which_an_operator_is_alone_with_the_bot_is_told(town: Fixture) -> None:
    town.hearing = {"main", "bob"}
    town.rooms = {"!boss:here": "@boss:here", "!ben:here": "@ben:here"}
    await spoke(town, "!boss:here")
    await spoke(town, "!ben:here", PersonRole.USER)
    assert await town.told_at() == ("main", "matrix", "!boss:here")
    body = await town.rig.sql("SELECT body ->> '$.only_with' FROM outbox")
    assert body == [("@boss:here",)], "and if somebody comes before it is said, it is not"


async def test_a_room_with_others_in_it_is_never_told(town: Fixture) -> None:
    """Whoever speaks in it, and whoever is alone with the bot in another one."""
    town.hearing = {"main", "bob"}
    town.rooms = {"!ben:here": "@ben:here"}
    await spoke(town, "!boss:here")
    await spoke(town, "!group:here")
    await spoke(town, "!group:here/$thread")
    await spoke(town, "!ben:here")
    assert await town.told_at() == ("main", "console", "local")
    assert sorted(town.asked) == ["!ben:here", "!boss:here", "!group:here"], "each room once"
    town.rooms["!boss:here"] = "@boss:here"
    assert await town.told_at() == ("main", "matrix", "!boss:here"), "it is asked afresh"


async def test_only_so_many_rooms_are_asked_about(town: Fixture) -> None:
    town.hearing = {"main"}
    await town.talked("main", "telegram", str(BOSS))
    for number in range(30):
        await spoke(town, f"!{number}:here")
    assert await town.told_at() == ("main", "telegram", str(BOSS))
    assert len(town.asked) == 8


async def test_the_page_is_told_as_the_console_is(town: Fixture) -> None:
    await town.talked("main", "web", "ben")
    await town.talked("main", "web", "local.plans")
    await town.talked("main", "web", "carl.plans")
    assert await town.told_at() == ("main", "web", "local.plans")


async def test_others_are_never_told(town: Fixture) -> None:
    town.hearing = {"main", "bob"}
    await town.talked("main", "telegram", str(BEN))
    await town.talked("bob", "telegram", str(BEN))
    assert await town.told_at() == ("main", "console", "local")


@pytest.mark.virtual
async def test_homeservers_that_do_not_answer_are_not_waited_for_long(town: Fixture) -> None:
    """The word is about trouble, and what says it may be what hears stops."""
    town.hearing = {"main", "bob"}
    town.answers_after_s = 10.0
    await town.talked("bob", "telegram", str(BOSS))
    for number in range(6):
        await spoke(town, f"!r{number}:here")
    began = town.rig.clock.monotonic()
    assert await town.told_at() == ("bob", "telegram", str(BOSS))
    assert town.rig.clock.monotonic() - began <= 25
