"""What a daemon shows of its turns: one tree over agents, whole after cancels, crashes and kills."""

from __future__ import annotations

from typing import Any

import pytest

from agentsup.model.message import NewMessage, text_parts
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind
from agentsup.model.trace import SpanKind
from agentsup.observe.traces import SpanNode, TraceFinding, examine, tree, views
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

ASK = [
    {"tool": {"name": "ask_agent", "args": {"to": "ben", "message": "ping"}}},
    {"say": "$result"},
]


async def spans_of(house: VirtualDaemon, wanted: str) -> list[SpanNode]:
    def read(reader: Any) -> list[SpanNode]:
        trace = views.find(reader, wanted)
        found = tree.tree(reader, trace) if trace else None
        return list(found.spans) if found else []

    return await house.db.read(read)


def drawn(spans: list[SpanNode]) -> list[str]:
    return [f"{'  ' * s.depth}{s.kind} {s.name} {s.state}" for s in spans]


async def test_agents_that_ask_each_other_are_one_tree(household: Open) -> None:
    house = await household(agent("ann", {"match": "go", "steps": ASK}), agent("ben"))
    message = await house.ask("ann", "go")
    spans = await spans_of(house, message.message_id)
    assert drawn(spans) == [
        "turn ann ok",
        "  segment ann ok",
        "    engine scripted ok",
        "      tool ask_agent ok",
        "  turn ben ok",
        "    segment ben ok",
        "      engine scripted ok",
        "    delivery console notice ok",
        "  delivery console answer running",
    ]


SLOW = {
    "match": "slow.*",
    "steps": [{"tool": {"name": "fs_list", "args": {}}}, {"sleep": 250}, {"say": "late"}],
}
QUESTION = {
    "match": "q",
    "steps": [{"question": {"text": "Which?", "options": ["red", "blue"]}}, {"say": "$result"}],
}
LOOP = {
    "match": "again",
    "steps": [{"tool": {"name": "memory_save", "args": {"key": "tea", "content": "green"}}}] * 4
    + [{"tool": {"name": "memory_save", "args": {"key": "tea", "content": "black"}}}]
    + [{"tool": {"name": "memory_save", "args": {"key": "tea", "content": "green"}}}] * 4
    + [{"say": "done"}],
}


def one(spans: list[SpanNode], kind: SpanKind) -> SpanNode:
    (found,) = [span for span in spans if span.kind == kind]
    return found


async def test_a_stopped_turn_has_its_trace(household: Open) -> None:
    house = await household(agent("ann", SLOW))
    message_id = await house.said("ann", "slow")
    await house.clock.sleep(5)
    running = await spans_of(house, message_id)
    assert {span.state for span in running if span.kind in ("turn", "segment", "engine")} == {
        "running"
    }
    await house.command("ann", "/stop")
    spans = await spans_of(house, message_id)
    assert {span.state for span in spans if span.kind in ("turn", "segment", "engine")} == {
        "cancelled"
    }
    assert one(spans, SpanKind.SEGMENT).duration_us == 5_000_000
    assert one(spans, SpanKind.TURN).ended_at is not None


async def test_what_was_under_way_at_a_kill_is_interrupted_and_the_turn_goes_on(
    household: Open,
) -> None:
    house = await household(agent("ann", SLOW))
    message_id = await house.said("ann", "slow")
    await house.clock.sleep(5)
    await spans_of(house, message_id)
    await house.restart(kill=True)
    await house.daemon.mailbox.queue.wait_done(message_id, 900.0)
    spans = await spans_of(house, message_id)
    assert drawn([span for span in spans if span.kind in ("turn", "segment", "engine")]) == [
        "turn ann ok",
        "  segment ann interrupted",
        "  segment ann ok",
        "    engine scripted ok",
    ]
    assert spans[0].duration_us is not None
    assert spans[0].duration_us > 250_000_000
    interrupted = next(span for span in spans if span.kind == "segment")
    assert interrupted.duration_us is None, "nobody saw its end"


async def test_a_turn_killed_for_good_is_shown_interrupted(household: Open) -> None:
    house = await household(agent("ann", SLOW))
    message_id = await house.said("ann", "slow")
    await house.clock.sleep(1)
    await spans_of(house, message_id)
    await house.die()
    await house.assemble()
    spans = await spans_of(house, message_id)
    assert {span.state for span in spans if span.kind in ("turn", "segment", "engine")} == {
        "interrupted"
    }
    house.daemon.reconciler.converge_all()


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_wait_for_a_person_stands_in_its_turn(household: Open, is_killed: bool) -> None:
    house = await household(agent("ann", QUESTION))
    message_id = await house.said("ann", "q")
    await house.clock.sleep(60)
    assert one(await spans_of(house, message_id), SpanKind.TURN).state == "parked"
    if is_killed:
        await house.restart(kill=True)
    (question,) = await house.daemon.mailbox.questions.list()
    await house.daemon.mailbox.questions.answer(question.question_id, "red", OPERATOR)
    await house.daemon.mailbox.queue.wait_done(message_id, 60.0)
    spans = await spans_of(house, message_id)
    wait = one(spans, SpanKind.PERSON)
    assert (wait.state, wait.detail, wait.depth) == ("ok", "Which?", 1)
    assert wait.duration_us is not None
    assert wait.duration_us >= 59_000_000
    assert [span.state for span in spans if span.kind == "segment"] == ["parked", "ok"]
    assert spans[0].state == "ok"


async def test_a_turn_stopped_while_it_waits_ends_in_its_trace_too(household: Open) -> None:
    house = await household(agent("ann", QUESTION))
    message_id = await house.said("ann", "q")
    await house.clock.sleep(1)
    await house.command("ann", "/stop")
    spans = await spans_of(house, message_id)
    assert (spans[0].state, one(spans, SpanKind.PERSON).state) == ("cancelled", "cancelled")


async def test_answers_that_come_later_belong_to_the_same_tree(household: Open) -> None:
    steps = [
        {"tool": {"name": "ask_agent_async", "args": {"to": "ben", "message": "ping"}}},
        {"say": "sent"},
    ]
    house = await household(agent("ann", {"match": "go", "steps": steps}), agent("ben"))
    message = await house.ask("ann", "go")
    await house.clock.sleep(10)
    turns = [s for s in await spans_of(house, message.message_id) if s.kind == "turn"]
    assert [(turn.name, turn.state) for turn in turns] == [
        ("ann", "ok"),
        ("ben", "ok"),
        ("ann", "ok"),
    ]
    assert turns[0].depth < turns[1].depth < turns[2].depth


async def test_traces_are_found_by_their_last_their_message_and_their_beginning(
    household: Open,
) -> None:
    house = await household(agent("ann"))
    first = await house.ask("ann", "one")
    last = await house.ask("ann", "two")
    by_message = await spans_of(house, first.message_id)
    assert by_message[0].message_id == first.message_id
    assert (await spans_of(house, "last"))[0].message_id == last.message_id
    trace = first.traceparent[3:35]
    assert (await spans_of(house, trace[:10]))[0].message_id == first.message_id
    assert await spans_of(house, "msg_nothing") == await spans_of(house, "f" * 32) == []
    page = await house.db.read(lambda r: views.newest(r, limit=1))
    assert [row.message_id for row in page] == [last.message_id]
    rest = await house.db.read(lambda r: views.newest(r, before=page[0].cursor))
    assert [row.message_id for row in rest] == [first.message_id]


async def test_a_message_that_came_without_a_trace_gets_one(household: Open) -> None:
    house = await household(agent("ann", {"match": "go", "steps": ASK}), agent("ben"))
    new = NewMessage(
        agent_id=house.roster.entry("ann").agent_id,
        session_key="s",
        parts=text_parts("go"),
        principal=OPERATOR,
    )
    accepted = await house.daemon.mailbox.queue.accept(new)
    await house.daemon.mailbox.queue.wait_done(accepted.message_id, 60)
    spans = await spans_of(house, accepted.message_id)
    assert [span.name for span in spans if span.kind == "turn"] == ["ann", "ben"]


FAILS = {"match": "odd", "steps": [{"fail": "the model is out"}]}


async def test_a_failed_attempt_names_its_engine_and_its_error(household: Open) -> None:
    house = await household(agent("ann", FAILS))
    message = await house.ask("ann", "odd")
    spans = await spans_of(house, message.message_id)
    assert drawn(spans)[:3] == [
        "turn ann failed",
        "  segment ann failed",
        "    engine scripted failed",
    ]
    assert (spans[0].code, spans[0].detail) == ("engine_failed", "the model is out")


# -- the doctor --------------------------------------------------------------------------------------


async def found(
    house: VirtualDaemon, *, later_ms: int = 0, boot_id: str | None = ""
) -> list[TraceFinding]:
    boot = house.boot.boot_id if boot_id == "" else boot_id
    now = house.clock.now_ms() + later_ms
    return await house.db.read(lambda reader: examine(reader, now, boot))


async def test_a_quiet_house_has_nothing_amiss(household: Open) -> None:
    house = await household(agent("ann", {"match": "go", "steps": ASK}, QUESTION), agent("ben"))
    await house.ask("ann", "go")
    await house.said("ann", "q")
    await house.clock.sleep(1)
    assert await found(house) == []
    assert await found(house, boot_id=None) == []


async def test_the_same_call_again_and_again_is_found(household: Open) -> None:
    house = await household(agent("ann", LOOP))
    message = await house.ask("ann", "again")
    assert message.outcome == "ok"
    (loop,) = await found(house)
    assert loop.subject == "loops"
    assert f"ann called memory_save 8 times alike in {message.message_id}" in loop.text
    assert message.message_id in loop.advice


async def test_agents_that_play_ping_pong_are_found(household: Open) -> None:
    house = await household(agent("ann"), agent("ben"))
    message = await house.ask("ann", "go")
    a, b = (house.roster.entry(name).agent_id for name in ("ann", "ben"))

    def send(tx: Any) -> None:
        for number in range(8):
            to, by = (b, a) if number % 2 else (a, b)
            new = NewMessage(
                agent_id=to,
                session_key=f"x{number}",
                parts=text_parts("hey"),
                principal=Principal(PrincipalKind.AGENT, by, "x"),
                sender_agent_id=by,
                root_id=message.message_id,
            )
            house.daemon.mailbox.queue.accept_tx(tx, new)

    await house.db.write(send)
    (loop,) = await found(house)
    assert loop.subject == "loops"
    assert f"sent each other 8 messages within the request {message.message_id}" in loop.text


async def test_timeouts_leaks_and_stuck_questions_are_found(household: Open) -> None:
    house = await household(agent("ann", QUESTION))
    await house.said("ann", "q")
    await house.clock.sleep(1)
    ann = house.roster.entry("ann").agent_id

    def write(tx: Any) -> None:
        for number in range(6):
            tx.execute(
                "INSERT INTO messages (message_id, agent_id, session_id, kind, lane, priority, state,"
                " outcome, parts, principal, deliver_to, root_id, accepted_at, started_at,"
                " finished_at, error_code) SELECT ?, agent_id, session_id, kind, lane, priority,"
                " 'done', 'failed', parts, principal, deliver_to, 'r', accepted_at, accepted_at,"
                " accepted_at, 'turn_timed_out' FROM messages LIMIT 1",
                (f"msg_t{number}",),
            )
        tx.execute(
            "INSERT INTO processes VALUES (4711, 1, 'boot-0', ?, 'msg_gone', '/bin/cat', 1)", (ann,)
        )
        tx.execute("UPDATE questions SET deadline_at = ?", (house.clock.now_ms(),))

    await house.db.write(write)
    told = {(one.subject, one.text) for one in await found(house, later_ms=120_000)}
    assert {subject for subject, _ in told} == {"timeouts", "leaks", "questions"}
    texts = "\n".join(text for _, text in told)
    assert "6 turns of ann ran out of time" in texts
    assert "/bin/cat (group 4711)" in texts
    assert "open past their deadline" in texts
    await house.db.write(lambda tx: tx.execute("UPDATE questions SET deadline_at = NULL"))
    texts = "\n".join(one.text for one in await found(house, later_ms=2 * 86_400_000))
    assert "without a deadline are open for over a day" in texts
    await house.db.write(
        lambda tx: tx.execute('UPDATE messages SET deliver_to = \'{"kind": "store"}\'')
    )
    texts = "\n".join(one.text for one in await found(house, later_ms=2 * 86_400_000))
    assert "asked in no chat" in texts
    assert all(one.advice for one in await found(house))
    await house.db.write(lambda tx: tx.execute("DELETE FROM processes"))
