-- Whose words and whose work: the person at the root of each message, recorded once and for good.

-- `operator` for all operators, `person:<subject>` for anybody else, empty for nobody's.
ALTER TABLE messages ADD COLUMN person TEXT NOT NULL DEFAULT '';
UPDATE messages SET person = CASE principal ->> '$.kind'
    WHEN 'operator' THEN 'operator'
    WHEN 'person' THEN iif((principal ->> '$.role') >= 2, 'operator',
        'person:' || (principal ->> '$.subject'))
    ELSE '' END
WHERE root_id = message_id;
UPDATE messages SET person = coalesce(
    (SELECT r.person FROM messages r WHERE r.message_id = messages.root_id), '')
WHERE root_id <> message_id;

-- A task that an agent owns is the work of the person whose turn began it.
UPDATE tasks SET owner = json_set(owner, '$.behalf', coalesce(
    (SELECT m.person FROM messages m WHERE m.message_id = tasks.parent_message_id AND m.person <> ''),
    iif(asked_by <> '', 'person:' || asked_by, '')))
WHERE owner_kind = 'agent';
UPDATE messages SET person = t.person, principal = json_set(principal, '$.behalf', t.person)
FROM (SELECT r.run_id, k.owner ->> '$.behalf' AS person FROM runs r JOIN tasks k USING (task_id)
      WHERE k.owner_kind = 'agent') t
WHERE messages.message_id = t.run_id AND messages.person = '' AND t.person <> '';
UPDATE messages SET person = r.person FROM messages r
WHERE r.message_id = messages.root_id AND messages.person = '' AND r.person <> '';

-- Whose conversation it is: the one person who speaks there, `*` where there are several, empty
-- where that is not on record.
ALTER TABLE conversations ADD COLUMN person TEXT NOT NULL DEFAULT '';
UPDATE conversations SET person = s.person
FROM (SELECT agent_id, deliver_to ->> '$.channel' AS channel,
             deliver_to ->> '$.conversation' AS conversation,
             iif(count(DISTINCT person) = 1, max(person), '*') AS person
      FROM messages
      WHERE kind = 'chat' AND sender_agent_id = '' AND (deliver_to ->> '$.kind') = 'chat'
      GROUP BY 1, 2, 3) s
WHERE s.agent_id = conversations.agent_id AND s.channel = conversations.channel
  AND s.conversation = conversations.conversation;

-- What is remembered belongs to a person, too. Nothing tells for whom an agent saved the entries of
-- before: they are the operators', who can share them. `shared_by` is the operator who let an entry
-- be recalled as widely as its scope says; until then only its own person's work recalls it.
CREATE TABLE memories_of_persons (
    seq         INTEGER PRIMARY KEY,
    memory_id   TEXT NOT NULL UNIQUE,
    agent_id    TEXT NOT NULL,
    person      TEXT NOT NULL,
    scope       TEXT NOT NULL CHECK (scope IN ('instance', 'agent', 'type', 'global')),
    shared_by   TEXT NOT NULL DEFAULT '',
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
    UNIQUE (agent_id, person, scope, key)
) STRICT;
INSERT INTO memories_of_persons (seq, memory_id, agent_id, person, scope, kind, key, content, tags,
    confidence, use_count, pinned, role, audience, created_at, updated_at, touched_at)
SELECT seq, memory_id, agent_id, 'operator', scope, kind, key, content, tags, confidence, use_count,
    pinned, role,
    'a' || lower(hex(lower(agent_id))) || ' k' || lower(hex(kind))
        || ' p' || lower(hex(lower(agent_id))) || 'x' || lower(hex('operator')),
    created_at, updated_at, touched_at
FROM memories;
DROP TABLE memories;
ALTER TABLE memories_of_persons RENAME TO memories;
CREATE INDEX memories_touched ON memories (touched_at) WHERE pinned = 0;
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
INSERT INTO memories_index (memories_index) VALUES ('rebuild');
