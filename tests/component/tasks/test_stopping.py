"""What a stop does to work that was handed on, in its own transaction: also if the daemon dies then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentsup.mailbox.mail import to_asker
from agentsup.model.message import LaneName, Lease
from agentsup.model.principal import OPERATOR
from agentsup.model.task import NewTask, Run, RunKind, TaskState
from agentsup.tasks import NewRun
from tests.support.mailbox_fixture import BOB
from tests.support.task_fixture import ANN, BEN, TaskFixture


async def handed_on(
    rig: TaskFixture, turn: Lease, agent: str = "ben", *, waits: bool = True, **changes: object
) -> Run:
    """A run that the turn has started, and waits for or not."""
    new = NewRun(
        RunKind.ROUTE if agent != "ann" else RunKind.DELEGATE,
        rig.directory.lookup(agent).agent_id,
        "count the goats",
        ANN,
        to_asker(turn.message, waited=waits),
        parent=turn.message,
        lane=LaneName.PEER,
    )
    return await rig.start_run(new, waiter=turn if waits else None)


@pytest.mark.parametrize(
    "how,waits",
    [
        ("session", True),
        *[("agent", waits) for waits in (True, False)],
        ("cancel", True),
        ("interrupt", True),
    ],
)
async def test_what_a_stopped_turn_has_handed_on_is_stopped_with_it(
    rig: TaskFixture, how: str, waits: bool
) -> None:
    turn = await rig.turn()
    child = await handed_on(rig, turn, waits=waits)
    below = await rig.mail.one("ben")
    grandchild = await handed_on(rig, below, "eve", waits=waits)
    mailbox, message = rig.mail.mailbox, turn.message
    if how == "cancel":
        ended = set((await mailbox.control.cancel(message.message_id, BOB)).with_it)
    elif how == "interrupt":
        interrupted = await mailbox.control.interrupt(message.session_id, BOB)
        assert interrupted is not None
        ended = set(interrupted.with_it)
    else:
        scope = f"session:{message.session_id}" if how == "session" else "agent:ann"
        counts = await mailbox.control.stop(scope, BOB)
        assert (counts.running, counts.queued, counts.parked) == (2, 1, 0)
        ended = set(counts.message_ids) - {message.message_id}
    assert ended == {child.run_id}  # the grandchild had not begun
    await rig.reboot()
    for run in (child, grandchild):
        assert await rig.mail.state_of(run.run_id) == "cancelled"
    for agent in ("ann", "ben", "eve"):
        assert await rig.mail.claim(agent) == []
    await rig.mail.check()


@pytest.fixture
async def four(tmp_path: Path) -> AsyncIterator[TaskFixture]:
    rig = await TaskFixture.open(tmp_path, "ann", "ben", "cid", "eve")
    yield rig
    await rig.close()


async def test_with_a_run_ends_what_it_has_begun_in_the_background(four: TaskFixture) -> None:
    """Also below one that has ended already, and what had come back to it."""
    rig = four
    turn = await rig.turn()
    run = await handed_on(rig, turn, waits=False)
    top = await rig.mail.one("ben")
    middle = await handed_on(rig, top, "cid", waits=False)
    below = await rig.mail.one("cid")
    deepest = await handed_on(rig, below, "eve", waits=False)
    await rig.mail.finish(below, "half of it")  # its result waits behind the run
    working = await rig.mail.one("eve")
    report = await rig.runs.stop(run.run_id, BOB)
    assert report.status == "cancelled"
    assert set(rig.aborted) >= {run.run_id, deepest.run_id}
    assert await rig.mail.state_of(working.message.message_id) == "cancelled"
    assert await rig.mail.state_of(middle.run_id) == "done"
    assert await rig.mail.claim("ben") == []
    await rig.mail.check()


async def test_a_stop_of_an_agent_ends_runs_that_others_do_for_it(rig: TaskFixture) -> None:
    """Also where the turn that has begun them is over."""
    turn = await rig.turn()
    run = await handed_on(rig, turn, waits=False)
    await rig.mail.finish(turn, "begun")
    await rig.mail.mailbox.control.stop("agent:ann", BOB)
    assert await rig.mail.state_of(run.run_id) == "cancelled"
    assert await rig.mail.claim("ben") == []
    await rig.mail.check()


async def test_a_task_that_a_run_has_given_outlives_the_run(rig: TaskFixture) -> None:
    turn = await rig.turn()
    run = await handed_on(rig, turn, waits=False)
    below = await rig.mail.one("ben")
    task = await rig.create(agent="eve", caller=BEN, asker=rig.asker(below))
    report = await rig.runs.stop(run.run_id, BOB)
    assert report.status == "cancelled"
    await rig.mail.finish(await rig.mail.one("ben"), "twelve")
    assert (await rig.again(task)).state is TaskState.DONE


@pytest.mark.parametrize("how", ["interrupt", "stop"])
async def test_a_stop_in_a_chat_leaves_what_nobody_waits_for(rig: TaskFixture, how: str) -> None:
    turn = await rig.turn()
    child = await handed_on(rig, turn, waits=False)
    if how == "interrupt":
        await rig.mail.mailbox.control.interrupt(turn.message.session_id, BOB)
    else:
        await rig.mail.mailbox.control.stop(f"session:{turn.message.session_id}", BOB)
        await rig.reboot()
    run = await rig.mail.one("ben")
    assert run.message.message_id == child.run_id
    await rig.mail.finish(run, "three")
    assert (await rig.mail.one()).message.text == "three"


async def test_a_task_outlives_a_stop_of_the_chat_and_tells_its_result_there(
    rig: TaskFixture,
) -> None:
    turn = await rig.turn()
    task = await rig.hub.create(
        NewTask("count the sheep", name="sheep"), caller=ANN, asker=rig.asker(turn)
    )
    run = await rig.mail.one()
    await rig.mail.mailbox.control.stop(f"session:{turn.message.session_id}", BOB)
    await rig.mail.finish(run, "twelve")
    assert (await rig.again(task)).state is TaskState.DONE
    assert await rig.mail.claim() == []  # no turn is made of it
    answers = await rig.mail.outbox("kind = 'answer'")
    assert [(row[1], row[2], row[3].splitlines()[-1]) for row in answers] == [
        ("console", "c1", "twelve")
    ]


async def test_a_stop_of_everything_stops_tasks_too(rig: TaskFixture) -> None:
    turn = await rig.turn()
    task = await rig.hub.create(NewTask("count"), caller=ANN, asker=rig.asker(turn))
    counts = await rig.mail.mailbox.control.stop("all", OPERATOR)
    assert (counts.running, counts.queued) == (1, 1)
    assert (await rig.again(task)).state is TaskState.CANCELLED
