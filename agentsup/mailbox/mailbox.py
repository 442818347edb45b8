"""The mailbox: one durable priority queue per agent, and the only way in and out of work.

Everything here is one function in the writer, so a call that returned is on the disk (P1). The
``*_tx`` methods are for callers that put more into the same transaction. Waking is by topic of
the store: ``agent:<id>`` when work may have become claimable, ``done:<message_id>`` when a message
ended, was parked or answered, ``outbox:<channel>`` when there is something to deliver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox import (
    accept,
    answering,
    claim,
    dead,
    deadlines,
    editing,
    ending,
    plain_answer,
    questions,
    reading,
    sessions,
    stop,
    waits,
)
from agentsup.mailbox.draft import draft
from agentsup.mailbox.entrance import Entrance
from agentsup.mailbox.epoch import Also, EpochMap, scopes_of
from agentsup.mailbox.pace import Pace
from agentsup.mailbox.place import check_room
from agentsup.mailbox.rows import find_question, need_message
from agentsup.mailbox.steady import SteadyClock
from agentsup.mailbox.values import (
    Cancelled,
    Claimed,
    Completion,
    Desk,
    Expired,
    MailboxLimits,
    Position,
    StopCounts,
)
from agentsup.model.engine import Suspended
from agentsup.model.errors import AgentsupError, TimedOut
from agentsup.model.message import (
    TERMINAL,
    Accepted,
    Lane,
    Lease,
    Message,
    NewMessage,
    Priority,
    State,
)
from agentsup.model.principal import Principal
from agentsup.model.question import NOTHING_SEEN, Question, QuestionState, Seen
from agentsup.store.database import Database, Reader, Tx

__all__ = [
    "Cancelled",
    "Completion",
    "Expired",
    "Mailbox",
    "MailboxLimits",
    "Position",
    "StopCounts",
]


class Mailbox:
    """The mailboxes of all agents of this node. Used from one event loop."""

    def __init__(
        self,
        db: Database,
        clock: Clock,
        entropy: Entropy,
        *,
        boot_id: str,
        limits: MailboxLimits | None = None,
    ) -> None:
        """``boot_id`` names this life of the daemon; leases of another one are void."""
        self.epochs, self.limits = EpochMap(), limits or MailboxLimits()
        self._db, self._entropy, steady = db, entropy, SteadyClock(clock)
        self.desk = Desk(clock, entropy, boot_id, self.limits, self.epochs, Pace(), steady)
        self._entrance = Entrance(db, self.desk)

    async def load(self) -> None:
        """Take over the epochs of earlier boots; call once before work starts."""

        def stored(reader: Reader) -> dict[str, int]:
            self.desk.steady.begin(deadlines.left_by_earlier(reader))
            return dict(reader.all("SELECT scope, counter FROM epochs"))  # type: ignore[arg-type]  # rows of two columns are pairs

        self.epochs.merge_all(await self._db.read(stored, name="mailbox.load"))

    # -- in ----------------------------------------------------------------------------------------

    async def accept(
        self,
        new: NewMessage,
        *,
        waiter: Lease | None = None,
        also: Callable[[Tx, Accepted], None] | None = None,
    ) -> Accepted:
        """Store ``new``; returns once it is durable. Raises what ``accept_tx`` raises.

        ``also`` writes more into the same transaction, for a duplicate too.
        """
        return await self._entrance.accept(new, waiter=waiter, also=also)

    def accept_tx(self, tx: Tx, new: NewMessage, *, waiter: Lease | None = None) -> Accepted:
        """Store ``new`` in this transaction; with ``waiter``, that turn waits for the answer.

        Raises ``Conflict``, ``TooLarge``, ``LoopDetected``, ``DepthExceeded``, ``Overloaded``,
        ``WouldDeadlock``, ``BadRequest`` and, for a turn that was stopped, ``LeaseLost``.
        """
        return accept.accept_tx(self.desk, tx, draft(self.desk, new), waiter=waiter)

    async def check_room(self, agent_id: str) -> None:
        """Raises ``Overloaded`` if the agent's queue would take no request of a person now."""
        await self._db.read(lambda r: check_room(self.desk, r, agent_id), name="mailbox.room")

    def wait_tx(self, tx: Tx, lease: Lease, target_id: str) -> None:
        """The turn of ``lease`` waits for an existing message from now on.

        Raises ``WouldDeadlock`` (naming the agents of the cycle) and ``LeaseLost``.
        """
        waits.wait_tx(self.desk, tx, lease, target_id)

    def edit_tx(self, tx: Tx, message_id: str, text: str) -> bool:
        """Replace the text of a message that no turn has begun; False if one has. Raises
        ``TooLarge`` and ``BadRequest``."""
        return editing.edit_tx(self.desk, tx, message_id, text)

    # -- work --------------------------------------------------------------------------------------

    async def claim(
        self,
        agent_id: str,
        instance_id: str,
        free: Mapping[Lane, int],
        *,
        held: Mapping[str, str] | None = None,
    ) -> Claimed:
        """Lease what may start now, at most ``free`` per lane; and when to look again.

        Void leases (an earlier boot, or another instance's expired one) are taken over. With
        ``held``, the messages this instance works on by session, so are its own expired leases
        beside them, and no session is given out whose turn has not really ended.
        """
        seen: dict[str, tuple[int, ...]] = {}

        def step(tx: Tx) -> Claimed:
            if self.epochs.unwritten:
                stop.stop_unwritten_tx(self.desk, tx)
            claimed = claim.claim_tx(self.desk, tx, agent_id, instance_id, free, held=held)
            for lease in claimed.leases:
                session_id = lease.message.session_id
                seen[session_id] = self.epochs.seen(agent_id, session_id)
            return claimed

        claimed = await self._db.write(step, name="mailbox.claim")
        # A stop ordered while the claim was on its way to the disk cancels these rows; their
        # turns must not begin.
        standing = tuple(
            lease
            for lease in claimed.leases
            if seen[lease.message.session_id]
            == self.epochs.seen(agent_id, lease.message.session_id)
        )
        return replace(claimed, leases=standing)

    async def renew(self, leases: Sequence[Lease]) -> set[str]:
        """Prolong leases, expired ones too; returns the message ids of those that are lost."""
        return await self._db.write(
            lambda tx: claim.renew_tx(self.desk, tx, leases), name="mailbox.renew", closing=True
        )

    def complete_tx(self, tx: Tx, lease: Lease, completion: Completion) -> None:
        """End the turn and deliver its result. Raises ``LeaseLost``; nothing is changed then."""
        ending.complete_tx(self.desk, tx, lease, completion)

    async def complete(self, lease: Lease, completion: Completion) -> None:
        """``complete_tx`` in a transaction of its own."""
        await self._db.write(
            lambda tx: self.complete_tx(tx, lease, completion),
            name="mailbox.complete",
            closing=True,
        )

    async def retry(self, lease: Lease, *, code: str, text: str, least_s: float = 0.0) -> State:
        """A transient failure: queued again with back-off (at least ``least_s`` seconds, as a
        provider asked), or dead after the last attempt."""
        unit = self._entropy.uniform(0.0, 1.0)
        return await self._db.write(
            lambda tx: ending.retry_tx(
                self.desk, tx, lease, code=code, text=text, unit=unit, least_s=least_s
            ),
            name="mailbox.retry",
            closing=True,
        )

    async def release(self, lease: Lease) -> None:
        """Give the lease back without counting an attempt. Raises ``LeaseLost``."""
        await self._db.write(
            lambda tx: self.release_tx(tx, lease), name="mailbox.release", closing=True
        )

    def release_tx(self, tx: Tx, lease: Lease) -> None:
        """``release`` in the caller's transaction."""
        ending.release_tx(self.desk, tx, lease)

    async def crashed(self, instance_id: str, text: str) -> list[str]:
        """A stack crashed on all its leases: count it on each; returns their message ids."""
        return await self.let_go(instance_id, culprits=None, text=text)

    async def let_go(
        self, instance_id: str, *, culprits: Collection[str] | None = (), text: str = ""
    ) -> list[str]:
        """A stack is over: its leases go back to the queue, except that a crash is counted on
        the messages that caused it (``culprits``; None: all). Returns the ids of those."""
        return await self._db.write(
            lambda tx: ending.let_go_tx(self.desk, tx, instance_id, culprits=culprits, text=text),
            name="mailbox.let_go",
            closing=True,
        )

    async def wait_done(self, message_id: str, timeout_s: float | None) -> Message:
        """Wait until a message has ended. Raises ``NotFound`` and ``TimedOut``."""
        changed = asyncio.Event()
        unlisten = self._db.listen(f"done:{message_id}", changed.set)
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    changed.clear()
                    message = await self.get(message_id)
                    if message.state in TERMINAL:
                        return message
                    await changed.wait()
        except TimeoutError:
            raise TimedOut(
                f"message {message_id} has not ended within {timeout_s:g} s; it goes on",
                message_id=message_id,
            ) from None
        finally:
            unlisten()

    # -- questions ---------------------------------------------------------------------------------

    def park_tx(self, tx: Tx, lease: Lease, suspended: Suspended) -> Question:
        """The turn asks and waits: message parked, question open, part for the person queued."""
        return questions.park_tx(self.desk, tx, lease, suspended)

    async def answer(
        self,
        question_id: str,
        answer: str,
        by: Principal,
        args: str = "",
        seen: Seen = NOTHING_SEEN,
    ) -> Question:
        """Answer once. Raises ``NotFound``, ``BadRequest`` and ``Conflict`` (too late, and why)."""
        return await self._db.write(
            lambda tx: answering.answer_tx(self.desk, tx, question_id, answer, by, args, seen),
            name="mailbox.answer",
        )

    async def answer_plain(self, said: plain_answer.Said) -> Question | None:
        """Take a text of a private conversation as an answer; None where it is a message."""
        return await plain_answer.answer(self.desk, self._db, said)

    def answer_tx(
        self, tx: Tx, question_id: str, answer: str, by: Principal, seen: Seen = NOTHING_SEEN
    ) -> Question:
        """``answer`` in the caller's transaction."""
        return answering.answer_tx(self.desk, tx, question_id, answer, by, seen=seen)

    async def expire(self) -> Expired:
        """Close questions and queued messages that are past their time."""
        return await self._db.write(partial(deadlines.expire_tx, self.desk), name="mailbox.expire")

    async def next_deadline(self) -> int | None:
        """When ``expire`` closes something next (ms, by the steady clock), or None."""
        return await self._db.read(deadlines.next_deadline, name="mailbox.next_deadline")

    async def questions(
        self, state: QuestionState | None = QuestionState.OPEN, *, limit: int = 100
    ) -> list[Question]:
        """Questions in that state (None: any): open ones oldest first, others newest first."""
        return await self._db.read(
            lambda reader: questions.list_of(reader, state, limit=limit), name="mailbox.questions"
        )

    async def question(self, question_id: str) -> Question:
        """One question. Raises ``NotFound``."""
        return await self._db.read(
            lambda reader: find_question(reader, question_id), name="mailbox.question"
        )

    # -- steering ----------------------------------------------------------------------------------

    async def stop(self, scope: str, by: Principal, *, also: Also | None = None) -> StopCounts:
        """End everything open in ``scope`` (all | agent:<id> | session:<id>), and ``also``.

        The epoch is raised in memory at once, unless the caller has raised it already. Raises
        ``StoreUnavailable`` if the stop could not be made durable; it then holds in this process
        and is written by the next claim that can."""
        counter = self.epochs.raised(scope) or self.epochs.raise_now(scope)
        at = self.desk.clock.now_ms()

        def step(tx: Tx) -> StopCounts:
            return stop.stop_tx(self.desk, tx, scope, by, counter=counter, also=also)

        try:
            return await self._db.write(step, name="mailbox.stop", urgent=True)
        except AgentsupError:
            self.epochs.not_written(scope, at, also)
            raise

    async def interrupt(self, session_id: str, by: Principal) -> Cancelled | None:
        """End only what holds the session, leased or parked; None if nothing does."""
        return await self._db.write(
            lambda tx: stop.interrupt_tx(self.desk, tx, session_id, by),
            name="mailbox.interrupt",
            urgent=True,
        )

    async def cancel(self, message_id: str, by: Principal) -> Cancelled:
        """End one open message; ``was`` says if a turn runs. Raises as ``cancel_tx``."""
        return await self._db.write(
            lambda tx: self.cancel_tx(tx, message_id, by), name="mailbox.cancel", urgent=True
        )

    def cancel_tx(self, tx: Tx, message_id: str, by: Principal) -> Cancelled:
        """As ``cancel``. Raises ``NotFound`` and ``IllegalTransition``."""
        return stop.cancel_tx(self.desk, tx, message_id, by)

    async def reprioritise(self, message_id: str, priority: Priority, by: Principal) -> Message:
        """Change the priority of an open message. Raises ``NotFound`` and ``Conflict`` (ended)."""
        return await self._db.write(
            lambda tx: editing.reprioritise_tx(tx, message_id, priority),
            name="mailbox.reprioritise",
        )

    def epochs_tx(self, tx: Tx, agent_id: str, session_id: str = "") -> dict[str, int]:
        """The stop epochs that concern an asker, to be stored in ``NewMessage.epochs``."""
        return accept.epochs_of(self.desk, tx, scopes_of(agent_id, session_id))

    # -- dead letters --------------------------------------------------------------------------------

    async def dead_list(self, *, limit: int = 100) -> list[Message]:
        """Dead letters, newest first."""
        return await self._db.read(
            lambda reader: dead.list_of(reader, limit=limit), name="mailbox.dead_list"
        )

    async def requeue(self, message_id: str, by: Principal) -> None:
        """Try a dead letter again at its place. Raises ``NotFound`` and ``Conflict``."""
        await self._db.write(
            lambda tx: dead.requeue_tx(self.desk, tx, message_id, by), name="mailbox.requeue"
        )

    async def drop(self, message_id: str, by: Principal) -> None:
        """Give a dead letter up. Raises ``NotFound`` and ``Conflict``."""
        await self._db.write(
            lambda tx: dead.drop_tx(self.desk, tx, message_id, by), name="mailbox.drop"
        )

    async def replay(self, message_id: str, by: Principal, *, key: str = "") -> Accepted:
        """Run an ended message again as a new one, once under one ``key``. Raises ``NotFound``,
        ``Conflict`` and what ``accept`` raises."""
        return await self._db.write(
            lambda tx: dead.replay_tx(self.desk, tx, message_id, by, key), name="mailbox.replay"
        )

    # -- sessions ----------------------------------------------------------------------------------

    async def new_session(self, agent_id: str, key: str) -> str:
        """Open a fresh session under ``key`` and return its id; the old one stays."""
        at = self.desk.clock.now_ms()
        return await self._db.write(
            lambda tx: sessions.new_tx(tx, agent_id, key, at=at, entropy=self._entropy),
            name="mailbox.new_session",
        )

    async def point(self, agent_id: str, key: str, session_id: str) -> None:
        """Let ``key`` continue an existing session of the agent. Raises ``NotFound``."""
        await self._db.write(
            lambda tx: sessions.point_tx(tx, agent_id, key, session_id), name="mailbox.point"
        )

    async def current_session(self, agent_id: str, key: str) -> str | None:
        """The id of the session that ``key`` points at, or None."""
        return await self._db.read(
            lambda reader: sessions.current(reader, agent_id, key), name="mailbox.current_session"
        )

    # -- looking -----------------------------------------------------------------------------------

    async def get(self, message_id: str) -> Message:
        """One message. Raises ``NotFound``."""
        return await self._db.read(
            lambda reader: need_message(reader, message_id), name="mailbox.get"
        )

    async def thread(self, thread_id: str, *, limit: int = 1000) -> list[Message]:
        """A thread (or all that descends from one message's root), oldest first."""
        return await self._db.read(
            lambda reader: reading.thread(reader, thread_id, limit=limit), name="mailbox.thread"
        )

    async def position(self, message_id: str) -> Position:
        """How many messages run before this one, and the estimated wait. Raises ``NotFound``."""
        return await self._db.read(
            lambda reader: reading.position(self.desk, reader, message_id),
            name="mailbox.position",
        )

    async def counts(self) -> dict[str, dict[str, int]]:
        """Messages by agent and state, and ``accepted``."""
        return await self._db.read(reading.counts, name="mailbox.counts")

    async def conservation(self) -> tuple[bool, dict[str, int]]:
        """Whether the conservation law holds, and its sums over all agents."""
        return await self._db.read(reading.conservation, name="mailbox.conservation")

    async def list(self, **filters: Any) -> list[Message]:  # last: its name hides the builtin
        """Messages, newest first; filters as in ``reading.list_messages``."""
        return await self._db.read(
            lambda reader: reading.list_messages(reader, **filters), name="mailbox.list"
        )
