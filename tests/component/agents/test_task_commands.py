"""``/tasks`` and ``/task``: what people read and press, in their language, on the whole daemon."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

from agentsup.api.documents.agents import StopReportDocument
from agentsup.model.control import CommandButton, CommandReply
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind
from agentsup.model.task import NewSchedule, NewTask
from agentsup.store import Tx
from agentsup.tasks import TaskHub
from agentsup.tasks.scheduler import settle_tx
from tests.component.agents.shared import flat, run_command
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

EVE = Principal(PrincipalKind.PERSON, "eve", "Eve", PersonRole.USER)
MAX = Principal(PrincipalKind.PERSON, "max", "Max", PersonRole.USER)
VIC = Principal(PrincipalKind.PERSON, "vic", "Vic", PersonRole.VIEWER)

RULES = (
    {"match": "slow.*", "steps": [{"sleep": 600}, {"say": "slept"}]},
    {
        "match": "choose.*",
        "steps": [
            {"question": {"text": "Which?", "options": ["red", "blue"]}},
            {"say": "chose $result"},
        ],
    },
    {"match": "free.*", "steps": [{"question": {"text": "How many?"}}, {"say": "got $result"}]},
    {"match": "fail.*", "steps": [{"fail": "no birds anywhere"}]},
    {"match": "(.+)", "steps": [{"say": "did $1"}]},
)


def worker(name: str, **more: Any) -> dict[str, Any]:
    return agent(name, *RULES, **more)


run = partial(run_command, principal=EVE)


async def began(house: VirtualDaemon, name: str, text: str, **more: Any) -> str:
    """The id of a task that was begun in a chat."""
    reply = await run(house, name, f"/task new {text}", **more)
    assert reply.ok, reply.text
    found = re.search(r"task_\w+", reply.text)
    assert found is not None, reply.text
    return found[0]


async def until_state(house: VirtualDaemon, task_id: str, state: str) -> None:
    async def is_so() -> bool:
        rows = await house.sql("SELECT state FROM tasks WHERE task_id = ?", task_id)
        return bool(rows and rows[0][0] == state)

    await house.until(is_so)


def named(reply: CommandReply) -> dict[str, CommandButton]:
    return {button.label: button for button in flat(reply)}


async def test_a_task_from_a_chat_comes_back_to_it(household: Open) -> None:
    house = await household(worker("ann"))
    reply = await run(house, "ann", "/task new count the birds")
    assert reply.text.startswith("Task created. The result comes here.")
    assert "agent: ann" in reply.text
    task_id = await began(house, "ann", "count the bees")
    await until_state(house, task_id, "done")
    await house.until(lambda: any("did count the bees" in text for text in house.texts()))
    card = (await run(house, "ann", f"/task {task_id}")).text
    assert "✔ count the bees" in card
    assert "done, 0 s ago" in card or "done, " in card
    assert "Result:\ndid count the bees" in card
    assert (await run(house, "ann", f"/task {task_id[-8:]}")).text.endswith(f"id: {task_id}")


async def test_what_a_kill_cut_off_and_the_next_life_runs_again_begins_once(
    household: Open,
) -> None:
    house = await household(worker("ann"))

    async def twice(text: str, update: str) -> str:
        """The id of the task that both replies name."""
        told = [await house.command("ann", text, external_id=update) for _ in range(2)]
        assert all(reply.ok for reply in told), told
        found = {re.findall(r"task_\w+", reply.text)[-1] for reply in told}
        assert len(found) == 1, found
        return str(found.pop())

    async def runs(task_id: str) -> int:
        return len(await house.sql("SELECT 1 FROM runs WHERE task_id = ?", task_id))

    task_id = await twice("/task new count the birds", "update:1")
    assert await twice("/task new count the birds", "update:2") != task_id, "said once more"
    await until_state(house, task_id, "done")
    assert await twice(f"/task resume {task_id} count the bees", "update:3") == task_id
    await until_state(house, task_id, "done")
    assert await runs(task_id) == 2
    # Its run has ended since: that is no reason for another one.
    assert await twice(f"/task resume {task_id} count the bees", "update:3") == task_id
    assert await runs(task_id) == 2
    assert len(await house.sql("SELECT 1 FROM tasks")) == 2


async def test_lists_show_own_tasks_and_operators_all(household: Open) -> None:
    house = await household(worker("ann"), worker("ben"))
    await began(house, "ann", "hers")
    await began(house, "ann", "his", principal=MAX)
    await began(house, "ben", "elsewhere", principal=MAX)

    async def shown(name: str, who: Principal) -> set[str]:
        text = (await run(house, name, "/tasks", principal=who)).text
        return {word for word in ("hers", "his", "elsewhere") if f" {word}\n" in text}

    assert await shown("ann", EVE) == {"hers"}
    assert await shown("main", EVE) == {"hers"}
    assert await shown("ann", MAX) == {"his", "elsewhere"}
    assert await shown("ann", OPERATOR) == {"hers", "his"}
    assert await shown("ben", OPERATOR) == {"elsewhere"}
    assert await shown("main", OPERATOR) == {"hers", "his", "elsewhere"}
    assert "There are no tasks." in (await run(house, "main", "/tasks", principal=VIC)).text


async def test_another_s_task_is_neither_shown_nor_steered(household: Open) -> None:
    house = await household(worker("ann"))
    task_id = await began(house, "ann", "slow secret")
    for text in ("", "cancel ", "resume ", "delete ", "pause ", "answer "):
        reply = await run(
            house,
            "ann",
            f"/task {text}{task_id} x".removesuffix(" x" if not text else ""),
            principal=MAX,
        )
        assert (reply.ok, reply.code) == (False, "forbidden"), (text, reply)
        assert "secret" not in reply.text
    assert (await run(house, "ann", f"/task cancel {task_id}", principal=OPERATOR)).ok


async def test_a_viewer_begins_and_steers_nothing(household: Open) -> None:
    house = await household(worker("ann"))
    reply = await run(house, "ann", "/task new x", principal=VIC)
    assert (reply.ok, reply.code) == (False, "forbidden")
    assert await house.sql("SELECT * FROM tasks") == []


async def test_pages_and_every_button_works(household: Open) -> None:
    house = await household(worker("ann", slots={"background": 1}))
    ids = [await began(house, "ann", f"slow {n}") for n in range(8)]
    first = await run(house, "ann", "/tasks")
    assert first.text.startswith("1 to 6 of 8")
    rest = await run(house, "ann", next(b.command for b in flat(first) if b.label == "›"))
    assert rest.text.startswith("7 to 8 of 8")
    assert named(rest)["↻"].command == "/tasks #2"
    opened = {b.command for b in (*flat(first), *flat(rest)) if not b.once}
    assert {f"/task {task_id}" for task_id in ids} <= opened
    cancels = [b for b in flat(first) if b.label == "✖"]
    assert len(cancels) == 6
    assert all(b.once and b.confirm for b in cancels)
    whole = await run(house, "ann", "/tasks", has_buttons=False)
    assert all(f"slow {n}\n" in whole.text for n in range(8))
    for button in flat(first):
        if not button.once:
            assert (await run(house, "ann", button.command)).ok, button


async def test_a_question_is_answered_by_its_button_or_by_text(household: Open) -> None:
    house = await household(worker("ann"))
    task_id = await began(house, "ann", "choose one")
    await until_state(house, task_id, "waiting")
    card = await run(house, "ann", f"/task {task_id}")
    assert "Asks: Which? [red | blue]" in card.text
    assert "waiting for an answer" in card.text
    blue = named(card)["blue"]
    assert blue.once
    answered = await run(house, "ann", blue.command)
    assert answered.text.startswith("Answered: blue")
    await until_state(house, task_id, "done")
    assert "chose blue" in (await run(house, "ann", f"/task {task_id}")).text
    late = await run(house, "ann", blue.command)
    assert (late.ok, late.code) == (False, "conflict")

    for given, said in (("2", "blue"), ("RED", "red")):
        task_id = await began(house, "ann", "choose again")
        await until_state(house, task_id, "waiting")
        plain = await run(house, "ann", f"/task {task_id}", has_buttons=False)
        assert f"/task answer {task_id[-8:]} TEXT answers." in plain.text
        assert not (await run(house, "ann", f"/task answer {task_id} green")).ok
        assert (await run(house, "ann", f"/task answer {task_id[-8:]} {given}")).ok
        await until_state(house, task_id, "done")
        assert f"chose {said}" in (await run(house, "ann", f"/task {task_id}")).text
    task_id = await began(house, "ann", "free text")
    await until_state(house, task_id, "waiting")
    assert (await run(house, "ann", f"/task answer {task_id} about eleven")).ok
    await until_state(house, task_id, "done")
    assert "got about eleven" in (await run(house, "ann", f"/task {task_id}")).text


async def test_what_may_be_done_depends_on_the_state(household: Open) -> None:
    house = await household(worker("ann"))
    task_id = await began(house, "ann", "slow work")
    await until_state(house, task_id, "running")
    card = await run(house, "ann", f"/task {task_id}")
    assert set(named(card)) == {"Cancel", "‹ Tasks", "↻"}
    cancelled = await run(house, "ann", named(card)["Cancel"].command)
    assert cancelled.text.startswith("Cancelled.")
    acts = named(cancelled)
    assert {"Run again", "Delete"} < set(acts)
    assert acts["Delete"].confirm == "Delete “slow work” from the list?"
    again = await run(house, "ann", acts["Run again"].command)
    assert again.text.startswith("It goes on.")
    await until_state(house, task_id, "running")
    assert not (await run(house, "ann", acts["Delete"].command)).ok, "it works"
    assert (await run(house, "ann", f"/task cancel {task_id}")).ok
    resumed = await run(house, "ann", f"/task resume {task_id} something short")
    assert resumed.ok
    await until_state(house, task_id, "done")
    card = await run(house, "ann", f"/task {task_id}")
    assert "3 runs, the latest:\n   3. done, " in card.text
    deleted = await run(house, "ann", named(card)["Delete"].command)
    assert "“slow work” is deleted" in deleted.text
    assert (await run(house, "ann", f"/task {task_id}")).code == "not_found"


async def test_a_failure_says_why(household: Open) -> None:
    house = await household(worker("ann"))
    task_id = await began(house, "ann", "fail please")
    await until_state(house, task_id, "failed")
    card = (await run(house, "ann", f"/task {task_id}")).text
    assert "✗ fail please" in card
    assert "Error: " in card


async def test_progress_is_a_bar(household: Open) -> None:
    house = await household(worker("ann"))
    task_id = await began(house, "ann", "slow work")
    await until_state(house, task_id, "running")
    await house.db.write(
        lambda tx: (
            tx.execute(
                "UPDATE tasks SET progress = 'half of it', percent = 50, progress_at = ?",
                (house.clock.now_ms(),),
            )
            and None
        )
    )
    await house.clock.sleep(30)
    card = (await run(house, "ann", f"/task {task_id}")).text
    assert "█████░░░░░ 50 % half of it (30 s ago)" in card
    assert "50 %, half of it" in (await run(house, "ann", "/tasks")).text


@pytest.mark.parametrize(
    "text, part",
    [
        ("/task", "say /task ID"),
        ("/task new", "/task new TEXT"),
        ("/task cancel", "say /task ID"),
        ("/task some thing", "say /task ID"),
        ("/task answer {id}", "/task answer ID TEXT"),
        ("/tasks odd", "say /task ID"),
        ("/task nothingsuch", "nothingsuch"),
    ],
)
async def test_what_is_wrong_is_said(household: Open, text: str, part: str) -> None:
    house = await household(worker("ann"))
    task_id = await began(house, "ann", "slow")
    reply = await run(house, "ann", text.format(id=task_id))
    assert not reply.ok
    assert part in reply.text


async def test_tasks_that_are_switched_off_say_so(household: Open) -> None:
    house = await household(worker("ann"), config="[tasks]\nenabled = false\n")
    for text in ("/tasks", "/task new x", "/task task_1"):
        reply = await run(house, "ann", text)
        assert not reply.ok
        assert "tasks.enabled" in reply.text


async def scheduled(house: VirtualDaemon, name: str, agent_name: str, **times: Any) -> str:
    """A task with times, as tools and programs make it."""
    hub = house.daemon.api._deps.tasks
    assert hub is not None
    new = NewTask(name, agent=agent_name, schedule=NewSchedule(**times))
    return str((await hub.create(new, caller=EVE)).task_id)


async def test_times_to_come_are_shown_and_may_rest(household: Open) -> None:
    house = await household(worker("ann"))
    task_id = await scheduled(house, "tick", "ann", every_s=5400)
    card = await run(house, "ann", f"/task {task_id}")
    assert "Runs every 1 h 30 min; next in 1 h 30 min (" in card.text
    assert {"Cancel", "Begin", "Pause"} <= set(named(card))
    assert "; next run in 1 h 30 min (" in (await run(house, "ann", "/tasks")).text
    rests = await run(house, "ann", named(card)["Pause"].command)
    assert "Runs every 1 h 30 min; paused" in rests.text
    assert "next run" not in (await run(house, "ann", "/tasks")).text
    goes_on = await run(house, "ann", named(rests)["Go on"].command)
    assert "next in" in goes_on.text
    ended = await run(house, "ann", f"/task cancel {task_id}")
    assert "Ran every 1 h 30 min; no further time" in ended.text
    assert "Pause" not in named(ended)
    daily = await scheduled(house, "daily", "ann", cron="30 8 * * *", zone="Europe/Berlin")
    german = (await run(house, "ann", f"/task {daily}", language="de")).text
    assert re.search(
        r"Läuft cron 30 8 \* \* \*; das nächste Mal in .+08:30 Europe/Berlin\)", german
    )


async def test_why_a_time_was_let_pass_is_said_in_ones_language(household: Open) -> None:
    house = await household(worker("ann"))
    task_id = await scheduled(house, "slow", "ann", every_s=60)
    hub = house.daemon.api._deps.tasks
    assert isinstance(hub, TaskHub)

    def settle(tx: Tx) -> None:
        settle_tx(tx, hub.starter, task_id, now=house.clock.now_ms())

    for _ in range(2):
        await house.clock.sleep(60)
        await house.db.write(settle)
    await house.clock.sleep(10)
    english = (await run(house, "ann", f"/task {task_id}")).text
    assert "skipped, 10 s ago: the run before it had not ended" in english
    german = (await run(house, "ann", f"/task {task_id}", language="de")).text
    assert "ausgelassen, vor 10 s: der Lauf davor war noch nicht zu Ende" in german


async def test_a_stop_names_the_schedules_that_stay(household: Open) -> None:
    house = await household(worker("ann"), worker("ben"))
    for number in range(6):
        await scheduled(house, f"tick {number}", "ann", every_s=3600 + number)
    await scheduled(house, "tock", "ben", every_s=60)
    rests = await scheduled(house, "silent", "ben", every_s=60)
    assert (await run(house, "ben", f"/task pause {rests}")).ok
    slow = await began(house, "ann", "slow work")
    await until_state(house, slow, "running")

    told = (await run(house, "ann", "/stop_all", principal=OPERATOR)).text
    assert "Stopped: 1 running answer" in told
    assert "all chats of ann" in told
    assert "6 schedules stay:\n   tick 0: in " in told
    assert told.endswith("   and 1 more")
    assert "tock" not in told
    await until_state(house, slow, "cancelled")

    told = (await run(house, "main", "/stop_all", principal=OPERATOR)).text
    assert "7 schedules stay:\n   tock: in " in told
    assert "silent" not in told
    german = (await run(house, "ben", "/stop_all", principal=OPERATOR, language="de")).text
    assert "Ein Zeitplan bleibt:\n   tock: in " in german
    assert "stay" not in (await run(house, "ben", "/stop", principal=OPERATOR)).text
    assert await house.sql("SELECT count(*) FROM schedules WHERE next_at IS NOT NULL") == [(7,)]


async def test_the_document_of_a_stop_has_them_too(household: Open) -> None:
    house = await household(worker("ann"))
    task_id = await scheduled(house, "tick", "ann", every_s=3600)
    report = await house.daemon.control.stop("all", OPERATOR)
    (one,) = StopReportDocument.of(report).schedules
    assert (one.task_id, one.name) == (task_id, "tick")
    assert one.next_at == house.clock.now_ms() + 3_600_000
