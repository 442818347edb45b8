-- Parked messages that hold their session up for nobody: work of programs, agents and HTTP whose
-- interrupted call a person is asked about. It counts only while the message is parked.
CREATE TABLE set_aside (
    seq INTEGER PRIMARY KEY REFERENCES messages (seq) ON DELETE CASCADE
) STRICT;
