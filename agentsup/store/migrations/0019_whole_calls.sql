-- The whole call that an approval is about, and grants that hold for command lines of a pattern.
ALTER TABLE questions ADD COLUMN call TEXT NOT NULL DEFAULT '';
ALTER TABLE questions ADD COLUMN digest TEXT NOT NULL DEFAULT '';
ALTER TABLE questions ADD COLUMN whole TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN pattern TEXT NOT NULL DEFAULT '';
-- What an older version showed in part, and did not keep, can only be denied: without a digest
-- nobody can have seen it.
UPDATE questions SET whole = 'An older version showed a part of this call and kept no more. Deny it; the agent can ask again.'
    WHERE state = 'open' AND kind = 'approval'
      AND (text LIKE '%characters not shown%' OR text LIKE '%  … % more%');
