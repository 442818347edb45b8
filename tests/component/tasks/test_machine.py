"""Tasks under any moves in any order, with crashes: laws that plain SQL must find kept.

The mailbox has its own machine; here turns are claimed and ended by hand, and what is watched is
what tasks, runs, questions and schedules make of them.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentsup.mailbox.mail import Asker, to_asker
from agentsup.mailbox.work.slots import SlotPool
from agentsup.model.errors import (
    AgentsupError,
    Conflict,
    DepthExceeded,
    IllegalTransition,
    LeaseLost,
    LoopDetected,
    NotFound,
    WouldDeadlock,
)
from agentsup.model.ids import AgentId
from agentsup.model.message import LaneName, Lease, MessageKind
from agentsup.model.principal import OPERATOR, Principal
from agentsup.model.question import QuestionState
from agentsup.model.task import Misfire, NewSchedule, Overlap, RunKind, TaskState
from agentsup.tasks import NewRun, Scheduler
from tests.support.mailbox_fixture import BOB
from tests.support.simloop import VirtualLoop
from tests.support.task_fixture import ANN, BEN, TaskFixture, tell_nobody

T = TypeVar("T")
ENDED = ("done", "failed", "cancelled")
PERIOD_MS = 60_000
AGENTS = st.sampled_from(["ann", "ben"])
CALLERS = st.sampled_from([OPERATOR, ANN, BEN, BOB])
KEYS = st.sampled_from(["", "", "k1", "k2"])

WRONG_STATE = """
SELECT t.task_id, t.state, m.state, m.outcome FROM tasks t
LEFT JOIN messages m ON m.message_id = t.current_run
WHERE t.current_run <> '' AND t.state IS NOT CASE m.state
    WHEN 'queued' THEN iif(m.started_at IS NULL, 'queued', 'running')
    WHEN 'leased' THEN iif(EXISTS (SELECT 1 FROM questions q
        WHERE q.message_id = m.message_id AND q.state = 'open'), 'waiting', 'running')
    WHEN 'parked' THEN 'waiting'
    WHEN 'done' THEN iif(m.outcome = 'ok', 'done', 'failed')
    WHEN 'dead' THEN 'failed' WHEN 'cancelled' THEN 'cancelled' END
"""
LAWS = {
    "a task is not where its run is": WRONG_STATE,
    "a task without runs is at work": "SELECT task_id FROM tasks WHERE current_run = ''"
    " AND (runs <> 0 OR state NOT IN ('todo', 'done', 'cancelled'))",
    "a state that nobody was told of": "SELECT t.task_id, t.state, (SELECT e.data ->> 'state'"
    " FROM events e WHERE e.message_id = t.task_id AND e.type = 'task.changed'"
    " ORDER BY e.seq DESC LIMIT 1) told FROM tasks t"
    " WHERE t.state NOT IN ('todo', 'queued') AND told IS NOT t.state",
    "an end without its time": "SELECT task_id FROM tasks"
    " WHERE (state IN ('done', 'failed', 'cancelled')) <> (finished_at IS NOT NULL)",
    "a result that is not its run's": "SELECT t.task_id FROM tasks t JOIN messages m"
    " ON m.message_id = t.current_run WHERE t.state = 'done' AND t.result <> m.result_text",
    "runs are miscounted": "SELECT t.task_id, t.runs FROM tasks t WHERE t.runs <>"
    " (SELECT count(*) FROM runs r WHERE r.task_id = t.task_id AND r.skip_reason IS NULL)",
    "the current run is not the last": "SELECT t.task_id FROM tasks t JOIN runs r"
    " ON r.run_id = t.current_run WHERE r.run_no <> t.runs OR r.task_id <> t.task_id",
    "a run without a message": "SELECT run_id FROM runs WHERE skip_reason IS NULL"
    " AND run_id NOT IN (SELECT message_id FROM messages)",
    "a task's message without a run": "SELECT message_id FROM messages WHERE kind = 'task'"
    " AND message_id NOT IN (SELECT run_id FROM runs)",
    "two runs of a task at once": "SELECT session_id FROM messages WHERE kind = 'task'"
    " AND state IN ('leased', 'parked') GROUP BY session_id HAVING count(*) > 1",
    "too deep": "SELECT run_id, depth FROM runs WHERE depth > 3",
    "too many of one request": "SELECT root_id FROM runs WHERE root_id <> '' AND kind <> 'slot'"
    " GROUP BY root_id HAVING count(*) > 10",
    "a question of work that has ended": "SELECT q.question_id FROM questions q"
    " JOIN messages m USING (message_id) WHERE q.state = 'open'"
    " AND m.state NOT IN ('leased', 'parked')",
    "nobody is asked": "SELECT q.question_id FROM questions q JOIN messages m"
    " ON m.message_id = q.put_as WHERE q.state = 'open'"
    " AND m.state NOT IN ('queued', 'leased', 'parked')",
    "an agent is asked what is closed": "SELECT m.message_id FROM messages m JOIN questions q"
    " ON q.put_as = m.message_id WHERE m.state = 'queued' AND q.state <> 'open'"
    " AND m.started_at IS NULL",
    "parked for nothing": "SELECT message_id FROM messages m WHERE state = 'parked' AND NOT EXISTS"
    " (SELECT 1 FROM questions q WHERE q.message_id = m.message_id AND q.state = 'open')",
    "a wait for what has ended": "SELECT target_id FROM waits JOIN messages"
    " ON message_id = target_id WHERE state NOT IN ('queued', 'leased', 'parked')",
    "a slot left of its schedule": "SELECT task_id FROM schedules s WHERE NOT EXISTS"
    " (SELECT 1 FROM tasks t WHERE t.task_id = s.task_id)",
}
"""What must find no row at any instant, by what it would mean."""


class TaskMachine(RuleBasedStateMachine):
    """Rules are what callers and turns may do; refusals that the contract names are let pass."""

    @initialize()
    def start(self) -> None:
        self.loop = VirtualLoop()
        self.home = tempfile.TemporaryDirectory()
        self.rig = self.run(TaskFixture.open(Path(self.home.name)))
        self.leases: list[Lease] = []
        self.tasks: list[str] = []
        self.deleted: list[str] = []
        self.keys: dict[tuple[str, str, str], tuple[object, str]] = {}
        self.settled: dict[str, tuple[Any, ...]] = {}
        self.collected: set[tuple[str, str]] = set()
        self.requeued: list[str] = []
        self.scheduled: dict[str, bool] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def sql(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        return self.run(self.rig.mail.sql(query, *params))

    def attempt(self, work: Coroutine[Any, Any, T], *allowed: type[AgentsupError]) -> T | None:
        """The result, or None where the contract lets it be refused."""
        try:
            return self.run(work)
        except allowed:
            return None

    def a_lease(self, data: st.DataObject) -> Lease:
        return data.draw(st.sampled_from(self.leases))

    def a_task(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.tasks))

    def row_of(self, task_id: str) -> tuple[str, str, int]:
        ((state, run, runs),) = self.sql(
            "SELECT state, current_run, runs FROM tasks WHERE task_id = ?", task_id
        )
        return state, run, runs

    def works(self, task_id: str) -> bool:
        """Whether any of its runs has not ended."""
        return bool(
            self.sql(
                "SELECT 1 FROM runs JOIN messages ON message_id = run_id WHERE task_id = ?"
                " AND state IN ('queued', 'leased', 'parked')",
                task_id,
            )
        )

    def is_held(self, lease: Lease) -> bool:
        held = self.sql(
            "SELECT 1 FROM messages WHERE message_id = ? AND state = 'leased' AND fence = ?"
            " AND lease_boot = ?",
            lease.message.message_id,
            lease.fence,
            self.rig.mail.mailbox.context.boot_id,
        )
        return bool(held)

    def asker_for(self, caller: Principal, data: st.DataObject) -> Lease | None:
        mine = [each for each in self.leases if each.message.agent_id == caller.subject]
        return data.draw(st.sampled_from([None, *mine])) if mine else None

    # -- work comes and goes -----------------------------------------------------------------------

    @rule(agent=AGENTS, conversation=st.sampled_from(["c1", "c2"]))
    def a_person_writes(self, agent: str, conversation: str) -> None:
        self.run(self.rig.mail.put(agent=agent, conversation=conversation))

    @rule(agent=AGENTS)
    def claim(self, agent: str) -> None:
        for lease in self.run(self.rig.mail.claim(agent)):
            message = lease.message
            self.leases = [x for x in self.leases if x.message.message_id != message.message_id]
            self.leases.append(lease)
            if message.kind is MessageKind.REPLY:
                known = (message.in_reply_to, message.session_id)
                is_new = lease.resumed or known not in self.collected
                assert is_new, f"{message.in_reply_to} is told once more"
            if message.kind is MessageKind.DIRECTIVE and message.deliver_to.kind == "question":
                asked = self.run(
                    self.rig.mail.mailbox.questions.get(message.deliver_to.question_id)
                )
                # A turn that is at it when the question closes is not taken back.
                is_open = asked.state is QuestionState.OPEN
                assert is_open or lease.resumed, "asked about what is closed"

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), how=st.sampled_from(["ok", "ok", "failed", "retry", "release"]))
    def a_turn_ends(self, data: st.DataObject, how: str) -> None:
        lease = self.a_lease(data)
        asks = self.sql(
            "SELECT 1 FROM questions WHERE message_id = ? AND state = 'open'",
            lease.message.message_id,
        )
        mail = self.rig.mail
        if asks or how == "release":  # as a turn does whose question is open
            work = mail.mailbox.leases.release(lease)
        elif how == "retry":
            work = mail.mailbox.leases.retry(lease, code="net", text="x")  # type: ignore[assignment]
        else:
            work = mail.finish(lease) if how == "ok" else mail.fail(lease)
        held = self.is_held(lease)
        done = self.attempt(_told(work), LeaseLost)
        assert bool(done) == held
        self.leases.remove(lease)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), timeout_s=st.sampled_from([None, 60.0]))
    def a_turn_parks(self, data: st.DataObject, timeout_s: float | None) -> None:
        lease = self.a_lease(data)
        kind = data.draw(st.sampled_from(["question", "ask_parent", "approval"]))
        self.attempt(
            self.rig.mail.park(lease, kind=kind, options=(), timeout_s=timeout_s), LeaseLost
        )
        self.leases.remove(lease)

    @precondition(lambda self: self.leases)
    @rule()
    def daemon_restarts(self) -> None:
        self.run(self.rig.reboot())
        self.leases.clear()

    @precondition(lambda self: self.tasks)
    @rule(seconds=st.sampled_from([1, 59, 61, 200, 20 * 60]))
    def time_passes(self, seconds: int) -> None:
        self.rig.mail.later(seconds)
        self.run(self.rig.mail.mailbox.deadlines.expire())

    @precondition(lambda self: len(self.tasks) > 2)
    @rule(scope=st.sampled_from(["all", "agent:ann", "agent:ben"]))
    def someone_stops(self, scope: str) -> None:
        self.run(self.rig.mail.mailbox.control.stop(scope, BOB))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def dead_mail_is_tried_again(self, data: st.DataObject) -> None:
        dead = [row[0] for row in self.sql("SELECT message_id FROM messages WHERE state = 'dead'")]
        if dead:
            message_id = data.draw(st.sampled_from(dead))
            self.run(self.rig.mail.mailbox.failed.requeue(message_id, OPERATOR))
            self.requeued.append(message_id)

    # -- tasks -------------------------------------------------------------------------------------

    @rule(
        data=st.data(),
        caller=CALLERS,
        key=KEYS,
        prompt=st.sampled_from(["count", "count again"]),
        kind=st.sampled_from(["start", "start", "todo", "every"]),
    )
    def create(
        self, data: st.DataObject, caller: Principal, key: str, prompt: str, kind: str
    ) -> None:
        lease = self.asker_for(caller, data)
        changes: dict[str, Any] = {"start": kind == "start", "agent": ""}
        if caller in (OPERATOR, BOB):
            changes["agent"] = "ann"
        if kind == "every":
            misfire, overlap = (
                data.draw(st.sampled_from(Misfire)),
                data.draw(st.sampled_from(Overlap)),
            )
            changes["schedule"] = NewSchedule(
                every_s=PERIOD_MS / 1000, misfire=misfire, overlap=overlap
            )
        body = (prompt, kind, str(changes))
        if key:
            changes["idempotency_key"] = key
        asker = asker_of(lease) if lease is not None else None
        work = self.rig.create(prompt, caller, asker=asker, **changes)
        # An agent has keys of its own for each person it works for.
        whose = (caller.subject, lease.message.person if lease is not None else "", key)
        known = self.keys.get(whose)
        before = len(self.sql("SELECT 1 FROM tasks"))
        if known is not None and known[0] != body:
            assert self.attempt(work, Conflict) is None, "another task under the same key"
            return
        if known is not None:
            # The task of that key may have been deleted since; then there is none to give.
            task = self.attempt(work, NotFound)
            assert task is None or task.task_id == known[1]
            assert len(self.sql("SELECT 1 FROM tasks")) == before, "a repeated key made a task"
            return
        task = self.attempt(work, LeaseLost, DepthExceeded)
        if task is None:
            assert lease is not None
            return
        self.tasks.append(task.task_id)
        if key:
            self.keys[whose] = (body, task.task_id)
        if kind == "every":
            self.scheduled[task.task_id] = True
        (self.rig.hub.folder_of(task.task_id) / "mine.txt").write_text(task.task_id)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), key=KEYS)
    def resume(self, data: st.DataObject, key: str) -> None:
        task_id = self.a_task(data)
        works = self.works(task_id)
        asked = self.open_questions(task_id)
        _, _, runs = self.row_of(task_id)
        lease = data.draw(st.sampled_from([None, *self.leases])) if self.leases else None
        asker = asker_of(lease) if lease is not None else None
        work = self.rig.hub.resume(
            task_id, "go on", caller=OPERATOR, asker=asker, idempotency_key=key
        )
        found = self.attempt(work, Conflict, LeaseLost, DepthExceeded)
        if found is None:
            return
        if found.runs > runs:
            assert not works, "resumed while it works"
            self.settled.pop(task_id, None)
        elif not key:
            assert len(asked) == 1, "a resume that began nothing and had nothing to answer"
            assert not self.open_questions(task_id), "resumed with a text, and it still waits"

    def open_questions(self, task_id: str) -> list[str]:
        found = self.sql(
            "SELECT q.question_id FROM questions q JOIN runs r ON r.run_id = q.message_id"
            " WHERE r.task_id = ? AND q.state = 'open'",
            task_id,
        )
        return [row[0] for row in found]

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task_id = self.a_task(data)
        state, *_ = self.row_of(task_id)
        self.attempt(self.rig.hub.cancel(task_id, caller=OPERATOR), Conflict)
        now, *_ = self.row_of(task_id)
        assert now == (state if state in ENDED else "cancelled")
        assert not self.works(task_id), "cancelled, and it goes on"
        self.scheduled[task_id] = False

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        task_id = self.a_task(data)
        works = self.works(task_id)
        done = self.attempt(_told(self.rig.hub.delete(task_id, caller=OPERATOR)), Conflict)
        assert bool(done) != works
        if done:
            self.tasks.remove(task_id)
            self.deleted.append(task_id)
            self.settled.pop(task_id, None)
            self.scheduled.pop(task_id, None)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), state=st.sampled_from([TaskState.TODO, TaskState.DONE]))
    def tick_off(self, data: st.DataObject, state: TaskState) -> None:
        task_id = self.a_task(data)
        *_, runs = self.row_of(task_id)
        work = self.rig.hub.update(task_id, caller=OPERATOR, state=state, progress="half")
        if self.attempt(work, Conflict) is not None and not runs:
            self.settled.pop(task_id, None)

    # -- questions ---------------------------------------------------------------------------------

    @rule(timeout_s=st.sampled_from([None, 60.0]), turn_goes_on=st.booleans())
    def an_agents_task_asks_back(self, timeout_s: float | None, turn_goes_on: bool) -> None:
        """What takes many steps by chance alone."""
        mail, conversation = self.rig.mail, f"c{len(self.tasks)}-{len(self.deleted)}"
        message_id = self.run(mail.put(conversation=conversation)).message_id
        self.claim("ann")
        turn = next((x for x in self.leases if x.message.message_id == message_id), None)
        if turn is None:
            return
        asker = asker_of(turn)
        task = self.attempt(self.rig.create(caller=ANN, asker=asker), DepthExceeded, LeaseLost)
        if task is None:
            return
        self.tasks.append(task.task_id)
        (self.rig.hub.folder_of(task.task_id) / "mine.txt").write_text(task.task_id)
        if not turn_goes_on:
            self.run(mail.finish(turn))
            self.leases.remove(turn)
        self.claim("ann")
        for lease in [x for x in self.leases if x.message.message_id == task.current_run]:
            self.run(mail.park(lease, kind="ask_parent", options=(), timeout_s=timeout_s))
            self.leases.remove(lease)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), text=st.sampled_from(["goats?", "cows?"]))
    def ask_parent(self, data: st.DataObject, text: str) -> None:
        task_id = self.a_task(data)
        self.attempt(self.rig.hub.ask_parent(task_id, text, caller=OPERATOR), Conflict)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def a_task_is_answered(self, data: st.DataObject) -> None:
        task_id = self.a_task(data)
        self.attempt(self.rig.hub.answer(task_id, "yes", caller=OPERATOR), Conflict, NotFound)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def a_button_is_pressed(self, data: st.DataObject) -> None:
        asked = [row[0] for row in self.sql("SELECT question_id FROM questions")]
        if asked:
            question_id = data.draw(st.sampled_from(asked))
            self.attempt(
                self.rig.mail.mailbox.questions.answer(question_id, "once", OPERATOR), Conflict
            )

    # -- runs --------------------------------------------------------------------------------------

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), key=KEYS, waits=st.booleans(), elsewhere=st.booleans())
    def hand_on(self, data: st.DataObject, key: str, waits: bool, elsewhere: bool) -> None:
        lease = self.a_lease(data)
        message = lease.message
        other = {"ann": "ben", "ben": "ann"}[message.agent_id]
        new = NewRun(
            RunKind.ROUTE if elsewhere else RunKind.SPAWN,
            AgentId(other if elsewhere else message.agent_id),
            "look",
            Principal(ANN.kind, message.agent_id, message.agent_id),
            to_asker(message, waited=waits),
            parent=message,
            key=f"{message.message_id}:{key}" if key else "",
            lane=LaneName.PEER if elsewhere else LaneName.BACKGROUND,
        )
        # The same key with another way back for the result is another request.
        self.attempt(
            self.rig.start_run(new, waiter=lease if waits else None),
            LeaseLost,
            DepthExceeded,
            LoopDetected,
            WouldDeadlock,
            Conflict,
        )

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), timeout_s=st.sampled_from([0.0, 0.01]))
    def wait(self, data: st.DataObject, timeout_s: float) -> None:
        lease, run_id = self.a_lease(data), self.a_run(data)
        if run_id is None or run_id == lease.message.message_id:
            return
        work = self.rig.runs.wait(run_id, timeout_s, asker=asker_of(lease))
        report = self.attempt(work, LeaseLost)
        if report is not None and report.is_ended and run_id not in self.requeued:
            self.collected.add((run_id, lease.message.session_id))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), way=st.sampled_from(["stop", "cancel", "steer"]))
    def a_run_is_steered(self, data: st.DataObject, way: str) -> None:
        run_id = self.a_run(data)
        if run_id is None:
            return
        if way == "stop":
            self.attempt(self.rig.runs.stop(run_id, OPERATOR), Conflict)
        elif way == "cancel":
            self.attempt(self.rig.mail.mailbox.control.cancel(run_id, OPERATOR), IllegalTransition)
        else:
            self.attempt(_told(self.rig.runs.steer(run_id, "hurry", OPERATOR)), Conflict)

    def a_run(self, data: st.DataObject) -> str | None:
        runs = [row[0] for row in self.sql("SELECT run_id FROM runs WHERE skip_reason IS NULL")]
        return data.draw(st.sampled_from(runs)) if runs else None

    # -- schedules ---------------------------------------------------------------------------------

    @precondition(lambda self: self.scheduled)
    @rule(seconds=st.sampled_from([0, 61, 125, 3 * 3600]))
    def slots_come(self, seconds: int) -> None:
        self.rig.mail.later(seconds)

        async def keep() -> None:
            mail, draining = self.rig.mail, asyncio.Event()
            scheduler = Scheduler(mail.db, mail.clock, self.rig.hub.starter, tell_nobody, ())
            keeping = asyncio.ensure_future(scheduler.run(lambda: None, draining))
            await asyncio.sleep(0.001)  # virtual: what is due is done before
            draining.set()
            await keeping

        self.run(keep())

    @precondition(lambda self: self.scheduled)
    @rule(data=st.data(), is_paused=st.booleans())
    def pause(self, data: st.DataObject, is_paused: bool) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.scheduled)))
        done = self.rig.hub.pause(task_id, caller=OPERATOR, is_paused=is_paused)
        self.attempt(done, NotFound, Conflict)
        self.scheduled[task_id] = False

    # -- laws --------------------------------------------------------------------------------------

    @invariant()
    def the_laws_hold(self) -> None:
        if not hasattr(self, "rig"):
            return
        broken = self.run(
            self.rig.mail.db.read(
                lambda reader: {
                    meaning: [tuple(row) for row in found]
                    for meaning, query in LAWS.items()
                    if (found := reader.all(query))
                }
            )
        )
        assert not broken, broken
        self.run(self.rig.mail.check())
        self.results_are_told_once()
        self.ends_stay()
        self.each_slot_is_decided_once()
        self.no_folder_is_lost()

    def results_are_told_once(self) -> None:
        for run_id, told in self.sql(
            "SELECT in_reply_to, count(*) FROM messages WHERE kind = 'reply' GROUP BY in_reply_to"
        ):
            assert told <= 1 + self.requeued.count(run_id), f"{run_id} was told {told} times"

    def ends_stay(self) -> None:
        for task_id, state, run, result in self.sql(
            "SELECT task_id, state, current_run, result FROM tasks"
        ):
            known = self.settled.get(task_id)
            if known is not None and known[1] == run and run not in self.requeued:
                assert (state, run, result) == known, f"{task_id} left its end"
            self.settled.pop(task_id, None)
            if state in ENDED:
                self.settled[task_id] = (state, run, result)

    def each_slot_is_decided_once(self) -> None:
        for task_id, anchor_at, last_at in self.sql(
            "SELECT task_id, anchor_at, last_at FROM schedules"
        ):
            if last_at is None or not self.scheduled.get(task_id):
                continue
            rows = self.sql("SELECT slot_at, skip_until FROM runs WHERE task_id = ?", task_id)
            slots = {slot for slot, _ in rows}
            ranges = [slot for slot, until in rows if until]
            if not ranges:
                expected = range(anchor_at + PERIOD_MS, last_at + 1, PERIOD_MS)
                slots.discard(None)
                assert slots == set(expected), f"{task_id}: {len(slots)} of {len(expected)}"

    def no_folder_is_lost(self) -> None:
        root = Path(self.home.name) / "tasks"
        for task_id in self.tasks:
            assert (root / task_id / "mine.txt").read_text() == task_id
        for task_id in self.deleted:
            assert (root / ".deleted" / task_id / "mine.txt").read_text() == task_id

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.run(self.rig.close())
            self.loop.close()
            self.home.cleanup()
            asyncio.set_event_loop(None)


def asker_of(lease: Lease) -> Asker:
    """The turn on ``lease`` as one that asks, with a slot that nobody else wants."""
    return Asker(lease, SlotPool(dict.fromkeys(LaneName, 1), lambda: None).take(lease.message.lane))


async def _told(work: Coroutine[Any, Any, Any]) -> bool:
    """That it was done, for what returns nothing."""
    await work
    return True


# It takes six seconds; a history that fails is made shorter for up to five minutes, and then told.
TestTaskMachine = pytest.mark.timeout(420)(TaskMachine.TestCase)
TestTaskMachine.settings = settings(stateful_step_count=40)
