-- The model that an operator chose for one chat of an agent, or for one topic of it; other chats use the agent's.
CREATE TABLE chat_models (
    agent_id TEXT NOT NULL,
    -- The key of the chat or topic, as in pointers.
    key      TEXT NOT NULL,
    model    TEXT NOT NULL,
    -- The service that was to answer. With another one the model is not used.
    service  TEXT NOT NULL,
    chosen_by TEXT NOT NULL,
    chosen_at INTEGER NOT NULL,
    -- Whether the chat was told that its model is not used.
    notified  INTEGER NOT NULL DEFAULT 0 CHECK (notified IN (0, 1)),
    PRIMARY KEY (agent_id, key)
) STRICT, WITHOUT ROWID;
