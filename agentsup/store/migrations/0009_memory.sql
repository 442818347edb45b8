-- What agents remember beyond their sessions, and what stands for the older part of a long session.

-- `audience` has words for those who may recall an entry (its agent, its role, everybody), so that
-- the index below answers whom as well as what.
CREATE TABLE memories (
    seq         INTEGER PRIMARY KEY,
    memory_id   TEXT NOT NULL UNIQUE,
    agent_id    TEXT NOT NULL,
    scope       TEXT NOT NULL CHECK (scope IN ('instance', 'type', 'global')),
    kind        TEXT NOT NULL CHECK (kind IN ('pattern', 'preference', 'fact', 'skill')),
    key         TEXT NOT NULL CHECK (key <> ''),
    content     TEXT NOT NULL CHECK (content <> ''),
    tags        TEXT NOT NULL DEFAULT '[]',
    confidence  REAL NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    use_count   INTEGER NOT NULL DEFAULT 0,
    pinned      INTEGER NOT NULL DEFAULT 0,
    role        TEXT NOT NULL DEFAULT '',
    audience    TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    touched_at  INTEGER NOT NULL,
    UNIQUE (agent_id, scope, key)
) STRICT;
CREATE INDEX memories_touched ON memories (touched_at) WHERE pinned = 0;

CREATE VIRTUAL TABLE memories_index USING fts5 (
    key, content, tags, audience,
    content = 'memories', content_rowid = 'seq', tokenize = 'unicode61 remove_diacritics 2'
);
CREATE TRIGGER memories_insert AFTER INSERT ON memories BEGIN
    INSERT INTO memories_index (rowid, key, content, tags, audience)
        VALUES (NEW.seq, NEW.key, NEW.content, NEW.tags, NEW.audience);
END;
CREATE TRIGGER memories_delete AFTER DELETE ON memories BEGIN
    INSERT INTO memories_index (memories_index, rowid, key, content, tags, audience)
        VALUES ('delete', OLD.seq, OLD.key, OLD.content, OLD.tags, OLD.audience);
END;
-- Counting a use changes none of these, so it costs the index nothing.
CREATE TRIGGER memories_update AFTER UPDATE OF key, content, tags, audience ON memories BEGIN
    INSERT INTO memories_index (memories_index, rowid, key, content, tags, audience)
        VALUES ('delete', OLD.seq, OLD.key, OLD.content, OLD.tags, OLD.audience);
    INSERT INTO memories_index (rowid, key, content, tags, audience)
        VALUES (NEW.seq, NEW.key, NEW.content, NEW.tags, NEW.audience);
END;

-- What stands for a session's transcript up to and including an entry; the entries themselves stay.
CREATE TABLE summaries (
    session_id  TEXT PRIMARY KEY,
    upto_id     INTEGER NOT NULL,
    text        TEXT NOT NULL,
    turns       INTEGER NOT NULL,
    made_by     TEXT NOT NULL,
    at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
