"""The mailbox: one durable priority queue per agent, and the only way in and out of work.

Each change is one function in the writer, so it is on the disk when the call returns (P1); ``*_tx``
methods join a caller's transaction. Waiters wake by ``agent:<id>``, ``done:<id>``, ``outbox:<name>``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox.lifecycle.control import WorkControl
from agentsup.mailbox.lifecycle.deadlines import Deadlines, left_by_earlier
from agentsup.mailbox.lifecycle.failed import FailedMessages
from agentsup.mailbox.lifecycle.leases import Leases
from agentsup.mailbox.messages.epoch import EpochMap
from agentsup.mailbox.messages.loads import AgentLoads, TurnDurations, stored_loads
from agentsup.mailbox.messages.steady_clock import SteadyClock
from agentsup.mailbox.messages.values import (
    MailboxContext,
    MailboxLimits,
    MessageObserver,
    QuestionObserver,
    RoleNow,
    unchanged,
)
from agentsup.mailbox.questions.asking import Questions
from agentsup.mailbox.queue.message_queue import MessageQueue
from agentsup.mailbox.queue.views import MessageQueries
from agentsup.mailbox.service import Service
from agentsup.store import Database, Reader


class Mailbox(Service):
    """The mailboxes of all agents of this node, by subject. Used from one event loop."""

    def __init__(
        self,
        database: Database,
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
        context = MailboxContext(
            clock,
            entropy,
            boot_id,
            limits or MailboxLimits(),
            EpochMap(),
            TurnDurations(),
            AgentLoads(),
            SteadyClock(clock),
            role_now,
            question_observers,
            message_observers,
        )
        super().__init__(database, context)
        self.queue = MessageQueue(database, context)
        """What comes in, and what may be changed before a turn reads it."""
        self.leases = Leases(database, context)
        """Work: messages are leased to turns, and turns end."""
        self.control = WorkControl(database, context)
        """Stop, interrupt and cancel."""
        self.questions = Questions(database, context)
        self.deadlines = Deadlines(database, context)
        self.failed = FailedMessages(database, context)
        self.messages = MessageQueries(database, context)
        """Reading: messages, threads, positions and counts."""

    async def load(self) -> None:
        """Load stop epochs and loads of earlier boots. Call it once before work starts."""

        def stored(reader: Reader) -> Sequence[Any]:
            self.context.steady.begin(left_by_earlier(reader))
            self.context.loads.begin(stored_loads(reader))
            return reader.all("SELECT scope, counter FROM epochs")

        for scope, counter in await self.database.read(stored, name="mailbox.load"):
            self.context.epochs.merge(scope, counter)
