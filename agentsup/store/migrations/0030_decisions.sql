-- What an answer decides about a call is a column, and not the beginning of its text. NULL: not answered.
ALTER TABLE questions ADD COLUMN decision TEXT
    CHECK (decision IN ('once', 'run', 'always', 'pattern', 'deny', 'text'));
-- How the question was closed. NULL: it is open.
ALTER TABLE questions ADD COLUMN closed_reason TEXT
    CHECK (closed_reason IN ('answered', 'deadline', 'skipped', 'withdrawn'));

UPDATE questions SET decision = CASE
        WHEN kind <> 'approval' THEN 'text'
        WHEN answer IN ('once', 'run', 'always', 'deny') THEN answer
        WHEN substr(answer, 1, 8) = 'pattern:' THEN 'pattern'
        WHEN substr(answer, 1, 5) = 'deny:' THEN 'deny'
        ELSE 'text' END
WHERE state = 'answered';
-- What is left of the answer: the pattern, the reason of a denial, or the text.
UPDATE questions SET answer = CASE decision
        WHEN 'pattern' THEN substr(answer, 9)
        WHEN 'deny' THEN ltrim(substr(answer, 5), ': ')
        ELSE '' END
WHERE decision IN ('once', 'run', 'always', 'pattern', 'deny');
UPDATE questions SET closed_reason = CASE
        WHEN state = 'answered' THEN 'answered'
        WHEN state = 'cancelled' THEN 'withdrawn'
        WHEN answered_by <> '' THEN 'skipped'
        ELSE 'deadline' END
WHERE state <> 'open';
