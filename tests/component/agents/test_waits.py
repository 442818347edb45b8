"""A person whose message waits long for a provider hears of it: once, in their chat, over restarts."""

from __future__ import annotations

import re

import pytest

from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from tests.component.agents.shared import rule, trouble
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

EVA = Principal(PrincipalKind.PERSON, "eva", "Eva", PersonRole.USER, language="de")


def told(house: VirtualDaemon, conversation: str = "local") -> list[str]:
    words = ("can't answer just now", "kann gerade nicht antworten")
    return [t for t in house.texts(conversation) if any(word in t for word in words)]


async def is_queued(house: VirtualDaemon, message_id: str) -> bool:
    return await house.state_of(message_id) == "queued"


async def test_an_answer_that_only_says_that_a_plan_is_used_up_is_a_wait_until_then(
    household: Open,
) -> None:
    used_up = "You've hit your weekly limit · resets in 3 days 4 hours"
    house = await household(agent("ann", rule("go", {"say": used_up}), user_timezone="UTC"))
    message = await house.said("ann", "go")
    await house.until(lambda: bool(told(house)))
    (text,) = told(house)
    assert "in about 3 d (" in text
    assert re.search(r"\(\d{4}-\d\d-\d\d \d\d:\d\d UTC\)", text)
    assert await is_queued(house, message)


async def test_a_long_pause_that_a_provider_wants_is_told_with_what_may_be_done(
    household: Open,
) -> None:
    house = await household(
        agent("ann", rule("go", trouble("rate_limited", retry_after=300)), user_timezone="UTC")
    )
    message = await house.said("ann", "go")
    await house.until(lambda: bool(told(house)))
    (text,) = told(house)
    assert text.startswith(
        "ann can't answer just now: the provider of its model takes no more requests for now "
        "(scripted). Your message is kept and tried again by itself in about 5 min ("
    )
    assert text.endswith(" UTC). /stop cancels it.")
    await house.command("ann", "/stop")
    assert (await house.daemon.mailbox.queue.wait_done(message, 60)).state == "cancelled"


async def test_it_is_told_once_whatever_follows_and_over_kills(household: Open) -> None:
    house = await household(agent("ann", rule("go", trouble("rate_limited", retry_after=60))))
    message = await house.said("ann", "go")
    for _ in range(3):
        await house.until(lambda: bool(told(house)))
        await house.restart(kill=True)
        await house.clock.sleep(61)
    done = await house.daemon.mailbox.queue.wait_done(message, 3600)
    assert done.state == "dead"
    assert len(told(house)) == 1
    assert await house.sql("SELECT count(*) FROM outbox WHERE body LIKE '%just now%'") == [(1,)]


async def test_who_waits_for_a_provider_that_is_left_alone_is_told_in_their_words(
    household: Open,
) -> None:
    house = await household(agent("ann", rule(".*", trouble("server_error")), provider="acme"))
    await house.ask("ann", "x", conversation="first")
    await house.ask("ann", "y", conversation="second")
    assert told(house, "first") == [], "its pauses were short"
    waiting = await house.said("ann", "z", who=EVA)
    await house.until(lambda: bool(told(house)))
    (text,) = told(house)
    assert text.startswith("ann kann gerade nicht antworten: der Anbieter seines Modells")
    assert "acme" not in text, "an endpoint is for operators"
    assert await is_queued(house, waiting)
    done = await house.daemon.mailbox.queue.wait_done(waiting, 4 * 3600)
    assert done.state == "dead"
    assert len(told(house)) == 1, "though it was put off many times"


async def test_a_short_pause_passes_without_a_word(household: Open) -> None:
    house = await household(agent("ann", rule("go", trouble("rate_limited", retry_after=15))))
    assert (await house.ask("ann", "go")).state == "dead"
    assert told(house) == []


async def test_nobody_is_told_where_an_agent_asked(household: Open) -> None:
    ask = {"tool": {"name": "ask_agent_async", "args": {"to": "ann", "message": "go"}}}
    house = await household(
        agent("main", rule("begin", ask, {"say": "asked"})),
        agent("ann", rule("go", trouble("rate_limited", retry_after=90))),
    )
    await house.ask("main", "begin")
    await house.until(lambda: _has_attempt(house))
    await house.clock.sleep(30)
    rows = await house.sql("SELECT state FROM messages ORDER BY seq")
    assert rows == [("done",), ("queued",)], "it does wait"
    assert told(house) == []
    assert await house.sql("SELECT * FROM wait_told") == []


async def _has_attempt(house: VirtualDaemon) -> bool:
    return bool(await house.sql("SELECT 1 FROM attempts"))
