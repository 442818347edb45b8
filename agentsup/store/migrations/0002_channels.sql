-- What channels need to know across a restart: how far a delivery came, what a platform has given
-- us and how far we have read, what was streamed, and what a button stands for.

-- Pieces of a part that are settled, how many of them are of unknown fate, and the ids that the
-- platform gave to the others, in order (a JSON list).
ALTER TABLE outbox ADD COLUMN progress INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN doubts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN platform_ids TEXT NOT NULL DEFAULT '[]';

-- Updates as a platform gave them, kept before they are confirmed to it. 'received' is what is left
-- to do. `run` grows when the platform begins to count anew (Telegram: after a week of silence).
CREATE TABLE updates (
    row_id       INTEGER PRIMARY KEY AUTOINCREMENT,
    channel      TEXT NOT NULL,
    bot_id       TEXT NOT NULL,
    run          INTEGER NOT NULL,
    update_id    INTEGER NOT NULL,
    raw          TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('received', 'done', 'quarantined', 'skipped')),
    -- A command was begun; found again after a crash it is not run a second time.
    begun        INTEGER NOT NULL DEFAULT 0,
    -- The platform's chat and message, and the message that it became: what an edit refers to.
    chat_id      INTEGER,
    platform_id  INTEGER,
    message_id   TEXT NOT NULL DEFAULT '',
    error        TEXT NOT NULL DEFAULT '',
    at           INTEGER NOT NULL,
    UNIQUE (channel, bot_id, run, update_id)
) STRICT;
CREATE INDEX updates_received ON updates (channel, bot_id, row_id) WHERE state = 'received';
CREATE INDEX updates_became ON updates (channel, bot_id, chat_id, platform_id)
    WHERE message_id <> '';
CREATE INDEX updates_quarantined ON updates (channel, bot_id, row_id) WHERE state = 'quarantined';

-- How far the updates of a bot were read. Written in the transaction that keeps them.
CREATE TABLE poll_offsets (
    channel      TEXT NOT NULL,
    bot_id       TEXT NOT NULL,
    run          INTEGER NOT NULL,
    next_offset  INTEGER NOT NULL,
    -- When the last update came (wall ms).
    heard_at     INTEGER NOT NULL,
    PRIMARY KEY (channel, bot_id)
) STRICT, WITHOUT ROWID;

-- A message that shows an answer while it is written, until the whole answer takes its place.
-- Written right after the platform gave the id; what a crash left is taken over or deleted.
CREATE TABLE streams (
    agent_id      TEXT NOT NULL,
    message_id    TEXT NOT NULL,
    conversation  TEXT NOT NULL,
    platform_id   INTEGER NOT NULL,
    at            INTEGER NOT NULL,
    PRIMARY KEY (agent_id, message_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX streams_at ON streams (at);

-- Buttons shown to people and what a press of one stands for. The platform carries the token only.
CREATE TABLE buttons (
    token         TEXT PRIMARY KEY,
    agent_id      TEXT NOT NULL,
    channel       TEXT NOT NULL,
    conversation  TEXT NOT NULL,
    -- people | operators | person:<subject>
    who           TEXT NOT NULL,
    label         TEXT NOT NULL,
    -- JSON: the chat command, what to ask before it, where to go back to
    action        TEXT NOT NULL,
    -- 1: it changes something, so one press is all it takes
    once          INTEGER NOT NULL,
    made_at       INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL,
    used_at       INTEGER,
    used_by       TEXT NOT NULL DEFAULT '',
    -- the press that used it: the same one, handled again after a crash, is not a second one
    used_press    TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE INDEX buttons_expires ON buttons (expires_at);

-- Presses and typed answers that were handled, written with their effect; the same one that comes
-- again gets the same words and has no second effect.
CREATE TABLE presses (
    press_id  TEXT PRIMARY KEY,
    outcome   TEXT NOT NULL,
    at        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX presses_at ON presses (at);

-- Questions whose end is shown in the chat: keyboard taken away, answer named.
CREATE TABLE question_ends (
    question_id  TEXT PRIMARY KEY,
    at           INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX question_ends_at ON question_ends (at);
CREATE INDEX questions_closed ON questions (answered_at) WHERE answered_at IS NOT NULL;

-- What a bot's profile (commands, descriptions) was last set to, so that it is set on change only.
CREATE TABLE profiles (
    channel       TEXT NOT NULL,
    bot_id        TEXT NOT NULL,
    digest        TEXT NOT NULL,
    published_at  INTEGER NOT NULL,
    PRIMARY KEY (channel, bot_id)
) STRICT, WITHOUT ROWID;
