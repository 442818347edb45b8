"""Stop means stop: one transaction that ends everything open in a scope (P5).

The epoch was raised in memory before; here it becomes durable together with the cancelled rows,
closed questions and waits, and one note per asker.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from agentsup.catalogue import LocalizedTexts, words
from agentsup.kit import faults
from agentsup.mailbox.delivery.notices import notify_of_tx, preview
from agentsup.mailbox.lifecycle.closing import (
    cancel_queued_tx,
    cancel_waiting_notes_tx,
    finish_tx,
)
from agentsup.mailbox.lifecycle.results import MessageResult, deliver_tx
from agentsup.mailbox.messages.epoch import ALL, Also, agent_scope
from agentsup.mailbox.messages.rows import (
    IN_SESSION_SQL,
    OPEN_SQL,
    message_of,
    need_message,
)
from agentsup.mailbox.messages.values import Cancelled, MailboxContext, MessageEnd, StopCounts
from agentsup.mailbox.queue import background, waits
from agentsup.mailbox.service import Service, in_writer
from agentsup.model.errors import AgentsupError, BadRequest
from agentsup.model.event import EventType
from agentsup.model.message import (
    NOWHERE,
    DeliverTo,
    Message,
    MessageKind,
    MessageState,
    check_transition,
)
from agentsup.model.principal import SYSTEM, Principal
from agentsup.store import Reader, Tx, append

_NEVER = 2**62


class WorkControl(Service):
    """What people order about work in progress or in the queue: stop, interrupt, cancel."""

    async def stop(self, scope: str, by: Principal, *, also: Also | None = None) -> StopCounts:
        """Cancel all open messages in ``scope`` (all | agent:<id> | session:<id>).

        ``also`` writes more into the same transaction. The epoch is raised in memory at once,
        unless the caller has raised it already. Raises ``StoreUnavailable`` if the stop could not
        be made durable; it then holds in this process, and the next claim that can write stores it.
        """
        epochs = self.context.epochs
        counter = epochs.raised(scope) or epochs.raise_now(scope)
        at = self.context.clock.now_ms()

        def step(tx: Tx) -> StopCounts:
            return stop_tx(self.context, tx, scope, by, counter=counter, also=also)

        try:
            return await self.database.write(step, name="mailbox.stop", urgent=True)
        except AgentsupError:
            epochs.not_written(scope, at, also)
            raise

    @in_writer("mailbox.interrupt", urgent=True)
    def interrupt(self, tx: Tx, session_id: str, by: Principal) -> Cancelled | None:
        """Cancel only the message that holds the session, leased or parked; None without one."""
        holders = waits.holders(tx, session_id)
        return self.cancel_tx(tx, holders[0], by) if holders else None

    def cancel_tx(self, tx: Tx, message_id: str, by: Principal) -> Cancelled:
        """Cancel one open message and notify its asker; ``was`` tells if a turn runs.

        Raises ``NotFound`` and ``IllegalTransition``.
        """
        ctx, message = self.context, need_message(tx, message_id)
        was = message.state
        if was is MessageState.DEAD:  # only ``FailedMessages.drop`` may cancel a failed message
            check_transition(message_id, MessageState.CANCELLED, MessageState.CANCELLED)
        check_transition(message_id, was, MessageState.CANCELLED)
        at = ctx.clock.now_ms()
        end = MessageEnd(MessageState.CANCELLED, "cancelled", f"cancelled by {by.label}")
        below = background.ending_with(tx, [message])
        sentence = words(message.principal.language)("ended.cancelled", who=by.label)
        result = MessageResult("cancelled", sentence, code="cancelled")
        delivered = deliver_tx(ctx, tx, message, result, at=at)
        finish_tx(ctx, tx, message, end, at=at, delivered=delivered)
        for run in below:
            finish_tx(ctx, tx, run, end, at=at)
        with_it = tuple(run.message_id for run in below if run.state is not MessageState.QUEUED)
        return Cancelled(message_id, message.agent_id, message.session_id, was, with_it)

    cancel = in_writer("mailbox.cancel", urgent=True)(cancel_tx)


def stop_tx(
    ctx: MailboxContext,
    tx: Tx,
    scope: str,
    by: Principal,
    *,
    counter: int = 0,
    accepted_until: int = _NEVER,
    also: Also | None = None,
) -> StopCounts:
    """Cancel what is queued, leased or parked in ``scope``, accepted until ``accepted_until``.

    ``scope``: all | agent:<agent_id> | session:<session_id>. ``counter`` is the epoch raised in
    memory; the durable one is at least that, and above every earlier one. ``accepted_until`` is
    wall ms. ``also`` writes more into the same transaction. Raises ``BadRequest`` for another
    scope.
    """
    where, params = _condition(scope)
    at = ctx.clock.now_ms()
    known = tx.scalar("SELECT counter FROM epochs WHERE scope = ?", (scope,)) or 0
    epoch = max(counter, known + 1)
    tx.execute(
        "INSERT INTO epochs (scope, counter, at) VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET counter = excluded.counter, at = excluded.at",
        (scope, epoch, at),
    )
    messages = tx.values(
        message_of,
        f"SELECT * FROM messages INDEXED BY messages_open WHERE {OPEN_SQL}"  # noqa: S608 - constants
        f" AND accepted_at <= ? AND {where} ORDER BY seq",
        (accepted_until, *params),
    )
    below = _beyond(tx, scope, messages)
    messages += below
    if scope.startswith("session:"):
        _exempt_background_tx(tx, scope, epoch, messages)
    end = MessageEnd(MessageState.CANCELLED, "stopped", f"stopped by {by.label}")
    queued = [message for message in messages if message.state is MessageState.QUEUED]
    cancel_queued_tx(ctx, tx, queued, end, at=at)
    for run in below:
        cancel_waiting_notes_tx(ctx, tx, run, end, at=at)
    # Newest first: closing a run would also end the question that it put to an agent, which is a
    # later message.
    for message in sorted(messages, key=lambda message: message.seq, reverse=True):
        if message.state is not MessageState.QUEUED:
            finish_tx(ctx, tx, message, end, at=at)
    _note_askers(ctx, tx, messages, by.label, at, scope)
    if also is not None:
        also(tx)
    counts = StopCounts(
        scope,
        epoch,
        running=sum(m.state is MessageState.LEASED for m in messages),
        queued=len(queued),
        parked=sum(m.state is MessageState.PARKED for m in messages),
        message_ids=tuple(m.message_id for m in messages if m.state is not MessageState.QUEUED),
        agent_ids=tuple(sorted({m.agent_id for m in messages})),
    )
    append(
        tx,
        EventType.STOPPED,
        at=at,
        agent_id=scope.removeprefix("agent:") if scope.startswith("agent:") else "",
        session_id=scope.removeprefix("session:") if scope.startswith("session:") else "",
        data={
            "scope": scope,
            "epoch": epoch,
            "by": by.to_json(),
            "running": counts.running,
            "queued": counts.queued,
            "parked": counts.parked,
        },
    )
    tx.after_commit(partial(ctx.epochs.written, scope, epoch))
    tx.after_commit(partial(faults.point, "stop.after_commit"))
    faults.point("stop.before_commit")
    return counts


def _beyond(reader: Reader, scope: str, messages: Sequence[Message]) -> list[Message]:
    """The messages outside the scope that end with those in it."""
    if scope == ALL:
        return []
    is_agent = scope.startswith("agent:")
    found = background.ending_with(reader, messages, background=is_agent)
    if is_agent:
        known = {each.message_id for each in (*messages, *found)}
        found += (
            run
            for run in background.runs_for_agent(reader, scope.removeprefix("agent:"))
            if run.message_id not in known
        )
    return found


def _exempt_background_tx(tx: Tx, scope: str, epoch: int, stopped: Sequence[Message]) -> None:
    """Let background work for a stopped session go on, and its result be delivered."""
    ended = {message.message_id for message in stopped}
    exempt = background.reporting_to_session(tx, scope.removeprefix("session:"))
    background.keep_tx(tx, [m for m in exempt if m.message_id not in ended], scope, epoch)


def stop_unwritten_tx(ctx: MailboxContext, tx: Tx) -> None:
    """Carry out stops that could not be written when they were ordered."""
    for scope, (at, also) in ctx.epochs.unwritten.items():
        stop_tx(
            ctx,
            tx,
            scope,
            SYSTEM,
            counter=ctx.epochs.current(scope),
            accepted_until=at,
            also=also,
        )


def _condition(scope: str) -> tuple[str, tuple[str, ...]]:
    kind, _, subject = scope.partition(":")
    if scope == ALL:
        return "1", ()
    if kind == "agent" and subject:
        return "agent_id = ?", (subject,)
    if kind == "session" and subject:
        return IN_SESSION_SQL, (subject, subject)
    raise BadRequest(
        f"{scope!r} is no scope of a stop: use all, agent:<id> or session:<id>", field="scope"
    )


def _note_askers(
    ctx: MailboxContext, tx: Tx, messages: list[Message], who: str, at: int, scope: str
) -> None:
    """Send one note per conversation or asking session; none to sessions that are stopped too."""
    stopped_sessions = {message.session_id for message in messages}
    groups: dict[tuple[str, ...], list[Message]] = {}
    for message in messages:
        to = message.deliver_to
        key: tuple[str, ...]
        if to.kind == "mailbox" and not to.waited and scope in (ALL, agent_scope(to.agent_id)):
            # The asking agent is stopped too: the note goes to the chat at the end, if any.
            to = background.final_chat(to) or NOWHERE
        if to.kind == "chat" and not to.silent:
            key = ("chat", to.agent_id or message.agent_id, to.channel, to.conversation)
        elif to.kind == "mailbox" and not to.waited and to.session_id not in stopped_sessions:
            key = ("mailbox", to.agent_id, to.session_id)
        elif to.kind == "question":
            key = ("question", to.question_id)
        else:
            continue
        groups.setdefault(key, []).append(message)
    for key, group in groups.items():
        last = group[-1]
        say = words(last.principal.language)
        sentence = say.count("ended.stopped", len(group), who=who)
        if key[0] == "chat":
            results = [each for each in group if each.kind is MessageKind.REPLY]
            text = "\n".join([sentence, *(_dropped(tx, each, say) for each in results)])
            _, agent_id, channel, conversation = key
            chat = DeliverTo("chat", agent_id, channel, conversation)
            notify_of_tx(tx, last, chat, text, at=at, outcome="cancelled", count=len(group))
        else:
            # The epoch of an asker in the scope is already raised, so it gets no reply.
            deliver_tx(ctx, tx, last, MessageResult("cancelled", sentence, code="stopped"), at=at)


def _dropped(reader: Reader, reply: Message, say: LocalizedTexts) -> str:
    """The sentence about a result that had arrived and was not delivered because of the stop."""
    row = reader.one(
        "SELECT m.summary, r.task_id FROM messages m"
        " LEFT JOIN runs r ON r.run_id = m.message_id WHERE m.message_id = ?",
        (reply.in_reply_to,),
    )
    known = reply.in_reply_to if row is None else row["task_id"] or reply.in_reply_to
    what = row["summary"] if row is not None else ""
    return say("ended.result_dropped", what=what or preview(reply.text, 60), id=known)
