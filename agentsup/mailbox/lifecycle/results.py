"""Routing of results: the outbox for people, a reply message for agents, the row for programs.

A result is delivered in the transaction that ends its message. A reply goes to the asker's session
unless the asker was stopped after it asked (P1, P5).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from agentsup.catalogue import words
from agentsup.mailbox.delivery import outbox
from agentsup.mailbox.delivery.notices import latest_conversation, notify_of_tx, preview
from agentsup.mailbox.lifecycle import answering
from agentsup.mailbox.messages import keys
from agentsup.mailbox.messages.epoch import scopes_of
from agentsup.mailbox.messages.rows import is_scheduled, tasks_of
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.mailbox.queue.accept import epochs_of, put_tx, stored_epoch
from agentsup.mailbox.queue.background import final_chat
from agentsup.mailbox.usage.budget import ledger
from agentsup.model.engine import Suspended
from agentsup.model.ids import AgentId
from agentsup.model.message import (
    NOWHERE,
    DeliverTo,
    LaneName,
    Message,
    MessageKind,
    NewMessage,
    Part,
    Priority,
    text_parts,
)
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.trace import by_turn_of
from agentsup.store import Tx, name_of


@dataclass(frozen=True, slots=True)
class MessageResult:
    """The result of a message. ``word``: ok | failed | cancelled | dead | expired."""

    word: str
    text: str
    """The answer, or a sentence for the asker why there is none."""
    files: tuple[Part, ...] = ()
    code: str = ""


def deliver_tx(
    ctx: MailboxContext, tx: Tx, message: Message, result: MessageResult, *, at: int
) -> str:
    """Send ``result`` to the message's ``deliver_to``.

    Returns how: outbox | reply | refused | answer (to a question) | kept (only in the row).
    """
    to = message.deliver_to
    if to.kind == "chat":
        if to.silent or _has_nothing_to_say(tx, message, result):
            return "kept"
        _to_chat(tx, message, to, result, at)
        return "outbox"
    if to.kind == "mailbox" and not to.waited:
        if _reply(ctx, tx, message, result, at):
            return "reply"
        return _past_asker(tx, message, result, at)
    if to.kind == "question":
        by = Principal(PrincipalKind.AGENT, message.agent_id, name_of(tx, message.agent_id))
        said = result.text if result.word == "ok" else f"(There is no answer: {result.text})"
        is_taken = answering.answered_by_agent_tx(ctx, tx, to.question_id, said, by)
        return "answer" if is_taken else "kept"
    return "kept"


def _has_nothing_to_say(tx: Tx, message: Message, result: MessageResult) -> bool:
    """Whether it is a scheduled run that ended ok without a text or a file.

    Nobody waits for it, and a schedule that found nothing new should be silent.
    """
    return (
        message.kind is MessageKind.TASK
        and result.word == "ok"
        and not result.text.strip()
        and not result.files
        and is_scheduled(tx, message.message_id)
    )


def _to_chat(tx: Tx, message: Message, to: DeliverTo, result: MessageResult, at: int) -> None:
    text, say = result.text, words(message.principal.language)
    if result.word == "ok" and not text.strip():
        text = "" if result.files else say("ended.wordless")
    if message.kind is MessageKind.TASK and message.summary and text:
        # Nobody has just asked for it, so people must see which work it belongs to.
        text = say("ended.of_work", what=message.summary, text=text)
    if result.word != "ok":
        notify_of_tx(tx, message, to, text, at=at, outcome=result.word, code=result.code)
        return
    bodies = [("file", {"path": part.path, "name": part.name}) for part in result.files]
    if text:
        bodies.insert(0, ("answer", {"text": text, "outcome": result.word}))
    if message.kind is MessageKind.TASK:
        for _, body in bodies:
            body["of_work"] = message.summary
    for kind, body in bodies:
        outbox.add_tx(
            tx,
            message_id=message.message_id,
            agent_id=to.agent_id or message.agent_id,
            channel=to.channel,
            conversation=to.conversation,
            kind=kind,
            body=body,
            at=at,
        )


def _past_asker(tx: Tx, message: Message, result: MessageResult, at: int) -> str:
    """Deliver a result past an asker that was stopped since and gets no turn for it.

    The result of a task goes to the chat at the end of the chain, because it belongs to the owner.
    For other work, that chat gets a notice that the result was dropped.
    """
    to = final_chat(message.deliver_to)
    if to is None or to.silent:
        return "refused"
    if _has_nothing_to_say(tx, message, result):
        return "kept"
    if message.kind is MessageKind.TASK and any(tasks_of(tx, [message]).values()):
        _to_chat(tx, message, to, result, at)
        return "outbox"
    say = words(message.principal.language)
    what = message.summary or preview(message.text, 60)
    text = say("ended.result_dropped", what=what, id=message.message_id)
    notify_of_tx(tx, message, to, text, at=at, outcome="cancelled", code="stopped")
    return "refused"


def _reply(ctx: MailboxContext, tx: Tx, message: Message, result: MessageResult, at: int) -> bool:
    """Put the result into the asker's mailbox; False if the asker was stopped meanwhile."""
    to = message.deliver_to
    scopes = scopes_of(to.agent_id, to.session_id)
    current = epochs_of(ctx, tx, scopes)
    if to.session_id:
        # Only the stored epoch: a stop that is not written yet will cancel the reply and report it.
        current[scopes[-1]] = stored_epoch(tx, scopes[-1])
    if any(count > message.epochs.get(scope, 0) for scope, count in current.items()):
        return False
    name = name_of(tx, message.agent_id)
    then = _then(ctx, tx, to, message.person)
    parts = (Part("text", text=_wording(name, message, result)), *result.files)
    principal = Principal(PrincipalKind.AGENT, message.agent_id, name)
    new = replace(
        _to_asker(tx, message, then, parts, principal),
        kind=MessageKind.REPLY,
        priority=message.priority,
        deliver_to=then,
        thread_id=message.thread_id,
        summary=message.summary if message.kind is MessageKind.TASK else "",
    )
    _count_as_asker_tx(tx, put_tx(ctx, tx, new, at=at), message)
    return True


def put_question_tx(
    ctx: MailboxContext, tx: Tx, message: Message, question_id: str, asked: Suspended, *, at: int
) -> None:
    """Put a question of delegated work to the agent that delegated it.

    It becomes a message in the session that the work came from; that agent's answer is the answer.
    """
    to, name = message.deliver_to, name_of(tx, message.agent_id)
    then, text = _then(ctx, tx, to, message.person), asked.text
    if asked.options:
        text += "\nAnswer with one of: " + ", ".join(asked.options)
    principal = replace(
        message.principal, kind=PrincipalKind.AGENT, subject=message.agent_id, name=name
    )
    new = replace(
        _to_asker(tx, message, then, text_parts(text), principal),
        kind=MessageKind.DIRECTIVE,
        priority=min(message.priority, Priority.HIGH),
        deliver_to=DeliverTo("question", question_id=question_id, then=then),
        summary=message.summary,
    )
    put_as = put_tx(ctx, tx, new, at=at)
    _count_as_asker_tx(tx, put_as, message)
    tx.execute("UPDATE questions SET put_as = ? WHERE question_id = ?", (put_as, question_id))


def _to_asker(
    tx: Tx, message: Message, then: DeliverTo, parts: tuple[Part, ...], principal: Principal
) -> NewMessage:
    """A message about delegated work, for the session of the agent that asked for it.

    ``then`` is where that agent's answer goes.
    """
    to = message.deliver_to
    return NewMessage(
        agent_id=AgentId(to.agent_id),
        session_key=to.session_id or _key_of(then, principal.name, message.person),
        parts=parts,
        principal=principal,
        lane=LaneName.PEER,
        in_reply_to=message.message_id,
        root_id=message.root_id,
        path=_path_of_asker(tx, message),
        traceparent=by_turn_of(message),
        sender_agent_id=message.agent_id,
        silent=True,
        epochs=message.epochs,
    )


def _count_as_asker_tx(tx: Tx, message_id: str, run: Message) -> None:
    """Count the turn on this message for the budgets of the work that delegated ``run``."""
    if run.kind is MessageKind.TASK and run.in_reply_to:
        ledger.join_as_tx(tx, message_id, run.in_reply_to)


def _path_of_asker(tx: Tx, message: Message) -> tuple[str, ...]:
    """The path of the asker's own message: a reply to an agent does not have it on its path."""
    path = message.path
    if message.kind is MessageKind.TASK:
        asked = tx.scalar("SELECT path FROM messages WHERE message_id = ?", (message.in_reply_to,))
        return tuple(json.loads(asked)) if asked else ()
    return path[:-1] if path and path[-1] == message.deliver_to.agent_id else path


def _then(ctx: MailboxContext, tx: Tx, to: DeliverTo, person: str) -> DeliverTo:
    """The target of the asker's answer to the reply: its own asker, or its own conversation."""
    if to.then is not None:
        # Nobody waits any more: the turn that was waited for has ended, or goes on elsewhere.
        return replace(to.then, waited=False)
    if to.session_id:
        return NOWHERE
    channel, conversation = latest_conversation(tx, to.agent_id, person, ctx.role_now)
    return DeliverTo("chat", agent_id=to.agent_id, channel=channel, conversation=conversation)


def _key_of(then: DeliverTo, answerer: str, person: str) -> str:
    if then.kind == "chat":
        return keys.chat_key(then.channel, then.conversation)
    return keys.peer_key(answerer, person)


def _wording(name: str, message: Message, result: MessageResult) -> str:
    """The reply's text. An answer is passed on unchanged; the turn on it adds the context."""
    if result.word == "ok":
        return result.text
    about = f"your message {message.message_id} (“{preview(message.text, 80)}”)"
    return f"{name} could not answer {about}: {result.text}"
