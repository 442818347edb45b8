"""Where results go: the outbox for people, a reply message for agents, the row for programs.

A result is delivered in the transaction that ends its message. A reply goes to the asker's session
unless the asker was stopped after it asked (P1, P5).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from agentsup.catalogue import words
from agentsup.mailbox import answering, naming, outbox, sessions
from agentsup.mailbox.accept import epochs_of, insert_tx, stored_epoch
from agentsup.mailbox.background import final_chat
from agentsup.mailbox.budget import ledger
from agentsup.mailbox.draft import draft
from agentsup.mailbox.epoch import scopes_of
from agentsup.mailbox.notices import latest_conversation, name_of, notify_tx, preview
from agentsup.mailbox.values import Desk
from agentsup.model.engine import Suspended
from agentsup.model.ids import AgentId
from agentsup.model.message import (
    NOWHERE,
    DeliverTo,
    Kind,
    Lane,
    Message,
    NewMessage,
    Part,
    Priority,
    text_parts,
)
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.trace import by_turn_of
from agentsup.store.database import Tx

__all__ = ["Result", "deliver_tx", "put_question_tx"]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a message. ``word``: ok | failed | cancelled | dead | expired."""

    word: str
    text: str
    """The answer, or a sentence for the asker that says why there is none."""
    files: tuple[Part, ...] = ()
    code: str = ""


def deliver_tx(desk: Desk, tx: Tx, message: Message, result: Result, *, at: int) -> str:
    """Send ``result`` where ``message`` wants it; says how: outbox | reply | refused |
    answer (to a question) | kept."""
    to = message.deliver_to
    if to.kind == "chat":
        if to.silent:
            return "kept"
        if _has_nothing_to_say(tx, message, result):
            return "kept"
        _to_chat(tx, message, to, result, at)
        return "outbox"
    if to.kind == "mailbox" and not to.waited:
        if _reply(desk, tx, message, result, at):
            return "reply"
        return _past_asker(tx, message, result, at)
    if to.kind == "question":
        by = Principal(PrincipalKind.AGENT, message.agent_id, name_of(tx, message.agent_id))
        said = result.text if result.word == "ok" else f"(There is no answer: {result.text})"
        is_taken = answering.answered_by_agent_tx(desk, tx, to.question_id, said, by)
        return "answer" if is_taken else "kept"
    if to.kind == "webhook":
        outbox.add_tx(
            tx,
            message_id=message.message_id,
            agent_id=message.agent_id,
            session_id=message.session_id,
            channel="webhook",
            conversation=to.url,
            kind="answer",
            body={"text": result.text, "outcome": result.word},
            at=at,
        )
        return "outbox"
    return "kept"


def _has_nothing_to_say(tx: Tx, message: Message, result: Result) -> bool:
    """A run that a clock began, and that ended well without a text or a file: nobody waits for it,
    and a schedule that found nothing new is right to be silent."""
    return (
        message.kind is Kind.TASK
        and result.word == "ok"
        and not result.text.strip()
        and not result.files
        and bool(
            tx.scalar(
                "SELECT 1 FROM runs WHERE run_id = ? AND kind = 'slot'", (message.message_id,)
            )
        )
    )


def _to_chat(tx: Tx, message: Message, to: DeliverTo, result: Result, at: int) -> None:
    agent_id = to.agent_id or message.agent_id
    place, text = (to.channel, to.conversation), result.text
    say = words(message.principal.language)
    if result.word == "ok" and not text.strip():
        text = "" if result.files else say("ended.wordless")
    if message.kind is Kind.TASK and message.summary and text:
        # Nobody has just asked for it: people must see what it belongs to.
        text = say("ended.of_work", what=message.summary, text=text)
    if result.word != "ok":
        notify_tx(
            tx,
            message_id=message.message_id,
            agent_id=agent_id,
            session_id=message.session_id,
            text=text,
            at=at,
            place=place,
            facts={"outcome": result.word, "code": result.code},
        )
        return
    bodies = [("file", {"path": part.path, "name": part.name}) for part in result.files]
    if text:
        bodies.insert(0, ("answer", {"text": text, "outcome": result.word}))
    if message.kind is Kind.TASK:
        for _, body in bodies:
            body["of_work"] = message.summary
    for kind, body in bodies:
        outbox.add_tx(
            tx,
            message_id=message.message_id,
            agent_id=agent_id,
            session_id=message.session_id,
            channel=to.channel,
            conversation=to.conversation,
            kind=kind,
            body=body,
            at=at,
        )


def _past_asker(tx: Tx, message: Message, result: Result, at: int) -> str:
    """Whoever handed it on was stopped since and gets no turn for it. A task's result is its owner's
    all the same: people read it in the chat it was asked for in. Of other work they read there that
    its result was dropped."""
    to = final_chat(message.deliver_to)
    if to is None or to.silent:
        return "refused"
    if _has_nothing_to_say(tx, message, result):
        return "kept"
    if message.kind is Kind.TASK and _is_of_task(tx, message):
        _to_chat(tx, message, to, result, at)
        return "outbox"
    say = words(message.principal.language)
    what = message.summary or preview(message.text, 60)
    notify_tx(
        tx,
        message_id=message.message_id,
        agent_id=to.agent_id or message.agent_id,
        session_id=message.session_id,
        text=say("ended.result_dropped", what=what, id=message.message_id),
        at=at,
        place=(to.channel, to.conversation),
        facts={"outcome": "cancelled", "code": "stopped"},
    )
    return "refused"


def _is_of_task(tx: Tx, message: Message) -> bool:
    return bool(
        tx.scalar("SELECT 1 FROM runs WHERE run_id = ? AND task_id <> ''", (message.message_id,))
    )


def _reply(desk: Desk, tx: Tx, message: Message, result: Result, at: int) -> bool:
    """Put the result into the asker's mailbox; False if the asker was stopped meanwhile."""
    to = message.deliver_to
    scopes = scopes_of(to.agent_id, to.session_id)
    current = epochs_of(desk, tx, scopes)
    if to.session_id:
        # A stop of the session that is not written yet takes the reply out of the queue, and says so.
        current[scopes[-1]] = stored_epoch(tx, scopes[-1])
    if any(count > message.epochs.get(scope, 0) for scope, count in current.items()):
        return False
    name = name_of(tx, message.agent_id)
    then = _then(tx, to, message.person)
    new = NewMessage(
        agent_id=AgentId(to.agent_id),
        session_key=to.session_id or _key_of(then, name, message.person),
        parts=(Part("text", text=_wording(name, message, result)), *result.files),
        principal=Principal(PrincipalKind.AGENT, message.agent_id, name),
        kind=Kind.REPLY,
        lane=Lane.PEER,
        priority=message.priority,
        deliver_to=then,
        thread_id=message.thread_id,
        in_reply_to=message.message_id,
        root_id=message.root_id,
        path=_path_of_asker(tx, message),
        traceparent=by_turn_of(message),
        sender_agent_id=message.agent_id,
        summary=message.summary if message.kind is Kind.TASK else "",
        silent=True,
        epochs=message.epochs,
    )
    session_id = sessions.resolve_tx(tx, to.agent_id, new.session_key, at=at, entropy=desk.entropy)
    ready = draft(desk, new)
    insert_tx(desk, tx, ready, session_id, at=at)
    _count_as_asker_tx(tx, ready.message_id, message)
    return True


def put_question_tx(
    desk: Desk, tx: Tx, message: Message, question_id: str, asked: Suspended, *, at: int
) -> None:
    """Put a question of work that was handed on to the agent that did so, as a message into the
    session it came from. What that agent answers is the answer."""
    to, name = message.deliver_to, name_of(tx, message.agent_id)
    text = asked.text
    if asked.options:
        text += "\nAnswer with one of: " + ", ".join(asked.options)
    new = NewMessage(
        agent_id=AgentId(to.agent_id),
        session_key=to.session_id or _key_of(_then(tx, to, message.person), name, message.person),
        parts=text_parts(text),
        principal=replace(
            message.principal, kind=PrincipalKind.AGENT, subject=message.agent_id, name=name
        ),
        kind=Kind.DIRECTIVE,
        lane=Lane.PEER,
        priority=min(message.priority, Priority.HIGH),
        deliver_to=DeliverTo(
            "question", question_id=question_id, then=_then(tx, to, message.person)
        ),
        in_reply_to=message.message_id,
        root_id=message.root_id,
        path=_path_of_asker(tx, message),
        traceparent=by_turn_of(message),
        sender_agent_id=message.agent_id,
        summary=message.summary,
        silent=True,
        epochs=message.epochs,
    )
    session_id = sessions.resolve_tx(tx, to.agent_id, new.session_key, at=at, entropy=desk.entropy)
    ready = draft(desk, new)
    insert_tx(desk, tx, ready, session_id, at=at)
    _count_as_asker_tx(tx, ready.message_id, message)
    tx.execute(
        "UPDATE questions SET put_as = ? WHERE question_id = ?", (ready.message_id, question_id)
    )


def _count_as_asker_tx(tx: Tx, message_id: str, run: Message) -> None:
    """What comes back of work that was handed on is a part of the work that did so: where that has a
    bound on its cost, the turn on this has it, too."""
    if run.kind is Kind.TASK and run.in_reply_to:
        ledger.join_as_tx(tx, message_id, run.in_reply_to)


def _path_of_asker(tx: Tx, message: Message) -> tuple[str, ...]:
    """The open requests above whoever asked: what comes back to them is not below themselves."""
    path = message.path
    if message.kind is Kind.TASK:
        asked = tx.scalar("SELECT path FROM messages WHERE message_id = ?", (message.in_reply_to,))
        return tuple(json.loads(asked)) if asked else ()
    return path[:-1] if path and path[-1] == message.deliver_to.agent_id else path


def _then(tx: Tx, to: DeliverTo, person: str) -> DeliverTo:
    """Where the asker's answer to the reply goes: its own conversation, or whoever asked it."""
    if to.then is not None:
        # Nobody waits any more: the turn that was waited for has ended, or goes on elsewhere.
        return replace(to.then, waited=False)
    if to.session_id:
        return NOWHERE
    channel, conversation = latest_conversation(tx, to.agent_id, person)
    return DeliverTo("chat", agent_id=to.agent_id, channel=channel, conversation=conversation)


def _key_of(then: DeliverTo, answerer: str, person: str) -> str:
    if then.kind == "chat":
        return naming.chat_key(then.channel, then.conversation)
    return naming.peer_key(answerer, person)


def _wording(name: str, message: Message, result: Result) -> str:
    """The reply's own text. An answer is passed on as it is; its envelope is the turn's work."""
    if result.word == "ok":
        return result.text
    about = f"your message {message.message_id} (“{preview(message.text, 80)}”)"
    return f"{name} could not answer {about}: {result.text}"
