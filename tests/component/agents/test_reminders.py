"""``/remind`` and the tool ``remind``: told once, where they were asked for, without a model."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pytest

from agentsup.model.control import CommandReply
from agentsup.model.message import DeliverTo
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind
from agentsup.model.task import MAX_REMINDERS, NewSchedule, NewTask, TaskAction
from agentsup.tasks import schedules
from agentsup.tasks.scheduler import settle_tx
from tests.component.agents.shared import flat, hub_of, run_command
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

EVE = Principal(PrincipalKind.PERSON, "eve", "Eve", PersonRole.USER)
MAX = Principal(PrincipalKind.PERSON, "max", "Max", PersonRole.USER)
VIC = Principal(PrincipalKind.PERSON, "vic", "Vic", PersonRole.VIEWER)
CALL = {"tool": {"name": "remind", "args": {"text": "pay $1", "when": "in 2h"}}}
RULES = (
    {"match": "remember (.+)", "steps": [CALL, {"say": "noted $result"}]},
    {
        "match": "when",
        "steps": [
            {"tool": {"name": "remind", "args": {"text": "x", "when": "soon"}}},
            {"say": "$result"},
        ],
    },
)


async def run(house: VirtualDaemon, text: str, **more: Any) -> CommandReply:
    return await run_command(house, "ann", text, **{"principal": EVE, **more})


async def told(house: VirtualDaemon) -> list[tuple[str, str, str]]:
    rows = await house.sql(
        "SELECT channel, conversation, body ->> '$.text' FROM outbox WHERE kind = 'notice'"
        " AND body ->> '$.text' LIKE '⏰%' ORDER BY outbox_id"
    )
    return [tuple(row) for row in rows]


async def pass_time(house: VirtualDaemon, hours: float) -> list[tuple[str, str, str]]:
    """Let time pass, and have the scheduler look once; what was told so far."""
    await house.clock.sleep(hours * 3600 + 1)
    hub, now = hub_of(house), house.clock.now_ms()
    for task_id, at in await house.db.read(schedules.heads, 1000):
        if at <= now:
            settle = partial(settle_tx, starter=hub.starter, task_id=task_id, now=now)
            await house.db.write(settle)
    return await told(house)


async def test_it_is_told_once_in_the_topic_where_it_was_asked_for(household: Open) -> None:
    house = await household(agent("ann", *RULES))
    reply = await run(house, "/remind in 2h pay the bill", chat=("telegram", "7/3"))
    assert reply.ok, reply.text
    assert reply.text.startswith("I remind you here: pay the bill")
    await house.restart(kill=True)
    (found,) = await pass_time(house, 2)
    assert found == ("telegram", "7/3", "⏰ pay the bill")
    rows = await house.sql("SELECT state, runs FROM tasks")
    assert [tuple(row) for row in rows] == [("done", 1)]
    ((sent, models),) = await house.sql(
        "SELECT (SELECT body ->> '$.buttons' FROM outbox WHERE channel = 'telegram'),"
        " (SELECT count(*) FROM messages)"
    )
    assert models == 0, "no turn is taken for it"
    assert [each["label"] for each in json.loads(sent)[0]] == ["Done", "In 1 h", "Tomorrow"]
    buttons = await house.sql(
        "SELECT action ->> '$.command', once FROM buttons ORDER BY label != 'Done', label"
    )
    done, later, tomorrow = (row[0] for row in buttons)
    assert all(row[1] for row in buttons), "each works once"

    again = await run(house, later, chat=("telegram", "7/3"))
    assert "in 1 h 0 min" in again.text
    assert len(await pass_time(house, 0.9)) == 1
    assert len(await pass_time(house, 0.1)) == 2
    moved = await run(house, tomorrow, chat=("telegram", "7/3"))
    assert moved.ok, moved.text
    ended = await run(house, done, chat=("telegram", "7/3"))
    assert ended.text == "✔ pay the bill"
    assert (await run(house, "/remind")).text.startswith("There are no reminders")


async def test_one_that_comes_late_says_when_it_was_meant(household: Open) -> None:
    house = await household(agent("ann", *RULES))
    await run(house, "/remind in 2h tea")
    await house.die()
    await house.clock.sleep(3 * 3600)
    await house.start()
    ((_, _, text),) = await pass_time(house, 0)
    assert text.startswith("⏰ tea\n(This was for ")
    assert text.endswith("ends it."), "the console has no buttons"


async def test_a_list_has_the_own_reminders_and_cancels_them(household: Open) -> None:
    house = await household(agent("ann", *RULES))
    await run(house, "/remind in 5h swim")
    await run(house, "/remind every day 8 pills")
    await run(house, "/remind in 3h secret", principal=MAX, chat=("telegram", "9"))
    listed = await run(house, "/remind list")
    assert "swim" in listed.text
    assert "pills" in listed.text
    assert "secret" not in listed.text
    shared = await run(house, "/remind", chat=("telegram", "-5"), is_shared=True)
    assert "swim" not in shared.text, "a group reads only what comes there"
    assert "secret" in (await run(house, "/remind", principal=MAX)).text
    (theirs,) = await house.sql("SELECT task_id FROM tasks WHERE name = 'secret'")
    for verb in ("cancel {}", "done {}", "later {} 1h"):
        refused = await run(house, f"/remind {verb.format(theirs[0])}")
        assert refused.code == "forbidden", verb
    for button in flat(listed):
        assert (await run(house, button.command)).text.startswith("Cancelled: ")
    assert (await run(house, "/remind")).text.startswith("There are no reminders")
    ahead = await house.sql("SELECT 1 FROM schedules WHERE next_at IS NOT NULL")
    assert len(ahead) == 1, "the other person's stays"


async def test_one_that_comes_again_is_put_off_once_and_stays(household: Open) -> None:
    house = await household(agent("ann", *RULES))
    await run(house, "/remind every 2 hours drink")
    (first,) = await pass_time(house, 2)
    (row,) = await house.sql("SELECT task_id, state FROM tasks")
    assert row[1] == "todo"
    later = await run(house, f"/remind later {row[0]} 30m")
    assert later.ok, later.text
    assert len(await pass_time(house, 0.5)) == 2
    assert len(await pass_time(house, 1.5)) == 3
    assert first[2].startswith("⏰ drink")
    ((every, single),) = await house.sql(
        "SELECT sum(kind = 'every'), sum(kind = 'at') FROM schedules"
    )
    assert (every, single) == (1, 1)


async def test_what_is_wrong_is_said_in_the_persons_language(household: Open) -> None:
    house = await household(agent("ann", *RULES))
    for text, code in (
        ("/remind soon tea", "schreib wann und was"),
        ("/remind morgen 8", "schreib dazu"),
        ("/remind heute 0:00 tee", "diese Zeit ist vorbei"),
        ("/remind cancel nope1", ""),
    ):
        reply = await run(house, text, language="de")
        assert not reply.ok
        assert reply.text.startswith(code)
    assert not (await run(house, "/remind in 2h x", principal=VIC)).ok
    assert not (await run(house, f"/remind in 2h {'x' * 2001}")).ok
    task = await run(house, "/task new count")
    task_id = re.findall(r"task_\w+", task.text)[0]
    assert "no reminder" in (await run(house, f"/remind cancel {task_id}")).text


async def test_a_command_that_comes_again_sets_one(household: Open) -> None:
    house = await household(agent("ann", *RULES))
    for _ in range(2):
        assert (await run(house, "/remind in 2h tea", key="say-1")).ok
        await house.clock.sleep(1)
    assert len(await house.sql("SELECT 1 FROM tasks")) == 1


async def test_a_person_has_so_many_at_most(household: Open) -> None:
    house = await household(agent("ann", *RULES))
    hub = hub_of(house)
    new = NewTask("x", agent="ann", schedule=NewSchedule(every_s=9e6), does=TaskAction.TELL)
    for _ in range(MAX_REMINDERS):
        await hub.create(new, caller=EVE)
    assert "200" in (await run(house, "/remind in 2h x")).text
    assert (await run(house, "/remind in 2h x", principal=MAX)).ok


async def test_an_agent_sets_one_for_the_chat_it_was_asked_in(household: Open) -> None:
    house = await household(agent("ann", *RULES, tools=["remind", "task_list"]))
    said = await house.ask("ann", "remember the bill", who=EVE)
    assert said.result_text.startswith("noted {"), said.result_text
    ((*chat, text),) = await pass_time(house, 2)
    assert chat == ["console", "local"]
    assert text.startswith("⏰ pay the bill")
    assert text.count("⏰") == 1
    (row,) = await house.sql("SELECT asked_by, owner_kind, deliver_to FROM tasks")
    assert row[:2] == ("eve", "agent")
    assert DeliverTo.from_json(json.loads(row[2])).kind == "chat"
    assert (await run(house, "/remind")).text.startswith("There are no")


async def test_a_time_that_an_agent_words_badly_is_an_error_with_examples(household: Open) -> None:
    house = await household(agent("ann", *RULES, tools=["remind"]))
    said = await house.ask("ann", "when", who=EVE)
    assert "'soon' is not understood: write 'tomorrow 8'" in (said.result_text or said.error_text)
    assert await house.sql("SELECT 1 FROM tasks") == []


async def test_a_reminder_takes_no_turn_by_any_way(household: Open) -> None:
    house = await household(agent("ann", *RULES))
    await run(house, "/remind in 2h tea")
    (row,) = await house.sql("SELECT task_id FROM tasks")
    refused = await run(house, f"/task resume {row[0]} do it")
    assert not refused.ok
    assert "tea" not in (await run(house, "/tasks")).text
    labels = [each.label for each in flat(await run(house, f"/task {row[0]}"))]
    assert "Start" not in labels
    assert await house.sql("SELECT 1 FROM messages") == []


async def test_the_operators_console_sees_what_comes_there(household: Open) -> None:
    house = await household(agent("ann", *RULES))
    await run(house, "/remind in 2h tea")
    assert "tea" in (await run(house, "/remind", principal=OPERATOR)).text
    elsewhere = await run(house, "/remind", principal=OPERATOR, chat=("web", "local"))
    assert "tea" not in elsewhere.text
