-- Mail between agents: what of it an agent has read.

-- A message has one reader, the agent it was sent to. Marks go with their messages.
CREATE TABLE read_marks (
    message_id  TEXT PRIMARY KEY REFERENCES messages (message_id) ON DELETE CASCADE,
    read_at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What agents sent, and broadcasts, apart from what people say: an agent's letters, newest first.
CREATE INDEX messages_mail ON messages (agent_id, seq)
    WHERE (sender_agent_id <> '' OR kind = 'broadcast') AND kind <> 'task';
