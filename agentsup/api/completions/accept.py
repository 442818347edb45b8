"""From a request to the message that stands for it, in one commit: found again, the one whose
question it answers, or stored anew in its session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agentsup.agents.transcript import HISTORY_LIMIT, append_tx
from agentsup.api.completions import asking
from agentsup.api.completions.request import (
    Asked,
    named_key,
    remembered,
    request_digest,
    told_digest,
)
from agentsup.api.route import Call
from agentsup.mailbox import sessions
from agentsup.mailbox.bus import DirectoryEntry
from agentsup.mailbox.rows import IN_SESSION_SQL, OPEN_SQL, find_question, need_message
from agentsup.model.errors import Conflict, NotFound
from agentsup.model.message import DeliverTo, Kind, Lane, Message, NewMessage, text_parts
from agentsup.model.question import Question, Seen
from agentsup.store.database import Reader, Tx

JOIN_MS: Final = 15 * 60_000
"""A repetition that only counts itself joins what has ended this long ago at most; later the same
words are meant anew."""
_SOURCE = "v1:key"
_AUTO = "v1:auto"
_TOLD = "v1:told"
_TITLE_CHARS = 60


@dataclass(frozen=True, slots=True)
class Wanted:
    """One request, checked."""

    entry: DirectoryEntry
    asked: Asked
    conversation: str
    """The lasting conversation that the client names, or empty."""
    idempotency_key: str
    is_retry: bool
    """The client says that it sends this request again."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The message that stands for a request, and what is to be said before its answer."""

    message_id: str
    note: str = ""


async def accept(call: Call, wanted: Wanted) -> Taken:
    """The message that stands for this request.

    The same idempotency key gives the same message, and so does a repetition that says it is one.
    The answer of a question stands for the message that asked it. Raises `Conflict` for a key that
    was used for another request, and what the mailbox raises; then nothing was stored.
    """
    digest = request_digest(wanted.entry.agent_id, wanted.conversation, wanted.asked)
    return await call.deps.web.database.write(
        lambda tx: _accept_tx(tx, call, wanted, digest), name="completions.accept"
    )


def _accept_tx(tx: Tx, call: Call, wanted: Wanted, digest: str) -> Taken:
    at = call.deps.clock.now_ms()
    known = _known_tx(tx, wanted, digest, at)
    if known is not None:
        return Taken(known)
    session_id = _current(tx, wanted)
    taken = None if session_id is None else _answer_tx(tx, call, wanted, session_id, at)
    if taken is not None:
        assert session_id is not None
        _move_tx(tx, wanted, session_id)
    else:
        taken = Taken(_store_tx(tx, call, wanted, _session_tx(tx, call, wanted, session_id, at)))
    enter = (
        "INSERT INTO ledger (source, external_id, message_id, body_hash, at)"
        " VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET message_id = excluded.message_id, at = excluded.at"
    )
    key = (_SOURCE, wanted.idempotency_key) if wanted.idempotency_key else (_AUTO, digest)
    tx.execute(enter, (*key, taken.message_id, digest, at))
    return taken


def _store_tx(tx: Tx, call: Call, wanted: Wanted, session_id: str) -> str:
    accepted = call.deps.mailbox.accept_tx(
        tx,
        NewMessage(
            agent_id=wanted.entry.agent_id,
            session_key=session_id,
            parts=text_parts(wanted.asked.text),
            principal=call.by,
            kind=Kind.CHAT,
            lane=Lane.INTERACTIVE,
            deliver_to=DeliverTo("http"),
            silent=True,
        ),
    )
    return accepted.message_id


def _known_tx(tx: Tx, wanted: Wanted, digest: str, at: int) -> str | None:
    """The message of this very request, if it has one."""
    find = "SELECT message_id, body_hash FROM ledger WHERE source = ? AND external_id = ?"
    if wanted.idempotency_key:
        row = tx.one(find, (_SOURCE, wanted.idempotency_key))
        if row is not None and row["body_hash"] != digest:
            raise Conflict(
                f"the idempotency key {wanted.idempotency_key!r} was used for another request "
                f"({row['message_id']}); use a fresh key, or repeat that request unchanged",
                field="Idempotency-Key",
                message_id=row["message_id"],
            )
    elif wanted.is_retry:
        row = tx.one(find, (_AUTO, digest))
        if row is not None and not _is_recent(tx, row["message_id"], at):
            return None
    else:
        return None
    return None if row is None else str(row["message_id"])


def _is_recent(reader: Reader, message_id: str, at: int) -> bool:
    """Whether the message runs, or ended so lately that its repetition may still be under way."""
    row = reader.one("SELECT finished_at FROM messages WHERE message_id = ?", (message_id,))
    return row is not None and (row["finished_at"] is None or at - row["finished_at"] <= JOIN_MS)


# -- the session -----------------------------------------------------------------------------------


def _current(tx: Tx, wanted: Wanted) -> str | None:
    """The session of the conversation as far as the client knows it."""
    agent_id, asked = wanted.entry.agent_id, wanted.asked
    if wanted.conversation:
        return sessions.current(tx, agent_id, named_key(wanted.conversation))
    return sessions.current(tx, agent_id, asked.before) if asked.before else None


def _session_tx(tx: Tx, call: Call, wanted: Wanted, current: str | None, at: int) -> str:
    """The session that has heard what was said before, or a fresh one that is told it."""
    if wanted.conversation:
        return current or _fresh_tx(tx, call, wanted, named_key(wanted.conversation), at)
    if current is None or not _has_answered(tx, current, wanted):
        return _fresh_tx(tx, call, wanted, wanted.asked.after, at)
    _move_tx(tx, wanted, current)
    return current


def _move_tx(tx: Tx, wanted: Wanted, session_id: str) -> None:
    """The session goes on: it is found by what it hears now, no longer by what it heard."""
    if wanted.conversation:
        return
    agent_id, asked = wanted.entry.agent_id, wanted.asked
    tx.execute("DELETE FROM pointers WHERE agent_id = ? AND key = ?", (agent_id, asked.before))
    sessions.point_tx(tx, agent_id, asked.after, session_id)


def _has_answered(tx: Tx, session_id: str, wanted: Wanted) -> bool:
    """Whether the latest answer of the session is what the client was told."""
    if _open_in(tx, session_id):
        return False
    last = tx.one(
        "SELECT role, text, message_id FROM transcript WHERE session_id = ?"
        " ORDER BY entry_id DESC LIMIT 1",
        (session_id,),
    )
    if last is None or last["role"] != "assistant":
        return False
    known = wanted.asked.last_answer or ""
    if known.strip() == last["text"].strip():
        return True
    digest = told_digest(last["message_id"], known)
    find = "SELECT 1 FROM ledger WHERE source = ? AND external_id = ?"
    return tx.scalar(find, (_TOLD, digest)) is not None


def told_tx(tx: Tx, message_id: str, text: str, at: int) -> None:
    """Remember that a client was told this as the answer, which is not word by word what the
    session knows: it was cut, written in several goes, or came with a note."""
    tx.execute(
        "INSERT INTO ledger (source, external_id, message_id, at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (_TOLD, told_digest(message_id, text), message_id, at),
    )


def _open_in(reader: Reader, session_id: str) -> list[str]:
    """The messages of the session that have not ended."""
    rows = reader.all(
        f"SELECT message_id FROM messages WHERE {IN_SESSION_SQL} AND {OPEN_SQL} ORDER BY seq",  # noqa: S608 - constants
        (session_id, session_id),
    )
    return [row["message_id"] for row in rows]


# -- a question that was told ----------------------------------------------------------------------


def _answer_tx(tx: Tx, call: Call, wanted: Wanted, session_id: str, at: int) -> Taken | None:
    """Give the text to the question that the client was told last, if it was told one."""
    asked, language = wanted.asked, call.by.language
    found = _told(tx, asked, session_id)
    is_told = found is not None
    if found is None and wanted.conversation:
        found = _waiting(tx, session_id, at)
    if found is None:
        return None
    question, message = found
    if not asking.is_waiting(question, message, at):
        return Taken(message.message_id, asking.late(question, language)) if is_told else None
    read = asking.given if is_told else asking.given_untold
    given = read(question, asked.typed, language)
    if given.option is not None:
        seen = Seen(question.call.digest)  # the text that asks holds all of the call
        call.deps.mailbox.answer_tx(tx, question.question_id, given.option, call.by, seen)
    return Taken(message.message_id, given.note)


def _told(tx: Tx, asked: Asked, session_id: str) -> tuple[Question, Message] | None:
    """The question that the answer ends with which the client knows last."""
    question_id = asking.told_id(asked.last_answer or "")
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
    """The question that a lasting conversation waits for; its client may resend nothing."""
    for message_id in _open_in(tx, session_id):
        message = need_message(tx, message_id)
        question = open_question(tx, message, at)
        if question is not None and message.deliver_to.kind == "http":
            return question, message
    return None


def open_question(reader: Reader, message: Message, at: int) -> Question | None:
    """The question that a message waits for, if it may still be answered."""
    rows = reader.all(
        "SELECT question_id FROM questions WHERE message_id = ? AND state = 'open'",
        (message.message_id,),
    )
    found = [find_question(reader, row["question_id"]) for row in rows]
    return next((one for one in found if asking.is_waiting(one, message, at)), None)


# -- a fresh session -------------------------------------------------------------------------------


def _fresh_tx(tx: Tx, call: Call, wanted: Wanted, key: str, at: int) -> str:
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
