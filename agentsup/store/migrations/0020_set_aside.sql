-- Parked messages that hold their session up for nobody: work of programs, agents and HTTP whose
-- interrupted call a person is asked about. It counts only while the message is parked.
CREATE TABLE set_aside (
    seq INTEGER PRIMARY KEY REFERENCES messages (seq) ON DELETE CASCADE
) STRICT;
-- What waits so already has no deadline yet.
INSERT INTO set_aside (seq)
    SELECT DISTINCT m.seq FROM messages m JOIN questions q ON q.message_id = m.message_id
    WHERE m.state = 'parked' AND q.state = 'open' AND q.kind = 'uncertain'
      AND m.deliver_to ->> '$.kind' <> 'chat';
UPDATE questions SET deadline_at = asked_at + 900000
    WHERE state = 'open' AND kind = 'uncertain' AND deadline_at IS NULL
      AND message_id IN (SELECT m.message_id FROM messages m JOIN set_aside a ON a.seq = m.seq);
