"""Sessions and the keys that point at them.

A key names a place of an agent (a chat, a peer, a thread); it points at the session that is
current there. A fresh session moves the pointer; the old one stays and can be pointed at again.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.kit.entropy import Entropy
from agentsup.model.errors import BadRequest, NotFound
from agentsup.store.database import Reader, Tx

__all__ = [
    "PREFIX",
    "Session",
    "current",
    "find",
    "list_of",
    "move_tx",
    "new_tx",
    "point_tx",
    "resolve_tx",
]

PREFIX = "ses"
_COLUMNS = "session_id, agent_id, key, title, created_at, updated_at, closed_at, engine"


@dataclass(frozen=True, slots=True)
class Session:
    """One ordered conversation of an agent. ``key`` is the place where it was begun."""

    session_id: str
    agent_id: str
    key: str
    title: str
    created_at: int
    updated_at: int
    closed_at: int | None
    engine: str


def resolve_tx(
    tx: Tx, agent_id: str, key: str, *, at: int, entropy: Entropy, fresh: bool = False
) -> str:
    """The id of the session that ``key`` points at, opened if there is none or ``fresh`` is set.

    A session id of the same agent may stand in place of a key. Raises ``BadRequest`` for an empty
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


def point_tx(tx: Tx, agent_id: str, key: str, session_id: str) -> None:
    """Let ``key`` continue an existing session. Raises ``NotFound`` if the agent has no such."""
    find(tx, session_id, agent_id=agent_id)
    _point(tx, agent_id, key, session_id)


def move_tx(tx: Tx, agent_id: str, key: str, to: str) -> bool:
    """A place has another name from now on: its session goes on there, unless one was begun
    there already. Whether it was moved."""
    moved = tx.execute(
        "UPDATE OR IGNORE pointers SET key = ? WHERE agent_id = ? AND key = ?", (to, agent_id, key)
    )
    return bool(moved.rowcount)


def find(reader: Reader, session_id: str, *, agent_id: str = "") -> Session:
    """The session (of that agent, if given). Raises ``NotFound``."""
    row = reader.one(
        f"SELECT {_COLUMNS} FROM sessions WHERE session_id = ?",  # noqa: S608 - a constant
        (session_id,),
    )
    if row is None or (agent_id and row["agent_id"] != agent_id):
        raise NotFound(f"there is no session {session_id} of this agent", session_id=session_id)
    return Session(*row)


def list_of(
    reader: Reader, agent_id: str, *, key: str | None = None, place: str = "", limit: int = 100
) -> list[Session]:
    """Sessions of an agent, the one used last first; with ``key`` those begun under it, with
    ``place`` those begun there or at ``<place>.<anything>``."""
    rows = reader.all(
        f"SELECT {_COLUMNS} FROM sessions WHERE agent_id = :agent_id"  # noqa: S608 - a constant
        " AND (:key IS NULL OR key = :key)"
        " AND (:place = '' OR key = :place OR substr(key, 1, length(:place) + 1) = :place || '.')"
        " ORDER BY updated_at DESC, session_id DESC LIMIT :limit",
        {"agent_id": agent_id, "key": key, "place": place, "limit": limit},
    )
    return [Session(*row) for row in rows]


def _point(tx: Tx, agent_id: str, key: str, session_id: str) -> None:
    tx.execute(
        "INSERT INTO pointers (agent_id, key, session_id) VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET session_id = excluded.session_id",
        (agent_id, key, session_id),
    )
