"""What people do with a message that has ended: queue a failed one again, drop it, replay any."""

from __future__ import annotations

from dataclasses import replace

from agentsup.mailbox.lifecycle import closing
from agentsup.mailbox.messages import attempts, current_rights
from agentsup.mailbox.messages.events import emit_message_event
from agentsup.mailbox.messages.rows import message_of, need_message
from agentsup.mailbox.messages.values import MessageEnd
from agentsup.mailbox.queue.accept import accept_tx
from agentsup.mailbox.queue.draft import draft
from agentsup.mailbox.service import Service, in_reader, in_writer
from agentsup.model.errors import Conflict
from agentsup.model.event import EventType
from agentsup.model.message import TERMINAL, Accepted, Message, MessageState, check_transition
from agentsup.model.principal import Principal
from agentsup.store import Reader, Tx


class FailedMessages(Service):
    """Messages that have failed for good, and the replay of any message that has ended."""

    @in_writer("mailbox.requeue")
    def requeue(self, tx: Tx, message_id: str, by: Principal) -> None:
        """Queue a failed message again in its old order, with no attempts counted.

        Calls that were finished are not repeated. Raises ``NotFound`` or ``Conflict`` (not a failed
        message).
        """
        message = _need_failed(tx, message_id)
        check_transition(message_id, message.state, MessageState.QUEUED)
        tx.execute(
            "UPDATE messages SET state = 'queued', attempts = 0, crashes = 0, not_before = 0,"
            " finished_at = NULL, expires_at = NULL WHERE seq = ?",
            (message.seq,),
        )
        at = self.context.clock.now_ms()
        self.context.loads.change_tx(tx, message.agent_id, 1, at=at)
        attempts.reset_attempts_tx(tx, message_id, at)
        facts = {"code": "requeued", "by": by.to_json()}
        emit_message_event(tx, EventType.MESSAGE_RETRY, message, at, facts)
        tx.touch(f"agent:{message.agent_id}")

    @in_writer("mailbox.drop")
    def drop(self, tx: Tx, message_id: str, by: Principal) -> None:
        """Cancel a failed message for good. Raises ``NotFound`` or ``Conflict`` (not a failed one)."""
        message = _need_failed(tx, message_id)
        text = f"dropped by {by.label}; it had failed: {message.error_text}"
        end = MessageEnd(MessageState.CANCELLED, "dropped", text)
        closing.finish_tx(self.context, tx, message, end, at=self.context.clock.now_ms())

    @in_writer("mailbox.replay")
    def replay(self, tx: Tx, message_id: str, by: Principal, *, key: str = "") -> Accepted:
        """Run an ended message once more, as a new message with ``replay_of``.

        It counts as new work; the same ``key`` gives the same message. Nobody waits for it any more,
        so an answer that was waited for goes to the asker's mailbox. Raises ``NotFound``,
        ``Conflict`` (it has not ended) and what accepting raises.
        """
        old = need_message(tx, message_id)
        if old.state not in TERMINAL:
            raise Conflict(
                f"message {message_id} is {old.state.value}; only one that has ended can be replayed",
                message_id=message_id,
                state=old.state.value,
            )
        new = replace(
            old.renewed(old.session_id),
            principal=current_rights.principal_for_new_root(tx, old),
            in_reply_to="",
            root_id="",
            epochs={},
            summary=f"replayed by {by.label}: {old.summary or old.text}"[:200],
            idempotency_key=key and f"replay:{message_id}:{key}",
        )
        return accept_tx(self.context, tx, draft(self.context, new))

    @in_reader("mailbox.failed_messages")
    def list(self, reader: Reader, *, limit: int = 100) -> list[Message]:
        """Failed messages, newest first."""
        return reader.values(
            message_of,
            "SELECT * FROM messages WHERE state = 'dead' ORDER BY seq DESC LIMIT ?",
            (limit,),
        )


def _need_failed(reader: Reader, message_id: str) -> Message:
    message = need_message(reader, message_id)
    if message.state is not MessageState.DEAD:
        raise Conflict(
            f"message {message_id} is {message.state.value}, not a failed message",
            message_id=message_id,
            state=message.state.value,
        )
    return message
