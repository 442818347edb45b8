"""P7: a role that was taken away holds for what starts from then on, whenever it was asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentsup.mailbox.messages import current_rights
from agentsup.model.errors import RightsLost
from agentsup.model.message import DeliverTo, NewMessage, text_parts
from agentsup.model.principal import OPERATOR, OPERATORS, PersonRole, Principal, PrincipalKind
from agentsup.model.task import NewSchedule, NewTask
from agentsup.store import Reader
from tests.component.proofs.house import QUICK_CONFIG, ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

claim = Claim("P7")
OP = Principal(PrincipalKind.PERSON, "op", "op", PersonRole.OPERATOR)
ANNA = Principal(PrincipalKind.PERSON, "anna", "anna", PersonRole.USER)
BEFORE = '[people.op]\nrole = "operator"\n[people.anna]\nrole = "user"\n'
AFTER = '[people.op]\nrole = "user"\n'
DONE = [{"match": "(.*)", "steps": [{"say": "done"}]}]
LATER_S = 120


async def people(house: ProofDaemon, text: str) -> None:
    """Save config.toml with these people, and let the watch tell of it."""
    house.home.config_toml.write_text(QUICK_CONFIG + text)
    assert house.edit_seen is not None, "nothing watches the files"
    await house.edit_seen({"config.toml"})


async def person_of(house: ProofDaemon, message_id: str) -> str:
    ((person,),) = await house.sql("SELECT person FROM messages WHERE message_id = ?", message_id)
    return str(person)


async def a_role_that_was_taken_holds_at_once(home: Path) -> None:
    """A task to resume, a schedule and a queued message: an operator becomes a user, a user goes."""
    config = QUICK_CONFIG + BEFORE
    async with ProofDaemon(home, [agent("main", DONE)], config=config, is_listed=True) as house:
        hub = house.daemon.api._deps.tasks
        assert hub is not None
        ops = await hub.create(NewTask("look"), caller=OP)
        every = NewSchedule(every_s=LATER_S)
        plan = await hub.create(NewTask("tick", schedule=every), caller=ANNA)
        todo = await hub.create(NewTask("look", start=False), caller=ANNA)
        queued = await house.daemon.mailbox.queue.accept(
            NewMessage(
                agent_id=ops.agent_id,
                session_key="chat:web:op",
                parts=text_parts("look"),
                principal=OP,
                deliver_to=DeliverTo("chat", "main", channel="web", conversation="op"),
                not_before=house.clock.now_ms() + LATER_S * 1000,
            )
        )
        await asyncio.sleep(10)
        claim.holds(await person_of(house, ops.current_run) == OPERATORS, "an operator was none")
        await people(house, AFTER)
        again = await hub.resume(ops.task_id, "again", caller=OP)
        with_now = await person_of(house, again.current_run)
        claim.holds(with_now == "person:op", f"a former operator's task was resumed as {with_now}")
        try:
            await hub.resume(todo.task_id, "", caller=OPERATOR)
            claim.broken("work of somebody who was removed began")
        except RightsLost:
            pass
        await asyncio.sleep(3 * LATER_S)
        with_now = await person_of(house, queued.message_id)
        claim.holds(with_now == "person:op", f"a former operator's message was done as {with_now}")
        states = [run.state for run in (await hub.card(plan.task_id, caller=OPERATOR)).runs]
        claim.holds(states == ["skipped"], f"a schedule of somebody removed went on: {states}")
        told = [text for text in house.channel.texts(None) if "is paused" in text]
        claim.holds(len(told) == 1, f"the operators were told {len(told)} times")


# -- what is taken out -----------------------------------------------------------------------------


def _claimed_as_stored(patch: pytest.MonkeyPatch) -> None:
    def as_stored(
        reader: Reader, principal: Principal, person: str, *_: object, **more: object
    ) -> tuple[Principal, str]:
        return principal, person

    patch.setattr(current_rights, "acting_for_message", as_stored)


PROOFS = (
    Proof(
        "a role that was taken away holds at once",
        "P7",
        a_role_that_was_taken_holds_at_once,
        Removal("the look at roles when a message is claimed", _claimed_as_stored),
    ),
)
