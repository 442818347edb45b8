-- Results of calls that were too large to be shown at once. Each belongs to a session.
CREATE TABLE results (
    result_id   TEXT PRIMARY KEY,
    agent_id    TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    message_id  TEXT NOT NULL,
    call_id     TEXT NOT NULL,
    name        TEXT NOT NULL,
    text        TEXT NOT NULL,
    chars       INTEGER NOT NULL,
    is_outside  INTEGER NOT NULL CHECK (is_outside IN (0, 1)),
    at          INTEGER NOT NULL
) STRICT;
CREATE INDEX results_agent ON results (agent_id, at, chars);
CREATE INDEX results_at ON results (at);
