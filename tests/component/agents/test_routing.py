"""Work for other agents themselves: who is chosen, fan-out with deadlines, fallback, and crashes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.component.agents.handing_on import call, document, runs, said, say
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

TEAM = ["route_to_agent", "dispatch_team", "broadcast_to_agents", "list_team"]
ROUTE = {"capability": "code", "prompt": "write it"}


def member(name: str, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return agent(name, *rules, team="red", capabilities=["code"], **more)


def tasks(*capabilities: str, **more: Any) -> list[dict[str, Any]]:
    return [
        {"capability": each, "prompt": f"part {n}", **more} for n, each in enumerate(capabilities)
    ]


async def test_three_that_take_a_second_each_take_less_than_one_and_a_half(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            call("team", "dispatch_team", team="red", prompt="go"),
            call("tasks", "dispatch_team", tasks=tasks("code", "code", "code")),
            tools=TEAM,
        ),
        *(member(name, say(".*", f"{name} is done", after_s=1)) for name in ("ben", "cat", "dan")),
    )
    began_s = house.clock.monotonic()
    found = await document(house, "ann", "team")
    assert house.clock.monotonic() - began_s < 1.5
    assert {name: each["text"] for name, each in found.items()} == {
        name: f"{name} is done" for name in ("ben", "cat", "dan")
    }
    began_s = house.clock.monotonic()
    found = await document(house, "ann", "tasks")
    assert house.clock.monotonic() - began_s < 1.5
    assert sorted(each["agent"] for each in found) == ["ben", "cat", "dan"]
    assert [(each["task"], each["ok"], each["attempts"]) for each in found] == [
        (0, True, 1),
        (1, True, 1),
        (2, True, 1),
    ]


async def test_one_that_hangs_holds_up_nobody_and_tells_its_result_later(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            call("go", "dispatch_team", team="red", prompt="go", timeout_s=10),
            say("at last", "heard of it"),
            say("hello", "I am free"),
            tools=TEAM,
            slots=1,
        ),
        member("ben", say(".*", "quick", after_s=1)),
        member("cat", say(".*", "at last", after_s=200)),
    )
    asked = await house.said("ann", "go")
    await house.clock.sleep(2)
    # Its only slot is free while it waits.
    assert (await house.ask("ann", "hello", conversation="other")).result_text == "I am free"
    began_s = house.clock.monotonic()
    done = await house.daemon.mailbox.queue.wait_done(asked, 60)
    assert house.clock.monotonic() - began_s < 10
    found = json.loads(done.result_text)
    assert found["ben"] == {**found["ben"], "ok": True, "text": "quick"}
    assert found["cat"]["status"] == "running"
    assert "its result will come as a message" in found["cat"]["error"]
    await house.until(lambda: "heard of it" in house.texts())


async def test_the_choice_is_on_record_with_all_reasons_and_shown(household: Open) -> None:
    house = await household(
        agent("ann", call("go", "route_to_agent", **ROUTE), tools=TEAM),
        member("ben", say(".*", "by ben")),
        member("cat", enabled=False),
        agent("dan", capabilities=["cook"]),
    )
    assert await said(house, "ann", "go") == "[ben]\n\nby ben"
    [(text,)] = await house.sql("SELECT data FROM events WHERE type = 'route.chosen'")
    data = json.loads(text)
    assert (data["agent"], data["reason"]) == ("ben", "1 of 1 (code), 0 open")
    out = {each["agent"]: each["reason"] for each in data["out"]}
    assert out["cat"] == "is stopped"
    assert out["dan"] == "can't do code"
    shown = (await house.command("ann", "/trace")).text
    assert "given to ben (1 of 1 (code), 0 open)" in shown


async def test_after_a_failure_the_next_one_is_asked_and_nobody_twice(household: Open) -> None:
    failing = {"match": ".*", "steps": [{"fail": "no idea"}]}
    house = await household(
        agent("ann", call("go", "route_to_agent", **ROUTE), tools=TEAM),
        member("ben", failing),
        member("cat", failing),
        member("dan", say(".*", "by dan")),
        member("eve", say(".*", "by eve")),
    )
    assert await said(house, "ann", "go") == "[dan]\n\nby dan"
    assert [name for _, _, name in await runs(house)] == ["ben", "cat", "dan"]


async def test_an_agent_that_fails_again_and_again_is_left_alone_for_a_while(
    household: Open,
) -> None:
    failing = {"match": ".*", "steps": [{"fail": "no idea"}]}
    house = await household(
        agent("ann", call("go", "route_to_agent", retries=0, **ROUTE), tools=TEAM),
        member("ben", failing),
    )
    for _ in range(3):
        assert "nobody could do it after 1 attempts: ben: no idea" in await said(house, "ann", "go")
    assert "ben failed several times in a row" in await said(house, "ann", "go")
    assert len(await runs(house)) == 3
    await house.clock.sleep(31)
    await said(house, "ann", "go")
    assert len(await runs(house)) == 4


async def test_a_session_with_another_is_kept_unless_a_fresh_one_is_wanted(
    household: Open,
) -> None:
    house = await household(
        agent(
            "ann",
            call("go", "route_to_agent", **ROUTE),
            call("fresh", "route_to_agent", fresh=True, **ROUTE),
            tools=TEAM,
        ),
        member("ben", say(".*", "by ben")),
    )
    for text in ("go", "go", "fresh", "go"):
        await said(house, "ann", text)
    found = await house.sql("SELECT session_id FROM messages WHERE kind = 'task' ORDER BY seq")
    first, second, third, fourth = [row[0] for row in found]
    assert first == second
    assert first != third == fourth


async def test_a_crash_in_the_midst_of_a_fan_out_starts_nothing_twice(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            call("go", "dispatch_team", tasks=tasks("code", "code", "code")),
            tools=TEAM,
        ),
        *(member(name, say(".*", f"{name} is done", after_s=5)) for name in ("ben", "cat", "dan")),
    )
    message = await house.said("ann", "go")
    await house.until(_three_run(house))
    await house.clock.sleep(2)
    await house.restart(kill=True)
    done = await house.daemon.mailbox.queue.wait_done(message, 600)
    found = json.loads(done.result_text)
    assert sorted(each["text"] for each in found) == ["ben is done", "cat is done", "dan is done"]
    assert len(await runs(house)) == 3
    assert await house.sql("SELECT count(*) FROM events WHERE type = 'route.chosen'") == [(3,)]
    assert await house.sql("SELECT count(*) FROM messages WHERE kind = 'reply'") == [(0,)]


def _three_run(house: VirtualDaemon) -> Any:
    async def are_three() -> bool:
        return len(await runs(house)) == 3

    return are_three


async def test_all_are_told_or_asked(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            call("tell", "broadcast_to_agents", prompt="tea is ready"),
            call("ask", "broadcast_to_agents", prompt="tea?", mode="ask", team="red"),
            tools=TEAM,
        ),
        member("ben", say("tea.", "yes")),
        member("cat", {"match": "tea.", "steps": [{"fail": "no tongue"}]}),
    )
    told = await document(house, "ann", "tell")
    assert {each["agent"] for each in told["delivered"]} >= {"ben", "cat"}
    answer = await said(house, "ann", "ask")
    assert "## ben\n\nyes" in answer
    assert "Not answered: cat: no tongue" in answer


async def test_the_team_is_listed_with_what_it_can_do(household: Open) -> None:
    house = await household(
        member(
            "ann", call("go", "list_team"), call("me", "list_team", include_self=True), tools=TEAM
        ),
        member("ben"),
        agent("dan", team="blue"),
    )
    [ben] = await document(house, "ann", "go")
    assert (ben["personality"], ben["capabilities"], ben["status"]) == ("ben", ["code"], "running")
    assert [each["personality"] for each in await document(house, "ann", "me")] == ["ann", "ben"]


@pytest.mark.parametrize(
    "args, part",
    [
        ({"tasks": []}, "give either a team with a prompt, or tasks"),
        ({"team": "red"}, "'prompt' is missing"),
        ({"team": "green", "prompt": "x"}, "there is no team 'green'"),
        ({"tasks": [{"capability": "code"}]}, "'prompt' is missing"),
        ({"tasks": tasks(*["code"] * 13)}, "one call sets 1 to 12 to work, and this one 13"),
        ({"tasks": "x"}, "must be a list of objects"),
    ],
)
async def test_what_is_amiss_is_said(household: Open, args: dict[str, Any], part: str) -> None:
    house = await household(
        agent("ann", call("go", "dispatch_team", **args), tools=TEAM), member("ben")
    )
    assert part in await said(house, "ann", "go")
    assert await runs(house) == []


async def test_two_who_ask_at_once_spread(household: Open) -> None:
    house = await household(
        *(
            agent(name, call("go", "route_to_agent", **ROUTE), tools=TEAM)
            for name in ("ann", "amy")
        ),
        member("ben", say(".*", "by ben", after_s=5)),
        member("cat", say(".*", "by cat", after_s=5)),
    )
    first = asyncio.gather(said(house, "ann", "go"), said(house, "amy", "go"))
    assert sorted(await first) == ["[ben]\n\nby ben", "[cat]\n\nby cat"]


@pytest.mark.parametrize("tool", ["dispatch_team", "delegate_task"])
async def test_a_member_asks_back_over_a_kill_and_one_answer_comes(
    household: Open, tool: str
) -> None:
    asking = {"match": "go", "steps": [{"question": {"text": "red or blue?"}}, {"say": "$result!"}]}
    args = (
        {"team": "red", "prompt": "go"}
        if tool == "dispatch_team"
        else {
            "prompt": "go",
            "agent": "cat",
        }
    )
    house = await household(
        agent("ann", call("start", tool, **args), tools=["*"]),
        member("ben", say("go", "ben is done", after_s=1)),
        member("cat", asking),
    )
    message = await house.said("ann", "start")
    await house.until(lambda: any("red or blue?" in text for text in house.texts()))
    await house.restart(kill=True)
    await house.command("ann", "/answer red")
    done = await house.daemon.mailbox.queue.wait_done(message, 600)
    assert "red!" in done.result_text
    assert tool == "delegate_task" or "ben is done" in done.result_text
    await house.clock.sleep(100)
    assert sum("red!" in text for text in house.texts()) == 1
    assert await house.sql("SELECT count(*) FROM messages WHERE state NOT IN ('done')") == [(0,)]


async def test_why_many_have_failed_is_told_in_bounds(household: Open) -> None:
    broken = {"match": ".*", "steps": [{"fail": "x" * 10_000}]}
    house = await household(
        agent(
            "ann",
            call("ask", "broadcast_to_agents", prompt="do it", mode="ask"),
            call("give", "route_to_agent", **ROUTE, retries=5),
            tools=TEAM,
        ),
        *(member(name, broken) for name in ("ben", "cat", "dan")),
    )
    for text in ("ask", "give"):
        told = await said(house, "ann", text)
        assert len(told) < 4_000
        assert all(f"{name}: xxx" in told for name in ("ben", "cat", "dan"))
        assert told.count("[cut: 10000 characters in all]") == 3
