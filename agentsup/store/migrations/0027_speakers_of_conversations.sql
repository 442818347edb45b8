-- Who spoke last in a conversation: a person's subject, empty for the console, none where that is not
-- on record. A conversation counts as the operators' while that one is an operator.
ALTER TABLE conversations ADD COLUMN speaker TEXT;
UPDATE conversations SET speaker = s.speaker
FROM (SELECT agent_id, deliver_to ->> '$.channel' AS channel,
             deliver_to ->> '$.conversation' AS conversation, max(seq),
             iif((principal ->> '$.kind') = 'person', principal ->> '$.subject', '') AS speaker
      FROM messages
      WHERE kind = 'chat' AND (deliver_to ->> '$.kind') = 'chat'
        AND (principal ->> '$.kind') IN ('person', 'operator')
      GROUP BY 1, 2, 3) s
WHERE s.agent_id = conversations.agent_id AND s.channel = conversations.channel
  AND s.conversation = conversations.conversation;
UPDATE conversations SET speaker = ''
WHERE speaker IS NULL AND (channel = 'console'
    OR channel = 'web' AND (conversation = 'local' OR conversation GLOB 'local.*'));

-- Which operator let a key go on with a session of another place: as above, none where it is its own.
-- Of before, it is whoever spoke last in the operators' chat, or the one person whose chat it is.
ALTER TABLE pointers ADD COLUMN pointed_by TEXT;
UPDATE pointers SET pointed_by = iif(c.person = 'operator', c.speaker, substr(c.person, 8))
FROM conversations c, sessions s
WHERE c.agent_id = pointers.agent_id AND pointers.key = 'chat:' || c.channel || ':' || c.conversation
  AND c.person NOT IN ('', '*')
  AND s.session_id = pointers.session_id AND s.key <> pointers.key
  AND EXISTS (SELECT 1 FROM pointers o WHERE o.agent_id = s.agent_id AND o.key = s.key);
