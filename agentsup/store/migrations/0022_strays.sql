-- Processes of a program that left its process group: found again and ended after a kill of the
-- daemon, as those of `processes` are.
CREATE TABLE strays (
    pid            INTEGER NOT NULL,
    started_ticks  INTEGER NOT NULL,
    pgid           INTEGER NOT NULL,
    boot_id        TEXT NOT NULL,
    argv0          TEXT NOT NULL,
    PRIMARY KEY (pid, started_ticks)
) STRICT, WITHOUT ROWID;
