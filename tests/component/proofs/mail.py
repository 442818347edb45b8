"""P1, P2, P6: mail between agents is spread, copied, told and given away as promised."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsup.mailbox.mail import subscribers_of, subscriptions
from agentsup.model.agent import AgentSpec
from tests.component.proofs.proof import Claim, Proof, Removal
from tests.support.dispatcher_fixture import DispatcherFixture

spread, once, rest = Claim("P6"), Claim("P2"), Claim("P6")


async def who_hears_of_each_other_comes_to_rest(home: Path) -> None:
    """Two watch each other, and each answers an event by work for the other."""
    rig = await DispatcherFixture.open(home, ["ann", "ben"])
    try:
        specs = {name: AgentSpec(name, subscriptions=("*:finished",)) for name in ("ann", "ben")}
        rig.mail.subscribers = subscribers_of(specs)
        await rig.mail.put("begin", "ben")
        for turn in range(12):
            for name, other in (("ann", "ben"), ("ben", "ann")):
                for lease in await rig.mail.claim(name):
                    if lease.message.kind == "event":
                        root = lease.message.root_id
                        await rig.mail.put("because", other, root_id=root, conversation=f"c{turn}")
                    await rig.mail.finish(lease)
        events = await rig.mail.sql("SELECT 1 FROM messages WHERE kind = 'event'")
        rest.holds(len(events) == 1, f"one piece of work made {len(events)} events")
    finally:
        await rig.mail.close()


# -- mechanisms taken out ----------------------------------------------------------------------------


def events_of_what_events_set_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(subscriptions, "was_set_off", lambda reader, message: False)


PROOFS = (
    Proof(
        "agents that subscribe to each other come to rest",
        "P6",
        who_hears_of_each_other_comes_to_rest,
        Removal("events of what events set off", events_of_what_events_set_off),
    ),
)
