"""Grants by pattern in the whole daemon: where, for whom and until when they hold, and their use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agentsup.agents.tools import file_tools
from agentsup.approvals import Grant, Grants
from agentsup.approvals.grants import MOST_PATTERNS
from agentsup.approvals.recorder import until
from agentsup.daemon.assembly import tool_pipeline
from agentsup.kit.pool import BoundedPool
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.model.question import GrantEnd
from agentsup.model.tool import Tool, ToolContext
from tests.component.agents.shared import open_question
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

BOB = Principal(PrincipalKind.PERSON, "bob", "Bob")
EVE = Principal(PrincipalKind.PERSON, "eve", "Eve")
OTTO = Principal(PrincipalKind.PERSON, "otto", "Otto", PersonRole.OPERATOR)


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A tool in every daemon that runs commands by their words; which it was asked to run."""
    found: list[list[str]] = []

    async def run(context: ToolContext, args: dict[str, Any]) -> str:
        found.append(args["argv"])
        return "ran"

    shape = {
        "type": "object",
        "properties": {"argv": {"type": "array", "items": {"type": "string"}}},
        "required": ["argv"],
    }

    def tools(files: BoundedPool) -> tuple[Tool, ...]:
        words = Tool("run", "", shape, run, commands=lambda args: (tuple(args["argv"]),))
        return (*file_tools(files), words)

    monkeypatch.setattr(tool_pipeline, "file_tools", tools)
    return found


def of(name: str, *commands: str) -> dict[str, Any]:
    steps = [{"tool": {"name": "run", "args": {"argv": each.split(" ")}}} for each in commands]
    return agent(name, {"match": "go", "steps": [*steps, {"say": "done"}]})


async def is_done(house: VirtualDaemon, message: str) -> bool:
    query = "SELECT state FROM messages WHERE message_id = ?"
    return (await house.sql(query, message)) == [("done",)]


async def is_asked(house: VirtualDaemon, name: str = "ann", who: Principal = OTTO) -> bool:
    """Whether a turn that runs the commands is asked about one of them, which is denied then."""
    mailbox, found = house.daemon.mailbox, []
    message = await house.said(name, "go", who=who)

    async def is_over() -> bool:
        for question in await mailbox.questions.list():
            found.append(question.text)
            await mailbox.questions.answer(question.question_id, "deny", OTTO)
        return await is_done(house, message)

    await house.until(is_over)
    return bool(found)


async def give(house: VirtualDaemon, answer: str, who: Principal = OTTO) -> None:
    message = await house.said("ann", "go", who=who)
    mailbox, question = house.daemon.mailbox, await open_question(house)
    assert "pattern:make *" in question.options
    await mailbox.questions.answer(question.question_id, answer, OTTO)
    await mailbox.queue.wait_done(message, 900)


async def change(house: VirtualDaemon, statement: str) -> None:
    await house.db.write(lambda tx: tx.execute(statement))


async def listed(house: VirtualDaemon) -> list[Grant]:
    return [*await Grants(house.db, house.clock).all()]


async def test_a_pattern_ends_with_its_run(household: Open, made: list[list[str]]) -> None:
    house = await household(of("ann", "make a", "make b"))
    await give(house, "pattern:run:make *")
    assert made == [["make", "a"], ["make", "b"]]
    assert await listed(house) == []
    assert await is_asked(house)


async def test_a_pattern_of_today_ends_at_midnight(household: Open) -> None:
    house = await household(of("ann", "make a"))
    await give(house, "pattern:today:make *")
    (grant,) = await listed(house)
    assert grant.until_at is not None
    assert not await is_asked(house)
    left_s = (grant.until_at - house.clock.now_ms()) / 1000
    assert 0 < left_s <= 86_400
    await asyncio.sleep(left_s + 1)
    assert await listed(house) == []
    assert await is_asked(house)


@pytest.mark.parametrize(
    "wider",
    [
        ("ann", "pip install x"),
        ("ann", "make -f x"),
        ("ann", "make CC=x"),
        ("ann", "make /tmp/x"),
        ("ann", "make ../x"),
        ("bea", "make a"),
    ],
)
async def test_a_pattern_is_no_wider_than_it_was_shown(
    household: Open, wider: tuple[str, str]
) -> None:
    name, command = wider
    others = [of("bea", command)] if name == "bea" else []
    house = await household(of("ann", "make a", *([] if others else [command])), *others)
    await give_first(house)
    assert await is_asked(house, name)


async def give_first(house: VirtualDaemon) -> None:
    """Give the pattern for the first question of a turn, and deny what else it asks."""
    message = await house.said("ann", "go", who=OTTO)
    mailbox = house.daemon.mailbox
    answers = iter(["pattern:make *", "deny"])

    async def step() -> bool:
        for question in await mailbox.questions.list():
            await mailbox.questions.answer(question.question_id, next(answers), OTTO)
        return await is_done(house, message)

    await house.until(step)


async def test_a_pattern_is_for_one_persons_work_in_one_workspace(household: Open) -> None:
    house = await household(of("ann", "make a"), config='[people.otto]\nrole = "operator"\n')
    await give(house, "pattern:make *", who=BOB)
    (grant,) = await listed(house)
    assert grant.person == BOB.person
    assert grant.workspace == str(house.home.workspace("ann"))
    assert not await is_asked(house, who=BOB)
    assert await is_asked(house, who=EVE)
    await change(house, "UPDATE grants SET workspace = '/elsewhere'")
    assert await is_asked(house, who=BOB)


async def test_uses_are_counted_once_for_each_call(household: Open) -> None:
    house = await household(of("ann", "make a", "make b"))
    await give(house, "pattern:30d:make *")
    (grant,) = await listed(house)
    assert (grant.uses, grant.granted_by) == (1, "Otto")  # the first call was the person's own
    assert not await is_asked(house)
    (grant,) = await listed(house)
    assert grant.uses == 3
    assert grant.last_used_at is not None


async def test_a_grant_that_is_revoked_while_it_is_read_allows_nothing(
    household: Open, monkeypatch: pytest.MonkeyPatch, made: list[list[str]]
) -> None:
    house = await household(of("ann", "make a"))
    await give(house, "pattern:make *")
    (grant,) = await listed(house)
    is_revoked: list[str] = []

    real: Callable[..., Awaitable[Any]] = house.db.read

    async def and_then(fn: Any, *args: Any, name: str = "", **more: Any) -> Any:
        found = await real(fn, *args, name=name, **more)
        if name == "approvals.decide" and not is_revoked:
            is_revoked.append(grant.grant_id)
            grants = Grants(house.db, house.clock)
            await grants.revoke(grant.grant_id, OTTO)
        return found

    monkeypatch.setattr(house.db, "read", and_then)
    assert await is_asked(house)
    assert made == [["make", "a"]]


async def test_the_oldest_pattern_makes_room(household: Open) -> None:
    house = await household(of("ann", "make a"))
    await give(house, "pattern:make *")
    (first,) = await listed(house)
    columns = "agent_id, tool, scope, message_id, question_id, granted_by, granted_at, pattern"
    for number in range(MOST_PATTERNS):
        await change(
            house,
            f"INSERT INTO grants (grant_id, {columns}) SELECT 'g{number}', agent_id, tool, scope,"
            f" message_id, '', granted_by, granted_at + {number}, 'make x{number}' FROM grants"
            f" WHERE grant_id = '{first.grant_id}'",
        )
    await change(house, "UPDATE grants SET person = 'nobody'")
    await give(house, "pattern:make *")
    found = {one.grant_id for one in await listed(house)}
    assert len(found) == MOST_PATTERNS
    assert first.grant_id not in found


def test_when_an_end_comes() -> None:
    zone = ZoneInfo("Europe/Berlin")
    now = round(datetime(2026, 3, 28, 23, 30, tzinfo=zone).timestamp() * 1000)
    today = until(GrantEnd.TODAY, now, zone)
    assert today is not None
    assert today - now == 30 * 60_000
    sunday = round(datetime(2026, 3, 29, 0, 0, tzinfo=zone).timestamp() * 1000)
    clock_change = until(GrantEnd.TODAY, sunday, zone)
    assert clock_change is not None
    assert clock_change - sunday == 23 * 3_600_000
    assert until(GrantEnd.DAYS_30, now, UTC) == now + 30 * 86_400_000
    assert until(GrantEnd.REVOKED, now, UTC) is None
