-- Whose work it is where 0021 did not know, as the messages at its root were past retention. Without
-- a root on record it is the operators', as old memories are: nobody's would be open to everybody.

-- Somebody who asked for a task and is an operator was taken for a person below.
UPDATE tasks SET owner = json_set(owner, '$.behalf', 'operator')
WHERE owner_kind = 'agent' AND asked_by <> '' AND owner ->> '$.behalf' = 'person:' || asked_by
  AND created_at <= (SELECT applied_at FROM schema_version WHERE version = 21)
  AND asked_by IN (SELECT principal ->> '$.subject' FROM messages
      WHERE principal ->> '$.kind' = 'person' AND (principal ->> '$.role') >= 2)
  AND NOT EXISTS (SELECT 1 FROM messages m JOIN messages r ON r.message_id = m.root_id
      WHERE m.message_id = tasks.parent_message_id);

-- A task begun in a run of another one is that one's person's.
WITH RECURSIVE
begun (task_id, in_task) AS MATERIALIZED (
    SELECT k.task_id, r.task_id FROM tasks k
    LEFT JOIN messages m ON m.message_id = k.parent_message_id
    JOIN runs r ON r.run_id = coalesce(m.root_id, k.parent_message_id)
    WHERE k.owner_kind = 'agent' AND coalesce(k.owner ->> '$.behalf', '') = '' AND r.task_id <> ''
),
known (task_id, person) AS (
    SELECT task_id, owner ->> '$.behalf' FROM tasks
    WHERE owner_kind = 'agent' AND coalesce(owner ->> '$.behalf', '') <> ''
    UNION
    SELECT begun.task_id, known.person FROM known JOIN begun ON begun.in_task = known.task_id
)
UPDATE tasks SET owner = json_set(owner, '$.behalf', known.person) FROM known
WHERE known.task_id = tasks.task_id AND tasks.owner_kind = 'agent'
  AND coalesce(tasks.owner ->> '$.behalf', '') = '';
UPDATE tasks SET owner = json_set(owner, '$.behalf', 'operator')
WHERE owner_kind = 'agent' AND coalesce(owner ->> '$.behalf', '') = ''
  AND created_at <= (SELECT applied_at FROM schema_version WHERE version = 21)
  AND NOT EXISTS (SELECT 1 FROM messages m JOIN messages r ON r.message_id = m.root_id
      WHERE m.message_id = tasks.parent_message_id);

-- The runs of these tasks, and what they led to.
UPDATE messages SET person = t.person, principal = json_set(principal, '$.behalf', t.person)
FROM (SELECT r.run_id, k.asked_by, k.owner ->> '$.behalf' AS person
      FROM runs r JOIN tasks k USING (task_id) WHERE k.owner_kind = 'agent') t
WHERE messages.message_id = t.run_id AND t.person <> ''
  AND (messages.person = '' OR (t.person = 'operator'
      AND messages.person = 'person:' || t.asked_by
      AND (messages.root_id = messages.message_id OR NOT EXISTS
          (SELECT 1 FROM messages r WHERE r.message_id = messages.root_id))));
UPDATE messages SET person = r.person FROM messages r
WHERE r.message_id = messages.root_id AND messages.root_id <> messages.message_id
  AND r.person <> '' AND messages.person <> r.person
  AND r.message_id IN (SELECT run_id FROM runs);
UPDATE messages SET person = coalesce(
    (SELECT max(s.person) FROM messages s
     WHERE s.root_id = messages.root_id AND s.root_id <> s.message_id AND s.person <> ''),
    'operator')
WHERE person = '' AND root_id <> message_id
  AND NOT EXISTS (SELECT 1 FROM messages r WHERE r.message_id = messages.root_id);

-- A conversation is that of the one person below operator who writes there; without one, the
-- operators'. Whoever wrote under two roles has the later one.
UPDATE conversations SET person = s.person
FROM (SELECT agent_id, channel, conversation,
             CASE count(*) FILTER (WHERE person <> 'operator')
                 WHEN 0 THEN 'operator'
                 WHEN 1 THEN max(person) FILTER (WHERE person <> 'operator')
                 ELSE '*' END AS person
      FROM (SELECT agent_id, deliver_to ->> '$.channel' AS channel,
                   deliver_to ->> '$.conversation' AS conversation, person, max(seq)
            FROM messages
            WHERE kind = 'chat' AND sender_agent_id = '' AND (deliver_to ->> '$.kind') = 'chat'
              AND person <> '' AND principal ->> '$.kind' IN ('person', 'operator')
            GROUP BY 1, 2, 3, principal ->> '$.kind', principal ->> '$.subject')
      GROUP BY 1, 2, 3) s
WHERE s.agent_id = conversations.agent_id AND s.channel = conversations.channel
  AND s.conversation = conversations.conversation;
