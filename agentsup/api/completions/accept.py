"""From a request to an accepted message: found again, or stored with its session, in one commit."""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.agents.transcript import HISTORY_LIMIT, append_tx
from agentsup.api.completions.request import Asked, named_key, remembered, request_digest
from agentsup.api.route import Call
from agentsup.mailbox import sessions
from agentsup.mailbox.bus import DirectoryEntry
from agentsup.model.errors import Conflict
from agentsup.model.message import DeliverTo, Kind, Lane, NewMessage, text_parts
from agentsup.store.database import Tx

_SOURCE = "v1:key"
_AUTO = "v1:auto"
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


async def accept(call: Call, wanted: Wanted) -> str:
    """The id of the message that stands for this request.

    The same idempotency key gives the same message, and so does a repetition that says it is one.
    Raises `Conflict` for a key that was used for another request, and what the mailbox raises;
    then nothing was stored.
    """
    digest = request_digest(wanted.entry.agent_id, wanted.conversation, wanted.asked)
    return await call.deps.web.database.write(
        lambda tx: _accept_tx(tx, call, wanted, digest), name="completions.accept"
    )


def _accept_tx(tx: Tx, call: Call, wanted: Wanted, digest: str) -> str:
    at = call.deps.clock.now_ms()
    known = _known_tx(tx, wanted, digest)
    if known is not None:
        return known
    session_id = _session_tx(tx, call, wanted, at)
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
    enter = (
        "INSERT INTO ledger (source, external_id, message_id, body_hash, at)"
        " VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET message_id = excluded.message_id, at = excluded.at"
    )
    key = (_SOURCE, wanted.idempotency_key) if wanted.idempotency_key else (_AUTO, digest)
    tx.execute(enter, (*key, accepted.message_id, digest, at))
    return accepted.message_id


def _known_tx(tx: Tx, wanted: Wanted, digest: str) -> str | None:
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
    else:
        return None
    return None if row is None else str(row["message_id"])


def _session_tx(tx: Tx, call: Call, wanted: Wanted, at: int) -> str:
    """The session that has heard what was said before, or a fresh one that is told it."""
    agent_id, asked = wanted.entry.agent_id, wanted.asked
    if wanted.conversation:
        key = named_key(wanted.conversation)
        return sessions.current(tx, agent_id, key) or _fresh_tx(tx, call, wanted, key, at)
    session_id = sessions.current(tx, agent_id, asked.before) if asked.before else None
    if session_id is None or not _has_answered(tx, session_id, asked.last_answer or ""):
        return _fresh_tx(tx, call, wanted, asked.after, at)
    # The session goes on: from here it is found by what it hears now, no longer by what it heard.
    tx.execute("DELETE FROM pointers WHERE agent_id = ? AND key = ?", (agent_id, asked.before))
    sessions.point_tx(tx, agent_id, asked.after, session_id)
    return session_id


def _has_answered(tx: Tx, session_id: str, answer: str) -> bool:
    """Whether the latest answer of the session is the latest that the client knows."""
    is_open = tx.scalar(
        "SELECT 1 FROM messages WHERE session_id = ? AND state IN ('queued', 'leased', 'parked')",
        (session_id,),
    )
    last = tx.one(
        "SELECT role, text FROM transcript WHERE session_id = ? ORDER BY entry_id DESC LIMIT 1",
        (session_id,),
    )
    return (
        not is_open
        and last is not None
        and last["role"] == "assistant"
        and last["text"].strip() == answer.strip()
    )


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
