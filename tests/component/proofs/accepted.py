"""P1: nothing accepted is lost."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentsup.mailbox import Mailbox
from agentsup.mailbox.delivery import steps
from agentsup.mailbox.queue import accept
from agentsup.mailbox.queue.draft import draft
from agentsup.mailbox.queue.message_queue import MessageQueue
from agentsup.model.channel import Delivery, DeliveryOutcome
from agentsup.model.ids import MessageId, SessionId
from agentsup.model.message import Accepted, Lease, MessageState, NewMessage
from agentsup.store import Tx
from tests.component.proofs.house import ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

claim = Claim("P1")
ANSWER = [{"match": "(.*)", "steps": [{"say": "answer to $1"}]}]
SLOW = [{"match": "(.*)", "steps": [{"sleep": 5}, {"say": "answer to $1"}]}]


async def confirmed_means_stored(home: Path) -> None:
    """The process dies in the instant in which a person hears that the text was taken."""
    async with ProofDaemon(home, [agent("main", SLOW)]) as house:
        message_id = await house.say("main", "keep me")
        await house.crash()
        with closing(sqlite3.connect(house.home.state_db)) as connection:
            found = connection.execute(
                "SELECT state FROM messages WHERE message_id = ?", (message_id,)
            ).fetchall()
        claim.holds(found, f"{message_id} was confirmed and is not in the file")
        await house.open()
        await claim.comes(lambda: house.heard("answer to keep me"), 60, "no answer after the crash")


async def cut_delivery_is_made_good(home: Path) -> None:
    """The process dies while an answer is on its way to a place that takes repeats."""
    async with ProofDaemon(home, [agent("main", ANSWER)]) as house:
        house.channel.plan(asyncio.Event())  # hangs for ever
        await house.say("main", "one")
        await claim.comes(lambda: house.channel.attempts, 10, "nothing was delivered")
        await house.crash()
        claim.holds(not house.channel.sent, "the world had heard it before the crash")
        await house.open()
        await claim.comes(lambda: house.heard("answer to one"), 60, "the answer never arrived")


async def a_death_within_a_turn_loses_no_message(home: Path) -> None:
    """The process dies with one message in work, one queued in its session, one elsewhere."""
    async with ProofDaemon(home, [agent("main", SLOW)]) as house:
        for text, place in (("one", "c1"), ("two", "c1"), ("three", "c2")):
            await house.say("main", text, place)
        await asyncio.sleep(1)
        await house.crash()
        await house.open()
        for text in ("one", "two", "three"):
            await claim.comes(partial(house.heard, f"answer to {text}"), 120, f"{text!r} was lost")


# -- removals --------------------------------------------------------------------------------------


def _confirm_before_commit(patch: pytest.MonkeyPatch) -> None:
    async def early(
        self: MessageQueue, new: NewMessage, *, waiter: Lease | None = None, **_: Any
    ) -> Accepted:
        ready = draft(self.context, new)
        writing = asyncio.ensure_future(
            self.database.write(lambda tx: accept.accept_tx(self.context, tx, ready, waiter=waiter))
        )
        writing.add_done_callback(lambda task: task.exception())
        return Accepted(MessageId(ready.message_id), SessionId(""), MessageState.QUEUED)

    patch.setattr(MessageQueue, "accept", early)


def _mark_before_delivery(patch: pytest.MonkeyPatch) -> None:
    original = steps.step_tx

    def early(tx: Tx, *args: Any, now: int, **rest: Any) -> steps.DeliveryStep:
        step = original(tx, *args, now=now, **rest)
        if step.part is not None:
            delivered = Delivery(DeliveryOutcome.DELIVERED)
            steps._settle_tx(tx, steps.Settlement(step.part, delivered, now), now)
        return step

    patch.setattr(steps, "step_tx", early)


def _no_takeover_of_void_leases(patch: pytest.MonkeyPatch) -> None:
    """A boot that takes the work of an earlier one for done instead of for void."""
    original = Mailbox.load

    async def load(self: Mailbox) -> None:
        await self.database.write(
            lambda tx: (
                tx.execute(
                    "UPDATE messages SET state = 'done', outcome = 'ok' WHERE state = 'leased'"
                ).rowcount
            )
        )
        await original(self)

    patch.setattr(Mailbox, "load", load)


PROOFS = (
    Proof(
        "confirmed means stored",
        "P1",
        confirmed_means_stored,
        Removal("confirm before the commit", _confirm_before_commit),
    ),
    Proof(
        "a cut delivery is made good",
        "P1",
        cut_delivery_is_made_good,
        Removal("mark delivered before delivering", _mark_before_delivery),
    ),
    Proof(
        "a death within a turn loses no message",
        "P1",
        a_death_within_a_turn_loses_no_message,
        Removal("leases of an earlier boot taken for done", _no_takeover_of_void_leases),
    ),
)
