"""P2: nothing happens twice."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentsup.channels.core.receiving import ChatOrigin
from agentsup.mailbox.delivery import steps
from agentsup.mailbox.lifecycle import ending
from agentsup.mailbox.mail import BusRequest
from agentsup.mailbox.messages import Completion, MailboxContext, need_message
from agentsup.mailbox.queue import draft
from agentsup.model.errors import Conflict, IllegalTransition, LeaseLost
from agentsup.model.message import Lease, Message, MessageOutcome
from agentsup.model.principal import OPERATOR
from agentsup.store import Tx
from tests.component.proofs.house import EVA, ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal
from tests.support.mailbox_fixture import MailboxFixture
from tests.support.recording_channel import RecordingChannel

claim = Claim("P2")
ANSWER = [{"match": "(.*)", "steps": [{"say": "answer to $1"}]}]


async def a_platform_repeats_itself(home: Path) -> None:
    """The same update comes again at once, after its answer and after a restart."""
    async with ProofDaemon(home, [agent("main", ANSWER)]) as house:

        async def update() -> None:
            await house.daemon.inbox.say(
                agent_name="main",
                where=ChatOrigin("console", "c1"),
                text="hello",
                principal=EVA,
                external_id="update-7",
            )

        await asyncio.gather(update(), update())
        await claim.comes(lambda: house.heard("answer to hello"), 10, "no answer")
        await update()
        await house.close()
        await house.open()
        await update()
        await asyncio.sleep(30)
        heard = house.channel.texts("c1")
        claim.holds(heard == ["answer to hello"], f"one update was answered {len(heard)} times")


async def a_key_stands_for_one_request(home: Path) -> None:
    """The same idempotency key: the same message; with another body, a refusal."""
    async with ProofDaemon(home, [agent("main", ANSWER)]) as house:

        async def ask(text: str) -> str:
            request = BusRequest(to="main", text=text, idempotency_key="key-1")
            accepted = await house.daemon.bus.send_async(request, caller=OPERATOR)
            return accepted.message_id

        first, again = await ask("pay 5"), await ask("pay 5")
        claim.holds(first == again, "one key made two messages")
        try:
            await ask("pay 500")
        except Conflict:
            return
        claim.broken("a key was taken for another request than its own")


async def the_late_owner_is_refused(home: Path) -> None:
    """An owner that slept through its lease completes while another one works on it."""
    rig = await MailboxFixture.open(home)
    try:
        await rig.put("one")
        sleeper = await rig.one(instance="i1")
        rig.later(40)
        other = await rig.one(instance="i2")
        with contextlib.suppress(LeaseLost):
            await rig.mailbox.leases.complete(
                sleeper, Completion(MessageOutcome.OK, "by the first")
            )
        with contextlib.suppress(LeaseLost, IllegalTransition):
            await rig.finish(other, "by the second")
        answers = [row[3] for row in await rig.outbox("kind = 'answer'")]
        claim.holds(answers == ["by the second"], f"one message was answered with {answers}")
    finally:
        await rig.close()


async def an_unknown_send_is_not_repeated(home: Path) -> None:
    """The process dies in a send to a platform that can't tell a repeat from news."""
    channel = RecordingChannel("console")
    async with ProofDaemon(home, [agent("main", ANSWER)], channel=channel) as house:
        channel.plan(asyncio.Event())
        await house.say("main", "one")
        await claim.comes(lambda: channel.begun, 10, "nothing was delivered")
        await house.crash()
        await house.open()
        await claim.comes(lambda: house.heard("/again"), 60, "nobody was told of the doubt")
        await asyncio.sleep(60)
        times = sum(part.kind == "answer" for part in channel.attempts)
        claim.holds(times == 1, f"the answer was sent {times} times")


# -- removals --------------------------------------------------------------------------------------


def _no_ledger(patch: pytest.MonkeyPatch) -> None:
    prepared = draft.PreparedMessage

    def without_keys(*args: Any, **more: Any) -> draft.PreparedMessage:
        return replace(prepared(*args, **more), keys=())

    patch.setattr(draft, "PreparedMessage", without_keys)


def _no_body_hash(patch: pytest.MonkeyPatch) -> None:
    key = draft.Key
    patch.setattr(draft, "Key", lambda source, external_id, body_hash="": key(source, external_id))


def _no_fence(patch: pytest.MonkeyPatch) -> None:
    def held(ctx: MailboxContext, tx: Tx, lease: Lease) -> Message:
        return need_message(tx, lease.message.message_id)

    patch.setattr(ending, "leased_tx", held)


def _resend_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    step_tx = steps.step_tx

    def blindly(tx: Tx, lane: steps.DeliveryLane, *args: Any, **how: Any) -> steps.DeliveryStep:
        return step_tx(tx, replace(lane, idempotent=True), *args, **how)

    patch.setattr(steps, "step_tx", blindly)


PROOFS = (
    Proof(
        "a platform repeats itself",
        "P2",
        a_platform_repeats_itself,
        Removal("no ledger", _no_ledger),
    ),
    Proof(
        "a key stands for one request",
        "P2",
        a_key_stands_for_one_request,
        Removal("the key without the body", _no_body_hash),
    ),
    Proof(
        "the late owner is refused",
        "P2",
        the_late_owner_is_refused,
        Removal("no fence", _no_fence),
    ),
    Proof(
        "an unknown send is not repeated",
        "P2",
        an_unknown_send_is_not_repeated,
        Removal("resend after a crash", _resend_after_a_crash),
    ),
)
