"""P6: no storm, no deadlock."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentsup.mailbox.mail import InterAgentBus
from agentsup.mailbox.queue import accept, waits
from agentsup.model.errors import WouldDeadlock
from tests.component.proofs.house import QUICK_CONFIG, ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal
from tests.support.mailbox_fixture import MailboxFixture

claim = Claim("P6")
MOST = 30


def asks(tool: str, to: str, **more: object) -> list[dict[str, object]]:
    """Whatever comes, ask somebody else."""
    args = {"to": to, "message": "go on", **more}
    return [
        {
            "match": "(?s).*",
            "steps": [{"sleep": 0.1}, {"tool": {"name": tool, "args": args}}, {"say": "$result"}],
        }
    ]


async def a_storm_ends(home: Path) -> None:
    """Two agents that answer everything by asking each other, without waiting."""
    config = f"{QUICK_CONFIG}messages_per_root = {MOST}\n"
    agents = [
        agent("main"),
        agent("ann", asks("ask_agent_async", "bob", new_session=True)),
        agent("bob", asks("ask_agent_async", "ann", new_session=True)),
    ]
    async with ProofDaemon(home, agents, config=config) as house:
        await house.say("ann", "go")
        for _ in range(60):
            await asyncio.sleep(1)
            ((count,),) = await house.sql("SELECT count(*) FROM messages")
            claim.holds(count <= 2 * MOST, f"one message became {count}, the bound is {MOST}")
        (open_now,) = await house.sql(
            "SELECT count(*) FROM messages WHERE state IN ('queued', 'leased', 'parked')"
        )
        claim.holds(open_now == (0,), f"after a minute {open_now[0]} messages still go round")


async def a_wait_that_closes_a_cycle_is_refused(home: Path) -> None:
    """ann's turn waits for bob's, bob's for cat's, and cat's would wait for ann's."""
    rig = await MailboxFixture.open(home)
    try:
        leases = {}
        for name in ("ann", "bob", "cat"):
            await rig.put(name, name)
            leases[name] = await rig.one(name)
        await rig.wait_for(leases["ann"], leases["bob"].message.message_id)
        await rig.wait_for(leases["bob"], leases["cat"].message.message_id)
        try:
            await rig.wait_for(leases["cat"], leases["ann"].message.message_id)
        except WouldDeadlock:
            return
        claim.broken("three turns wait for each other for ever")
    finally:
        await rig.close()


# -- removals --------------------------------------------------------------------------------------


def _no_bounds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(accept, "check_bounds", lambda ctx, tx, new: None)
    patch.setattr(InterAgentBus, "check_path", lambda self, sender, target, path: None)


def _no_wait_graph(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waits, "targets", lambda ctx, reader, message_id: [])


PROOFS = (
    Proof(
        "a storm ends", "P6", a_storm_ends, Removal("no path, depth and root bounds", _no_bounds)
    ),
    Proof(
        "a wait that closes a cycle is refused",
        "P6",
        a_wait_that_closes_a_cycle_is_refused,
        Removal("no wait-for graph", _no_wait_graph),
    ),
)
