"""The queue of messages: what comes in, waiting for an end, and changes before a turn reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from agentsup.mailbox.messages.events import emit_message_event
from agentsup.mailbox.messages.rows import encode, find_message, need_message
from agentsup.mailbox.queue import accept, admission
from agentsup.mailbox.queue.draft import PreparedMessage, check_size, draft
from agentsup.mailbox.service import Service, in_reader, in_writer
from agentsup.model.errors import Conflict, TimedOut
from agentsup.model.event import EventType
from agentsup.model.message import (
    OPEN,
    TERMINAL,
    Accepted,
    Lease,
    Message,
    MessageState,
    NewMessage,
    Part,
    Priority,
)
from agentsup.store import Reader, Tx


class MessageQueue(Service):
    """The one way in."""

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
        end: asyncio.Future[Message] = self.database.expect(f"done:{ready.message_id}")
        try:
            accepted = await self._store(ready, waiter)
        except BaseException:
            end.cancel()
            raise
        if not accepted.duplicate:
            return accepted, end
        end.cancel()
        return accepted, None

    @in_writer("mailbox.accept")
    def _store(
        self,
        tx: Tx,
        ready: PreparedMessage,
        waiter: Lease | None,
        also: Callable[[Tx, Accepted], None] | None = None,
    ) -> Accepted:
        accepted = accept.accept_tx(self.context, tx, ready, waiter=waiter)
        if also is not None:
            also(tx, accepted)
        return accepted

    def accept_tx(self, tx: Tx, new: NewMessage, *, waiter: Lease | None = None) -> Accepted:
        """Store ``new`` in this transaction; with ``waiter``, that turn waits for the answer.

        Raises ``Conflict``, ``TooLarge``, ``LoopDetected``, ``DepthExceeded``, ``Overloaded``,
        ``WouldDeadlock``, ``BadRequest`` and, for a turn that was stopped, ``LeaseLost``.
        """
        return accept.accept_tx(self.context, tx, draft(self.context, new), waiter=waiter)

    @in_reader("mailbox.room")
    def check_room(self, reader: Reader, agent_id: str) -> None:
        """Raise ``Overloaded`` if the agent's queue would refuse a person's request now."""
        admission.check_room(self.context, reader, agent_id)

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
        end = end or self.database.expect(f"done:{message_id}")
        try:
            async with asyncio.timeout(timeout_s):
                if not is_new:
                    message = await self.database.read(need_message, message_id, name="mailbox.get")
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

    def edit_tx(self, tx: Tx, message_id: str, text: str) -> bool:
        """Replace the text of a queued message; its files stay. False if a turn has begun it.

        A message that was begun and is queued again has been read already. Raises ``TooLarge``, and
        ``BadRequest`` for text that can't be stored; nothing is changed then.
        """
        message = find_message(tx, message_id)
        if (
            message is None
            or message.state is not MessageState.QUEUED
            or message.started_at is not None
        ):
            return False
        others = tuple(part for part in message.parts if part.type != "text")
        parts = encode([part.to_json() for part in (Part("text", text=text), *others)])
        check_size(parts, self.context.limits.max_body_bytes)
        tx.execute("UPDATE messages SET parts = ? WHERE seq = ?", (parts, message.seq))
        facts = {"text": text, "from": message.principal.label}
        emit_message_event(tx, EventType.CHAT_EDITED, message, self.context.clock.now_ms(), facts)
        return True

    @in_writer("mailbox.reprioritise")
    def reprioritise(self, tx: Tx, message_id: str, priority: Priority) -> Message:
        """Change the priority of an open message. Raises ``NotFound`` and ``Conflict`` (ended)."""
        message = need_message(tx, message_id)
        if message.state not in OPEN:
            raise Conflict(
                f"message {message_id} is {message.state.value}; its priority is of no use",
                message_id=message_id,
                state=message.state.value,
            )
        tx.execute("UPDATE messages SET priority = ? WHERE seq = ?", (int(priority), message.seq))
        tx.touch(f"agent:{message.agent_id}")
        return replace(message, priority=priority)
