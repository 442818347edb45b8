-- What Matrix needs to know across a restart. A homeserver names everything by text, so its events
-- have tables of their own.

-- How far a bot's rooms were read, and the session that the homeserver knows it by. The token of a
-- password login is kept in a file of its own, not here.
CREATE TABLE matrix_sync (
    agent_id    TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    since       TEXT NOT NULL,
    -- When the last batch was kept (wall ms).
    at          INTEGER NOT NULL,
    PRIMARY KEY (agent_id, user_id)
) STRICT, WITHOUT ROWID;

-- Events as the homeserver gave them, kept before the token that goes past them. 'received' is what
-- is left to do.
CREATE TABLE matrix_events (
    row_id        INTEGER PRIMARY KEY AUTOINCREMENT,
    agent_id      TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    room_id       TEXT NOT NULL,
    -- The homeserver's id; an invitation has none and gets a name of ours.
    event_id      TEXT NOT NULL,
    raw           TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('received', 'done', 'quarantined', 'skipped')),
    -- A command was begun; found again after a crash it is not run a second time.
    begun         INTEGER NOT NULL DEFAULT 0,
    -- The event that this one edits, else its own: what an edit or a redaction refers to.
    origin_id     TEXT NOT NULL DEFAULT '',
    -- The message that it became.
    message_id    TEXT NOT NULL DEFAULT '',
    error         TEXT NOT NULL DEFAULT '',
    at            INTEGER NOT NULL,
    UNIQUE (agent_id, user_id, room_id, event_id)
) STRICT;
CREATE INDEX matrix_events_received ON matrix_events (agent_id, user_id, row_id)
    WHERE state = 'received';
CREATE INDEX matrix_events_became ON matrix_events (agent_id, room_id, origin_id, row_id)
    WHERE state = 'done';
CREATE INDEX matrix_events_quarantined ON matrix_events (agent_id, user_id, row_id)
    WHERE state = 'quarantined';

-- Rooms that a bot is in, as far as was seen: when it entered, and what was said there once.
CREATE TABLE matrix_rooms (
    agent_id      TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    room_id       TEXT NOT NULL,
    -- The newest event kept of this room, to fill a gap down to.
    last_event_id TEXT NOT NULL DEFAULT '',
    -- Nothing from before is answered (the homeserver's clock, ms).
    joined_at     INTEGER NOT NULL DEFAULT 0,
    encrypted     INTEGER NOT NULL DEFAULT 0,
    -- Once per room: that it is encrypted and not answered.
    told_at       INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (agent_id, user_id, room_id)
) STRICT, WITHOUT ROWID;

-- When the piece at `progress` was first handed to a channel that repeats sends by a key; 0: not
-- yet. Platforms remember keys for a limited time, so an old begin is of unknown fate.
ALTER TABLE outbox ADD COLUMN begun_at INTEGER NOT NULL DEFAULT 0;

-- Events in which an answer is shown while it is written, until the whole answer takes their place.
CREATE TABLE matrix_streams (
    agent_id      TEXT NOT NULL,
    message_id    TEXT NOT NULL,
    conversation  TEXT NOT NULL,
    event_id      TEXT NOT NULL,
    -- 0: an edit of unknown fate may still change it; 2: the answer is being put there
    trusted       INTEGER NOT NULL,
    at            INTEGER NOT NULL,
    PRIMARY KEY (agent_id, message_id)
) STRICT, WITHOUT ROWID;

-- Events with something to press: numbered choices, pressed by a reaction or a number.
CREATE TABLE matrix_cards (
    agent_id      TEXT NOT NULL,
    event_id      TEXT NOT NULL,
    conversation  TEXT NOT NULL,
    -- JSON list of {"label", "data"} in the order of their numbers
    choices       TEXT NOT NULL,
    -- the text above the choices, for edits that keep it
    text          TEXT NOT NULL,
    -- 1: nothing is offered there any more; a late press is answered all the same
    is_closed     INTEGER NOT NULL DEFAULT 0,
    at            INTEGER NOT NULL,
    PRIMARY KEY (agent_id, event_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX matrix_cards_here ON matrix_cards (agent_id, conversation, at);
CREATE INDEX matrix_cards_at ON matrix_cards (at);

-- Eyes that stand (or may stand) on a person's event until its work has ended.
CREATE TABLE matrix_eyes (
    agent_id    TEXT NOT NULL,
    message_id  TEXT NOT NULL,
    room_id     TEXT NOT NULL,
    event_id    TEXT NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (agent_id, message_id)
) STRICT, WITHOUT ROWID;
