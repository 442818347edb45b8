-- A sign-in belongs to the address of the page, and to the port that the daemon listens on: whoever has
-- an old port is sent the secrets of what is open there. Of those of before neither is on record.
DELETE FROM web_sessions;
ALTER TABLE web_sessions ADD COLUMN host TEXT NOT NULL DEFAULT '';
ALTER TABLE web_sessions ADD COLUMN port INTEGER NOT NULL DEFAULT 0;
