"""The role that a session was switched to, in the store."""

from __future__ import annotations

from agentsup.store.database import Reader, Tx


def role_of(reader: Reader, session_id: str) -> str | None:
    """The session's own role: empty for none at all, None where it is in its agent's."""
    found: str | None = reader.scalar(
        "SELECT role FROM session_roles WHERE session_id = ?", (session_id,)
    )
    return found


def switch_tx(tx: Tx, session_id: str, role: str | None, *, by: str, at: int) -> None:
    """Put the session in a role (empty: in none), or back in its agent's (None)."""
    if role is None:
        tx.execute("DELETE FROM session_roles WHERE session_id = ?", (session_id,))
        return
    tx.execute(
        "INSERT INTO session_roles (session_id, role, set_by, set_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET role = excluded.role, set_by = excluded.set_by,"
        " set_at = excluded.set_at",
        (session_id, role, by, at),
    )
