-- Files that people have uploaded and not sent yet: each may be sent by its uploader alone.
CREATE TABLE web_uploads (
    agent_id  TEXT NOT NULL,
    path      TEXT NOT NULL,
    uploader  TEXT NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (agent_id, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX web_uploads_at ON web_uploads (at);
