"""Stop means stop: one transaction that ends everything open in a scope (P5).

The epoch was raised in memory before; here it becomes durable together with the cancelled rows,
closed questions and waits, and one note per asker.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from agentsup.catalogue import Words, words
from agentsup.kit import faults
from agentsup.mailbox import background, ending, handed_on, waits
from agentsup.mailbox.deliver import Result, deliver_tx
from agentsup.mailbox.epoch import ALL, Also, agent_scope
from agentsup.mailbox.notices import notify_tx, preview
from agentsup.mailbox.rows import (
    IN_SESSION_SQL,
    OPEN_SQL,
    message_of,
    need_message,
)
from agentsup.mailbox.values import Cancelled, Desk, StopCounts
from agentsup.mailbox.withdrawing import cancel_queued_tx, take_notes_back_tx
from agentsup.model.errors import BadRequest
from agentsup.model.event import EventType
from agentsup.model.message import NOWHERE, Kind, Message, State, check_transition
from agentsup.model.principal import SYSTEM, Principal
from agentsup.store.database import Reader, Tx
from agentsup.store.events import append

__all__ = ["cancel_tx", "interrupt_tx", "stop_tx", "stop_unwritten_tx"]

_NEVER = 2**62


def stop_tx(
    desk: Desk,
    tx: Tx,
    scope: str,
    by: Principal,
    *,
    counter: int = 0,
    accepted_until: int = _NEVER,
    also: Also | None = None,
) -> StopCounts:
    """Cancel what is queued, leased or parked in ``scope`` and was accepted until that time.

    ``scope``: all | agent:<agent_id> | session:<session_id>. ``counter`` is the epoch raised in
    memory; the durable one is at least that, and above every earlier one. Raises ``BadRequest``
    for another scope. ``also`` writes more into the same transaction.
    """
    where, params = _condition(scope)
    at = desk.clock.now_ms()
    known = tx.scalar("SELECT counter FROM epochs WHERE scope = ?", (scope,)) or 0
    epoch = max(counter, known + 1)
    tx.execute(
        "INSERT INTO epochs (scope, counter, at) VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET counter = excluded.counter, at = excluded.at",
        (scope, epoch, at),
    )
    rows = tx.all(
        f"SELECT * FROM messages INDEXED BY messages_open WHERE {OPEN_SQL}"  # noqa: S608 - constants
        f" AND accepted_at <= ? AND {where} ORDER BY seq",
        (accepted_until, *params),
    )
    messages = [message_of(row) for row in rows]  # type: ignore[arg-type]  # Row is a mapping in all but name
    below = _beyond(tx, scope, messages)
    messages += below
    if scope.startswith("session:"):
        _keep_tx(tx, scope, epoch, messages)
    text = f"stopped by {by.label}"
    queued = [message for message in messages if message.state is State.QUEUED]
    cancel_queued_tx(tx, queued, at=at, code="stopped", text=text)
    for run in below:
        take_notes_back_tx(tx, run, at=at, code="stopped", text=text)
    # Backwards: a question put to an agent comes after the run that asks, with which it would end.
    for message in sorted(messages, key=lambda message: message.seq, reverse=True):
        if message.state is not State.QUEUED:
            ending.close_tx(tx, message, State.CANCELLED, at=at, code="stopped", text=text)
    _note_askers(desk, tx, messages, by.label, at, scope)
    if also is not None:
        also(tx)
    counts = StopCounts(
        scope,
        epoch,
        running=sum(m.state is State.LEASED for m in messages),
        queued=len(queued),
        parked=sum(m.state is State.PARKED for m in messages),
        message_ids=tuple(m.message_id for m in messages if m.state is not State.QUEUED),
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
    tx.after_commit(partial(desk.epochs.written, scope, epoch))
    tx.after_commit(partial(faults.point, "stop.after_commit"))
    faults.point("stop.before_commit")
    return counts


def _beyond(reader: Reader, scope: str, messages: Sequence[Message]) -> list[Message]:
    """What ends with the scope, though it is not in it."""
    if scope == ALL:
        return []
    is_agent = scope.startswith("agent:")
    found = handed_on.ending_with(reader, messages, background=is_agent)
    if is_agent:
        known = {each.message_id for each in (*messages, *found)}
        found += (
            run
            for run in background.runs_for_agent(reader, scope.removeprefix("agent:"))
            if run.message_id not in known
        )
    return found


def _keep_tx(tx: Tx, scope: str, epoch: int, stopped: Sequence[Message]) -> None:
    """What runs in the background for the session goes on, and its result comes all the same."""
    ended = {message.message_id for message in stopped}
    kept = background.reporting_to_session(tx, scope.removeprefix("session:"))
    background.keep_tx(tx, [m for m in kept if m.message_id not in ended], scope, epoch)


def stop_unwritten_tx(desk: Desk, tx: Tx) -> None:
    """Carry out stops that could not be written when they were ordered."""
    for scope, at in desk.epochs.unwritten.items():
        stop_tx(
            desk,
            tx,
            scope,
            SYSTEM,
            counter=desk.epochs.current(scope),
            accepted_until=at,
            also=desk.epochs.unwritten_also(scope),
        )


def cancel_tx(desk: Desk, tx: Tx, message_id: str, by: Principal) -> Cancelled:
    """End one open message and tell its asker. Raises ``NotFound`` or ``IllegalTransition``."""
    message = need_message(tx, message_id)
    was = message.state
    if was is State.DEAD:  # dropped, by a person, from the dead letters only
        check_transition(message_id, State.CANCELLED, State.CANCELLED)
    check_transition(message_id, was, State.CANCELLED)
    at = desk.clock.now_ms()
    text = f"cancelled by {by.label}"
    below = handed_on.ending_with(tx, [message])
    sentence = words(message.principal.language)("ended.cancelled", who=by.label)
    result = Result("cancelled", sentence, code="cancelled")
    delivered = deliver_tx(desk, tx, message, result, at=at)
    ending.close_tx(
        tx,
        message,
        State.CANCELLED,
        at=at,
        code="cancelled",
        text=text,
        data={"delivered": delivered},
    )
    for run in below:
        ending.close_tx(tx, run, State.CANCELLED, at=at, code="cancelled", text=text)
    with_it = tuple(run.message_id for run in below if run.state is not State.QUEUED)
    return Cancelled(message_id, message.agent_id, message.session_id, was, with_it)


def interrupt_tx(desk: Desk, tx: Tx, session_id: str, by: Principal) -> Cancelled | None:
    """End what holds the session, leased or parked; None if nothing does."""
    held_by = waits.holders(tx, session_id)
    return cancel_tx(desk, tx, held_by[0], by) if held_by else None


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
    desk: Desk, tx: Tx, messages: list[Message], who: str, at: int, scope: str
) -> None:
    """One note per conversation or asking session; nothing for those who are stopped too."""
    stopped_sessions = {message.session_id for message in messages}
    groups: dict[tuple[str, ...], list[Message]] = {}
    for message in messages:
        to = message.deliver_to
        key: tuple[str, ...]
        if to.kind == "mailbox" and not to.waited and scope in (ALL, agent_scope(to.agent_id)):
            # The agent is stopped: people read of it instead, where there are any.
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
            results = [each for each in group if each.kind is Kind.REPLY]
            notify_tx(
                tx,
                message_id=last.message_id,
                agent_id=key[1],
                session_id=last.session_id,
                text="\n".join([sentence, *(_dropped(tx, each, say) for each in results)]),
                at=at,
                place=(key[2], key[3]),
                facts={"outcome": "cancelled", "count": len(group)},
            )
        else:
            # The epoch of an asker in the scope is already raised, so it gets no reply.
            deliver_tx(desk, tx, last, Result("cancelled", sentence, code="stopped"), at=at)


def _dropped(reader: Reader, reply: Message, say: Words) -> str:
    """A result that had come, and was not told because of the stop."""
    row = reader.one(
        "SELECT m.summary, r.task_id FROM messages m"
        " LEFT JOIN runs r ON r.run_id = m.message_id WHERE m.message_id = ?",
        (reply.in_reply_to,),
    )
    known = reply.in_reply_to if row is None else row["task_id"] or reply.in_reply_to
    what = row["summary"] if row is not None else ""
    return say("ended.result_dropped", what=what or preview(reply.text, 60), id=known)
