-- The messages in which answers are streamed are in one table for all platforms, with the platform's
-- id as text. Whether the shown text can be relied on was the sign of that id, and a number.
CREATE TABLE placeholders (
    channel       TEXT NOT NULL,
    agent_id      TEXT NOT NULL,
    message_id    TEXT NOT NULL,
    conversation  TEXT NOT NULL,
    -- '': about to be sent, or the id never came
    platform_id   TEXT NOT NULL,
    -- unsafe: an edit of unknown outcome may still change it; replacing: the answer is being put there
    trust         TEXT NOT NULL CHECK (trust IN ('trusted', 'unsafe', 'replacing')),
    at            INTEGER NOT NULL,
    PRIMARY KEY (channel, agent_id, message_id)
) STRICT, WITHOUT ROWID;
INSERT INTO placeholders
SELECT 'telegram', agent_id, message_id, conversation, CAST(abs(platform_id) AS TEXT),
    iif(platform_id > 0, 'trusted', 'unsafe'), at
FROM streams;
INSERT INTO placeholders
SELECT 'matrix', agent_id, message_id, conversation, event_id,
    CASE trusted WHEN 0 THEN 'unsafe' WHEN 2 THEN 'replacing' ELSE 'trusted' END, at
FROM matrix_streams;
DROP TABLE streams;
DROP TABLE matrix_streams;
-- Rows of Telegram that nobody took over go with time.
CREATE INDEX placeholders_at ON placeholders (at);
