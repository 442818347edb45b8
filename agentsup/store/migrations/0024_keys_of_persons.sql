-- Idempotency keys of an agent are apart for each person it acts for. Stored ones go on to stand for
-- what they stood for; those of messages past retention are the operators'.
UPDATE ledger SET source = source || ':' || coalesce(
    CASE substr(source, 1, instr(source, ':') - 1)
        WHEN 'task' THEN
            (SELECT iif(coalesce(k.owner ->> '$.behalf', '') = '', 'nobody', k.owner ->> '$.behalf')
             FROM tasks k WHERE k.task_id = ledger.message_id)
        WHEN 'broadcast' THEN
            (SELECT iif(m.person = '', 'nobody', m.person) FROM messages m
             WHERE m.thread_id = ledger.message_id AND m.thread_id <> '' LIMIT 1)
        ELSE
            (SELECT iif(m.person = '', 'nobody', m.person) FROM messages m
             WHERE m.message_id = ledger.message_id)
    END, 'operator')
WHERE source GLOB 'key:agent:*' OR source GLOB 'key:run:*' OR source GLOB 'task:agent:*'
   OR source GLOB 'reply:agent:*' OR source GLOB 'broadcast:agent:*' OR source GLOB 'assign:agent:*';
