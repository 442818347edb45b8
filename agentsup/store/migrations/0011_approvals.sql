-- Which call a question is about, and the arguments a person put in place of the model's own.
ALTER TABLE questions ADD COLUMN call_id TEXT NOT NULL DEFAULT '';
ALTER TABLE questions ADD COLUMN tool TEXT NOT NULL DEFAULT '';
ALTER TABLE questions ADD COLUMN args TEXT NOT NULL DEFAULT '';

-- Leave that people gave for more than one call: for a run, or for an agent and a tool for good.
CREATE TABLE grants (
    grant_id    TEXT PRIMARY KEY,
    agent_id    TEXT NOT NULL,
    tool        TEXT NOT NULL,
    scope       TEXT NOT NULL CHECK (scope IN ('run', 'always')),
    message_id  TEXT NOT NULL,
    question_id TEXT NOT NULL,
    granted_by  TEXT NOT NULL,
    granted_at  INTEGER NOT NULL,
    revoked_by  TEXT NOT NULL DEFAULT '',
    revoked_at  INTEGER
) STRICT;
CREATE INDEX grants_active ON grants (agent_id, tool) WHERE revoked_at IS NULL;
CREATE INDEX grants_question ON grants (question_id);
