"""The mailbox: one durable priority queue per agent, and the only way in and out of work.

Each change is one function in the writer, so it is on the disk when the call returns (P1); ``*_tx``
methods join a caller's transaction. Waiters wake by ``agent:<id>``, ``done:<id>``, ``outbox:<name>``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.log import get_logger
from agentsup.mailbox.lifecycle import answering, claim, deadlines, ending, failed, stop
from agentsup.mailbox.messages import segments, sessions
from agentsup.mailbox.messages.epoch import Also, EpochMap
from agentsup.mailbox.messages.loads import AgentLoads, TurnDurations, stored_loads
from agentsup.mailbox.messages.rows import find_question, need_message
from agentsup.mailbox.messages.steady_clock import SteadyClock
from agentsup.mailbox.messages.values import (
    BeginSegment,
    Cancelled,
    Claimed,
    Completion,
    Expired,
    MailboxContext,
    MailboxLimits,
    MessageObserver,
    Position,
    QuestionObserver,
    RoleNow,
    StopCounts,
    unchanged,
)
from agentsup.mailbox.questions import asking, plain_answer
from agentsup.mailbox.queue import accept, views
from agentsup.mailbox.queue.admission import check_room
from agentsup.mailbox.queue.draft import PreparedMessage, draft
from agentsup.model.errors import AgentsupError, TimedOut
from agentsup.model.message import (
    TERMINAL,
    Accepted,
    LaneName,
    Lease,
    Message,
    MessageState,
    NewMessage,
    Priority,
)
from agentsup.model.principal import Principal
from agentsup.model.question import NOTHING_SEEN, Question, QuestionState, SeenCall
from agentsup.store import Database, Reader, Tx, is_of_store

T = TypeVar("T")
Args = TypeVarTuple("Args")
_log = get_logger(__name__)


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
        role_now: RoleNow = unchanged,
        question_observers: tuple[QuestionObserver, ...] = (),
        message_observers: tuple[MessageObserver, ...] = (),
    ) -> None:
        """``boot_id`` identifies this run of the daemon; leases of another boot are void.

        ``role_now`` returns a person's present role; it limits work that starts later than it was
        requested. The observers are called in the transactions of what they observe.
        """
        self.epochs, self.limits = EpochMap(), limits or MailboxLimits()
        self._db, self._entropy, steady = db, entropy, SteadyClock(clock)
        self.context = MailboxContext(
            clock,
            entropy,
            boot_id,
            self.limits,
            self.epochs,
            TurnDurations(),
            AgentLoads(),
            steady,
            role_now,
            question_observers,
            message_observers,
        )

    async def load(self) -> None:
        """Load stop epochs and loads of earlier boots. Call it once before work starts."""

        def stored(reader: Reader) -> Sequence[Any]:
            self.context.steady.begin(deadlines.left_by_earlier(reader))
            self.context.loads.begin(stored_loads(reader))
            return reader.all("SELECT scope, counter FROM epochs")

        for scope, counter in await self._db.read(stored, name="mailbox.load"):
            self.epochs.merge(scope, counter)

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
        return await self._store(draft(self.context, new), waiter, also)

    async def accept_expecting(
        self, new: NewMessage, *, waiter: Lease | None = None
    ) -> tuple[Accepted, asyncio.Future[Message] | None]:
        """As ``accept``, for a caller that waits for the end next: ``wait_done`` takes the second
        value, and needs no read then. It is None for a duplicate."""
        ready = draft(self.context, new)
        end: asyncio.Future[Message] = self._db.expect(f"done:{ready.message_id}")
        try:
            accepted = await self._store(ready, waiter)
        except BaseException:
            end.cancel()
            raise
        if not accepted.duplicate:
            return accepted, end
        end.cancel()
        return accepted, None

    async def _store(
        self,
        ready: PreparedMessage,
        waiter: Lease | None,
        also: Callable[[Tx, Accepted], None] | None = None,
    ) -> Accepted:
        def step(tx: Tx) -> Accepted:
            accepted = accept.accept_tx(self.context, tx, ready, waiter=waiter)
            if also is not None:
                also(tx, accepted)
            return accepted

        return await self._db.write(step, name="mailbox.accept")

    def accept_tx(self, tx: Tx, new: NewMessage, *, waiter: Lease | None = None) -> Accepted:
        """Store ``new`` in this transaction; with ``waiter``, that turn waits for the answer.

        Raises ``Conflict``, ``TooLarge``, ``LoopDetected``, ``DepthExceeded``, ``Overloaded``,
        ``WouldDeadlock``, ``BadRequest`` and, for a turn that was stopped, ``LeaseLost``.
        """
        return accept.accept_tx(self.context, tx, draft(self.context, new), waiter=waiter)

    async def check_room(self, agent_id: str) -> None:
        """Raise ``Overloaded`` if the agent's queue would refuse a person's request now."""
        await self._db.read(lambda r: check_room(self.context, r, agent_id), name="mailbox.room")

    def edit_tx(self, tx: Tx, message_id: str, text: str) -> bool:
        """Replace the text of a message that no turn has begun; False if one has.

        Raises ``TooLarge`` and ``BadRequest``.
        """
        return failed.edit_tx(self.context, tx, message_id, text)

    # -- work --------------------------------------------------------------------------------------

    async def claim(
        self,
        agent_id: str,
        instance_id: str,
        free: Mapping[LaneName, int],
        *,
        own: Mapping[str, str] | None = None,
        begin: BeginSegment | None = None,
        committed: Callable[[Claimed], None] = lambda claimed: None,
    ) -> Claimed:
        """Lease the messages that may start now (see ``claim_tx``), and write stops that are due.

        ``committed`` is called with what was claimed, in the order of commits.
        """

        def step(tx: Tx) -> Claimed:
            if self.epochs.unwritten:
                stop.stop_unwritten_tx(self.context, tx)
            claimed = claim.claim_tx(
                self.context, tx, agent_id, instance_id, free, own=own, begin=begin
            )
            tx.after_commit(partial(committed, claimed))
            return claimed

        claimed = await self._db.write(step, name="mailbox.claim")
        startable = tuple(filter(partial(self.may_start, claimed), claimed.leases))
        return replace(claimed, leases=startable) if startable != claimed.leases else claimed

    async def has_work(self, agent_id: str) -> bool:
        """Whether a claim may find something: a message of the agent, or a stop to be written."""
        return bool(self.epochs.unwritten) or await self._db.read(
            views.has_open, agent_id, name="mailbox.has_work"
        )

    def claim_next_tx(
        self,
        tx: Tx,
        agent_id: str,
        instance_id: str,
        lane: LaneName,
        *,
        own: Mapping[str, str],
        begin: BeginSegment | None = None,
    ) -> Claimed | None:
        """In the transaction that ends a turn, lease the agent's next message for its slot.

        The agent is not woken for the end then. None if the next claim has to look: a stop is to be
        written, or a row can't be read.
        """
        if self.epochs.unwritten:
            return None
        tx.untouch(f"agent:{agent_id}")
        if self.context.loads.are(agent_id, 0):
            return Claimed(())

        def step(part: Tx) -> Claimed:
            free = {lane: 1}
            return claim.claim_tx(
                self.context, part, agent_id, instance_id, free, own=own, begin=begin
            )

        try:
            return tx.attempt(step)
        except Exception as error:
            # supervision boundary: the turn has ended, whatever is the matter with the next one
            if is_of_store(error):
                raise
            _log.exception("the next message can't be claimed with the end of a turn")
            tx.touch(f"agent:{agent_id}")
            return None

    def may_start(self, claimed: Claimed, lease: Lease) -> bool:
        """Whether the turn of a claimed lease may begin: not if a stop was ordered while the claim
        was being committed, because the stop cancels the row."""
        message = lease.message
        now = self.epochs.seen(message.agent_id, message.session_id)
        return claimed.epochs[message.message_id] == now

    async def renew(self, leases: Sequence[Lease]) -> set[str]:
        """Extend leases, expired ones too; return the message ids of those that are lost."""
        return await self._write(claim.renew_tx, leases, name="renew", closing=True)

    async def complete(self, lease: Lease, completion: Completion) -> None:
        """End the turn and deliver its result. Raises ``LeaseLost``; nothing is changed then."""
        await self._write(ending.complete_tx, lease, completion, name="complete", closing=True)

    async def retry(self, lease: Lease, *, code: str, text: str) -> MessageState:
        """Queue a message again after a transient failure, as ``retry_tx``, and return its state."""
        unit = self._entropy.uniform(0.0, 1.0)
        step = partial(ending.retry_tx, code=code, text=text, unit=unit)
        return await self._write(step, lease, name="retry", closing=True)

    async def release(self, lease: Lease, *, begun: int | None = None) -> None:
        """Give the lease back without counting an attempt. Raises ``LeaseLost``.

        ``begun`` is the segment that was begun with its claim, if the turn did not start.
        """

        def step(ctx: MailboxContext, tx: Tx) -> None:
            ending.release_tx(ctx, tx, lease)
            if begun is not None:
                segments.withdraw_tx(tx, lease.message.message_id, begun)

        await self._write(step, name="release", closing=True)

    async def release_all(
        self,
        instance_id: str,
        *,
        culprits: Collection[str] | None = (),
        text: str = "",
        begun: Mapping[str, int] | None = None,
    ) -> list[str]:
        """Release the leases of an agent stack that has ended, as ``release_instance_tx``.

        ``begun`` has the segments of turns that did not start, by message id.
        """

        def step(ctx: MailboxContext, tx: Tx) -> list[str]:
            for message_id, number in (begun or {}).items():
                segments.withdraw_tx(tx, message_id, number)
            return ending.release_instance_tx(ctx, tx, instance_id, culprits=culprits, text=text)

        return await self._write(step, name="let_go", closing=True)

    async def wait_done(
        self,
        message_id: str,
        timeout_s: float | None,
        *,
        end: asyncio.Future[Message] | None = None,
    ) -> Message:
        """Wait until a message has ended; ``end`` is what ``accept_expecting`` returned.

        The message as it ended comes from the commit that ended it. Raises ``NotFound`` and
        ``TimedOut``.
        """
        is_new = end is not None
        end = end or self._db.expect(f"done:{message_id}")
        try:
            async with asyncio.timeout(timeout_s):
                if not is_new:
                    message = await self.get(message_id)
                    if message.state in TERMINAL:
                        return message
                return await end
        except TimeoutError:
            raise TimedOut(
                f"message {message_id} has not ended within {timeout_s:g} s; it goes on",
                message_id=message_id,
            ) from None
        finally:
            end.cancel()

    # -- questions ---------------------------------------------------------------------------------

    async def answer(
        self,
        question_id: str,
        answer: str,
        by: Principal,
        args: str = "",
        seen: SeenCall = NOTHING_SEEN,
    ) -> Question:
        """Answer a question, once. Raises what ``mailbox.lifecycle.answering.answer_tx`` raises."""
        answered = (question_id, answer, by, args, seen)
        return await self._write(answering.answer_tx, *answered, name="answer")

    async def answer_plain(self, said: plain_answer.PlainAnswer) -> Question | None:
        """Use a text of a private conversation as an answer; None if it is a message instead."""
        return await plain_answer.answer(self.context, self._db, said)

    async def expire(self) -> Expired:
        """Close questions and queued messages that are past their deadline."""
        return await self._write(deadlines.expire_tx, name="expire")

    async def next_deadline(self) -> int | None:
        """The next time (ms, by the steady clock) at which ``expire`` closes something, or None."""
        return await self._db.read(deadlines.next_deadline, name="mailbox.next_deadline")

    async def questions(
        self, state: QuestionState | None = QuestionState.OPEN, *, limit: int = 100
    ) -> list[Question]:
        """Questions in that state (None: any): open ones oldest first, others newest first."""
        return await self._db.read(asking.list_of, state, limit, name="mailbox.questions")

    async def question(self, question_id: str) -> Question:
        """One question. Raises ``NotFound``."""
        return await self._db.read(find_question, question_id, name="mailbox.question")

    # -- steering ----------------------------------------------------------------------------------

    async def stop(self, scope: str, by: Principal, *, also: Also | None = None) -> StopCounts:
        """Cancel all open messages in ``scope`` (all | agent:<id> | session:<id>).

        ``also`` writes more into the same transaction. The epoch is raised in memory at once,
        unless the caller has raised it already. Raises ``StoreUnavailable`` if the stop could not
        be made durable; it then holds in this process, and the next claim that can write stores it.
        """
        counter = self.epochs.raised(scope) or self.epochs.raise_now(scope)
        at = self.context.clock.now_ms()

        def step(tx: Tx) -> StopCounts:
            return stop.stop_tx(self.context, tx, scope, by, counter=counter, also=also)

        try:
            return await self._db.write(step, name="mailbox.stop", urgent=True)
        except AgentsupError:
            self.epochs.not_written(scope, at, also)
            raise

    async def interrupt(self, session_id: str, by: Principal) -> Cancelled | None:
        """Cancel only the message that holds the session, leased or parked; None without one."""
        return await self._write(stop.interrupt_tx, session_id, by, name="interrupt", urgent=True)

    async def cancel(self, message_id: str, by: Principal) -> Cancelled:
        """Cancel one open message; ``was`` tells if a turn runs. Raises what ``cancel_tx`` does."""
        return await self._db.write(
            self.cancel_tx, message_id, by, name="mailbox.cancel", urgent=True
        )

    def cancel_tx(self, tx: Tx, message_id: str, by: Principal) -> Cancelled:
        """As ``cancel``. Raises ``NotFound`` and ``IllegalTransition``."""
        return stop.cancel_tx(self.context, tx, message_id, by)

    async def reprioritise(self, message_id: str, priority: Priority, by: Principal) -> Message:
        """Change the priority of an open message. Raises ``NotFound`` and ``Conflict`` (ended)."""
        return await self._db.write(
            failed.reprioritise_tx, message_id, priority, name="mailbox.reprioritise"
        )

    # -- failed messages ---------------------------------------------------------------------------

    async def failed_messages(self, *, limit: int = 100) -> list[Message]:
        """Failed messages, newest first."""
        return await self._db.read(failed.failed_messages, limit, name="mailbox.failed_messages")

    async def requeue(self, message_id: str, by: Principal) -> None:
        """Queue a failed message again, in its old order. Raises ``NotFound`` and ``Conflict``."""
        await self._write(failed.requeue_tx, message_id, by, name="requeue")

    async def drop(self, message_id: str, by: Principal) -> None:
        """Drop a failed message. Raises ``NotFound`` and ``Conflict``."""
        await self._write(failed.drop_tx, message_id, by, name="drop")

    async def replay(self, message_id: str, by: Principal, *, key: str = "") -> Accepted:
        """Run an ended message again as a new one, once for each ``key``. Raises as ``replay_tx``."""
        return await self._write(failed.replay_tx, message_id, by, key, name="replay")

    # -- sessions ----------------------------------------------------------------------------------

    async def point(self, agent_id: str, key: str, session_id: str) -> None:
        """Let ``key`` continue an existing session of the agent. Raises ``NotFound``."""
        await self._db.write(sessions.point_tx, agent_id, key, session_id, name="mailbox.point")

    async def current_session(self, agent_id: str, key: str) -> str | None:
        """The id of the session that ``key`` points at, or None."""
        return await self._db.read(sessions.current, agent_id, key, name="mailbox.current_session")

    # -- reading -----------------------------------------------------------------------------------

    async def get(self, message_id: str) -> Message:
        """One message. Raises ``NotFound``."""
        return await self._db.read(need_message, message_id, name="mailbox.get")

    async def thread(self, thread_id: str, *, limit: int = 1000) -> list[Message]:
        """A thread (or all that descends from one message's root), oldest first."""
        return await self._db.read(views.thread, thread_id, limit, name="mailbox.thread")

    async def position(self, message_id: str) -> Position:
        """How many messages run before this one, and the estimated wait. Raises ``NotFound``."""
        return await self._db.read(
            lambda reader: views.position(self.context, reader, message_id),
            name="mailbox.position",
        )

    async def counts(self) -> dict[str, dict[str, int]]:
        """The number of messages by agent and state, and ``accepted``."""
        return await self._db.read(views.counts, name="mailbox.counts")

    async def conservation(self) -> tuple[bool, dict[str, int]]:
        """Whether the conservation law holds, and its sums over all agents."""
        return await self._db.read(views.conservation, name="mailbox.conservation")

    async def _write(
        self,
        step: Callable[[MailboxContext, Tx, *Args], T],
        *args: *Args,
        name: str,
        urgent: bool = False,
        closing: bool = False,
    ) -> T:
        """Run a step of the mailbox in the writer."""
        return await self._db.write(
            lambda tx: step(self.context, tx, *args),
            name=f"mailbox.{name}",
            urgent=urgent,
            closing=closing,
        )

    async def list(self, **filters: Any) -> list[Message]:  # last: its name hides the builtin
        """Messages, newest first; filters as in ``mailbox.queue.views.list_messages``."""
        return await self._db.read(
            lambda reader: views.list_messages(reader, **filters), name="mailbox.list"
        )
