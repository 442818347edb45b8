-- Who is signed in to the web page. Secrets are kept as digests only, so a copy of the store opens
-- nothing.

-- One-time links. `subject` is a person of [people], or empty for the operator.
CREATE TABLE web_codes (
    code_hash   TEXT PRIMARY KEY,
    subject     TEXT NOT NULL,
    made_at     INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    used_at     INTEGER
) STRICT, WITHOUT ROWID;

-- `bound_to` names the operator's token that was valid at sign-in: a new token ends the operator's
-- sessions. `seen_at` is written now and then, not at each request.
CREATE TABLE web_sessions (
    session_hash  TEXT PRIMARY KEY,
    subject       TEXT NOT NULL,
    bound_to      TEXT NOT NULL,
    begun_at      INTEGER NOT NULL,
    seen_at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
