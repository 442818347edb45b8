"""P1, P2, P6: mail between agents is spread, copied, told and given away as promised."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agentsup.mailbox.mail import broadcast, dispatcher, subscriptions
from agentsup.mailbox.mail.bus import DirectoryEntry
from agentsup.mailbox.mail.load_balancing import AgentChoice, LoadCandidate, least_loaded
from agentsup.mailbox.mail.subscriptions import subscribers_of
from agentsup.mailbox.mail.values import new_mail
from agentsup.mailbox.messages.loads import AgentLoads
from agentsup.mailbox.messages.values import MailboxContext, MailboxLimits
from agentsup.mailbox.queue import accept, idempotency
from agentsup.mailbox.queue.draft import PreparedMessage
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import Conflict, IllegalTransition, Overloaded
from agentsup.model.ids import AgentId
from agentsup.model.message import Accepted, Lease
from agentsup.model.principal import OPERATOR
from agentsup.store.transaction import Tx
from tests.component.proofs.proof import Claim, Proof, Removal
from tests.support.dispatcher_fixture import DispatcherFixture, agent_of

spread, once, rest = Claim("P6"), Claim("P2"), Claim("P6")


async def work_spreads_over_those_who_are_free(home: Path) -> None:
    """A hundred pieces of work for a role of four, all at once."""
    four = [(f"w{n}", {"role": "writer"}) for n in range(4)]
    rig = await DispatcherFixture.open(home, ["ann", *four])
    try:
        sent = await asyncio.gather(
            *(
                rig.dispatcher.assign(new_mail(str(n)), role="writer", caller=agent_of("ann"))
                for n in range(100)
            )
        )
        counts = Counter(each.agent for each in sent)
        even = all(24 <= counts[f"w{n}"] <= 26 for n in range(4))
        spread.holds(even, f"a hundred went to {dict(counts)}")
    finally:
        await rig.mail.close()


async def a_broadcast_reaches_all_or_nobody(home: Path) -> None:
    """The third of five has no room; then it has, and the same is said twice."""
    five = [(f"t{n}", {"team": "five"}) for n in range(5)]
    most = {"t2": 1}
    limits = MailboxLimits(queue_limit_of=most.get)
    rig = await DispatcherFixture.open(home, ["ann", *five], limits=limits)
    try:
        await rig.mail.put("in the way", "t2")
        letter = new_mail("all of you", idempotency_key="k")

        async def tell() -> None:
            await rig.dispatcher.broadcast(letter, team="five", caller=agent_of("ann"))

        async def copies() -> list[int]:
            rows = await rig.mail.sql(
                "SELECT COUNT(*) FROM messages WHERE kind = 'broadcast' GROUP BY agent_id"
            )
            return [row[0] for row in rows]

        with contextlib.suppress(Overloaded):
            await tell()
        once.holds(await copies() == [], "some have a copy, and not all can")
        most.clear()
        await tell()
        await rig.reboot()
        await tell()
        once.holds(await copies() == [1] * 5, f"five have {await copies()} copies")
    finally:
        await rig.mail.close()


async def work_is_given_away_once(home: Path) -> None:
    """A message is given to another agent, the daemon dies, and it is asked for again."""
    rig = await DispatcherFixture.open(home, ["ann", "ben", "cat"])
    try:
        letter = await rig.dispatcher.send("ben", new_mail("work"), caller=agent_of("ann"))
        for _ in range(2):
            try:
                await rig.dispatcher.reassign(letter.message_id, "cat", OPERATOR)
            except (Conflict, IllegalTransition) as error:
                once.broken(f"asked again, it is refused: {error}")
            await rig.reboot()
        rows = await rig.mail.sql(
            "SELECT agent_id FROM messages WHERE state = 'queued' AND sender_agent_id = 'ann'"
        )
        once.holds(rows == [("cat",)], f"the work is with {rows}")
    finally:
        await rig.mail.close()


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


def loads_of_before(patch: pytest.MonkeyPatch) -> None:
    """Everybody chooses by what each had to do when the first looked."""
    seen: dict[str, int] = {}

    def choose(loads: AgentLoads, candidates: Sequence[DirectoryEntry]) -> AgentChoice:
        del loads
        return least_loaded(
            [LoadCandidate(c.agent_id, c.name, seen.get(c.name, 0)) for c in candidates]
        )

    patch.setattr(dispatcher, "choose", choose)


def a_copy_at_a_time(patch: pytest.MonkeyPatch) -> None:
    """Whoever has room gets a copy, whatever becomes of the others."""
    plain = accept.accept_tx

    def accept_tx(
        ctx: MailboxContext, tx: Tx, ready: PreparedMessage, *, waiter: Lease | None = None
    ) -> Accepted:
        try:
            return plain(ctx, tx, ready, waiter=waiter)
        except Overloaded:
            nowhere = replace(ready, new=replace(ready.new, agent_id=AgentId("nobody")))
            return plain(ctx, tx, nowhere, waiter=waiter)

    patch.setattr(broadcast, "accept_tx", accept_tx)


def keys_that_nobody_looks_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(idempotency, "known", lambda *args, **more: None)
    patch.setattr(idempotency, "enter_tx", lambda *args, **more: True)


def events_of_what_events_set_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(subscriptions, "was_set_off", lambda reader, message: False)


PROOFS = (
    Proof(
        "work spreads over those who are free",
        "P6",
        work_spreads_over_those_who_are_free,
        Removal("loads read before the choice", loads_of_before),
    ),
    Proof(
        "a broadcast reaches all or nobody",
        "P2",
        a_broadcast_reaches_all_or_nobody,
        Removal("copies for whoever has room", a_copy_at_a_time),
    ),
    Proof(
        "work is given away once",
        "P2",
        work_is_given_away_once,
        Removal("keys that nobody looks up", keys_that_nobody_looks_up),
    ),
    Proof(
        "agents that subscribe to each other come to rest",
        "P6",
        who_hears_of_each_other_comes_to_rest,
        Removal("events of what events set off", events_of_what_events_set_off),
    ),
)
