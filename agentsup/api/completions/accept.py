"""Find or store the message of a request, in one commit.

It is the message that an earlier attempt stored, the message whose question the request answers, or
a new message in the session of the conversation.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from agentsup.agents.memory import HISTORY_LIMIT, append_tx, last_entry
from agentsup.api.completions import asking
from agentsup.api.completions.request import (
    CompletionPrompt,
    named_key,
    remembered,
    request_digest,
)
from agentsup.api.http.dependencies import ApiDependencies
from agentsup.api.http.route import Call
from agentsup.mailbox.lifecycle import answer_tx
from agentsup.mailbox.mail import DirectoryEntry
from agentsup.mailbox.messages import find_message, find_question, need_message, sessions
from agentsup.mailbox.questions import open_of
from agentsup.mailbox.queue import idempotency, open_in
from agentsup.model.errors import NotFound, TimedOut
from agentsup.model.message import (
    TERMINAL,
    DeliverTo,
    LaneName,
    Message,
    MessageKind,
    NewMessage,
    Part,
    text_parts,
)
from agentsup.model.question import Question, SeenCall
from agentsup.store import Reader, Tx

JOIN_MS: Final = 15 * 60_000
"""A retry without an idempotency key joins a message that ended at most this long ago (ms); later,
the same text is a new request."""
_SOURCE = "v1:key"
_AUTO = "v1:auto"
_TITLE_CHARS = 60


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One request, checked."""

    entry: DirectoryEntry
    asked: CompletionPrompt
    conversation: str
    """The lasting conversation that the client names, or empty."""
    idempotency_key: str
    parts: tuple[Part, ...]
    """The files that came with the new text."""
    is_retry: bool
    """The client says that it sends this request again."""


@dataclass(frozen=True, slots=True)
class AcceptedCompletion:
    """The message of a request, and a note that is sent before its answer."""

    message_id: str
    note: str = ""


async def accept(call: Call, wanted: CompletionRequest) -> AcceptedCompletion:
    """Find or store the message of this request.

    The same idempotency key gives the same message, and so does a request that says it is a retry.
    The answer to a question gives the message that asked it. Raises ``Conflict`` for a key that was
    used for another request, and what the mailbox raises; then nothing was stored.
    """
    digest = request_digest(wanted.entry.agent_id, wanted.conversation, wanted.asked)
    return await call.deps.database.write(
        _accept_tx, call, wanted, digest, name="completions.accept"
    )


def _accept_tx(tx: Tx, call: Call, wanted: CompletionRequest, digest: str) -> AcceptedCompletion:
    at = call.deps.clock.now_ms()
    known = _known_tx(tx, wanted, digest, at)
    if known is not None:
        return AcceptedCompletion(known)
    session_id = _current(tx, wanted)
    taken = None if session_id is None else _answer_tx(tx, call, wanted, session_id, at)
    if taken is not None:
        assert session_id is not None
        _move_tx(tx, wanted, session_id)
    else:
        taken = AcceptedCompletion(
            _store_tx(tx, call, wanted, _session_tx(tx, call, wanted, session_id, at))
        )
    key = (_SOURCE, wanted.idempotency_key) if wanted.idempotency_key else (_AUTO, digest)
    idempotency.renew_tx(tx, *key, taken.message_id, digest, at=at)
    return taken


def _store_tx(tx: Tx, call: Call, wanted: CompletionRequest, session_id: str) -> str:
    accepted = call.deps.mailbox.queue.accept_tx(
        tx,
        NewMessage(
            agent_id=wanted.entry.agent_id,
            session_key=session_id,
            parts=(*text_parts(wanted.asked.text), *wanted.parts),
            principal=call.by,
            kind=MessageKind.CHAT,
            lane=LaneName.INTERACTIVE,
            deliver_to=DeliverTo("http"),
            silent=True,
        ),
    )
    return accepted.message_id


def _known_tx(tx: Tx, wanted: CompletionRequest, digest: str, at: int) -> str | None:
    """The message that an earlier attempt of this request has stored, or None."""
    if wanted.idempotency_key:
        return idempotency.known(
            tx, _SOURCE, wanted.idempotency_key, digest, field="Idempotency-Key"
        )
    found = idempotency.find(tx, _AUTO, digest) if wanted.is_retry else None
    if found is None or not _is_recent(tx, found.subject_id, at):
        return None
    return found.subject_id


def _is_recent(reader: Reader, message_id: str, at: int) -> bool:
    """Whether the message has not ended, or so recently that a retry may still be under way."""
    found = find_message(reader, message_id)
    return found is not None and (found.finished_at is None or at - found.finished_at <= JOIN_MS)


# -- the session -----------------------------------------------------------------------------------


def _current(tx: Tx, wanted: CompletionRequest) -> str | None:
    """The session of the conversation before the new text, or None."""
    agent_id, asked = wanted.entry.agent_id, wanted.asked
    if wanted.conversation:
        return sessions.current(tx, agent_id, named_key(wanted.conversation))
    return sessions.current(tx, agent_id, asked.before) if asked.before else None


def _session_tx(tx: Tx, call: Call, wanted: CompletionRequest, current: str | None, at: int) -> str:
    """The session that has the earlier messages, or a new one that gets them."""
    if wanted.conversation:
        return current or _fresh_tx(tx, call, wanted, named_key(wanted.conversation), at)
    if current is None or not _has_answered(tx, current, wanted):
        return _fresh_tx(tx, call, wanted, wanted.asked.after, at)
    _move_tx(tx, wanted, current)
    return current


def _move_tx(tx: Tx, wanted: CompletionRequest, session_id: str) -> None:
    """Point the key of the longer conversation at the session, in place of the earlier key."""
    if wanted.conversation:
        return
    agent_id, asked = wanted.entry.agent_id, wanted.asked
    sessions.forget_key_tx(tx, agent_id, asked.before)
    sessions.point_tx(tx, agent_id, asked.after, session_id)


def _has_answered(tx: Tx, session_id: str, wanted: CompletionRequest) -> bool:
    """Whether the latest answer of the session is the one that the client has."""
    if open_in(tx, session_id):
        return False
    last = last_entry(tx, session_id)
    if last is None or last.role != "assistant":
        return False
    known, text = (wanted.asked.last_answer or "").strip(), last.text.strip()
    # A stream, or a note, may have told the client more before the answer.
    return known == text or (bool(text) and known.endswith(text))


# -- answers to questions --------------------------------------------------------------------------


def _answer_tx(
    tx: Tx, call: Call, wanted: CompletionRequest, session_id: str, at: int
) -> AcceptedCompletion | None:
    """Answer the question that the client was shown last; None if there is none."""
    asked, language = wanted.asked, call.by.language
    found = _question_shown(tx, asked, session_id)
    was_shown = found is not None
    if found is None and wanted.conversation:
        found = _waiting(tx, session_id, at)
    if found is None:
        return None
    question, message = found
    if not asking.is_waiting(question, message, at):
        return (
            AcceptedCompletion(message.message_id, asking.late(question, language))
            if was_shown
            else None
        )
    read = asking.answer_from if was_shown else asking.answer_from_unasked
    given = read(question, asked.typed, language)
    if given.option is not None:
        seen = SeenCall(question.call.digest)  # the text that asks holds all of the call
        context = call.deps.mailbox.context
        answer_tx(context, tx, question.question_id, given.option, call.by, seen=seen)
    return AcceptedCompletion(message.message_id, given.note)


def _question_shown(
    tx: Tx, asked: CompletionPrompt, session_id: str
) -> tuple[Question, Message] | None:
    """The question with which the client's latest answer ends, and the message that asked it."""
    question_id = asking.question_id_in(asked.last_answer or "")
    if question_id is None:
        return None
    try:
        question = find_question(tx, question_id)
        message = need_message(tx, question.message_id)
    except NotFound:
        return None
    if question.session_id != session_id or message.deliver_to.kind != "http":
        return None
    return question, message


def _waiting(tx: Tx, session_id: str, at: int) -> tuple[Question, Message] | None:
    """The question that a lasting conversation waits for; its client may resend no answers."""
    for message_id in open_in(tx, session_id):
        message = need_message(tx, message_id)
        question = open_question(tx, message, at)
        if question is not None and message.deliver_to.kind == "http":
            return question, message
    return None


def open_question(reader: Reader, message: Message, at: int) -> Question | None:
    """The question that a message waits for, if it may still be answered."""
    found = open_of(reader, message.message_id)
    return next((one for one in found if asking.is_waiting(one, message, at)), None)


# -- a fresh session -------------------------------------------------------------------------------


def _fresh_tx(tx: Tx, call: Call, wanted: CompletionRequest, key: str, at: int) -> str:
    agent_id, entropy = wanted.entry.agent_id, call.deps.entropy
    first = next((one.text for one in wanted.asked.earlier if one.role == "user"), None)
    title = " ".join((first or wanted.asked.text).split())[:_TITLE_CHARS]
    session_id = sessions.new_tx(tx, agent_id, key, at=at, entropy=entropy, title=title)
    for number, one in enumerate(remembered(wanted.asked.earlier, HISTORY_LIMIT)):
        append_tx(
            tx,
            session_id=session_id,
            message_id=f"{session_id}#{number}",
            role="note" if one.is_instruction else one.role,
            text=f"Instructions of the client: {one.text}" if one.is_instruction else one.text,
            at=at,
        )
    return session_id


@dataclass(frozen=True, slots=True)
class Settled:
    """A message that has ended, or that waits for the answer to ``question``."""

    message: Message
    question: Question | None = None


async def settled(deps: ApiDependencies, message_id: str, timeout_s: float | None) -> Settled:
    """Wait until the message has ended or asks. Raises ``NotFound``, and ``TimedOut`` after
    ``timeout_s`` seconds (None: no limit).

    The message as it ended comes from the commit that ended it.
    """
    database, clock = deps.database, deps.clock
    changed = asyncio.Event()

    def look(reader: Reader) -> Settled:
        message = need_message(reader, message_id)
        return Settled(message, open_question(reader, message, clock.now_ms()))

    topic = f"done:{message_id}"
    unlisten, end = database.listen(topic, changed.set), database.expect(topic)
    try:
        async with asyncio.timeout(timeout_s):
            while not end.done():
                changed.clear()
                now = await database.read(look, name="completions.settled")
                if now.message.state in TERMINAL or now.question is not None:
                    return now
                await changed.wait()
            return Settled(end.result())
    except TimeoutError:
        raise TimedOut(
            f"message {message_id} has not ended within {timeout_s:g} s; it goes on",
            message_id=message_id,
        ) from None
    finally:
        unlisten()
        end.cancel()
