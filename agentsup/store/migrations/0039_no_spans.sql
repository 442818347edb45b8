-- Traces are read from messages, segments, calls, usage, questions and the outbox.
DROP TABLE spans;
-- The engine and the model that a segment ran with, known at its end.
ALTER TABLE segments ADD COLUMN engine TEXT NOT NULL DEFAULT '';
ALTER TABLE segments ADD COLUMN model TEXT NOT NULL DEFAULT '';
-- All messages of a trace.
CREATE INDEX messages_trace ON messages (traceparent);
