-- Messages whose people were told that they wait for a provider: once for each message.
CREATE TABLE wait_told (
    message_id  TEXT PRIMARY KEY,
    at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A report that was reckoned from characters, because the engine told no tokens.
ALTER TABLE usage ADD COLUMN is_estimated INTEGER NOT NULL DEFAULT 0;

