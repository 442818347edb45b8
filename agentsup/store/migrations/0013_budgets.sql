-- Budgets. Money is kept in billionths of a US dollar: sums of whole numbers are exact.

-- Each report of an engine has an id made of its turn, so that it may be recorded twice and counts
-- once: during the turn, and again with its end.
ALTER TABLE usage ADD COLUMN report_id TEXT;
CREATE UNIQUE INDEX usage_report ON usage (report_id) WHERE report_id IS NOT NULL;

-- What was used per agent and quarter of an hour since 1970. Every time zone's days and months
-- begin with a quarter, so their sums are read from few rows, whatever the zone is set to.
CREATE TABLE budget_spent (
    agent_id  TEXT NOT NULL,
    quarter   INTEGER NOT NULL,
    nano_usd  INTEGER NOT NULL,
    tokens    INTEGER NOT NULL,
    PRIMARY KEY (agent_id, quarter)
) STRICT, WITHOUT ROWID;
CREATE INDEX budget_spent_quarter ON budget_spent (quarter);

INSERT INTO budget_spent (agent_id, quarter, nano_usd, tokens)
    SELECT agent_id, at / 900000,
           sum(CAST(round(min(max(coalesce(usd, 0.0), 0.0), 1e6) * 1e9) AS INTEGER)),
           sum(input_tokens + output_tokens)
    FROM usage GROUP BY agent_id, at / 900000;

CREATE TRIGGER usage_spent AFTER INSERT ON usage BEGIN
    INSERT INTO budget_spent VALUES (NEW.agent_id, NEW.at / 900000,
        CAST(round(coalesce(NEW.usd, 0.0) * 1e9) AS INTEGER),
        NEW.input_tokens + NEW.output_tokens)
    ON CONFLICT DO UPDATE SET nano_usd = nano_usd + excluded.nano_usd,
        tokens = tokens + excluded.tokens;
END;

-- What running turns may still use. A hold counts as long as its message is leased under its fence
-- in its boot: one that was left behind is void by comparison, as a lease is.
CREATE TABLE budget_holds (
    message_id  TEXT PRIMARY KEY,
    fence       INTEGER NOT NULL,
    boot_id     TEXT NOT NULL,
    agent_id    TEXT NOT NULL,
    root_id     TEXT NOT NULL,
    nano_usd    INTEGER NOT NULL,
    tokens      INTEGER NOT NULL,
    at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Scopes beyond agents, trees and the daemon, such as a team or a task: what they may use, and the
-- messages whose turns count for them.
CREATE TABLE budget_limits (
    kind      TEXT NOT NULL,
    subject   TEXT NOT NULL,
    nano_usd  INTEGER,
    tokens    INTEGER,
    set_at    INTEGER NOT NULL,
    PRIMARY KEY (kind, subject)
) STRICT, WITHOUT ROWID;

CREATE TABLE budget_members (
    message_id  TEXT NOT NULL,
    kind        TEXT NOT NULL,
    subject     TEXT NOT NULL,
    PRIMARY KEY (message_id, kind, subject)
) STRICT, WITHOUT ROWID;
CREATE INDEX budget_members_scope ON budget_members (kind, subject, message_id);

-- What operators are told about a scope, once in each of its periods.
CREATE TABLE budget_notices (
    kind      TEXT NOT NULL,
    subject   TEXT NOT NULL,
    since     INTEGER NOT NULL,
    level     TEXT NOT NULL CHECK (level IN ('warned', 'exhausted')),
    unit      TEXT NOT NULL CHECK (unit IN ('usd', 'tokens')),
    used      INTEGER NOT NULL,
    most      INTEGER NOT NULL,
    until     INTEGER,
    at        INTEGER NOT NULL,
    told      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, subject, since, level, unit)
) STRICT, WITHOUT ROWID;
CREATE INDEX budget_notices_untold ON budget_notices (at) WHERE told = 0;
