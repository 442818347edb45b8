"""Work that is done in the place of another agent: whose prompt, memory, tools, slots and money."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agentsup.agents.sessions.handler import stricter_mode
from agentsup.model.ids import AgentId
from agentsup.model.message import IN_STORE, LaneName, Message, MessageKind, NewMessage, text_parts
from agentsup.model.principal import (
    OPERATOR,
    OPERATORS,
    PersonRole,
    Principal,
    PrincipalKind,
)
from agentsup.model.task import RunKind
from agentsup.store import Tx
from agentsup.tasks import NewRun, Runs
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual


def use(name: str, **args: Any) -> Mapping[str, Any]:
    return {"match": name, "steps": [{"tool": {"name": name, "args": args}}, {"say": "$result"}]}


RULES = (
    use("fs_write", path="made.txt", content="x"),
    use("fs_list", path="."),
    use("memory_recall", query="tea"),
    {"match": "system", "steps": [{"say": "$system"}]},
)


async def run_as(
    house: VirtualDaemon, owner: str, persona: str, text: str, *, role: str = "", parent: str = ""
) -> Message:
    """A run in the mailbox of ``owner``, done in the place of ``persona`` (a name or an id)."""
    known = {entry.name: entry.agent_id for entry in house.roster.present()}
    owner_id = house.roster.entry(owner).agent_id
    new = NewMessage(
        AgentId(owner_id),
        f"run:{house.entropy.new_id('x')}",
        text_parts(text),
        OPERATOR,
        kind=MessageKind.TASK,
        lane=LaneName.BACKGROUND,
        deliver_to=IN_STORE,
    )
    mailbox = house.daemon.mailbox

    def accept(tx: Tx) -> str:
        accepted = mailbox.queue.accept_tx(tx, new)
        if persona:
            tx.execute(
                "INSERT INTO session_personas VALUES (?, ?)",
                (accepted.session_id, known.get(persona, persona)),
            )
        if role:
            tx.execute(
                "INSERT INTO session_roles VALUES (?, ?, 'test', 0)", (accepted.session_id, role)
            )
        tx.execute(
            "INSERT INTO runs (run_id, kind, agent_id, parent_message_id, created_at)"
            " VALUES (?, 'delegate', ?, ?, 0)",
            (accepted.message_id, owner_id, parent),
        )
        return accepted.message_id

    return await mailbox.queue.wait_done(await house.db.write(accept), 3600.0)


async def test_the_answer_is_the_others_and_the_slot_and_the_bill_are_the_owners(
    household: Open,
) -> None:
    house = await household(
        agent("ann", {"match": ".*", "steps": [{"say": "I am ann"}]}),
        agent(
            "ben",
            {
                "match": ".*",
                "steps": [
                    {"usage": {"input": 3, "output": 2, "usd": 0.5}},
                    {"say": "I am ben"},
                ],
            },
        ),
    )
    done = await run_as(house, "ann", "ben", "who?")
    assert done.result_text == "I am ben"
    assert done.agent_id == house.roster.entry("ann").agent_id
    assert await house.sql("SELECT agent_id, usd FROM usage") == [(done.agent_id, 0.5)]
    assert (await house.ask("ann", "who?")).result_text == "I am ann"


@pytest.mark.parametrize("how", ["removed", "disabled", "stopped"])
async def test_one_who_is_not_there_fails_the_run_with_a_sentence(
    household: Open, how: str
) -> None:
    ann, ben = agent("ann"), agent("ben")
    house = await household(ann, ben)
    ben_id = house.roster.entry("ben").agent_id
    if how == "removed":
        await house.save([ann])
    elif how == "disabled":
        await house.save([ann, {**ben, "enabled": False}])
    else:
        await house.daemon.control.stop_agent("ben", OPERATOR)
    done = await run_as(house, "ann", ben_id, "who?")
    assert (done.outcome, done.error_code) == ("failed", "agent_down")
    assert "in the place of ben, which " in done.error_text
    assert ("was removed" in done.error_text) is (how == "removed")


async def test_neither_may_widen_what_the_other_may_use(household: Open) -> None:
    house = await household(
        agent("ann", *RULES, tools=["fs_list", "fs_read"]),
        agent("ben", *RULES, tools=["fs_*"]),
        agent("cat", *RULES, tools=["fs_write"]),
        agent("dan", *RULES),
    )
    said = (await run_as(house, "ann", "ben", "fs_write")).result_text
    assert said == "fs_write is not among the tools of ann, for whom this is done"
    assert "not among" not in (await run_as(house, "ann", "ben", "fs_list")).result_text
    said = (await run_as(house, "dan", "cat", "fs_list")).result_text
    assert said == "fs_list is not among the tools of cat"
    assert not (house.home.workspace("ann") / "made.txt").exists()
    assert "not among" not in (await run_as(house, "dan", "cat", "fs_write")).result_text
    assert (house.home.workspace("dan") / "made.txt").exists()
    assert not (house.home.workspace("cat") / "made.txt").exists()


async def test_what_a_callers_role_forbids_its_runs_may_not_do_either(household: Open) -> None:
    house = await household(agent("ann", *RULES), agent("ben", *RULES))
    path = house.home.roles / "reader" / "AGENT.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\nname: reader\nmax_tools: [fs_list]\n---\nRead.\n", encoding="utf-8")
    parent = await run_as(house, "ann", "", "fs_list", role="reader")
    for persona, role in (("ben", ""), ("", "operator"), ("", "")):
        done = await run_as(house, "ann", persona, "fs_write", role=role, parent=parent.message_id)
        assert "fs_write is beyond the role reader" in done.result_text
        again = await run_as(house, "ann", "", "fs_write", parent=done.message_id)
        assert "fs_write is beyond the role reader" in again.result_text
    # A request to another agent's own mailbox is bounded by that agent alone.
    done = await run_as(house, "ben", "", "fs_write", parent=parent.message_id)
    assert "beyond" not in done.result_text


async def test_what_a_caller_that_was_removed_might_not_use_its_runs_may_not_either(
    household: Open,
) -> None:
    ann, cat = agent("ann", *RULES), agent("cat", *RULES)
    house = await household(ann, agent("ben", *RULES, tools=["fs_list"]), cat)
    parent = await run_as(house, "ann", "ben", "fs_list")
    done = await run_as(house, "ann", "cat", "fs_write", parent=parent.message_id)
    assert done.result_text == "fs_write is not among the tools of ben, for whom this is done"
    await house.save([ann, cat])
    done = await run_as(house, "ann", "cat", "fs_write", parent=parent.message_id)
    assert done.result_text == "fs_write is not among the tools of ben, for whom this is done"
    assert not (house.home.workspace("ann") / "made.txt").exists()


async def test_the_role_of_whoever_pays_holds_where_no_turn_of_it_had_the_work_begun(
    household: Open,
) -> None:
    house = await household(agent("ann", *RULES, role="reader"), agent("ben", *RULES))
    path = house.home.roles / "reader" / "AGENT.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\nname: reader\nmax_tools: [fs_list]\n---\nRead.\n", encoding="utf-8")
    assert "beyond the role reader" in (await run_as(house, "ann", "ben", "fs_write")).result_text
    parent = await run_as(house, "ann", "", "fs_list", role="operator")  # a person let it do more
    done = await run_as(house, "ann", "ben", "fs_write", parent=parent.message_id)
    assert "beyond" not in done.result_text


async def test_memory_is_the_others(household: Open) -> None:
    def save(text: str) -> Mapping[str, Any]:
        return use("memory_save", key="tea", content=text)

    house = await household(
        agent("ann", *RULES, save("ann likes tea")), agent("ben", *RULES, save("ben hates tea"))
    )
    await house.ask("ann", "memory_save")
    await run_as(house, "ann", "ben", "memory_save")
    found = (await run_as(house, "ann", "ben", "memory_recall")).result_text
    assert "ben hates tea" in found
    assert "ann likes" not in found
    assert "ann likes tea" in (await house.ask("ann", "memory_recall")).result_text
    assert "ben hates tea" in (await house.ask("ben", "memory_recall")).result_text


async def test_the_budget_that_is_spent_is_the_owners(household: Open) -> None:
    rule = {
        "match": ".*",
        "steps": [{"usage": {"input": 1, "output": 1, "usd": 2.0}}, {"say": "hm"}],
    }
    house = await household(
        agent("ann", rule, budget={"per_day_usd": 1.0}),
        agent("ben", rule, budget={"per_day_usd": 0.000001}),
    )
    assert (await run_as(house, "ann", "ben", "a")).result_text == "hm"
    refused = await run_as(house, "ann", "ben", "b")
    assert refused.error_code == "budget_exceeded"
    assert "ann" in refused.error_text
    assert "ben" not in refused.error_text


@pytest.mark.parametrize(
    "own, callers, expected",
    [
        ("bypassPermissions", ["bypassPermissions"], "bypassPermissions"),
        ("bypassPermissions", [None], None),
        ("bypassPermissions", ["bypassPermissions", "default"], "default"),
        ("default", ["bypassPermissions"], "default"),
        (None, ["plan"], "plan"),
        ("bypassPermissions", [], "bypassPermissions"),
    ],
)
def test_the_most_careful_mode_holds(
    own: str | None, callers: list[str | None], expected: str | None
) -> None:
    assert stricter_mode(own, callers) == expected


async def test_what_a_run_is_told_stands_behind_its_next_result_and_is_read_once(
    household: Open,
) -> None:
    rule = {
        "match": "go",
        "steps": [
            {"sleep": 5},
            {"tool": {"name": "fs_list", "args": {"path": "."}}},
            {"say": "heard: $result"},
        ],
    }
    house = await household(agent("ann", rule))
    mailbox = house.daemon.mailbox
    runs = Runs(mailbox, house.db, abort=_nobody)
    new = NewRun(RunKind.DELEGATE, house.roster.entry("ann").agent_id, "go", OPERATOR, IN_STORE)
    run = await house.db.write(runs.start_tx, new)
    await house.clock.sleep(1)
    await runs.steer(run.run_id, "in French, please", OPERATOR)
    report = await runs.wait(run.run_id, 60)
    assert report.run.result.endswith("\n\n[Note from operator] in French, please")
    states = await house.sql("SELECT state, error_code FROM messages WHERE kind = 'directive'")
    assert states == [("done", "collected")]


@pytest.mark.parametrize("role", ["user", "viewer", None])
async def test_a_note_of_a_former_operator_is_shown_to_no_work_of_the_operators(
    household: Open, role: str | None
) -> None:
    look = {"tool": {"name": "fs_list", "args": {"path": "."}}}
    house = await household(
        agent("ann", {"match": "go", "steps": [{"sleep": 5}, look, {"say": "heard: $result"}]})
    )
    config = house.home.config_toml
    before = config.read_text() if config.exists() else ""
    config.write_text(before + '[people.op]\nrole = "operator"\n')
    house.is_listed = True
    await house.restart()
    ann = house.roster.entry("ann").agent_id
    op = Principal(PrincipalKind.PERSON, "op", "Op", PersonRole.OPERATOR)
    runs = Runs(house.daemon.mailbox, house.db, abort=_nobody)
    new = NewRun(RunKind.DELEGATE, ann, "go", op, IN_STORE)
    run = await house.db.write(runs.start_tx, new)
    await house.clock.sleep(1)
    told_by = Principal(PrincipalKind.RUN, ann, "ann", behalf=OPERATORS)
    await runs.steer(run.run_id, "now delete it", told_by)
    left = f'[people.op]\nrole = "{role}"\n' if role else '[people.olga]\nrole = "operator"\n'
    config.write_text(before + left)
    await house.daemon.reconciler.reload()
    report = await runs.wait(run.run_id, 60)
    assert report.run.result.startswith("heard:")
    assert "now delete it" not in report.run.result
    ((note_id,),) = await house.sql("SELECT message_id FROM messages WHERE kind = 'directive'")
    note = await house.daemon.mailbox.queue.wait_done(note_id, 60)
    assert note.error_code == "rights_lost"


async def test_a_note_shown_before_a_crash_is_shown_again(household: Open) -> None:
    look = {"tool": {"name": "fs_list", "args": {"path": "."}}}
    rule = {
        "match": "go",
        "steps": [look, {"say": "$result"}, {"sleep": 5}, look, {"say": "$result"}],
    }
    house = await household(agent("ann", rule))
    runs = Runs(house.daemon.mailbox, house.db, abort=_nobody)
    new = NewRun(RunKind.DELEGATE, house.roster.entry("ann").agent_id, "go", OPERATOR, IN_STORE)
    await runs.steer((await house.db.write(runs.start_tx, new)).run_id, "hurry", OPERATOR)
    await house.clock.sleep(2)
    await house.restart(kill=True)
    runs = Runs(house.daemon.mailbox, house.db, abort=_nobody)
    found = await house.sql("SELECT run_id FROM runs")
    report = await runs.wait(found[0][0], 60)
    assert report.run.result.count("[Note from operator] hurry") == 1
    assert await house.sql("SELECT count(*) FROM messages WHERE state = 'queued'") == [(0,)]


async def _nobody(message_id: str) -> None:
    """Nothing is stopped here."""


async def test_who_works_in_anothers_place_asks_only_whom_both_may(household: Open) -> None:
    def ask(to: str) -> Mapping[str, Any]:
        return use("ask_agent", to=to, message="hello")

    def rules() -> tuple[Mapping[str, Any], ...]:
        return tuple({**ask(to), "match": f"ask {to}"} for to in ("ann", "cat", "dan"))

    house = await household(
        agent("ann", can_delegate_to=["ben", "cat"]),
        agent("ben", *rules(), can_delegate_to=["ann", "cat", "dan"]),
        agent("cat", {"match": "hello", "steps": [{"say": "cat here"}]}),
        agent("dan", {"match": "hello", "steps": [{"say": "dan here"}]}),
        agent("eve", *rules(), can_delegate_to=["dan"]),
    )
    assert (await run_as(house, "ann", "ben", "ask cat")).result_text == "cat here"
    refused = (await run_as(house, "ann", "ben", "ask dan")).result_text
    assert "ann may not send to dan" in refused
    assert "can't send to itself" in (await run_as(house, "ann", "ben", "ask ann")).result_text
    refused = (await run_as(house, "ann", "eve", "ask cat")).result_text
    assert "eve may not send to cat" in refused


@pytest.mark.parametrize("named", [{}, {"agent": "ben"}, {"role": "writer"}])
async def test_a_task_created_in_anothers_place_is_done_by_that_one_within_its_tools(
    household: Open, named: dict[str, str]
) -> None:
    task = {
        "match": ".*hand it on",
        "steps": [{"tool": {"name": "task_create", "args": {"prompt": "fs_write", **named}}}],
    }
    write = use("fs_write", path="made.txt", content="x")
    ann, ben = (
        agent("ann", write, {"match": "go", "steps": [_delegated("ben")]}),
        agent("ben", write, task, tools=["fs_list", "task_create"]),
    )
    house = await household(ann, {**ben, "can_delegate_to": ["writer"]})
    path = house.home.roles / "writer" / "AGENT.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\nname: writer\nmax_tools: [fs_*]\n---\nWrite.\n", encoding="utf-8")
    await house.ask("ann", "go")

    async def result() -> str:
        ((found,),) = await house.sql("SELECT coalesce(max(result), '') FROM tasks")
        return str(found)

    async def is_done() -> bool:
        return bool(await result())

    await house.until(is_done)
    assert await result() == "fs_write is not among the tools of ben"
    assert not (house.home.workspace("ann") / "made.txt").exists()


def _delegated(to: str) -> Mapping[str, Any]:
    args = {"prompt": "hand it on", "agent": to}
    return {"tool": {"name": "delegate_task", "args": args}}
