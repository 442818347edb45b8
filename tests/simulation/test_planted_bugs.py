"""The simulation finds what it is for: each bug below, planted into the running code, within 2,000
seeds and by the invariant that it breaks.

Where a bug needs a rare situation, histories lean towards it, which finds it after ten seeds and
not after hundreds. ``make sim`` searches histories as they come.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from agentsup.daemon.runtime.stop import Stopper
from agentsup.mailbox.delivery import steps
from agentsup.mailbox.delivery.attempt import DeliveryAttempts
from agentsup.mailbox.delivery.steps import Settlement
from agentsup.mailbox.lifecycle import claim, results
from agentsup.mailbox.mail import bus
from agentsup.mailbox.messages import segments
from agentsup.mailbox.messages.epoch import EpochMap
from agentsup.mailbox.messages.rows import HOLDS_SQL
from agentsup.mailbox.queue import accept, draft, message_queue, waits
from agentsup.mailbox.work import journal, pump
from agentsup.model.channel import Delivery, DeliveryOutcome
from agentsup.model.ids import MessageId, SessionId
from agentsup.model.message import Accepted, Lease, MessageState
from agentsup.store import Tx
from tests.support.sim_bias import PLAIN, HistoryBias
from tests.support.sim_world import Violation
from tests.support.simulation import run_simulation

MOST_SEEDS = 2_000
Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Plant:
    """A bug: what it removes, how, the names of the invariants that may report it, and what
    histories lean towards for it."""

    name: str
    removes: str
    patch: Patch
    found_by: frozenset[str]
    leaning: HistoryBias = PLAIN


# -- the five bugs ---------------------------------------------------------------------------------


def no_fence(patch: pytest.MonkeyPatch) -> None:
    hold, check = waits.need_lease, segments.check_lease

    def fence_of(reader: Any, message_id: str) -> int:
        return int(reader.scalar("SELECT fence FROM messages WHERE message_id = ?", (message_id,)))

    def hold_any(ctx: Any, reader: Any, lease: Lease) -> Any:
        return hold(ctx, reader, replace(lease, fence=fence_of(reader, lease.message.message_id)))

    def check_any(tx: Tx, message_id: str, fence: int) -> None:
        check(tx, message_id, fence_of(tx, message_id))

    patch.setattr(waits, "need_lease", hold_any)
    patch.setattr(segments, "check_lease", check_any)


def no_epoch(patch: pytest.MonkeyPatch) -> None:
    for module in (accept, results):
        patch.setattr(module, "epochs_of", lambda ctx, reader, scopes: {})
    patch.setattr(EpochMap, "stops", lambda self, agent_id, session_id, accepted_at: False)
    patch.setattr(EpochMap, "seen", lambda self, agent_id, session_id: ())


def double_claim(patch: pytest.MonkeyPatch) -> None:
    busy = f"MAX(CASE WHEN {HOLDS_SQL} THEN seq END)"
    assert busy in claim._HEADS
    patch.setattr(claim, "_HEADS", claim._HEADS.replace(busy, "NULL"))


def early_acknowledgement(patch: pytest.MonkeyPatch) -> None:
    async def accepted(
        self: message_queue.MessageQueue, new: Any, *, waiter: Any = None, **_: Any
    ) -> Accepted:
        ready = draft.draft(self.context, new)
        write = self.database.write(
            partial(accept.accept_tx, self.context, ready=ready, waiter=waiter)
        )
        self.database._owner.spawn(write, name=f"accept:{ready.message_id}")
        return Accepted(MessageId(ready.message_id), SessionId(""), MessageState.QUEUED)

    patch.setattr(message_queue.MessageQueue, "accept", accepted)


def lost_wake(patch: pytest.MonkeyPatch) -> None:
    touch = Tx.touch

    def touch_others(self: Tx, topic: str) -> None:
        if not topic.startswith("agent:"):
            touch(self, topic)

    patch.setattr(Tx, "touch", touch_others)
    patch.setattr(pump, "NET_S", 1e9)


# -- mechanisms of the promises ----------------------------------------------------------------------


def no_take_over(patch: pytest.MonkeyPatch) -> None:
    start = claim._HEADS.index("OR (m.state = 'leased'")
    patch.setattr(claim, "_HEADS", claim._HEADS[:start])


def claimed_delivery(patch: pytest.MonkeyPatch) -> None:
    async def deliver_nothing(
        self: DeliveryAttempts, channel: Any, part: Any, on_slow: Any, begin: Any
    ) -> Settlement:
        return Settlement(part, Delivery(DeliveryOutcome.DELIVERED), self._clock.now_ms())

    patch.setattr(DeliveryAttempts, "deliver", deliver_nothing)


def no_ledger(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(draft, "_keys", lambda new, parts: ())


def no_journal(patch: pytest.MonkeyPatch) -> None:
    async def begin(self: Any, *args: Any) -> None:
        return None

    patch.setattr(journal.Journal, "begin", begin)


def resend_the_unknown(patch: pytest.MonkeyPatch) -> None:
    step_tx = steps.step_tx

    def blindly(tx: Tx, lane: steps.DeliveryLane, *args: Any, **how: Any) -> steps.DeliveryStep:
        return step_tx(tx, replace(lane, idempotent=True), *args, **how)

    patch.setattr(steps, "step_tx", blindly)


def no_cancel(patch: pytest.MonkeyPatch) -> None:
    async def end(self: Stopper, wanted: Any, cancel_s: float) -> tuple[set[str], int]:
        return set(), 0

    patch.setattr(Stopper, "_end", end)


def no_path(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bus.InterAgentBus, "check_path", lambda self, sender, target, path: None)
    patch.setattr(accept, "check_bounds", lambda ctx, tx, new: None)


FEW_CALLS = {"work": 60, "ask": 2, "async": 2, "question": 1, "fail": 1, "stubborn": 1}
MUCH_LATE = HistoryBias(
    late=0.6, steps={**FEW_CALLS, "effect": 2, "crash": 1, "exit": 1, "refuse": 1}
)
"""Turns that do not obey, and little else."""
MANY_STOPS = HistoryBias(acts={"stop": 30, "send_async": 40})
MANY_CHATS = HistoryBias(acts={"chat": 400, "stop": 0})
DEATH_IN_COMMITS = HistoryBias(deaths=("store.before_commit", "mailbox.accept.before_insert"))
DEATH_AFTER_DELIVERY = HistoryBias(
    deaths=("outbox.after_deliver",),
    acts={"chat": 400, "stop": 0, "repeat": 0},
    steps={**FEW_CALLS, "work": 30, "crash": 0, "exit": 0, "refuse": 0},
)

PLANTS = (
    Plant("no-fence", "the comparison of fences", no_fence, frozenset({"fenced"}), MUCH_LATE),
    Plant("no-epoch", "the memory of stops", no_epoch, frozenset({"nothing-returns"}), MANY_STOPS),
    Plant(
        "double-claim",
        "the filter of busy sessions",
        double_claim,
        frozenset({"one-turn-per-session", "session-order"}),
        MANY_CHATS,
    ),
    Plant(
        "early-acknowledgement",
        "the wait for the commit",
        early_acknowledgement,
        frozenset({"accepted-is-kept"}),
        DEATH_IN_COMMITS,
    ),
    Plant("lost-wake", "the wake and the net", lost_wake, frozenset({"everything-ends"})),
)
MECHANISMS = (
    Plant("P1 take-over", "taking void leases", no_take_over, frozenset({"everything-ends"})),
    Plant("P1 outbox", "delivering", claimed_delivery, frozenset({"answer-delivered"})),
    Plant("P2 ledger", "the ledger of inputs", no_ledger, frozenset({"one-key-one-message"})),
    Plant("P2 journal", "the journal of calls", no_journal, frozenset({"blind-once"})),
    Plant(
        "P2 unknown",
        "the unknown outcome",
        resend_the_unknown,
        frozenset({"sent-once"}),
        DEATH_AFTER_DELIVERY,
    ),
    Plant("P5 cancel", "ending turns", no_cancel, frozenset({"stopped-means-stopped"})),
    Plant("P6 path", "path and bounds of requests", no_path, frozenset({"bounded"})),
)


@pytest.mark.parametrize("plant", [*PLANTS, *MECHANISMS], ids=lambda plant: plant.name)
def test_a_bug_can_be_planted(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it replaces is there: with every change, since the simulations run at night."""
    plant.patch(monkeypatch)


@pytest.mark.timeout(300)
@pytest.mark.leaks(
    "tasks", "errors", reason="a planted bug may leave anything behind; the finding is the point"
)
@pytest.mark.parametrize("plant", [*PLANTS, *MECHANISMS], ids=lambda plant: plant.name)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_SIM_SEED", raising=False)
    plant.patch(monkeypatch)
    leaning = PLAIN if "TEST_SIM_SEEDS" in os.environ else plant.leaning
    others: dict[str, int] = {}
    for seed in range(MOST_SEEDS):
        try:
            run_simulation(seed, leaning)
        except Violation as found:
            if found.invariant in plant.found_by:
                monkeypatch.undo()
                run_simulation(seed, leaning)  # it was the plant: without it the history holds
                return
            others[found.invariant] = seed
    pytest.fail(f"without {plant.removes}, {MOST_SEEDS} seeds found only {others or 'nothing'}")
