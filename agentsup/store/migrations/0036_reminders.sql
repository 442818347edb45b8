-- What is done when the time of a task has come: a run ('turn'), or its text is told ('tell').
ALTER TABLE tasks ADD COLUMN does TEXT NOT NULL DEFAULT 'turn';
CREATE INDEX tasks_reminders ON tasks (agent_id, task_id) WHERE does = 'tell' AND state = 'todo';
CREATE INDEX tasks_reminded ON tasks (finished_at) WHERE does = 'tell' AND state <> 'todo';
