-- The role that a session was switched to; empty: to none. A session without a row is in the role
-- of its agent.
CREATE TABLE session_roles (
    session_id TEXT PRIMARY KEY REFERENCES sessions (session_id) ON DELETE CASCADE,
    role       TEXT NOT NULL,
    set_by     TEXT NOT NULL,
    set_at     INTEGER NOT NULL
) STRICT;
