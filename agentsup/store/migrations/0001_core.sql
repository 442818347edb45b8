-- The core tables. Times are wall milliseconds; states are checked here as well as in code.

CREATE TABLE boots (
    boot_id     TEXT PRIMARY KEY,
    node_id     TEXT NOT NULL,
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    exit_code   INTEGER,
    reason      TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE agents (
    agent_id    TEXT PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE COLLATE NOCASE,
    desired     TEXT NOT NULL DEFAULT 'up' CHECK (desired IN ('up', 'down')),
    present     INTEGER NOT NULL DEFAULT 1,
    overrides   TEXT NOT NULL DEFAULT '{}',
    created_at  INTEGER NOT NULL,
    removed_at  INTEGER
) STRICT;

-- How each life of a child ended: what /agents shows and what the restart policy starts from.
CREATE TABLE endings (
    ending_id   INTEGER PRIMARY KEY,
    child_id    TEXT NOT NULL,
    boot_id     TEXT NOT NULL,
    at          INTEGER NOT NULL,
    kind        TEXT NOT NULL,
    code        INTEGER,
    reason      TEXT NOT NULL,
    uptime_ms   INTEGER NOT NULL,
    decision    TEXT NOT NULL
) STRICT;
CREATE INDEX endings_child ON endings (child_id, ending_id);

CREATE TABLE sessions (
    session_id   TEXT PRIMARY KEY,
    agent_id     TEXT NOT NULL,
    key          TEXT NOT NULL,
    title        TEXT NOT NULL DEFAULT '',
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    closed_at    INTEGER,
    engine       TEXT NOT NULL DEFAULT '',
    engine_state BLOB
) STRICT;
CREATE INDEX sessions_agent ON sessions (agent_id, updated_at);

-- Which session a key (a chat, a peer, a thread) points at now.
CREATE TABLE pointers (
    agent_id    TEXT NOT NULL,
    key         TEXT NOT NULL,
    session_id  TEXT NOT NULL REFERENCES sessions (session_id),
    PRIMARY KEY (agent_id, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE messages (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id      TEXT NOT NULL UNIQUE,
    agent_id        TEXT NOT NULL,
    session_id      TEXT NOT NULL REFERENCES sessions (session_id),
    kind            TEXT NOT NULL CHECK (kind IN ('chat', 'task', 'reply', 'broadcast', 'event', 'directive')),
    lane            TEXT NOT NULL CHECK (lane IN ('interactive', 'peer', 'background')),
    priority        INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 3),
    state           TEXT NOT NULL CHECK (state IN ('queued', 'leased', 'parked', 'done', 'dead', 'cancelled')),
    outcome         TEXT CHECK (outcome IN ('ok', 'failed')),
    parts           TEXT NOT NULL,
    principal       TEXT NOT NULL,
    deliver_to      TEXT NOT NULL,
    in_reply_to     TEXT NOT NULL DEFAULT '',
    thread_id       TEXT NOT NULL DEFAULT '',
    root_id         TEXT NOT NULL,
    path            TEXT NOT NULL DEFAULT '[]',
    traceparent     TEXT NOT NULL DEFAULT '',
    sender_agent_id TEXT NOT NULL DEFAULT '',
    capability      TEXT NOT NULL DEFAULT '',
    summary         TEXT NOT NULL DEFAULT '',
    silent          INTEGER NOT NULL DEFAULT 0,
    accepted_at     INTEGER NOT NULL,
    not_before      INTEGER NOT NULL DEFAULT 0,
    expires_at      INTEGER,
    started_at      INTEGER,
    finished_at     INTEGER,
    attempts        INTEGER NOT NULL DEFAULT 0,
    crashes         INTEGER NOT NULL DEFAULT 0,
    fence           INTEGER NOT NULL DEFAULT 0,
    lease_boot      TEXT NOT NULL DEFAULT '',
    lease_instance  TEXT NOT NULL DEFAULT '',
    lease_until     INTEGER,
    result_text     TEXT NOT NULL DEFAULT '',
    error_code      TEXT NOT NULL DEFAULT '',
    error_text      TEXT NOT NULL DEFAULT '',
    replay_of       TEXT NOT NULL DEFAULT '',
    epochs          TEXT NOT NULL DEFAULT '{}',
    CHECK ((state = 'done') = (outcome IS NOT NULL))
) STRICT;
-- Each index is paid by every accepted message, so there are few: a session's rows are found by way
-- of its agent, a root by its own message id.
-- The open rows are few; every scheduling query walks only them. The first index covers the search
-- for the heads of an agent's sessions. SQLite uses a partial index only where the query repeats
-- its condition word for word.
CREATE INDEX messages_open ON messages (agent_id, session_id, seq, state, priority, accepted_at)
    WHERE state IN ('queued', 'leased', 'parked');
CREATE INDEX messages_due ON messages (agent_id, not_before)
    WHERE state = 'queued' AND not_before > 0;
CREATE INDEX messages_expiry ON messages (expires_at)
    WHERE state = 'queued' AND expires_at IS NOT NULL;
CREATE INDEX messages_agent ON messages (agent_id, seq);
CREATE INDEX messages_thread ON messages (thread_id, seq) WHERE thread_id <> '';
CREATE INDEX messages_root ON messages (root_id) WHERE root_id <> message_id;
CREATE INDEX messages_dead ON messages (seq) WHERE state = 'dead';
CREATE INDEX messages_finished ON messages (finished_at) WHERE finished_at IS NOT NULL;

-- Running counts, kept in the transaction of each change: the conservation law and the queue
-- limits read these, never a COUNT over history.
CREATE TABLE counts (
    agent_id  TEXT NOT NULL,
    state     TEXT NOT NULL,
    count     INTEGER NOT NULL,
    PRIMARY KEY (agent_id, state)
) STRICT, WITHOUT ROWID;
-- state 'accepted' is incremented once per inserted row; the others follow the rows.
-- Done by triggers, so that no code path can forget it.
CREATE TRIGGER messages_count_insert AFTER INSERT ON messages BEGIN
    INSERT INTO counts VALUES (NEW.agent_id, 'accepted', 1)
        ON CONFLICT DO UPDATE SET count = count + 1;
    INSERT INTO counts VALUES (NEW.agent_id, NEW.state, 1)
        ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER messages_count_update AFTER UPDATE OF state ON messages
WHEN OLD.state <> NEW.state BEGIN
    UPDATE counts SET count = count - 1 WHERE agent_id = OLD.agent_id AND state = OLD.state;
    INSERT INTO counts VALUES (NEW.agent_id, NEW.state, 1)
        ON CONFLICT DO UPDATE SET count = count + 1;
END;

-- Totals of rows that retention removed. The conservation law, per agent and overall:
-- counts.accepted = counts.queued + leased + parked + done + dead + cancelled + sum(totals).
CREATE TABLE totals (
    agent_id  TEXT NOT NULL,
    state     TEXT NOT NULL,
    count     INTEGER NOT NULL,
    PRIMARY KEY (agent_id, state)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER messages_count_delete AFTER DELETE ON messages BEGIN
    UPDATE counts SET count = count - 1 WHERE agent_id = OLD.agent_id AND state = OLD.state;
    INSERT INTO totals VALUES (OLD.agent_id, OLD.state, 1)
        ON CONFLICT DO UPDATE SET count = count + 1;
END;

-- Places where people talk to an agent; notices go to the latest one.
CREATE TABLE conversations (
    agent_id      TEXT NOT NULL,
    channel       TEXT NOT NULL,
    conversation  TEXT NOT NULL,
    title         TEXT NOT NULL DEFAULT '',
    first_at      INTEGER NOT NULL,
    last_at       INTEGER NOT NULL,
    PRIMARY KEY (agent_id, channel, conversation)
) STRICT, WITHOUT ROWID;

-- One input, one message: what a platform or a caller has already given us.
CREATE TABLE ledger (
    source       TEXT NOT NULL,
    external_id  TEXT NOT NULL,
    message_id   TEXT NOT NULL,
    body_hash    TEXT NOT NULL DEFAULT '',
    at           INTEGER NOT NULL,
    PRIMARY KEY (source, external_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX ledger_at ON ledger (at);

CREATE TABLE transcript (
    entry_id    INTEGER PRIMARY KEY,
    session_id  TEXT NOT NULL,
    message_id  TEXT NOT NULL,
    role        TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'note')),
    text        TEXT NOT NULL,
    parts       TEXT NOT NULL DEFAULT '[]',
    at          INTEGER NOT NULL
) STRICT;
CREATE INDEX transcript_session ON transcript (session_id, entry_id);
CREATE INDEX transcript_message ON transcript (message_id);

CREATE TABLE segments (
    message_id   TEXT NOT NULL,
    segment_no   INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('running', 'suspended', 'resumed', 'ended', 'lost')),
    checkpoint   BLOB,
    question_id  TEXT NOT NULL DEFAULT '',
    started_at   INTEGER NOT NULL,
    ended_at     INTEGER,
    PRIMARY KEY (message_id, segment_no)
) STRICT, WITHOUT ROWID;

CREATE TABLE tool_calls (
    call_id     TEXT PRIMARY KEY,
    message_id  TEXT NOT NULL,
    name        TEXT NOT NULL,
    effect      TEXT NOT NULL CHECK (effect IN ('read', 'idempotent', 'keyed', 'blind')),
    args_hash   TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('intent', 'done', 'failed', 'unknown', 'skipped')),
    result      TEXT NOT NULL DEFAULT '',
    code        TEXT NOT NULL DEFAULT '',
    -- While unknown: the question that asks a person what became of it.
    question_id TEXT NOT NULL DEFAULT '',
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER
) STRICT;
CREATE INDEX tool_calls_message ON tool_calls (message_id);

CREATE TABLE questions (
    question_id  TEXT PRIMARY KEY,
    agent_id     TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    message_id   TEXT NOT NULL,
    kind         TEXT NOT NULL,
    text         TEXT NOT NULL,
    options      TEXT NOT NULL DEFAULT '[]',
    state        TEXT NOT NULL CHECK (state IN ('open', 'answered', 'expired', 'cancelled')),
    answer       TEXT NOT NULL DEFAULT '',
    asked_at     INTEGER NOT NULL,
    deadline_at  INTEGER,
    answered_at  INTEGER,
    answered_by  TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX questions_open ON questions (deadline_at) WHERE state = 'open';
CREATE INDEX questions_message ON questions (message_id);

CREATE TABLE outbox (
    outbox_id     INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id    TEXT NOT NULL,
    agent_id      TEXT NOT NULL,
    session_id    TEXT NOT NULL DEFAULT '',
    channel       TEXT NOT NULL,
    conversation  TEXT NOT NULL,
    part_no       INTEGER NOT NULL,
    kind          TEXT NOT NULL,
    body          TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'unknown', 'dropped')),
    attempts      INTEGER NOT NULL DEFAULT 0,
    -- The boot that began to deliver and has not said how it ended; empty between attempts.
    begun_boot    TEXT NOT NULL DEFAULT '',
    not_before    INTEGER NOT NULL DEFAULT 0,
    created_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    detail        TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX outbox_pending ON outbox (channel, agent_id, conversation, outbox_id) WHERE state = 'pending';
CREATE INDEX outbox_message ON outbox (message_id);
CREATE INDEX outbox_ended ON outbox (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE events (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    at            INTEGER NOT NULL,
    type          TEXT NOT NULL,
    agent_id      TEXT NOT NULL DEFAULT '',
    session_id    TEXT NOT NULL DEFAULT '',
    message_id    TEXT NOT NULL DEFAULT '',
    conversation  TEXT NOT NULL DEFAULT '',
    data          TEXT NOT NULL DEFAULT '{}'
) STRICT;
CREATE INDEX events_conversation ON events (agent_id, conversation, seq) WHERE conversation <> '';

CREATE TABLE usage (
    usage_id       INTEGER PRIMARY KEY,
    message_id     TEXT NOT NULL,
    agent_id       TEXT NOT NULL,
    session_id     TEXT NOT NULL,
    engine         TEXT NOT NULL,
    model          TEXT NOT NULL,
    input_tokens   INTEGER NOT NULL,
    output_tokens  INTEGER NOT NULL,
    usd            REAL,
    at             INTEGER NOT NULL
) STRICT;
CREATE INDEX usage_agent ON usage (agent_id, at);
CREATE INDEX usage_message ON usage (message_id);

-- Stop epochs: 'all', 'agent:<agent_id>', 'session:<session_id>'. Merged by maximum.
CREATE TABLE epochs (
    scope    TEXT PRIMARY KEY,
    counter  INTEGER NOT NULL,
    at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Edges of the wait-for graph: a turn (message + fence) waits for a message.
-- The key's columns come first: where they don't, quick_check of SQLite 3.40 reports a sound table
-- WITHOUT ROWID as damaged ("NULL value in ..."), and backups and starts go by quick_check.
CREATE TABLE waits (
    waiter_id     TEXT NOT NULL,
    target_id     TEXT NOT NULL,
    waiter_fence  INTEGER NOT NULL,
    PRIMARY KEY (waiter_id, target_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX waits_target ON waits (target_id);

-- Child process groups of turns, so that a later boot can end what an earlier one left.
CREATE TABLE processes (
    pgid           INTEGER NOT NULL,
    started_ticks  INTEGER NOT NULL,
    boot_id        TEXT NOT NULL,
    agent_id       TEXT NOT NULL,
    message_id     TEXT NOT NULL,
    argv0          TEXT NOT NULL,
    at             INTEGER NOT NULL,
    PRIMARY KEY (pgid, started_ticks)
) STRICT, WITHOUT ROWID;

-- Small facts of the installation: node_id and the like.
CREATE TABLE facts (
    key    TEXT PRIMARY KEY,
    value  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
