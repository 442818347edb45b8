-- Strangers who asked to be let in. A code opens nothing by itself; ended rows count for the bounds.
CREATE TABLE pairings (
    pairing_id   INTEGER PRIMARY KEY,
    code         TEXT NOT NULL UNIQUE,
    agent_id     TEXT NOT NULL,
    channel      TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    -- What the platform shows; the stranger chose it.
    name         TEXT NOT NULL,
    conversation TEXT NOT NULL,
    language     TEXT NOT NULL,
    asked_at     INTEGER NOT NULL,
    state        TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'admitted', 'refused')),
    decided_at   INTEGER,
    decided_by   TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX pairings_agent ON pairings (agent_id, asked_at);
CREATE INDEX pairings_user ON pairings (channel, user_id, asked_at);
