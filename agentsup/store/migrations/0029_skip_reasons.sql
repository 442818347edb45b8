-- Why a time of a schedule was passed over is a reason with facts, and not an English sentence that is
-- read back. NULL: the row is a run. A sentence of no known form stays as the text of a refusal.
ALTER TABLE runs ADD COLUMN skip_reason TEXT CHECK (skip_reason IN ('many', 'later', 'late', 'overlap',
    'behind', 'paused', 'deleted', 'cancelled', 'set', 'changed', 'rights', 'refused'));
ALTER TABLE runs ADD COLUMN skip_facts TEXT NOT NULL DEFAULT '{}';
-- The row stands for all times before this one (ISO 8601), too; '' for one time.
ALTER TABLE runs ADD COLUMN skip_until TEXT NOT NULL DEFAULT '';

CREATE TABLE skip_forms (reason TEXT, before TEXT, after TEXT, rights TEXT) STRICT;
INSERT INTO skip_forms VALUES
    ('many', 'missed, and too many to be listed', NULL, NULL),
    ('later', 'missed: a later time had come as well', NULL, NULL),
    ('late', 'missed: ', ' s had passed since', NULL),
    ('overlap', 'the run before it had not ended', NULL, NULL),
    ('behind', '', ' runs before it had not ended', NULL),
    ('paused', 'the schedule was paused', NULL, NULL),
    ('deleted', 'the task was deleted', NULL, NULL),
    ('cancelled', 'cancelled by ', '', NULL),
    ('set', 'set to ', '', NULL),
    ('changed', 'the schedule was changed by ', '', NULL),
    ('rights', '', ' asked for this and is not among the people who may use the agents any more, so it is'
        || ' not done. Whoever needs it asks for it anew.', 'removed'),
    ('rights', '', ' asked for this and is a viewer now, who may look and not give work, so it is not done.'
        || ' Whoever needs it asks for it anew.', 'viewer'),
    ('rights', '', ' asked for this as an operator and is none any more; it belongs to a session of the'
        || ' operators, so it is not done. Whoever needs it asks for it anew.', 'shared'),
    ('rights', 'Which operator asked for this is not on record any more, so nobody can tell whether they'
        || ' still may, and it is not done. Whoever needs it asks for it anew.', NULL, 'unknown');

UPDATE runs SET
    skip_until = substr(why, instr(why, '; so were all times before ') + 27),
    why = substr(why, 1, instr(why, '; so were all times before ') - 1)
WHERE instr(why, '; so were all times before ') > 0;

-- A form without an end is the whole sentence; else what is between its two ends is its fact.
UPDATE runs SET skip_reason = found.reason, skip_facts = found.facts
FROM (
    SELECT r.run_id, f.reason, CASE f.reason
        WHEN 'late' THEN json_object('seconds', CAST(r.fact AS INTEGER))
        WHEN 'behind' THEN json_object('count', CAST(r.fact AS INTEGER))
        WHEN 'set' THEN json_object('state', substr(r.fact, 1, instr(r.fact, ' by ') - 1),
            'who', substr(r.fact, instr(r.fact, ' by ') + 4))
        WHEN 'rights' THEN json_object('rights', f.rights, 'who', r.fact)
        WHEN 'cancelled' THEN json_object('who', r.fact)
        WHEN 'changed' THEN json_object('who', r.fact)
        ELSE '{}' END AS facts
    FROM skip_forms f
    JOIN (SELECT s.run_id, s.why, g.rowid AS form,
            iif(g.after IS NULL, '', substr(s.why, length(g.before) + 1,
                length(s.why) - length(g.before) - length(g.after))) AS fact
        FROM runs s CROSS JOIN skip_forms g WHERE s.why <> '' AND iif(g.after IS NULL, s.why = g.before,
            length(s.why) > length(g.before) + length(g.after)
            AND substr(s.why, 1, length(g.before)) = g.before
            AND (g.after = '' OR substr(s.why, -length(g.after)) = g.after))) AS r ON r.form = f.rowid
    WHERE (f.reason NOT IN ('late', 'behind') OR r.fact NOT GLOB '*[^0-9]*')
      AND (f.reason <> 'set' OR instr(r.fact, ' by ') > 0)
) AS found
WHERE found.run_id = runs.run_id;
UPDATE runs SET skip_reason = 'refused', skip_facts = json_object('text', why)
WHERE why <> '' AND skip_reason IS NULL;
DROP TABLE skip_forms;

DROP TRIGGER runs_session;
CREATE TRIGGER runs_session AFTER INSERT ON runs WHEN NEW.skip_reason IS NULL BEGIN
    INSERT OR IGNORE INTO session_parents (session_id, parent_session_id)
    SELECT m.session_id, coalesce(
        (SELECT p.session_id FROM messages p WHERE p.message_id = NEW.parent_message_id
            AND p.agent_id = m.agent_id),
        (SELECT nullif(t.parent_session_id, '') FROM tasks t WHERE t.task_id = NEW.task_id)) AS parent
    FROM messages m WHERE m.message_id = NEW.run_id AND parent IS NOT NULL
        AND parent <> m.session_id;
END;
ALTER TABLE runs DROP COLUMN why;
