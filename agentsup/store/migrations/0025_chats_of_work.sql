-- Tasks, schedules, results and requests of programs that deliver to a chat are no texts of people
-- there: a question about their interrupted call has a deadline too, and holds their session no more.
INSERT OR IGNORE INTO set_aside (seq)
    SELECT DISTINCT m.seq FROM messages m JOIN questions q ON q.message_id = m.message_id
    WHERE m.state = 'parked' AND q.state = 'open' AND q.kind = 'uncertain'
      AND NOT (m.kind = 'chat' AND m.lane = 'interactive');
UPDATE questions SET deadline_at = asked_at + 900000
    WHERE state = 'open' AND kind = 'uncertain' AND deadline_at IS NULL
      AND message_id IN (SELECT m.message_id FROM messages m JOIN set_aside a ON a.seq = m.seq);
