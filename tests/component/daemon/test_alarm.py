"""Where word about a bot in trouble is said: where an operator reads, never where only others do."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentsup.daemon.alarm import Alarm
from agentsup.daemon.roster import Roster
from agentsup.model.agent import AgentSpec
from agentsup.model.message import DeliverTo
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.testing.mail import MailRig

BOSS, BEN = 11, 22


class Town:
    """A home with two agents, and conversations in the order they were used."""

    def __init__(self, rig: MailRig, roster: Roster) -> None:
        self.rig = rig
        self.roster = roster
        self.hearing: set[str] = set()
        self.alarm = Alarm(
            database=rig.db,
            clock=rig.clock,
            roster=roster,
            connected=lambda channel: frozenset(self.id_of(n) for n in self.hearing),
            operator_ids=lambda: frozenset({BOSS}),
        )
        self._last_at = 0

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
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    rig = await MailRig.open(tmp_path)
    roster = Roster(rig.db, rig.clock, rig.entropy)
    await roster.load()
    await roster.take_over({name: AgentSpec(name) for name in ("main", "bob")})
    yield Town(rig, roster)
    await rig.close()


async def test_an_operators_chat_is_preferred_to_the_latest_one(town: Town) -> None:
    town.hearing = {"main", "bob"}
    await town.talked("main", "telegram", str(BOSS))
    await town.talked("main", "telegram", "-100500")
    await town.talked("main", "telegram", str(BEN))
    await town.talked("bob", "telegram", str(BOSS))
    assert await town.told_at() == ("main", "telegram", str(BOSS))


async def test_while_main_is_deaf_another_bot_says_it(town: Town) -> None:
    await town.talked("main", "console", "local")
    await town.talked("bob", "telegram", str(BEN))
    await town.talked("bob", "telegram", str(BOSS))
    await town.talked("main", "telegram", str(BOSS))
    town.hearing = {"bob"}
    assert await town.told_at() == ("bob", "telegram", str(BOSS))
    town.hearing = set()
    assert await town.told_at() == ("main", "console", "local")


async def test_the_console_is_an_operators_place(town: Town) -> None:
    assert await town.told_at() == ("main", "console", "local"), "nobody ever talked to main"
    town.hearing = {"main", "bob"}
    await town.talked("main", "telegram", str(BOSS))
    await town.talked("main", "console", "desk")
    assert await town.told_at() == ("main", "console", "desk")


async def test_a_room_in_which_an_operator_talked_is_told(town: Town) -> None:
    town.hearing = {"main", "bob"}
    await town.talked("main", "matrix", "!boss:here")
    await town.talked("main", "matrix", "!ben:here")
    main_id = town.id_of("main")
    for room, role in (("!boss:here", PersonRole.OPERATOR), ("!ben:here", PersonRole.USER)):
        by = Principal(PrincipalKind.PERSON, room, room, role)
        to = DeliverTo("chat", agent_id=main_id, channel="matrix", conversation=room)
        await town.rig.put("hello", main_id, principal=by, deliver_to=to)
    assert await town.told_at() == ("main", "matrix", "!boss:here")


async def test_the_page_is_told_as_the_console_is(town: Town) -> None:
    await town.talked("main", "web", "ben")
    await town.talked("main", "web", "local.plans")
    await town.talked("main", "web", "carl.plans")
    assert await town.told_at() == ("main", "web", "local.plans")


async def test_others_are_never_told(town: Town) -> None:
    town.hearing = {"main", "bob"}
    await town.talked("main", "telegram", str(BEN))
    await town.talked("bob", "telegram", str(BEN))
    assert await town.told_at() == ("main", "console", "local")
