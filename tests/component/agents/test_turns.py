"""Turns in the whole daemon: segments, files, costs, questions, crashes, stops."""

from __future__ import annotations

from typing import Any

import pytest

from agentsup.model.engine import (
    EngineCaps,
    EngineDone,
    EngineNotice,
    EngineSpec,
    Segment,
    Suspended,
    TextDelta,
    Usage,
)
from agentsup.model.errors import StoreUnavailable
from agentsup.model.principal import OPERATOR
from agentsup.observe import LiveTurn
from tests.component.agents.shared import replace_engine, rule, until_state
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual


async def usage_rows(house: VirtualDaemon) -> list[tuple[Any, ...]]:
    return await house.sql("SELECT input_tokens, output_tokens, usd FROM usage ORDER BY 1")


async def test_a_person_gets_answer_files_and_notices_in_order(household: Open) -> None:
    house = await household(
        agent("ann", rule("go", {"say": "here"}, {"file": "a.txt"}, {"file": "b.txt"}))
    )
    workspace = house.home.workspace("ann")
    for name in ("a.txt", "b.txt"):
        (workspace / name).write_text(name)
    await house.ask("ann", "go")
    await house.channel.wait_sent(3)
    assert [(part.kind, part.body.get("path")) for part in house.channel.sent] == [
        ("answer", None),
        ("file", "a.txt"),
        ("file", "b.txt"),
    ]


async def test_files_from_before_a_question_are_sent_with_the_answer(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            rule(
                "go",
                {"file": "a.txt"},
                {"question": {"text": "sure?", "options": ["yes", "no"]}},
                {"say": "you said $result"},
            ),
        )
    )
    (house.home.workspace("ann") / "a.txt").write_text("a")
    message = await house.said("ann", "go")
    await house.until(lambda: any("sure?" in text for text in house.texts()))
    assert await house.state_of(message) == "parked"
    await house.restart(kill=True)
    await house.command("ann", "/answer yes")
    done = await house.daemon.mailbox.queue.wait_done(message, 60)
    assert done.result_text == "you said yes"
    await house.until(lambda: any(part.kind == "file" for part in house.channel.sent))


async def test_calls_before_a_question_are_not_repeated_after_it(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            rule(
                "go",
                {"effect": "log"},
                {"question": {"text": "sure?"}},
                {"effect": "log"},
                {"say": "done"},
            ),
        )
    )
    message = await house.said("ann", "go")
    await house.until(lambda: any("sure?" in text for text in house.texts()))
    log = house.home.workspace("ann") / "log"
    assert len(log.read_text().splitlines()) == 1
    await house.restart(kill=True)
    await house.command("ann", "/answer go on")
    assert (await house.daemon.mailbox.queue.wait_done(message, 60)).result_text == "done"
    assert len(log.read_text().splitlines()) == 2


async def test_a_question_that_expires_resumes_with_an_empty_answer(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            rule("go", {"question": {"text": "?", "timeout": 60}}, {"say": "got “$result”"}),
        )
    )
    message = await house.said("ann", "go")
    await house.clock.sleep(61)
    await house.daemon.mailbox.deadlines.expire()
    assert (await house.daemon.mailbox.queue.wait_done(message, 60)).result_text == "got “”"


async def test_a_blind_call_of_unknown_outcome_is_asked_about(household: Open) -> None:
    """Each of the three answers; nothing blind is repeated unasked."""
    steps = ({"effect": "log"}, {"sleep": 5}, {"say": "done"})
    house = await household(agent("ann", rule("(a|b|c)", *steps), slots=3))
    log = house.home.workspace("ann") / "log"
    ids = {}
    for text in "abc":
        ids[text] = await house.said("ann", text, conversation=text)
    await house.until(lambda: log.exists() and len(log.read_text().splitlines()) == 3)
    # As if each process had died between the effect and its record.
    await house.db.write(
        lambda tx: tx.execute("UPDATE tool_calls SET state = 'intent', ended_at = NULL").rowcount
    )
    await house.restart(kill=True)
    for text in "abc":
        await house.until(lambda text=text: bool(house.texts(text)))  # type: ignore[misc]  # bound now
        assert "can't tell whether it happened" in house.texts(text)[0]
        assert await house.state_of(ids[text]) == "parked"
    assert len(log.read_text().splitlines()) == 3
    questions = {q.message_id: q for q in await house.daemon.mailbox.questions.list()}
    answers = {"a": "it happened", "b": "do it again", "c": "skip it"}
    for text, answer in answers.items():
        question = questions[ids[text]]
        assert question.options == ("it happened", "do it again", "skip it")
        await house.daemon.mailbox.questions.answer(question.question_id, answer, OPERATOR)
    ended = {text: await house.daemon.mailbox.queue.wait_done(i, 60) for text, i in ids.items()}
    assert [ended[text].outcome for text in "abc"] == ["ok", "ok", "failed"]
    assert "chose to leave it out" in ended["c"].error_text
    assert len(log.read_text().splitlines()) == 4, "only the one that was to be done again"


async def test_a_failed_turn_says_so_and_is_paid_for(household: Open) -> None:
    house = await household(
        agent("ann", rule("go", {"usage": {"input": 7, "output": 3}}, {"fail": "no such model"}))
    )
    message = await house.ask("ann", "go")
    assert (message.state, message.outcome) == ("done", "failed")
    assert "no such model" in message.error_text
    await house.until(lambda: any("no such model" in text for text in house.texts()))
    assert await usage_rows(house) == [(7, 3, None)]


async def test_a_stopped_turn_is_paid_for(household: Open) -> None:
    house = await household(
        agent("ann", rule("go", {"usage": {"input": 7, "output": 3}}, {"sleep": 500}))
    )
    message = await house.said("ann", "go")
    await house.clock.sleep(2)
    reply = await house.command("ann", "/stop")
    assert "1 running answer" in reply.text
    assert await house.state_of(message) == "cancelled"
    assert await usage_rows(house) == [(7, 3, None)]


async def test_transient_failures_are_retried_and_then_dead(household: Open) -> None:
    house = await household(agent("ann"))

    async def fails(segment: Segment) -> Any:
        yield Usage(1, 1)
        yield EngineDone("failed", error="the provider is busy", code="busy", permanent=False)

    engine = replace_engine(house, "ann", fails)
    message = await house.ask("ann", "go")
    assert message.state == "dead"
    assert len(engine.segments) == 4
    assert len(await usage_rows(house)) == 4
    await house.until(lambda: any("4 attempts failed" in text for text in house.texts()))
    reply = await house.command("main", "/dead")
    assert message.message_id in reply.text
    assert "busy" in reply.text


async def test_the_pause_a_provider_asks_for_is_kept(household: Open) -> None:
    house = await household(agent("ann"))
    times: list[float] = []

    async def busy_once(segment: Segment) -> Any:
        times.append(house.clock.monotonic())
        if len(times) == 1:
            yield EngineDone("failed", error="busy", code="b", permanent=False, retry_after_s=90.0)
        yield EngineDone("ok", text="now")

    replace_engine(house, "ann", busy_once)
    assert (await house.ask("ann", "go")).result_text == "now"
    assert times[1] - times[0] >= 90


async def test_a_turn_has_a_time_limit(household: Open) -> None:
    house = await household(agent("ann", rule("go", {"sleep": 5000}), turn_timeout_s=60))
    began = house.clock.monotonic()
    message = await house.ask("ann", "go")
    assert message.outcome == "failed"
    assert 59 < house.clock.monotonic() - began < 75
    assert "60" in message.error_text


async def test_how_long_an_engine_may_be_silent_is_said_in_its_entry(household: Open) -> None:
    patient = agent("ann", rule("go", {"sleep": 200}, {"say": "there"}))
    house = await household(patient)
    assert (await house.ask("ann", "go")).result_text == "there", "300 s unless it is said"
    instance = house.instances()["ann"]
    assert await house.save([{**patient, "idle_timeout_s": 20}])
    began = house.clock.monotonic()
    message = await house.ask("ann", "go")
    assert (message.outcome, message.error_code) == ("failed", "turn_timed_out")
    assert message.error_text == "the turn said nothing for 20 s and was ended"
    assert 20 <= house.clock.monotonic() - began < 25
    assert house.instances()["ann"] == instance, "nothing was rebuilt"


async def test_the_engine_gets_history_and_its_own_state(household: Open) -> None:
    house = await household(agent("ann"))

    async def counts(segment: Segment) -> Any:
        number = int(segment.engine_state or b"0") + 1
        yield TextDelta(f"turn {number}")
        yield EngineDone("ok", text=f"turn {number}", engine_state=str(number).encode())

    engine = replace_engine(house, "ann", counts)
    for text in ("one", "two", "three"):
        await house.ask("ann", text)
    last = engine.segments[-1]
    assert last.engine_state == b"2"
    assert [(item.role, item.text) for item in last.history] == [
        ("user", "one"),
        ("assistant", "turn 1"),
        ("user", "two"),
        ("assistant", "turn 2"),
    ]
    await house.command("ann", "/new")
    await house.ask("ann", "fresh")
    assert engine.segments[-1].history == ()
    assert engine.segments[-1].engine_state is None


async def test_notices_of_the_engine_reach_the_person(household: Open) -> None:
    house = await household(agent("ann"))

    async def notes(segment: Segment) -> Any:
        yield EngineNotice("the context was shortened")
        yield EngineDone("ok", text="fine")

    replace_engine(house, "ann", notes)
    await house.ask("ann", "go")
    await house.channel.wait_sent(2)
    assert house.texts() == ["fine", "the context was shortened"]


async def test_a_crash_of_the_stack_spares_the_others(household: Open) -> None:
    house = await household(
        agent("ann", rule("bad", {"crash": "boom"}), rule("slow", {"sleep": 20}, {"say": "ok"})),
        agent("ben", rule("slow", {"sleep": 20}, {"say": "ok"})),
    )
    ben = house.instances()["ben"]
    slow = await house.said("ann", "slow")
    other = await house.said("ben", "slow")
    await house.clock.sleep(1)
    bad = await house.said("ann", "bad", conversation="two")
    assert (await house.daemon.mailbox.queue.wait_done(bad, 600)).state == "dead"
    done = await house.daemon.mailbox.queue.wait_done(slow, 600)
    assert (done.result_text, done.crashes) == ("ok", 0)
    assert (await house.daemon.mailbox.messages.get(other)).attempts == 1
    assert house.instances()["ben"] == ben


async def test_exit_42_is_committed_before_it_is_obeyed(household: Open) -> None:
    house = await household(
        agent("ann", rule("again", {"effect": "log"}, {"say": "bye"}, {"exit": 42})),
        agent("ben"),
    )
    before = house.instances()
    for turn in range(3):
        assert (await house.ask("ann", "again")).result_text == "bye"
        await house.until(lambda turn=turn: house.unit("ann").child.status.life == turn + 2)  # type: ignore[misc]  # bound now
        await house.settled()
    log = (house.home.workspace("ann") / "log").read_text().splitlines()
    assert len(log) == 3, "no trigger ran again"
    assert house.instances()["ben"] == before["ben"]
    view = await house.daemon.control.agent("ann")
    assert view.last_crash_error == ""
    assert view.restarts == 0


async def test_exit_42_lets_the_other_turns_finish(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            rule("again", {"say": "bye"}, {"exit": 42}),
            rule("slow", {"effect": "log"}, {"sleep": 20}, {"say": "slept"}),
            slots=2,
        )
    )
    slow = await house.said("ann", "slow")
    await house.clock.sleep(1)
    await house.said("ann", "again", conversation="two")
    done = await house.daemon.mailbox.queue.wait_done(slow, 100)
    assert (done.result_text, done.attempts) == ("slept", 1)
    await house.until(lambda: house.unit("ann").child.status.life == 2)


@pytest.mark.parametrize("delay_s", [4.99, 5.0, 5.01])
async def test_a_stop_and_a_completion_race_to_one_end(household: Open, delay_s: float) -> None:
    """Whichever commits first stands, and people see that one."""
    house = await household(agent("ann", rule("go", {"sleep": 5}, {"say": "done"})))
    message = await house.said("ann", "go")
    await house.clock.sleep(delay_s)
    await house.command("ann", "/stop")
    ended = await house.daemon.mailbox.queue.wait_done(message, 60)
    await house.clock.sleep(5)
    answers = [part for part in house.channel.sent if part.kind == "answer"]
    assert len(answers) == (ended.state == "done")
    assert (await house.ask("ann", "hello")).outcome == "ok"


async def test_run_tokens_live_as_long_as_their_turn(household: Open) -> None:
    house = await household(agent("ann"))
    seen: list[str] = []
    stack = house.unit("ann").stack
    assert stack is not None
    spec_of = stack.engine_spec

    def noting(token: str, person: str) -> EngineSpec:
        seen.append(token)
        assert house.tokens.identify(token) is not None
        made = spec_of(token, person)
        assert made.env["AGENTSUP_TOKEN"] == token
        assert made.env["AGENTSUP_AGENT"] == "ann"
        return made

    stack.engine_spec = noting  # type: ignore[method-assign]  # to look over its shoulder
    await house.ask("ann", "hello")
    assert len(seen) == 1
    assert house.tokens.identify(seen[0]) is None


async def test_turns_are_counted_for_the_metrics(household: Open) -> None:
    house = await household(agent("ann", rule("bad", {"fail": "no"})))
    await house.ask("ann", "hello")
    await house.ask("ann", "bad")
    page = (await house.daemon.metrics.scrape()).decode()
    assert 'agentsup_turns_total{agent="ann",outcome="ok"} 1.0' in page
    assert 'agentsup_turns_total{agent="ann",outcome="failed"} 1.0' in page
    assert 'agentsup_messages{agent="ann",state="done"} 2.0' in page
    assert 'agentsup_agent_state{agent="ann",state="running"} 1.0' in page
    assert "agentsup_conservation_holds 1.0" in page
    assert 'agentsup_faults_total{kind="lost_wakes"} 0.0' in page
    await house.save([])
    await house.settled()
    assert 'agentsup_turns_total{agent="ann"' not in (await house.daemon.metrics.scrape()).decode()


async def test_old_leases_are_not_resumed_by_themselves(household: Open) -> None:
    house = await household(agent("ann", rule("go", {"sleep": 500}, {"say": "x"})))
    message = await house.said("ann", "go")
    await house.clock.sleep(2)
    await house.die()
    house.clock.jump_ms(20 * 60 * 1000)
    await house.start()
    dead = await house.daemon.mailbox.queue.wait_done(message, 60)
    assert dead.state == "dead"
    assert "too long" in dead.error_text
    await house.until(lambda: any("too long" in text for text in house.texts()))


async def test_an_answer_that_could_not_be_stored_is_not_lost_for_good(
    household: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await household(agent("ann"))
    write = house.db.write
    failed: list[str] = []

    async def full_once(fn: Any, *args: Any, name: str = "", **more: Any) -> Any:
        if name == "turn.complete" and not failed:
            failed.append(name)
            raise StoreUnavailable("the disk is full")
        return await write(fn, *args, name=name, **more)

    monkeypatch.setattr(house.db, "write", full_once)
    message = await house.ask("ann", "hello")
    assert (message.outcome, message.attempts) == ("ok", 2)
    assert house.unit("ann").child.status.life == 1


async def test_no_part_of_a_secret_is_seen_in_pieces_and_none_is_asked(household: Open) -> None:
    secret = "sk-of-the-stream-4711"
    house = await household(agent("ann"))
    house.redactor.add(secret)
    stack = house.unit("ann").stack
    assert stack is not None
    seen: list[str] = []

    def begin(turn: LiveTurn) -> None:
        def look() -> None:
            seen.append(turn.text())

        turn.listen(look)

    stack._services.live.follow(stack.agent_id, "console", begin)

    async def run(segment: Segment) -> Any:
        if segment.resume is None:
            yield Suspended(b"x", f"is {secret} the key?", ("yes", secret))
            return
        for piece in ("it is ", *secret, ", I am ", "su", "re"):
            yield TextDelta(piece)
        yield EngineDone("ok", text=f"it is {secret}, I am sure")

    replace_engine(house, "ann", run).caps = EngineCaps(suspend=True)
    message = await house.said("ann", "go")
    await until_state(house, message, "parked")
    (question,) = await house.daemon.mailbox.questions.list()
    assert secret not in question.text + "".join(question.options)
    await house.daemon.mailbox.questions.answer(question.question_id, "yes", OPERATOR)
    await house.daemon.mailbox.queue.wait_done(message, 60)
    assert seen[-1] == "it is [redacted], I am sure"
    assert not any(secret[:start] in text for text in seen for start in range(2, len(secret)))


async def test_a_step_says_whom_the_agent_asks(household: Open) -> None:
    ask = {"tool": {"name": "ask_agent", "args": {"to": "ben", "message": "ping"}}}
    house = await household(
        agent("ann", {"match": "go", "steps": [ask, {"say": "$result"}]}), agent("ben")
    )
    stack = house.unit("ann").stack
    assert stack is not None
    turns: list[LiveTurn] = []
    stack._services.live.follow(stack.agent_id, "console", turns.append)
    await house.ask("ann", "go")
    step = {"name": "ask_agent", "to": "ben"}
    assert turns[0].picture()["tools"] == [
        step | {"state": "started"},
        step | {"state": "finished"},
    ]
