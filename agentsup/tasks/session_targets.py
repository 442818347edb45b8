"""As whom the turns of a session work: its persona and its role."""

from __future__ import annotations

from agentsup.store import Reader, Tx
from agentsup.tasks import lineage


def set_target_tx(tx: Tx, session_id: str, target: str, *, by: str, at: int) -> None:
    """Set the persona or the role that ``target`` names. A later call does not change it."""
    agent_id, role = lineage.subject_of(target)
    if agent_id:
        set_persona_tx(tx, session_id, agent_id)
    if role:
        tx.execute(
            "INSERT INTO session_roles (session_id, role, set_by, set_at) VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            (session_id, role, by, at),
        )


def persona_of(reader: Reader, session_id: str) -> str:
    """The id of a session's persona; empty for the session's own agent."""
    return str(
        reader.scalar("SELECT agent_id FROM session_personas WHERE session_id = ?", (session_id,))
        or ""
    )


def set_persona_tx(tx: Tx, session_id: str, agent_id: str) -> None:
    """Set the session's persona. A later call does not change it."""
    tx.execute(
        "INSERT INTO session_personas VALUES (?, ?) ON CONFLICT DO NOTHING", (session_id, agent_id)
    )


def inherit_persona_tx(tx: Tx, session_id: str, parent_id: str) -> None:
    """Give the session the persona of session ``parent_id``, unless it has one."""
    tx.execute(
        "INSERT INTO session_personas (session_id, agent_id) SELECT ?, agent_id"
        " FROM session_personas WHERE session_id = ? ON CONFLICT DO NOTHING",
        (session_id, parent_id),
    )


def role_of(reader: Reader, session_id: str) -> str | None:
    """The session's own role: empty for no role at all, None for its agent's role."""
    found: str | None = reader.scalar(
        "SELECT role FROM session_roles WHERE session_id = ?", (session_id,)
    )
    return found


def switch_role_tx(tx: Tx, session_id: str, role: str | None, *, by: str, at: int) -> None:
    """Switch the session to a role (empty: to none), or back to its agent's role (None)."""
    if role is None:
        tx.execute("DELETE FROM session_roles WHERE session_id = ?", (session_id,))
        return
    tx.execute(
        "INSERT INTO session_roles (session_id, role, set_by, set_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET role = excluded.role, set_by = excluded.set_by,"
        " set_at = excluded.set_at",
        (session_id, role, by, at),
    )
