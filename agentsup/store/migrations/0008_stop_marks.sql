-- What platforms have given and nobody had read when a stop was given elsewhere: it is not begun. Which
-- agent, and which session, is asked when its turn comes. A row lives as long as the one it is about
-- is left to do.
CREATE TABLE stop_marks (
    channel  TEXT NOT NULL,
    row_id   INTEGER NOT NULL,
    -- all | agent:<agent_id> | session:<session_id>
    scope    TEXT NOT NULL,
    PRIMARY KEY (channel, row_id, scope)
) STRICT, WITHOUT ROWID;
