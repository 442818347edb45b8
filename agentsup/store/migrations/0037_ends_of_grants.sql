-- Where a grant by pattern holds, for whom and until when, and how often each grant was used. Grants of
-- before have no workspace and no person: they hold as they were shown, for all of the agent's work.
ALTER TABLE grants ADD COLUMN workspace TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN person TEXT;
ALTER TABLE grants ADD COLUMN until_at INTEGER;
ALTER TABLE grants ADD COLUMN last_used_at INTEGER;
ALTER TABLE grants ADD COLUMN uses INTEGER NOT NULL DEFAULT 0;
ALTER TABLE grants ADD COLUMN last_call TEXT NOT NULL DEFAULT '';
