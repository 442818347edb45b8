"""An agent at work in another's place creates tasks: they are done by that same one, and no wider."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agentsup.mailbox.mail import to_asker
from agentsup.model.errors import Forbidden, LoopDetected
from agentsup.model.message import Lease
from agentsup.model.principal import OPERATOR
from agentsup.model.task import NewSchedule, RunKind, Task
from agentsup.tasks import NewRun
from agentsup.tasks.lineage import agent_target
from agentsup.tasks.scheduler import settle_tx
from tests.support.task_fixture import ANN, TaskFixture


async def _stand_in(rig: TaskFixture) -> Lease:
    """A turn on ann's message in ben's place."""
    await rig.mail.put("have it done")
    turn = await rig.mail.one()
    run = NewRun(
        kind=RunKind.DELEGATE,
        agent_id=turn.message.agent_id,
        prompt="do it",
        principal=ANN,
        deliver_to=to_asker(turn.message, waited=False),
        target=agent_target("ben"),
        parent=turn.message,
    )
    await rig.start_run(run)
    return await rig.mail.one()


async def _create(rig: TaskFixture, at_it: Lease, **changes: Any) -> Task:
    return await rig.create(caller=ANN, asker=rig.asker(at_it), **changes)


async def _forgotten(rig: TaskFixture, at_it: Lease) -> None:
    """The message of the turn that created it is past retention."""
    await rig.mail.finish(at_it)
    gone = at_it.message.message_id
    await rig.mail.db.write(
        lambda tx: tx.execute("DELETE FROM messages WHERE message_id = ?", (gone,))
    )


async def _standing(rig: TaskFixture, session_id: str) -> tuple[str, str]:
    """In whose place, and bounded by which session."""
    ((persona, parent),) = await rig.mail.sql(
        "SELECT coalesce(o.agent_id, ''), coalesce(p.parent_session_id, '') FROM sessions s"
        " LEFT JOIN session_personas o USING (session_id)"
        " LEFT JOIN session_parents p USING (session_id) WHERE session_id = ?",
        session_id,
    )
    return persona, parent


async def _at_once(rig: TaskFixture, at_it: Lease) -> Task:
    return await _create(rig, at_it)


async def _in_a_role(rig: TaskFixture, at_it: Lease) -> Task:
    return await _create(rig, at_it, role="planner")


async def _naming_itself(rig: TaskFixture, at_it: Lease) -> Task:
    return await _create(rig, at_it, agent="ben")


async def _begun_later(rig: TaskFixture, at_it: Lease) -> Task:
    task = await _create(rig, at_it, start=False)
    await _forgotten(rig, at_it)
    return await rig.hub.resume(task.task_id, caller=OPERATOR)


async def _gone_on_with_by_another(rig: TaskFixture, at_it: Lease) -> Task:
    task = await _create(rig, at_it)
    await rig.mail.finish(await rig.mail.one())
    await _forgotten(rig, at_it)
    return await rig.hub.resume(task.task_id, "again", caller=ANN)


async def _by_a_schedule(rig: TaskFixture, at_it: Lease) -> Task:
    task = await _create(rig, at_it, schedule=NewSchedule(every_s=60))
    await _forgotten(rig, at_it)
    await rig.reboot()
    rig.mail.later(60)
    now = rig.mail.clock.now_ms()
    await rig.mail.db.write(lambda tx: settle_tx(tx, rig.hub.starter, task.task_id, now=now))
    return await rig.again(task)


WAYS: list[Callable[[TaskFixture, Lease], Awaitable[Task]]] = [
    _at_once,
    _in_a_role,
    _naming_itself,
    _begun_later,
    _gone_on_with_by_another,
    _by_a_schedule,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__[1:])
async def test_its_tasks_are_done_by_it_on_the_owners_message(
    rig: TaskFixture, way: Callable[[TaskFixture, Lease], Awaitable[Task]]
) -> None:
    at_it = await _stand_in(rig)
    task = await way(rig, at_it)
    assert task.agent_id == "ann"
    assert await _standing(rig, task.session_id) == ("ben", at_it.message.session_id)


async def test_a_task_of_the_owner_stays_the_owners_whoever_goes_on_with_it(
    rig: TaskFixture,
) -> None:
    at_it = await _stand_in(rig)
    task = await rig.create(caller=ANN, start=False)
    task = await rig.hub.resume(task.task_id, caller=ANN, asker=rig.asker(at_it))
    assert (await _standing(rig, task.session_id))[0] == ""


async def test_whoever_is_named_does_it_if_both_may_hand_it_on(rig: TaskFixture) -> None:
    at_it = await _stand_in(rig)
    task = await _create(rig, at_it, agent="eve")
    assert (await _standing(rig, task.session_id))[0] == "eve"
    rig.directory.bound("ben", "ann", "main")
    with pytest.raises(Forbidden, match="ben may not send to eve"):
        await _create(rig, at_it, agent="eve")
    rig.directory.bound("ann", "ben", "main")
    with pytest.raises(Forbidden, match="ann may not send to eve"):
        await _create(rig, at_it, agent="eve")


@pytest.mark.parametrize("start", [True, False])
async def test_it_does_not_hand_it_back_to_whom_it_works_for(rig: TaskFixture, start: bool) -> None:
    at_it = await _stand_in(rig)
    with pytest.raises(LoopDetected, match="they are at it already"):
        await _create(rig, at_it, agent="ann", start=start)
    assert await rig.hub.list(caller=OPERATOR) == []
