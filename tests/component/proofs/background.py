"""P1, P2, P5 to P8: background work ends once, asks honestly, stops, and keeps within its bounds."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentsup.mailbox.lifecycle import closing
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.messages.values import MailboxContext, StopCounts
from agentsup.mailbox.queue import background as beyond
from agentsup.mailbox.queue import waits
from agentsup.mailbox.work.slots import SharedSlots
from agentsup.model.errors import AgentsupError, Conflict, Forbidden
from agentsup.model.message import DeliverTo, MessageState
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind
from agentsup.model.task import NewSchedule, NewTask, Task
from agentsup.store.transaction import Reader
from agentsup.tasks import brief, lineage, permissions
from agentsup.tasks.hub import TaskHub
from tests.component.proofs import house as houses
from tests.component.proofs.house import EVA, QUICK_CONFIG, ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal
from tests.support.empty_store import lay_store
from tests.support.task_fixture import ANN, BEN, TaskFixture

kept, once, stopped, bounded, private, asked = map(Claim, ("P1", "P2", "P5", "P6", "P7", "P8"))

RULES: list[dict[str, Any]] = [
    {"match": "slow", "steps": [{"sleep": 5}, {"say": "slept"}]},
    {"match": "long", "steps": [{"sleep": 600}, {"say": "slept long"}]},
    {"match": "fail", "steps": [{"fail": "no birds"}]},
    {"match": "ask", "steps": [{"question": {"text": "Which?"}}, {"say": "chose $result"}]},
    {"match": "(.*)", "steps": [{"say": "did $1"}]},
]
EVE = Principal(PrincipalKind.PERSON, "eve", "Eve")


def hub_of(house: ProofDaemon) -> TaskHub:
    hub = house.daemon.api._deps.tasks
    assert isinstance(hub, TaskHub)
    return hub


async def begun(house: ProofDaemon, name: str, prompt: str, **more: Any) -> Task:
    """A task of a person's, whose result is for the conversation ``c1``."""
    chat = DeliverTo(
        "chat", agent_id=house.unit(name).agent_id, channel="console", conversation="c1"
    )
    new = NewTask(prompt, agent=name, deliver_to=chat, **more)
    return await hub_of(house).create(new, caller=EVA)


async def state_of(house: ProofDaemon, task: Task) -> str:
    return (await hub_of(house).get(task.task_id, caller=OPERATOR)).state.value


async def segments(house: ProofDaemon) -> int:
    return int((await house.sql("SELECT count(*) FROM segments"))[0][0])


# -- what a task is --------------------------------------------------------------------------------


async def a_task_is_where_its_run_is(home: Path) -> None:
    """One ends well, one fails, one waits for a person; the daemon dies in between."""
    async with ProofDaemon(home, [agent("main", RULES)]) as house:
        tasks = {text: await begun(house, "main", text) for text in ("slow", "fail", "ask")}
        await asyncio.sleep(2)
        await house.crash()
        await house.open()
        await asyncio.sleep(60)
        found = {text: await state_of(house, task) for text, task in tasks.items()}
        wanted = {"slow": "done", "fail": "failed", "ask": "waiting"}
        kept.holds(found == wanted, f"the tasks are {found}")
        slow = await hub_of(house).get(tasks["slow"].task_id, caller=OPERATOR)
        kept.holds(slow.result == "slept", f"the result is {slow.result!r}")


async def what_was_waited_for_is_told_once(home: Path) -> None:
    """A run ends before its caller waits for it: the reply that lies there tells nothing new."""
    rig = await TaskFixture.open(home)
    try:
        await rig.mail.put("please count")
        turn = await rig.mail.one()
        for is_late in (False, True):
            task = await rig.create(caller=ANN, asker=rig.asker(turn))
            run = await rig.mail.one()
            wait = rig.runs.wait(task.current_run, 60, asker=rig.asker(turn))
            if is_late:
                await rig.mail.finish(run, "twelve")
                report = await wait
            else:
                waiting = asyncio.create_task(wait)
                while not await rig.mail.sql("SELECT 1 FROM waits"):
                    await asyncio.sleep(0.01)
                await rig.mail.finish(run, "twelve")
                report = await waiting
            once.holds(report.run.result == "twelve", f"the wait told {report}")
        await rig.mail.finish(turn, "twelve sheep")
        again = await rig.mail.claim()
        once.holds(not again, f"{len(again)} results are told once more")
    finally:
        await rig.mail.close()


# -- bounds ----------------------------------------------------------------------------------------


def hands_on(match: str, to: str) -> dict[str, Any]:
    call = {"name": "delegate_task", "args": {"prompt": f"for {to}", "agent": to}}
    return {"match": match, "steps": [{"tool": call}, {"say": "it said: $result"}]}


async def runs_of(house: ProofDaemon) -> int:
    await house.say("ann", "go")
    await bounded.comes(lambda: house.heard("it said:"), 60, "the turn did not end")
    return int((await house.sql("SELECT count(*) FROM runs"))[0][0])


async def work_never_comes_back_to_who_handed_it_on(home: Path) -> None:
    agents = [
        agent("main"),
        agent("ann", [hands_on("go", "ben"), hands_on("for ann", "ben")]),
        agent("ben", [hands_on("for ben", "cat")]),
        agent("cat", [hands_on("for cat", "ann")]),
    ]
    async with ProofDaemon(home, agents) as house:
        count = await runs_of(house)
        bounded.holds(count == 2, f"ann → ben → cat → ann made {count} runs")
        bounded.holds(house.heard("they are at it already"), "nobody was told why")


async def work_is_handed_on_so_deep_and_no_deeper(home: Path) -> None:
    names = ["ann", "ben", "cat", "dan", "eve"]
    rules = {name: [hands_on(f"go|for {name}", to)] for name, to in pairwise(names)}
    agents = [agent("main"), *(agent(name, rules.get(name, ())) for name in names)]
    async with ProofDaemon(home, agents) as house:
        count = await runs_of(house)
        bounded.holds(count == 3, f"work was handed on {count} times, one below the other")


async def nobody_waits_for_who_waits_for_its_answer(home: Path) -> None:
    """A run asks the turn that has begun it, and that turn waits for the run."""
    rig = await TaskFixture.open(home)
    try:
        await rig.mail.put("please count")
        turn = await rig.mail.one()
        task = await rig.create(caller=ANN, asker=rig.asker(turn))
        await rig.mail.park(await rig.mail.one(), kind="ask_parent", text="goats too?", options=())
        report = await bounded.within(
            60,
            rig.runs.wait(task.current_run, 3600, asker=rig.asker(turn)),
            "a turn waits for work that waits for that very turn",
        )
        bounded.holds(report.question == "goats too?", f"the wait told {report}")
    finally:
        await rig.mail.close()


async def background_work_has_one_bound_for_all(home: Path) -> None:
    """Two agents with six tasks each, and one may run at a time."""
    config = f"{QUICK_CONFIG}[tasks]\nmax_parallel = 1\n"
    agents = [agent("main"), agent("ann", RULES), agent("ben", RULES)]
    count = "SELECT count(*) FROM messages WHERE kind = 'task' AND state = ?"
    async with ProofDaemon(home, agents, config=config) as house:
        for _ in range(6):
            for name in ("ann", "ben"):
                await begun(house, name, "slow")
        for _ in range(70):
            await asyncio.sleep(1)
            ((running,),) = await house.sql(count, "leased")
            bounded.holds(running <= 1, f"{running} background turns run at once, the bound is 1")
        rows = await house.sql(
            "SELECT a.name FROM messages m JOIN agents a USING (agent_id)"
            " WHERE m.kind = 'task' AND m.state = 'done' ORDER BY m.finished_at, m.seq"
        )
        order = [name for (name,) in rows]
        bounded.holds(len(order) == 12, f"of twelve that take a minute, {len(order)} were done")
        ahead = max(abs(order[:n].count("ann") - order[:n].count("ben")) for n in range(12))
        bounded.holds(ahead <= 2, f"one agent's work came before all of the other's: {order}")


# -- whose it is -----------------------------------------------------------------------------------


async def anothers_task_is_left_alone(home: Path) -> None:
    """A stranger, an agent that has nothing to do with it, and the one that works on it."""
    rig = await TaskFixture.open(home)
    try:
        task = await rig.create(caller=EVA)
        await rig.mail.park(await rig.mail.one(), text="goats too?", options=())
        hub, task_id = rig.hub, task.task_id
        looks: list[Callable[[Principal], Awaitable[object]]] = [
            lambda who: hub.get(task_id, caller=who),
            lambda who: hub.log(task_id, caller=who),
            lambda who: hub.card(task_id, caller=who),
            lambda who: hub.update(task_id, caller=who, progress="x"),
        ]
        steers: list[Callable[[Principal], Awaitable[object]]] = [
            lambda who: hub.answer(task_id, "yes", caller=who),
            lambda who: hub.update(task_id, caller=who, name="mine"),
            lambda who: hub.resume(task_id, "x", caller=who),
            lambda who: hub.cancel(task_id, caller=who),
            lambda who: hub.delete(task_id, caller=who),
        ]
        for who, deeds in ((EVE, looks + steers), (BEN, looks + steers), (ANN, steers)):
            for deed in deeds:
                try:
                    await deed(who)
                except Forbidden:
                    continue
                except AgentsupError as error:
                    private.broken(f"{who.label} is told of another's task: {error}")
                private.broken(f"{who.label} has a hand in another's task")
    finally:
        await rig.mail.close()


# -- asking and stopping ---------------------------------------------------------------------------


async def who_asked_goes_on_with_the_answer(home: Path) -> None:
    """A program asks for its turn and ends it; the turn's own end is not the end of the work."""
    async with ProofDaemon(home, [agent("main", RULES)]) as house:
        task = await begun(house, "main", "slow")
        await asyncio.sleep(2)
        worker = Principal(PrincipalKind.AGENT, house.unit("main").agent_id, "main")
        question = await hub_of(house).ask_parent(task.task_id, "How long?", caller=worker)
        await asyncio.sleep(60)
        asked.holds(not house.heard("slept"), "it ended without the answer it had asked for")
        count = await segments(house)
        asked.holds(count == 1, f"it ran {count} times, and nobody has answered")
        await house.crash()
        await house.open()
        await asyncio.sleep(60)
        asked.holds(not house.heard("slept"), "after a restart it ended without the answer")
        await house.daemon.mailbox.answer(question.question_id, "an hour", EVA)
        await asked.comes(lambda: house.heard("slept"), 60, "it did not go on")
        count = await segments(house)
        asked.holds(count == 2, f"it ran {count} times for one answer")


async def a_stop_ends_background_work_for_good(home: Path) -> None:
    """Three tasks on three agents, one of them waits for a person; and a schedule."""
    agents = [agent(name, RULES) for name in ("main", "ann", "ben")]
    async with ProofDaemon(home, agents) as house:
        hourly = await begun(house, "ann", "water", schedule=NewSchedule(every_s=3600))
        tasks = [
            await begun(house, name, text)
            for name, text in (("main", "long"), ("ann", "long"), ("ben", "ask"))
        ]
        await asyncio.sleep(5)
        (question,) = await house.daemon.mailbox.questions()
        report = await house.daemon.control.stop("all", EVA)
        counts = (report.running, report.queued, report.parked, report.agents)
        stopped.holds(counts == (2, 0, 1, 3), f"the stop counts {counts}")
        named = [each.task_id for each in report.schedules]
        stopped.holds(named == [hourly.task_id], f"of the schedules it names {named}")
        turns = await segments(house)
        await asyncio.sleep(60)
        await house.close()
        await house.open()
        await asyncio.sleep(600)
        found = [await state_of(house, task) for task in tasks]
        stopped.holds(found == ["cancelled"] * 3, f"the tasks are {found}")
        with contextlib.suppress(Conflict):
            await house.daemon.mailbox.answer(question.question_id, "red", EVA)
            stopped.broken("a question of stopped work takes an answer")
        more = await segments(house) - turns
        stopped.holds(more == 0, f"{more} turns of what was stopped")
        await house.say("ben", "hello")
        await stopped.comes(lambda: house.heard("did hello"), 60, "the agent does not answer")
        await asyncio.sleep(3600)
        await stopped.comes(lambda: house.heard("did water"), 60, "the schedule is gone, too")


async def a_stop_in_a_chat_leaves_the_background(home: Path) -> None:
    """The turn that has begun it still runs; its result comes after a kill, too."""
    spawn = {"name": "agent_spawn", "args": {"instruction": "slow", "agent": "ben"}}
    begin = {"match": "begin", "steps": [{"tool": spawn}, {"sleep": 60}]}
    tell = {"match": ".*slept.*", "steps": [{"say": "ben has slept"}]}
    agents = [agent("main"), agent("ann", [begin, tell], tools=["*"]), agent("ben", RULES)]
    async with ProofDaemon(home, agents) as house:
        await house.say("ann", "begin")
        await asyncio.sleep(2)
        ((session_id,),) = await house.sql("SELECT session_id FROM messages WHERE kind = 'chat'")
        await house.daemon.control.stop(f"session:{session_id}", EVA)
        ((state,),) = await house.sql("SELECT state FROM messages WHERE kind = 'chat'")
        stopped.holds(state == "cancelled", f"the turn itself is {state}")
        await house.crash()
        await house.open()
        await stopped.comes(
            lambda: house.heard("ben has slept"), 60, "what ran in the background is not told"
        )


# -- mechanisms taken out --------------------------------------------------------------------------


def no_trigger(patch: pytest.MonkeyPatch) -> None:
    """States of tasks that are nobody's business where a message ends."""

    def lay(path: Path) -> Path:
        is_new = not path.exists()
        lay_store(path)
        if is_new:
            with contextlib.closing(sqlite3.connect(path)) as file:
                file.execute("DROP TRIGGER messages_task")
                file.commit()
        return path

    patch.setattr(houses, "lay_store", lay)


def replies_that_nobody_collects(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(closing, "collect_tx", lambda ctx, tx, messages, by, *, at: None)


def no_path(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lineage, "check_new", lambda whose, above: None)


def no_depth(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lineage, "check_depth", lambda depth: None)


def questions_without_an_edge(patch: pytest.MonkeyPatch) -> None:
    targets = waits.targets

    def known(ctx: MailboxContext, reader: Reader, message_id: str) -> list[str]:
        state = reader.scalar("SELECT state FROM messages WHERE message_id = ?", (message_id,))
        return [] if state == MessageState.PARKED else targets(ctx, reader, message_id)

    patch.setattr(waits, "targets", known)


def slots_of_each_agent_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharedSlots, "free", lambda self: 99)


def everybody_steers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(permissions, "check_owns", lambda task, who: None)


def ends_whatever_was_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(brief, "has_news", lambda reader, message_id, reported: False)


def an_unwritten_stop(patch: pytest.MonkeyPatch) -> None:
    async def stop(self: Mailbox, scope: str, by: Principal, **more: object) -> StopCounts:
        return StopCounts(scope, 0)

    patch.setattr(Mailbox, "stop", stop)


def a_stop_that_keeps_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(beyond, "keep_tx", lambda tx, messages, scope, epoch: None)


PROOFS = (
    Proof(
        "a task is where its run is",
        "P1",
        a_task_is_where_its_run_is,
        Removal("states that follow nothing", no_trigger),
    ),
    Proof(
        "a result that was waited for comes once",
        "P2",
        what_was_waited_for_is_told_once,
        Removal("replies that nobody collects", replies_that_nobody_collects),
    ),
    Proof(
        "delegated work never comes back to its asker",
        "P6",
        work_never_comes_back_to_who_handed_it_on,
        Removal("no path", no_path),
    ),
    Proof(
        "work is delegated so deep and no deeper",
        "P6",
        work_is_handed_on_so_deep_and_no_deeper,
        Removal("no depth", no_depth),
    ),
    Proof(
        "nobody waits for who waits for its answer",
        "P6",
        nobody_waits_for_who_waits_for_its_answer,
        Removal("questions without an edge", questions_without_an_edge),
    ),
    Proof(
        "background work has one bound for all",
        "P6",
        background_work_has_one_bound_for_all,
        Removal("slots of each agent alone", slots_of_each_agent_alone),
    ),
    Proof(
        "another's task is left alone",
        "P7",
        anothers_task_is_left_alone,
        Removal("everybody steers", everybody_steers),
    ),
    Proof(
        "who asked goes on with the answer",
        "P8",
        who_asked_goes_on_with_the_answer,
        Removal("an end whatever was asked", ends_whatever_was_asked),
    ),
    Proof(
        "a stop ends background work for good",
        "P5",
        a_stop_ends_background_work_for_good,
        Removal("a stop that is not written", an_unwritten_stop),
    ),
    Proof(
        "a stop in a chat leaves the background",
        "P5",
        a_stop_in_a_chat_leaves_the_background,
        Removal("a stop that keeps nothing", a_stop_that_keeps_nothing),
    ),
)
