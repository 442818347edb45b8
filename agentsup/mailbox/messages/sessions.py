"""Sessions and the keys that point at them.

A key names a chat, a peer or a thread of an agent; it points at the session that is current there.
A new session moves the pointer; the old session stays and can be pointed at again.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.kit.entropy import Entropy
from agentsup.mailbox.messages import chat_models
from agentsup.mailbox.messages.current_rights import is_still_operators
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.model.errors import BadRequest, NotFound
from agentsup.store import Database, Reader, Tx

PREFIX = "ses"
SHORTEST = 4
"""The shortest part of an id that names a session."""
_COLUMNS = "session_id, agent_id, key, title, created_at, updated_at, engine"


@dataclass(frozen=True, slots=True)
class ConversationSession:
    """One ordered conversation of an agent. ``key`` is the key under which it was begun."""

    session_id: str
    agent_id: str
    key: str
    title: str
    created_at: int
    updated_at: int
    engine: str


def resolve_tx(
    tx: Tx, agent_id: str, key: str, *, at: int, entropy: Entropy, fresh: bool = False
) -> str:
    """The id of the session that ``key`` points at, opened if there is none or ``fresh`` is set.

    A session id of the same agent may be given instead of a key. Raises ``BadRequest`` for an empty
    key.
    """
    if not key:
        raise BadRequest("a message needs a session key", field="session")
    if not fresh:
        known = current(tx, agent_id, key)
        if known is None and key.startswith(PREFIX + "_"):
            known = tx.scalar(
                "SELECT session_id FROM sessions WHERE session_id = ? AND agent_id = ?",
                (key, agent_id),
            )
        if known is not None:
            return known
    return new_tx(tx, agent_id, key, at=at, entropy=entropy)


def current(reader: Reader, agent_id: str, key: str) -> str | None:
    """The id of the session that ``key`` points at, or None."""
    session_id: str | None = reader.scalar(
        "SELECT session_id FROM pointers WHERE agent_id = ? AND key = ?", (agent_id, key)
    )
    return session_id


def keys_beside(reader: Reader, agent_id: str, key: str) -> list[str]:
    """The agent's other keys that point at the same session."""
    rows = reader.all(
        "SELECT other.key FROM pointers AS here JOIN pointers AS other"
        " ON other.agent_id = here.agent_id AND other.session_id = here.session_id"
        " WHERE here.agent_id = ? AND here.key = ? AND other.key <> here.key",
        (agent_id, key),
    )
    return [row["key"] for row in rows]


def key_of(reader: Reader, session_id: str) -> str:
    """The key under which a session was begun; empty for one that is not there."""
    found = reader.scalar("SELECT key FROM sessions WHERE session_id = ?", (session_id,))
    return str(found or "")


def new_tx(tx: Tx, agent_id: str, key: str, *, at: int, entropy: Entropy, title: str = "") -> str:
    """Open a session, point ``key`` at it and return its id."""
    session_id = entropy.new_id(PREFIX)
    tx.execute(
        "INSERT INTO sessions (session_id, agent_id, key, title, created_at, updated_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (session_id, agent_id, key, title, at, at),
    )
    _point(tx, agent_id, key, session_id)
    return session_id


def engine_state(reader: Reader, session_id: str) -> tuple[str, bytes | None]:
    """The engine that worked in the session last, and the state that it left."""
    row = reader.one(
        "SELECT engine, engine_state FROM sessions WHERE session_id = ?", (session_id,)
    )
    return (row["engine"], row["engine_state"] or None) if row is not None else ("", None)


def engine_state_bytes(reader: Reader, session_id: str) -> int:
    """The size of the state in the session; 0 without one."""
    found = reader.scalar(
        "SELECT length(engine_state) FROM sessions WHERE session_id = ?", (session_id,)
    )
    return int(found or 0)


def drop_engine_state_tx(tx: Tx, session_id: str) -> None:
    """Drop the engine's state, so that the next turn starts from the transcript."""
    tx.execute("UPDATE sessions SET engine_state = NULL WHERE session_id = ?", (session_id,))


def point_tx(tx: Tx, agent_id: str, key: str, session_id: str, *, by: str | None = None) -> None:
    """Let ``key`` continue an existing session.

    If the session was begun under another key, this holds while the speaker ``by``
    (``mailbox.messages.keys.speaker_of``) is an operator. Raises ``NotFound`` if the agent has no
    such session.
    """
    found = find(tx, session_id, agent_id=agent_id)
    _point(tx, agent_id, key, session_id, None if found.key == key else by)


def rename_tx(tx: Tx, session_id: str, title: str) -> None:
    """Give a session a title; an empty one lets lists show its first words."""
    tx.execute("UPDATE sessions SET title = ? WHERE session_id = ?", (title, session_id))


def pointed_by(reader: Reader, agent_id: str, key: str) -> str | None:
    """The person who pointed ``key`` at a session of another key; None if it has its own."""
    found: str | None = reader.scalar(
        "SELECT pointed_by FROM pointers WHERE agent_id = ? AND key = ?", (agent_id, key)
    )
    return found


def return_tx(ctx: MailboxContext, tx: Tx, agent_id: str, key: str, pointed_by: str | None) -> bool:
    """Return a chat to its own session if the operator who pointed it elsewhere is none any more.

    Without that role they must not go on reading and writing there (P7). The own session is the
    latest begun under ``key``, or a new one. Whether it was changed.
    """
    if pointed_by is None or is_still_operators(pointed_by, ctx.role_now):
        return False
    own = list_of(tx, agent_id, key=key, limit=1)
    if own:
        _point(tx, agent_id, key, own[0].session_id)
    else:
        new_tx(tx, agent_id, key, at=ctx.clock.now_ms(), entropy=ctx.entropy)
    return True


async def keep_own(database: Database, ctx: MailboxContext, agent_id: str, key: str) -> bool:
    """As ``return_tx``, for a command, before it uses the session."""
    by = await database.read(pointed_by, agent_id, key, name="pointing.look")
    if by is None or is_still_operators(by, ctx.role_now):
        return False
    return await database.write(
        lambda tx: return_tx(ctx, tx, agent_id, key, pointed_by(tx, agent_id, key)),
        name="pointing.return",
    )


def move_tx(tx: Tx, agent_id: str, key: str, to: str) -> bool:
    """Rename a key to ``to``, unless that key has a session already. Whether it was renamed."""
    moved = tx.execute(
        "UPDATE OR IGNORE pointers SET key = ? WHERE agent_id = ? AND key = ?", (to, agent_id, key)
    )
    chat_models.move_tx(tx, agent_id, key, to)
    return bool(moved.rowcount)


def forget_key_tx(tx: Tx, agent_id: str, key: str) -> None:
    """Let ``key`` point at no session any more."""
    tx.execute("DELETE FROM pointers WHERE agent_id = ? AND key = ?", (agent_id, key))


def find(reader: Reader, session_id: str, *, agent_id: str = "") -> ConversationSession:
    """The session (of that agent, if given). Raises ``NotFound``."""
    row = reader.one(
        f"SELECT {_COLUMNS} FROM sessions WHERE session_id = ?",  # noqa: S608 - a constant
        (session_id,),
    )
    if row is None or (agent_id and row["agent_id"] != agent_id):
        raise NotFound(f"there is no session {session_id} of this agent", session_id=session_id)
    return ConversationSession(*row)


def named(
    reader: Reader, agent_id: str, given: str, *, key: str | None = None, limit: int = 8
) -> list[ConversationSession]:
    """The agent's sessions whose id begins or ends with ``given``, the one used last first.

    ``key`` selects those begun under that key. Less than ``SHORTEST`` characters name none.
    """
    if len(given) < SHORTEST:
        return []
    rows = reader.all(
        f"SELECT {_COLUMNS} FROM sessions WHERE agent_id = :agent_id"  # noqa: S608 - a constant
        " AND (:key IS NULL OR key = :key)"
        " AND (substr(session_id, -length(:given)) = :given"
        "  OR substr(session_id, 1, length(:given)) = :given)"
        " ORDER BY updated_at DESC, session_id DESC LIMIT :limit",
        {"agent_id": agent_id, "key": key, "given": given.casefold(), "limit": limit},
    )
    return [ConversationSession(*row) for row in rows]


def list_of(
    reader: Reader,
    agent_id: str,
    *,
    key: str | None = None,
    within: str = "",
    without: str = "",
    limit: int = 100,
) -> list[ConversationSession]:
    """Sessions of an agent, the one used last first.

    ``key`` selects those begun under that key, ``within`` those under that key or under
    ``<within>.<anything>``; ``without`` leaves out those whose keys begin so.
    """
    rows = reader.all(
        f"SELECT {_COLUMNS} FROM sessions WHERE agent_id = :agent_id"  # noqa: S608 - a constant
        " AND (:key IS NULL OR key = :key)"
        " AND (:place = '' OR key = :place OR substr(key, 1, length(:place) + 1) = :place || '.')"
        " AND (:without = '' OR substr(key, 1, length(:without)) <> :without)"
        " ORDER BY updated_at DESC, session_id DESC LIMIT :limit",
        {"agent_id": agent_id, "key": key, "place": within, "without": without, "limit": limit},
    )
    return [ConversationSession(*row) for row in rows]


def in_chats(reader: Reader, agent_id: str) -> list[ConversationSession]:
    """All sessions of an agent that were begun in a chat, the oldest first."""
    rows = reader.all(
        f"SELECT {_COLUMNS} FROM sessions WHERE agent_id = ? AND substr(key, 1, 5) = 'chat:'"  # noqa: S608 - a constant
        " ORDER BY created_at, session_id",
        (agent_id,),
    )
    return [ConversationSession(*row) for row in rows]


def _point(tx: Tx, agent_id: str, key: str, session_id: str, by: str | None = None) -> None:
    tx.execute(
        "INSERT INTO pointers (agent_id, key, session_id, pointed_by) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET session_id = excluded.session_id,"
        " pointed_by = excluded.pointed_by",
        (agent_id, key, session_id, by),
    )
