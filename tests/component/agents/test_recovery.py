"""Failures of engines and providers in the whole daemon: asked once more, later, elsewhere, or told."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from agentsup.agents.tools import file_tools
from agentsup.daemon.assembly import tool_pipeline
from agentsup.model.engine import EngineCaps, EngineDone, Segment
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.model.tool import Safety, Tool, ToolContext
from tests.component.agents.shared import PlayedEngine, played, rule, trouble
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

EVA = Principal(PrincipalKind.PERSON, "eva", "Eva", PersonRole.USER, language="de")


def say(text: str) -> dict[str, Any]:
    return {"say": text}


APPEND = {"tool": {"name": "append", "args": {"text": "x"}}}
FALLBACK = {
    "fallback_model": "small",
    "fallback_provider": "other",
    "fallback_options": {"rules": [rule(".*", say("from the small one"))]},
}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the blind tool ``append`` of every daemon has done, outside of the store."""
    done: list[str] = []

    async def append(context: ToolContext, args: dict[str, Any]) -> str:
        done.append(args["text"])
        return f"appended {args['text']}"

    shape = {"type": "object", "properties": {"text": {"type": "string"}}}
    tool = Tool("append", "", shape, append, safety=Safety.SAFE)
    monkeypatch.setattr(tool_pipeline, "file_tools", lambda files: (*file_tools(files), tool))
    return done


class Engine(PlayedEngine):
    caps = EngineCaps(streaming=True, tools=True, usage=True, state_is_history=True)


async def acts(house: VirtualDaemon) -> list[tuple[Any, ...]]:
    return await house.sql("SELECT tier, trouble, act FROM attempts ORDER BY attempt_id")


# -- asked once more ---------------------------------------------------------------------------------


async def test_a_turn_that_only_used_tools_is_asked_for_its_answer_once(
    household: Open, made: list[str]
) -> None:
    house = await household(
        agent(
            "ann",
            rule("go", APPEND),
            rule("go", APPEND, say("I appended it: $result"), nudge="hint"),
        )
    )
    message = await house.ask("ann", "go")
    assert (message.outcome, message.result_text) == ("ok", "I appended it: appended x")
    assert made == ["x"], "done once, met in the journal the second time"
    assert await acts(house) == [("primary", "empty", "hint")]


async def test_a_turn_that_stays_silent_is_told_as_that(household: Open, made: list[str]) -> None:
    house = await household(agent("ann", rule("go", APPEND)))
    message = await house.ask("ann", "go", who=EVA)
    assert (message.outcome, message.error_code) == ("failed", "empty_after_tool_use")
    assert made == ["x"]
    await house.until(lambda: any("aber nicht geantwortet" in text for text in house.texts()))


async def test_a_kill_between_the_two_does_nothing_twice(household: Open, made: list[str]) -> None:
    house = await household(
        agent(
            "ann",
            rule("go", APPEND),
            rule("go", APPEND, {"sleep": 60}, say("said at last"), nudge="hint"),
        )
    )
    message = await house.said("ann", "go")
    await house.until(lambda: _has(house, "hint"))
    await house.clock.sleep(10)
    await house.restart(kill=True)
    done = await house.daemon.mailbox.queue.wait_done(message, 3600)
    assert done.result_text == "said at last", "asked once more by this boot too"
    assert made == ["x"]


async def _has(house: VirtualDaemon, act: str) -> bool:
    return any(row[2] == act for row in await acts(house))


async def test_at_its_limit_of_steps_a_turn_is_summed_up_without_tools(
    household: Open, made: list[str]
) -> None:
    house = await household(
        agent(
            "ann",
            rule("go", say("Working."), APPEND, trouble("turn_limit")),
            rule("go", APPEND, say("One line is in ($result)."), nudge="wrap_up"),
        )
    )
    message = await house.ask("ann", "go")
    assert (message.outcome, message.error_code) == ("ok", "turn_limit")
    assert message.result_text.startswith("Working.\n\nOne line is in (This turn is at its limit")
    assert message.result_text.endswith(
        "[I stopped at my limit of steps; write “go on” if there is more to do.]"
    )
    assert made == ["x"]
    said = await house.sql("SELECT text FROM transcript WHERE role = 'assistant'")
    assert "[I stopped" not in said[0][0], "the model reads its own words"


async def test_a_summary_that_fails_leaves_the_limit(household: Open) -> None:
    house = await household(agent("ann", rule("go", trouble("turn_limit"))))
    message = await house.ask("ann", "go")
    assert (message.outcome, message.error_code) == ("failed", "turn_limit")
    assert await acts(house) == [("primary", "turn_limit", "wrap_up")]


# -- later -------------------------------------------------------------------------------------------


async def test_attempts_on_record_are_not_begun_anew_by_a_restart(household: Open) -> None:
    house = await household(agent("ann", rule("go", trouble("rate_limited", retry_after=20))))
    message = await house.said("ann", "go")

    found: list[int] = []
    for times in (1, 2, 3):
        while len(found) < times:
            await house.clock.sleep(1)
            rows = await house.sql("SELECT at FROM attempts ORDER BY attempt_id")
            found = [at for (at,) in rows]
        await house.restart(kill=True)
    done = await house.daemon.mailbox.queue.wait_done(message, 3600)
    assert done.state == "dead"
    assert [act for _, _, act in await acts(house)] == ["retry"] * 3 + ["bury"]
    pauses = [later - earlier for earlier, later in itertools.pairwise(found)]
    assert min(pauses) >= 20_000, "the pause that the provider asked for"


async def test_a_dead_letter_that_is_put_back_has_all_its_attempts_again(household: Open) -> None:
    house = await household(agent("ann", rule("go", trouble("server_error"))))
    message = await house.ask("ann", "go")
    assert message.state == "dead"
    await house.daemon.mailbox.failed.requeue(message.message_id, EVA)
    await house.daemon.mailbox.queue.wait_done(message.message_id, 3600)
    found = [act for _, _, act in await acts(house)]
    assert found[:5] == [*["retry"] * 3, "bury", "requeued"]
    assert (found[5:].count("retry"), found[-1]) == (3, "bury")


@pytest.mark.parametrize("code", ["auth_failed", "quota_exceeded", "model_not_found"])
async def test_what_lasts_is_told_at_once_in_the_persons_words(household: Open, code: str) -> None:
    house = await household(agent("ann", rule("go", trouble(code))))
    message = await house.ask("ann", "go", who=EVA)
    assert (message.outcome, message.error_code) == ("failed", code)
    assert message.error_text == f"it is {code}", "the operator's sentence"
    assert [act for _, _, act in await acts(house)] == []
    await house.until(lambda: any("ein Betreiber muss danach sehen" in t for t in house.texts()))
    assert all(f"it is {code}" not in text for text in house.texts())


async def test_an_operator_reads_first_what_is_to_be_mended(household: Open) -> None:
    house = await household(agent("ann", rule("go", trouble("auth_failed"))))
    await house.ask("ann", "go")
    await house.until(lambda: any(text.startswith("It is auth_failed") for text in house.texts()))


async def test_a_program_that_broke_is_started_once_more(household: Open) -> None:
    house = await household(agent("ann"))
    starts: list[str] = []

    async def breaks(segment: Segment) -> Any:
        starts.append(segment.message_id)
        yield EngineDone("failed", error="it ended with 3", code="program_ended")

    played(house, "ann", Engine(breaks))
    message = await house.ask("ann", "go")
    assert (message.outcome, message.error_code, len(starts)) == ("failed", "program_ended", 2)


async def test_a_session_too_long_for_its_model_is_shortened_once(household: Open) -> None:
    house = await household(agent("ann"))
    seen: list[int] = []

    async def run(segment: Segment) -> Any:
        seen.append(sum(len(item.text) for item in segment.history))
        if segment.text == "too long" and seen[-1] > 4000:
            yield EngineDone("failed", error="too long", code="context_overflow")
        yield EngineDone("ok", text="y" * 400)

    played(house, "ann", Engine(run))
    for _ in range(8):
        await house.ask("ann", "x" * 400)
    message = await house.ask("ann", "too long")
    assert message.outcome == "ok"
    assert seen[-2] > 4000 > seen[-1] > 0
    assert await acts(house) == [("primary", "context", "shorten")]


async def test_a_session_that_cant_be_shortened_fails_at_once(household: Open) -> None:
    house = await household(agent("ann", rule("go", trouble("context_overflow"))))
    message = await house.ask("ann", "go")
    assert (message.outcome, message.error_code) == ("failed", "context_overflow")
    assert await acts(house) == []


# -- elsewhere -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["auth_failed", "quota_exceeded", "model_not_found"])
async def test_the_fallback_answers_and_says_so_once(household: Open, code: str) -> None:
    rules = [rule("back", say("I am back")), rule(".*", trouble(code))]
    house = await household(agent("ann", *rules, **FALLBACK))
    told = "\n\n[My usual model is not available; small answers for now.]"
    assert (await house.ask("ann", "one")).result_text == "from the small one" + told
    assert (await house.ask("ann", "two")).result_text == "from the small one"
    assert (await house.ask("ann", "back")).result_text == "I am back"
    assert (await house.ask("ann", "three")).result_text.endswith(told), "it went and came again"
    said = await house.sql("SELECT text FROM transcript WHERE role = 'assistant'")
    assert all("[My usual" not in text for (text,) in said)


async def test_what_was_done_before_the_switch_is_not_done_again(
    household: Open, made: list[str]
) -> None:
    spare = {"rules": [rule("go", APPEND, say("done ($result)"))]}
    house = await household(
        agent(
            "ann",
            rule("go", APPEND, trouble("quota_exceeded")),
            fallback_model="small",
            fallback_options=spare,
        )
    )
    message = await house.ask("ann", "go")
    assert message.result_text.startswith("done (appended x)")
    assert made == ["x"]


async def test_usage_is_counted_for_the_model_that_had_it(household: Open) -> None:
    used = {"usage": {"input": 5, "output": 1}}
    house = await household(
        agent(
            "ann",
            rule("go", used, trouble("quota_exceeded")),
            model="big",
            fallback_model="small",
            fallback_options={"rules": [rule("go", used, say("ok"))]},
        )
    )
    await house.ask("ann", "go")
    rows = await house.sql("SELECT model, input_tokens FROM usage ORDER BY usage_id")
    assert rows == [("big", 5), ("small", 5)]


async def test_the_models_are_switched_from_chat_for_the_next_turn(household: Open) -> None:
    house = await household(agent("ann", rule(".*", say("from the big one")), **FALLBACK))
    before = house.instances()["ann"]
    assert "small" in (await house.command("ann", "/model")).text
    assert "fallback" in (await house.command("ann", "/model fallback")).text
    assert (await house.ask("ann", "x")).result_text == "from the small one", "wanted: not told"
    await house.restart(kill=True)
    assert (await house.ask("ann", "x")).result_text == "from the small one"
    await house.command("ann", "/model primary")
    assert (await house.ask("ann", "x")).result_text == "from the big one"
    assert before != "", "the same life"


async def test_an_edit_of_the_fallback_holds_from_the_next_turn(household: Open) -> None:
    entry = agent("ann", rule(".*", trouble("quota_exceeded")))
    house = await household(entry)
    assert (await house.ask("ann", "x")).outcome == "failed"
    instance = house.instances()["ann"]
    assert await house.save([{**entry, **FALLBACK}])
    assert (await house.ask("ann", "x")).result_text.startswith("from the small one")
    assert house.instances()["ann"] == instance, "nothing was rebuilt"


async def test_there_is_no_switch_without_a_fallback(household: Open) -> None:
    house = await household(agent("ann"))
    reply = await house.command("ann", "/model fallback")
    assert "fallback_model" in reply.text


# -- a sick provider -----------------------------------------------------------------------------------


def sick(name: str, **more: Any) -> dict[str, Any]:
    return agent(name, rule(".*", trouble("server_error")), provider="acme", **more)


async def test_a_sick_provider_is_left_alone_and_hurts_nobody_elses(household: Open) -> None:
    house = await household(
        sick("ann"), sick("ben", **FALLBACK), agent("cat", rule(".*", say("well")), provider="fine")
    )
    await house.ask("ann", "x")
    assert (await house.ask("cat", "x")).result_text == "well"
    waiting = await house.said("ann", "y")
    await house.until(lambda: _has(house, "wait"))
    row = await house.daemon.mailbox.messages.get(waiting)
    assert (row.state, row.error_code) == ("queued", "provider_out")
    assert "scripted at acme" in row.error_text
    began = house.clock.monotonic()
    assert (await house.ask("ben", "x")).result_text.startswith("from the small one")
    assert (await house.ask("cat", "x")).result_text == "well"
    assert house.clock.monotonic() - began < 1.0, "neither waited"
    assert "scripted at acme failed" in (await house.command("main", "/agents")).text
    page = (await house.daemon.metrics.scrape()).decode()
    assert 'agentsup_provider_breaker{provider="scripted at acme",state="open"} 1.0' in page


async def test_waiting_counts_as_no_attempt_and_ends_when_the_provider_is_back(
    household: Open,
) -> None:
    house = await household(agent("ann"))
    is_sick = True

    async def run(segment: Segment) -> Any:
        if is_sick:
            yield EngineDone("failed", error="down", code="server_error", permanent=False)
        yield EngineDone("ok", text="up again")

    engine = played(house, "ann", Engine(run))
    assert (await house.ask("ann", "one")).state == "dead"
    message = await house.said("ann", "two")
    await house.until(lambda: _has(house, "wait"))
    asked = len(engine.segments)
    assert asked == 5
    await house.clock.sleep(25)
    assert len(engine.segments) == asked, "left alone"
    is_sick = False
    done = await house.daemon.mailbox.queue.wait_done(message, 3600)
    assert (done.result_text, done.attempts) == ("up again", 2)


async def test_a_message_does_not_wait_for_ever(household: Open) -> None:
    house = await household(sick("ann"))
    first = await house.said("ann", "one")
    others = [await house.said("ann", f"{n}", conversation=f"c{n}") for n in range(3)]
    for message in (first, *others):
        done = await house.daemon.mailbox.queue.wait_done(message, 4 * 3600)
        assert done.state == "dead", done.error_text


async def test_a_stop_reaches_what_waits_for_a_provider(household: Open) -> None:
    house = await household(sick("ann"))
    await house.ask("ann", "one")
    message = await house.said("ann", "two")
    await house.until(lambda: _has(house, "wait"))
    await house.command("ann", "/stop")
    done = await house.daemon.mailbox.queue.wait_done(message, 60)
    assert done.state == "cancelled"
    before = len(await acts(house))
    await house.clock.sleep(600)
    assert len(await acts(house)) == before
