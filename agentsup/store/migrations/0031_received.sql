-- What platforms handed over, in one table. An update is named by text on every platform, and why a
-- row was skipped and whether an operator wants it tried again are columns, not words in `error`.
CREATE TABLE received (
    row_id       INTEGER PRIMARY KEY AUTOINCREMENT,
    channel      TEXT NOT NULL,
    -- Whose rows belong together: Telegram's id of the bot; on Matrix the agent's id, as an agent
    -- stays in its rooms with another account.
    bot_id       TEXT NOT NULL,
    -- The account that received it: Telegram's id of the bot, the Matrix user id.
    account      TEXT NOT NULL,
    -- The chat or room; '' for a Telegram update that is neither a message nor an edit.
    chat_id      TEXT NOT NULL DEFAULT '',
    -- The update's number, with "<run>." in front once Telegram counted anew; the event id.
    external_id  TEXT NOT NULL,
    raw          TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('received', 'done', 'quarantined', 'skipped')),
    -- A command was begun; found again after a crash it is not run a second time.
    begun        INTEGER NOT NULL DEFAULT 0,
    -- What an edit refers to: the platform's id of the message, the same for all its edits; '' for
    -- what is neither a message nor an edit.
    platform_id  TEXT NOT NULL DEFAULT '',
    -- The message that it became.
    message_id   TEXT NOT NULL DEFAULT '',
    error        TEXT NOT NULL DEFAULT '',
    -- Why it was skipped (SkipReason); NULL in any other state.
    skip_reason  TEXT,
    -- 1: an operator released it from quarantine, and its bot has not taken it again yet.
    retry_requested INTEGER NOT NULL DEFAULT 0,
    at           INTEGER NOT NULL,
    UNIQUE (channel, bot_id, account, external_id, chat_id)
) STRICT;

INSERT INTO received (row_id, channel, bot_id, account, chat_id, external_id, raw, state, begun,
    platform_id, message_id, error, at)
    SELECT row_id, channel, bot_id, bot_id, coalesce(CAST(chat_id AS TEXT), ''),
        iif(run = 0, '', run || '.') || update_id, raw, state, begun,
        coalesce(CAST(platform_id AS TEXT), ''), message_id, error, at
    FROM updates ORDER BY row_id;

-- The rows of Matrix get numbers after all that Telegram's ever had, also in the marks of stops.
INSERT INTO received (row_id, channel, bot_id, account, chat_id, external_id, raw, state, begun,
    platform_id, message_id, error, at)
    SELECT row_id + coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'updates'), 0),
        'matrix', agent_id, user_id, room_id, event_id, raw, state, begun, origin_id, message_id,
        error, at
    FROM matrix_events ORDER BY row_id;
UPDATE stop_marks
    SET row_id = -row_id - coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'updates'), 0)
    WHERE channel = 'matrix';
UPDATE stop_marks SET row_id = -row_id WHERE channel = 'matrix';
DELETE FROM sqlite_sequence WHERE name = 'received';
INSERT INTO sqlite_sequence (name, seq)
    SELECT 'received', sum(seq) FROM sqlite_sequence WHERE name IN ('updates', 'matrix_events')
    HAVING sum(seq) IS NOT NULL;

UPDATE received SET retry_requested = 1
    WHERE state = 'received'
      AND (error GLOB 'tried again: *' OR (channel = 'telegram' AND error <> ''));
UPDATE received SET error = substr(error, 14)
    WHERE retry_requested = 1 AND error GLOB 'tried again: *';
UPDATE received SET skip_reason = CASE
        WHEN error GLOB 'dropped: *' THEN 'dropped_by_operator'
        WHEN error = 'stopped' THEN 'stopped_here'
        WHEN error = 'stopped from another chat' THEN 'stopped_elsewhere'
        WHEN error = 'no other text' THEN 'unchanged_edit'
        WHEN error = 'an edit of another''s message' THEN 'edit_of_another'
        WHEN error = 'nothing to answer' THEN 'nothing_to_answer'
        WHEN error = 'too late' THEN 'too_late'
        WHEN error = 'encrypted' THEN 'encrypted'
        WHEN error = 'a gap' THEN 'gap'
        WHEN error IN ('the group has moved', 'the room has moved') THEN 'moved'
        WHEN error = 'we are not in the room' THEN 'not_in_room'
        ELSE 'not_allowed' END
    WHERE state = 'skipped';
UPDATE received SET error = substr(error, 10) WHERE skip_reason = 'dropped_by_operator';
UPDATE received SET error = '' WHERE skip_reason NOT IN ('dropped_by_operator', 'not_allowed');

DROP TABLE updates;
DROP TABLE matrix_events;

-- What is left to do: to be handled, or dropped by a stop elsewhere of which its sender must be told.
CREATE INDEX received_open ON received (channel, bot_id, account, row_id)
    WHERE state = 'received' OR skip_reason = 'stopped_elsewhere';
CREATE INDEX received_message ON received (channel, bot_id, chat_id, platform_id, row_id);
CREATE INDEX received_quarantined ON received (channel, bot_id, account, row_id)
    WHERE state = 'quarantined';
