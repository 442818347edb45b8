-- What every turn did, piece by piece. Written beside the work, so rows may be missing; nothing
-- depends on them. Each index is paid by every span, so there are few.
CREATE TABLE spans (
    span_no      INTEGER PRIMARY KEY,
    span_id      TEXT NOT NULL UNIQUE,
    trace_id     TEXT NOT NULL,
    -- Empty for a root; it may name a span of a program outside.
    parent_id    TEXT NOT NULL,
    kind         TEXT NOT NULL,
    name         TEXT NOT NULL,
    agent_id     TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    message_id   TEXT NOT NULL,
    -- The boot that told it last.
    boot_id      TEXT NOT NULL,
    state        TEXT NOT NULL,
    code         TEXT NOT NULL,
    detail       TEXT NOT NULL,
    signature    TEXT NOT NULL,
    attributes   TEXT NOT NULL,
    is_root      INTEGER NOT NULL,
    started_at   INTEGER NOT NULL,
    ended_at     INTEGER,
    duration_us  INTEGER
) STRICT;
CREATE INDEX spans_trace ON spans (trace_id);
CREATE INDEX spans_started ON spans (started_at);
CREATE INDEX spans_open ON spans (boot_id) WHERE ended_at IS NULL;
