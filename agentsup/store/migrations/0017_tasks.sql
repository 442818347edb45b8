-- Background work: tasks, their runs and schedules.

CREATE TABLE tasks (
    task_id            TEXT PRIMARY KEY,
    name               TEXT NOT NULL,
    -- Who owns it: a principal as JSON, and what of it identifies them.
    owner              TEXT NOT NULL,
    owner_kind         TEXT NOT NULL,
    owner_id           TEXT NOT NULL,
    -- The person whose message led to it, where an agent owns it.
    asked_by           TEXT NOT NULL DEFAULT '',
    agent_id           TEXT NOT NULL,
    target             TEXT NOT NULL DEFAULT '',
    state              TEXT NOT NULL CHECK (state IN
        ('todo', 'queued', 'running', 'waiting', 'done', 'failed', 'cancelled')),
    prompt             TEXT NOT NULL,
    deliver_to         TEXT NOT NULL,
    session_id         TEXT NOT NULL DEFAULT '',
    current_run        TEXT NOT NULL DEFAULT '',
    runs               INTEGER NOT NULL DEFAULT 0,
    result             TEXT NOT NULL DEFAULT '',
    error_code         TEXT NOT NULL DEFAULT '',
    error_text         TEXT NOT NULL DEFAULT '',
    progress           TEXT NOT NULL DEFAULT '',
    percent            INTEGER CHECK (percent BETWEEN 0 AND 100),
    progress_at        INTEGER,
    priority           INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 3),
    timeout_s          REAL,
    max_usd            REAL,
    parent_task_id     TEXT NOT NULL DEFAULT '',
    parent_message_id  TEXT NOT NULL DEFAULT '',
    -- Where the turn was at work that created it, kept apart from its message, which is pruned.
    parent_session_id  TEXT NOT NULL DEFAULT '',
    created_at         INTEGER NOT NULL,
    started_at         INTEGER,
    finished_at        INTEGER
) STRICT;
CREATE INDEX tasks_run ON tasks (current_run);
CREATE INDEX tasks_owner ON tasks (owner_kind, owner_id, task_id);
CREATE INDEX tasks_asked ON tasks (asked_by, task_id);
CREATE INDEX tasks_agent ON tasks (agent_id, task_id);

-- One message each, which has the state; or a time of a schedule that was let pass.
CREATE TABLE runs (
    run_id             TEXT PRIMARY KEY,
    task_id            TEXT NOT NULL DEFAULT '',
    run_no             INTEGER NOT NULL DEFAULT 1,
    kind               TEXT NOT NULL CHECK (kind IN ('task', 'resume', 'slot', 'delegate', 'spawn',
        'route', 'dispatch', 'mixture', 'broadcast')),
    agent_id           TEXT NOT NULL,
    session_id         TEXT NOT NULL DEFAULT '',
    target             TEXT NOT NULL DEFAULT '',
    label              TEXT NOT NULL DEFAULT '',
    parent_message_id  TEXT NOT NULL DEFAULT '',
    root_id            TEXT NOT NULL DEFAULT '',
    depth              INTEGER NOT NULL DEFAULT 1,
    slot_at            INTEGER,
    -- Why a time was let pass; empty for a run.
    why                TEXT NOT NULL DEFAULT '',
    created_at         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_task ON runs (task_id, run_no) WHERE task_id <> '';
CREATE UNIQUE INDEX runs_slot ON runs (task_id, slot_at) WHERE slot_at IS NOT NULL;
CREATE INDEX runs_root ON runs (root_id) WHERE root_id <> '';
CREATE INDEX runs_parent ON runs (parent_message_id) WHERE parent_message_id <> '';
CREATE INDEX runs_session ON runs (session_id, created_at) WHERE session_id <> '';
CREATE INDEX runs_created ON runs (created_at);
-- What became of a run's result is found from the run, what a turn has handed on from the turn.
-- One index for both, since each is looked at by every message that is accepted.
CREATE INDEX messages_following ON messages (in_reply_to) WHERE kind IN ('reply', 'task');

CREATE TABLE schedules (
    task_id    TEXT PRIMARY KEY REFERENCES tasks (task_id) ON DELETE CASCADE,
    kind       TEXT NOT NULL CHECK (kind IN ('at', 'every', 'cron')),
    spec       TEXT NOT NULL,
    zone       TEXT NOT NULL,
    misfire    TEXT NOT NULL CHECK (misfire IN ('once', 'skip', 'all')),
    overlap    TEXT NOT NULL CHECK (overlap IN ('skip', 'queue')),
    anchor_at  INTEGER NOT NULL,
    next_at    INTEGER,
    last_at    INTEGER,
    is_paused  INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX schedules_due ON schedules (next_at) WHERE next_at IS NOT NULL AND is_paused = 0;

-- In whose place a session's turns are done: the prompt, memory, model and tools are this agent's,
-- slots and budget are those of the agent that the session belongs to.
CREATE TABLE session_personas (
    session_id  TEXT PRIMARY KEY REFERENCES sessions (session_id) ON DELETE CASCADE,
    agent_id    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The message by which an agent is asked; empty where people are.
ALTER TABLE questions ADD COLUMN put_as TEXT NOT NULL DEFAULT '';

-- A task is where its current run is. By triggers, so that no way of ending a message forgets it.
CREATE TRIGGER messages_task AFTER UPDATE OF state ON messages
WHEN NEW.kind = 'task' AND OLD.state <> NEW.state BEGIN
    UPDATE tasks SET
        state = CASE NEW.state
            WHEN 'queued' THEN iif(NEW.started_at IS NULL, 'queued', 'running')
            WHEN 'leased' THEN 'running'
            WHEN 'parked' THEN 'waiting'
            WHEN 'done' THEN iif(NEW.outcome = 'ok', 'done', 'failed')
            WHEN 'dead' THEN 'failed'
            ELSE 'cancelled' END,
        result = iif(NEW.state = 'done' AND NEW.outcome = 'ok', NEW.result_text, result),
        error_code = NEW.error_code,
        error_text = NEW.error_text,
        started_at = coalesce(started_at, NEW.started_at),
        finished_at = iif(NEW.state IN ('done', 'dead', 'cancelled'),
            coalesce(NEW.finished_at, finished_at), NULL)
    WHERE current_run = NEW.message_id;
END;

-- A run that asks in place, its program held, waits as well.
CREATE TRIGGER questions_task_asked AFTER INSERT ON questions WHEN NEW.state = 'open' BEGIN
    UPDATE tasks SET state = 'waiting' WHERE current_run = NEW.message_id AND state = 'running';
END;
CREATE TRIGGER questions_task_closed AFTER UPDATE OF state ON questions
WHEN OLD.state = 'open' AND NEW.state <> 'open' BEGIN
    UPDATE tasks SET state = 'running'
    WHERE current_run = NEW.message_id AND state = 'waiting'
        AND NOT EXISTS (SELECT 1 FROM questions q
            WHERE q.message_id = NEW.message_id AND q.state = 'open')
        AND EXISTS (SELECT 1 FROM messages m
            WHERE m.message_id = NEW.message_id AND m.state IN ('leased', 'queued'));
END;

-- What is told of a task is told under its id.
CREATE INDEX events_task ON events (message_id, seq) WHERE type >= 'task.' AND type < 'task/';

-- For whom a session works that was begun by a turn of the same agent: it may use no more than the
-- session of that turn. Kept apart from messages, which are pruned.
CREATE TABLE session_parents (
    session_id         TEXT PRIMARY KEY REFERENCES sessions (session_id) ON DELETE CASCADE,
    parent_session_id  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER runs_session AFTER INSERT ON runs WHEN NEW.why = '' BEGIN
    INSERT OR IGNORE INTO session_parents (session_id, parent_session_id)
    SELECT m.session_id, coalesce(
        (SELECT p.session_id FROM messages p WHERE p.message_id = NEW.parent_message_id
            AND p.agent_id = m.agent_id),
        (SELECT nullif(t.parent_session_id, '') FROM tasks t WHERE t.task_id = NEW.task_id)) AS parent
    FROM messages m WHERE m.message_id = NEW.run_id AND parent IS NOT NULL
        AND parent <> m.session_id;
END;

-- What a run may use at most, where whoever started it said so: patterns over tools, as JSON.
CREATE TABLE session_tools (
    session_id  TEXT PRIMARY KEY REFERENCES sessions (session_id) ON DELETE CASCADE,
    patterns    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX events_routes ON events (message_id, seq) WHERE type = 'route.chosen';
