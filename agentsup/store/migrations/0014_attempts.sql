-- Failed attempts at a message, and what was done about each: what is tried next is decided by them,
-- also after a restart.
CREATE TABLE attempts (
    attempt_id  INTEGER PRIMARY KEY,
    message_id  TEXT NOT NULL,
    tier        TEXT NOT NULL,
    engine      TEXT NOT NULL,
    provider    TEXT NOT NULL,
    model       TEXT NOT NULL,
    trouble     TEXT NOT NULL,
    code        TEXT NOT NULL,
    text        TEXT NOT NULL,
    act         TEXT NOT NULL,
    at          INTEGER NOT NULL
) STRICT;
CREATE INDEX attempts_message ON attempts (message_id);
CREATE INDEX attempts_at ON attempts (at);

-- Sessions whose people were told that the fallback model answers; until the primary one does again.
CREATE TABLE fallback_told (
    session_id  TEXT PRIMARY KEY,
    at          INTEGER NOT NULL
) STRICT;
