"""What a daemon keeps of its turns: one tree over agents, whole after cancels, crashes and kills."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import StoreUnavailable
from agentsup.model.message import NewMessage, text_parts
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind
from agentsup.model.trace import SpanKind
from agentsup.observe.traces import rows, views
from agentsup.observe.traces.findings import TraceFinding, examine
from agentsup.observe.traces.views import SpanNode
from agentsup.store.retention import prune
from tests.component.conftest import Open
from tests.support.loop_clock import LoopClock
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

ASK = [
    {"tool": {"name": "ask_agent", "args": {"to": "ben", "message": "ping"}}},
    {"say": "$result"},
]


async def spans_of(house: VirtualDaemon, wanted: str) -> list[SpanNode]:
    await house.daemon.traces.flush()

    def read(reader: Any) -> list[SpanNode]:
        trace = views.find(reader, wanted)
        found = views.tree(reader, trace) if trace else None
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
        "        agent ben ok",
        "          turn ben ok",
        "            segment ben ok",
        "              engine scripted ok",
        "            delivery console notice ok",
        "  delivery console answer running",
    ]
    by_kind = {span.kind: span for span in spans}
    assert by_kind[SpanKind.TOOL].attributes["stages"]["policy"] == "allow"


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
    "steps": [{"tool": {"name": "fs_list", "args": {"path": "."}}}] * 4
    + [{"tool": {"name": "fs_list", "args": {"path": "x"}}}]
    + [{"tool": {"name": "fs_list", "args": {"path": "."}}}] * 4
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
    await house.daemon.mailbox.wait_done(message_id, 900.0)
    spans = await spans_of(house, message_id)
    assert drawn([span for span in spans if span.kind in ("turn", "segment", "engine")]) == [
        "turn ann ok",
        "  segment ann interrupted",
        "    engine scripted interrupted",
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
    (question,) = await house.daemon.mailbox.questions()
    await house.daemon.mailbox.answer(question.question_id, "red", OPERATOR)
    await house.daemon.mailbox.wait_done(message_id, 60.0)
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
    accepted = await house.daemon.mailbox.accept(new)
    await house.daemon.mailbox.wait_done(accepted.message_id, 60)
    spans = await spans_of(house, accepted.message_id)
    assert [span.name for span in spans if span.kind == "turn"] == ["ann", "ben"]


async def test_nothing_is_kept_where_traces_are_off(household: Open) -> None:
    house = await household(agent("ann"), config="[traces]\nenabled = false\n")
    message = await house.ask("ann", "one")
    assert await spans_of(house, message.message_id) == []


async def test_old_spans_and_too_many_go_and_open_ones_stay(household: Open) -> None:
    house = await household(agent("ann", QUESTION))
    waiting = await house.said("ann", "q")
    await house.clock.sleep(1)
    for number in range(4):
        await house.ask("ann", f"n{number}", conversation="other")
    await house.daemon.traces.flush()
    count = (await house.sql("SELECT count(*) FROM spans"))[0][0]
    rules = rows.retention_rules(keep_days=14, most=6)
    await prune(house.db, rules, clock=house.clock)
    left = (await house.sql("SELECT count(*) FROM spans"))[0][0]
    assert left < count
    assert left <= 6 + 1
    later = LoopClock(epoch_ms=house.clock.now_ms() + 15 * 86_400_000)
    await prune(house.db, rules, clock=later)
    assert await house.sql("SELECT message_id, kind FROM spans") == [(waiting, "turn")]


# -- the store ---------------------------------------------------------------------------------------


class Refusing:
    """Has the store take no spans, or never answer about them."""

    def __init__(self, house: VirtualDaemon, *, hangs: bool = False) -> None:
        self._write = house.db.write
        self._hangs = hangs
        self.is_on = True
        self.count = 0

    async def __call__(self, fn: Any, *args: Any, name: str = "", **more: Any) -> Any:
        if self.is_on and name == "traces.write":
            self.count += 1
            if self._hangs:
                await asyncio.Event().wait()
            raise StoreUnavailable("the disk is full", reason="disk_full")
        return await self._write(fn, *args, name=name, **more)


async def test_a_store_that_takes_no_spans_fails_no_turn_and_loses_what_there_is_no_room_for(
    household: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await household(agent("ann"))
    refusing = Refusing(house)
    monkeypatch.setattr(house.db, "write", refusing)
    house.daemon.traces.recorder._buffer._most = 20
    for number in range(20):
        assert (await house.ask("ann", f"n{number}")).outcome == "ok"
    await house.daemon.traces.flush()
    assert house.daemon.traces.recorder.waiting <= 20
    assert house.daemon.traces.recorder.dropped > 0
    refusing.is_on = False
    last = await house.ask("ann", "and now?")
    await house.daemon.traces.flush()
    last = await house.ask("ann", "well again")
    assert (await spans_of(house, last.message_id))[0].state == "ok"


async def test_a_store_that_hangs_over_spans_holds_up_nobody(
    household: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await household(agent("ann"))
    monkeypatch.setattr(house.db, "write", Refusing(house, hangs=True))
    child = TaskOwner("test")
    child.spawn(house.daemon.traces.recorder.run(lambda: None, asyncio.Event()), name="run:traces")
    began_s = house.clock.monotonic()
    for number in range(5):
        assert (await house.ask("ann", f"n{number}")).outcome == "ok"
    assert house.clock.monotonic() - began_s < 1
    await house.daemon.traces.flush()
    assert house.clock.monotonic() - began_s < 3, "a reader waits a moment and no longer"
    await child.close(1.0)


async def test_the_recorder_writes_by_itself_and_comes_back_to_a_store_that_recovers(
    household: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await household(agent("ann"))
    refusing = Refusing(house)
    monkeypatch.setattr(house.db, "write", refusing)
    recorder, draining = house.daemon.traces.recorder, asyncio.Event()
    child = TaskOwner("test")
    life = child.spawn(recorder.run(lambda: None, draining), name="run:traces")
    await house.ask("ann", "hello")
    await house.clock.sleep(120)
    assert recorder.waiting > 0
    assert refusing.count < 20, "it asks less and less often"
    refusing.is_on = False
    await house.clock.sleep(40)
    assert (recorder.waiting, recorder.dropped) == (0, 0)
    await house.ask("ann", "last")
    draining.set()
    await asyncio.wait({life}, timeout=5)
    assert life.done()
    assert recorder.waiting == 0, "the last spans are written at the end"
    await child.close(1.0)


# -- the doctor --------------------------------------------------------------------------------------


async def found(
    house: VirtualDaemon, *, later_ms: int = 0, boot_id: str | None = ""
) -> list[TraceFinding]:
    await house.daemon.traces.flush()
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
    assert f"ann called fs_list 8 times alike in {message.message_id}" in loop.text
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
            house.daemon.mailbox.accept_tx(tx, new)

    await house.db.write(send)
    (loop,) = await found(house)
    assert loop.subject == "loops"
    assert f"sent each other 8 messages within the request {message.message_id}" in loop.text


async def test_timeouts_leaks_and_stuck_questions_are_found(household: Open) -> None:
    house = await household(agent("ann", QUESTION))
    message_id = await house.said("ann", "q")
    await house.clock.sleep(1)
    await house.daemon.traces.flush()
    ann = house.roster.entry("ann").agent_id

    def write(tx: Any) -> None:
        for number in range(6):
            tx.execute(
                "INSERT INTO spans (span_id, trace_id, parent_id, kind, name, agent_id,"
                " session_id, message_id, boot_id, state, code, detail, signature, attributes,"
                " is_root, started_at, ended_at) VALUES (?, 't', '', 'turn', 'ann', ?, '', 'msg_t',"
                " 'b', 'failed', 'turn_timed_out', '', '', '{}', 1, ?, 1)",
                (str(number), ann, house.clock.now_ms()),
            )
        tx.execute(
            "INSERT INTO spans (span_id, trace_id, parent_id, kind, name, agent_id, session_id,"
            " message_id, boot_id, state, code, detail, signature, attributes, is_root, started_at)"
            " VALUES ('x', 't', '', 'tool', 'exec', ?, '', ?, ?, 'running', '', '', '', '{}', 0, ?)",
            (ann, message_id, house.boot.boot_id, house.clock.now_ms()),
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
    assert "1 spans never ended" in texts
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
