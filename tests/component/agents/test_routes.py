"""Routes of many callers at once: spread in memory, recorded together, each call once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from agentsup.agents.delegation import Router, routes
from agentsup.agents.delegation.ranking import Match
from agentsup.agents.delegation.service import DelegatingTurn, DelegationServices
from agentsup.mailbox.mail import Asker
from agentsup.mailbox.work.slots import SlotPool
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import NotFound
from agentsup.model.principal import OPERATOR
from tests.support.dispatcher_fixture import DispatcherFixture
from tests.support.mailbox_fixture import WIDE

WORKERS = tuple(f"w{n}" for n in range(8))


class Fixture:
    """Eight agents that fit, one turn that asks, and the router of each life."""

    def __init__(self, mail: DispatcherFixture, caller: DelegatingTurn) -> None:
        self.mail = mail
        self._caller = caller
        self.router = self._next()

    def _next(self) -> Router:
        unused = cast(Any, None)
        return Router(
            DelegationServices(
                runs=unused,
                database=self.mail.mail.db,
                directory=self.mail.agents,
                others=unused,
                roles=unused,
                hooks=unused,
                fan_out=lambda: 10,
                loads=self.mail.mail.mailbox.context.loads,
            ),
            self.mail.mail.clock,
        )

    async def choose(self, call: str) -> str:
        ranking = await self.router.choose(self._caller, call, ("code",), Match.ANY)
        return ranking.ranked[0].agent

    async def reboot(self) -> None:
        await self.mail.reboot()
        self.router = self._next()

    async def recorded(self) -> list[tuple[Any, ...]]:
        return await self.mail.mail.sql(
            "SELECT data ->> '$.call', data ->> '$.agent' FROM events"
            " WHERE type = 'route.chosen' ORDER BY seq"
        )


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Fixture]:
    able = [(name, {"capabilities": ("code",)}) for name in WORKERS]
    mail = await DispatcherFixture.open(tmp_path, ["ann", *able])
    await mail.mail.put()
    lease = await mail.mail.one()
    spec = AgentSpec("ann")
    slot = SlotPool(WIDE, lambda: None).take(lease.message.lane)
    yield Fixture(mail, DelegatingTurn(Asker(lease, slot), spec, spec, "", OPERATOR, "call"))
    await mail.close()


async def test_many_at_once_spread_share_a_commit_and_read_once(rig: Fixture) -> None:
    rig.mail.mail.clock.stand_still()  # a batch has no end by time
    stats = rig.mail.mail.db.stats
    commits, reads = stats.commits, stats.reads
    # The first of a directory reads since when its agents are declared.
    first = await rig.choose("first")
    assert (stats.commits - commits, stats.reads - reads) == (1, 1)
    chosen = await asyncio.gather(*(rig.choose(f"c{n}") for n in range(63)))
    assert (stats.commits - commits, stats.reads - reads) == (2, 1)
    assert Counter([first, *chosen]) == dict.fromkeys(WORKERS, 8)
    assert await rig.recorded() == [
        ("first", first),
        *((f"c{n}", each) for n, each in enumerate(chosen)),
    ]


async def test_a_call_is_recorded_once_whoever_repeats_it(rig: Fixture) -> None:
    calls = ("a", "b", "a", "c", "a", "b")
    chosen = await asyncio.gather(*map(rig.choose, calls))
    assert len(set(zip(calls, chosen, strict=True))) == 3
    for call in calls:
        rig.router.placed(call)
    await rig.mail.mail.put(agent=chosen[0])
    await rig.reboot()
    assert await asyncio.gather(*map(rig.choose, calls)) == chosen
    assert [call for call, _ in await rig.recorded()] == ["a", "b", "c"]


async def test_nobody_hears_of_a_choice_that_is_not_durable(
    rig: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(routes, "route_of_call", fail)
        failed = await asyncio.gather(*map(rig.choose, "ab"), return_exceptions=True)
    assert [type(each) for each in failed] == [RuntimeError, RuntimeError]
    assert await rig.recorded() == []
    for call in "ab":
        rig.router.placed(call)
    assert await rig.choose("c") == "w0", "what was not recorded is no load"


async def test_loads_of_messages_and_of_choices_add_up(rig: Fixture) -> None:
    for name in WORKERS[:-1]:
        await rig.mail.mail.put(agent=name)
    assert await rig.choose("a") == "w7"
    assert await rig.choose("b") == "w0"
    rig.router.placed("a")
    assert await rig.choose("c") == "w7"


async def test_who_comes_goes_or_fails_is_seen_at_once(rig: Fixture) -> None:
    assert await rig.choose("a") == "w0"
    rig.router.placed("a")
    rig.mail.agents.remove("w0")
    assert await rig.choose("b") == "w1"
    rig.router.placed("b")
    rig.mail.agents.add("w1", capabilities=("code",), status="failed")
    assert await rig.choose("c") == "w2"
    for name in WORKERS[1:]:
        rig.mail.agents.add(name, capabilities=("cook",))
    with pytest.raises(NotFound, match="w7 can't do code"):
        await rig.choose("d")
