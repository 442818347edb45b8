"""Handing work on to agents and roles: whose place, how deep, how often, and what comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from tests.component.agents.handing_on import call, document, runs, said, say
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual


async def test_a_task_is_done_in_the_others_place_on_the_callers_message(household: Open) -> None:
    house = await household(
        agent("ann", call("go", "delegate_task", prompt="sum it", agent="ben", label="sums")),
        agent("ben", say(".*sum it.*", "42, says ben")),
    )
    assert await said(house, "ann", "go") == "[sums]\n\n42, says ben"
    assert await runs(house) == [("delegate", 1, "ann")]
    # The caller waited, so nothing is told twice.
    assert await house.sql("SELECT count(*) FROM messages WHERE kind = 'reply'") == [(0,)]


async def test_only_the_summary_comes_back_where_that_is_asked_for(household: Open) -> None:
    long = "Much.\n\n## Summary\nIt is 42.\n\n## Appendix\nMore."
    args = {"prompt": "sum it", "agent": "ben", "return_mode": "summary"}
    house = await household(
        agent("ann", call("go", "delegate_task", **args)), agent("ben", say(".*", long))
    )
    assert await said(house, "ann", "go") == "It is 42."


async def test_work_in_the_background_is_told_of_later(household: Open) -> None:
    args = {"prompt": "dig", "agent": "ben", "background": True, "label": "dig"}
    house = await household(
        agent("ann", call("go", "delegate_task", **args), say("dug", "ben says: dug")),
        agent("ben", say(".*dig.*", "dug", after_s=60)),
    )
    started = await document(house, "ann", "go")
    assert started["status"] == "queued"
    assert started["jobId"] == started["run_id"]
    await house.until(lambda: "ben says: dug" in house.texts())


async def test_a_wait_that_runs_out_fails_nothing(household: Open) -> None:
    args = {"prompt": "dig", "agent": "ben", "timeout": 5}
    house = await household(
        agent("ann", call("go", "delegate_task", **args), say("dug", "told later")),
        agent("ben", say(".*dig.*", "dug", after_s=60)),
    )
    assert "It is still running; it goes on as msg_" in await said(house, "ann", "go")
    await house.until(lambda: "told later" in house.texts())


async def test_a_circle_is_refused_at_its_first_repeat_and_no_model_is_asked(
    household: Open,
) -> None:
    def on(match: str, to: str) -> dict[str, object]:
        return call(match, "delegate_task", prompt=f"to {to}", agent=to)

    house = await household(
        agent("ann", on("go", "ben")),
        agent("ben", on(".*to ben", "cat")),
        agent("cat", on(".*to cat", "ann")),
    )
    answer = await said(house, "ann", "go")
    assert "can't be handed to whoever handed it on" in answer
    assert await runs(house) == [("delegate", 1, "ann"), ("delegate", 2, "ann")]
    assert await house.sql("SELECT count(*) FROM segments") == [(3,)]


async def test_work_is_handed_on_three_times_and_no_further(household: Open) -> None:
    names = ["ann", "ben", "cat", "dan", "eve"]
    house = await household(
        *(
            agent(name, call(f"(go|.*for {name})", "delegate_task", prompt=f"for {to}", agent=to))
            for name, to in pairwise(names)
        ),
        agent("eve", say(".*", "never")),
    )
    assert "work may be handed on 3 times" in await said(house, "ann", "go")
    assert [depth for _, depth, _ in await runs(house)] == [1, 2, 3]


async def test_the_eleventh_delegation_is_told_to_sum_up(household: Open) -> None:
    steps = [
        {"tool": {"name": "delegate_task", "args": {"prompt": f"part {n}", "agent": "ben"}}}
        for n in range(11)
    ]
    house = await household(
        agent("ann", {"match": "go", "steps": [*steps, {"say": "$result"}]}),
        agent("ben", say(".*", "done")),
    )
    assert "Sum up now what you have, and say what is left to do" in await said(house, "ann", "go")
    assert len(await runs(house)) == 10
    # It is counted for each request of a person.
    assert "Sum up now" in await said(house, "ann", "go")
    assert len(await runs(house)) == 20


async def test_across_roles_it_must_be_granted_and_the_error_says_where(household: Open) -> None:
    to_ben = call("ben", "delegate_task", prompt="x", agent="ben")
    as_planner = call("planner", "delegate_task", prompt="x", role="planner")
    misspelt = call("planer", "delegate_task", prompt="x", role="planer")
    ben = agent("ben", say(".*", "by ben"), role="operator")
    ann = agent("ann", to_ben, as_planner, misspelt, say(".*", "by ann"))
    house = await household(ann, ben)
    assert "ann is in no role, ben is in the role operator" in await said(house, "ann", "ben")
    assert '"can_delegate_to": ["ben"]' in await said(house, "ann", "ben")
    assert await said(house, "ann", "planner") == "by ann"
    assert "did you mean 'planner'" in await said(house, "ann", "planer")
    assert await runs(house) == [("delegate", 1, "ann")]

    await house.save([{**ann, "can_delegate_to": ["ben"]}, ben])
    assert await said(house, "ann", "ben") == "by ben"
    await house.save([{**ann, "can_delegate_to": ["cat"]}, ben, agent("cat")])
    assert "its can_delegate_to lists cat" in await said(house, "ann", "ben")
    await house.save([{**ann, "role": "operator"}, ben, agent("cat")])
    assert await said(house, "ann", "ben") == "by ben"
    refused = await said(house, "ann", "planner")
    assert "ann is in the role operator and may not" in refused
    assert '"can_delegate_to": ["planner"]' in refused


async def test_what_several_think_comes_together_and_who_fails_is_named(household: Open) -> None:
    minds = [{"prompt": "think", "personality": "ben"}, {"prompt": "think", "personality": "cat"}]
    one = call("go", "mixture_of_agents", agents=minds)
    same = call("again", "mixture_of_agents", prompts=minds)
    made = call("made", "mixture_of_agents", agents=minds, synthesis_prompt="One of both:")
    house = await household(
        agent("ann", one, same, made, say("One of both.*", "both"), tools=["mixture_of_agents"]),
        agent("ben", say(".*think", "tea")),
        agent("cat", {"match": ".*think", "steps": [{"fail": "no idea"}]}),
    )
    answer = await said(house, "ann", "go")
    assert "## ben\n\ntea" in answer
    assert "## cat\n\n(no idea" in answer
    assert "## ben\n\ntea" in await said(house, "ann", "again")
    assert "## Synthesis\n\nboth" in await said(house, "ann", "made")
    assert ("mixture", 1, "ben") in await runs(house)


@pytest.mark.parametrize("word", ["/stop", "/interrupt"])
@pytest.mark.parametrize(
    "tool, args",
    [
        ("delegate_task", {"agent": "ben"}),
        ("route_to_agent", {"capability": "code"}),
        ("dispatch_team", {"team": "red"}),
    ],
)
async def test_what_a_stopped_turn_waits_for_is_stopped_with_it(
    household: Open, word: str, tool: str, args: dict[str, str]
) -> None:
    on = call(".*dig", "delegate_task", prompt="deep", agent="cat")
    house = await household(
        agent("ann", call("go", tool, prompt="dig", **args), tools=["*"]),
        agent("ben", on, capabilities=["code"], team="red"),
        agent("cat", say("deep", "dug", after_s=60)),
    )
    await house.said("ann", "go")
    await house.until(_are_two(house))
    await house.clock.sleep(3)
    assert (await house.command("ann", word)).ok
    await house.clock.sleep(100)
    states = await house.sql("SELECT kind, state FROM messages ORDER BY seq")
    assert states == [("chat", "cancelled"), ("task", "cancelled"), ("task", "cancelled")]
    assert len(house.texts()) == 1


def _are_two(house: VirtualDaemon) -> Callable[[], Awaitable[bool]]:
    async def are_two() -> bool:
        return len(await runs(house)) == 2

    return are_two


async def test_what_goes_on_in_the_background_outlives_its_starter(household: Open) -> None:
    args = {"prompt": "dig", "agent": "ben", "background": True, "label": "dig"}
    start = {"tool": {"name": "delegate_task", "args": args}}
    house = await household(
        agent("ann", {"match": "go", "steps": [start, {"sleep": 60}, {"say": "x"}]}),
        agent("ben", say("dig", "dug", after_s=30)),
    )
    await house.said("ann", "go")
    await house.clock.sleep(10)
    await house.command("ann", "/interrupt")
    await house.until(lambda: any("dug" in text for text in house.texts()))


@pytest.mark.parametrize("more", [{}, {"role": "planner"}])
async def test_who_works_in_anothers_place_has_its_own_work_done_as_itself(
    household: Open, more: dict[str, str]
) -> None:
    house = await household(
        agent("ann", call("go", "delegate_task", prompt="first", agent="ben"), say(".*", "by ann")),
        agent("ben", call("first", "delegate_task", prompt="second", **more), say(".*", "by ben")),
    )
    assert await said(house, "ann", "go") == "by ben"
    assert await runs(house) == [("delegate", 1, "ann"), ("delegate", 2, "ann")]
