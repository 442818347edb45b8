-- An edit is compared with the last text of its message, whatever that text became.
DROP INDEX updates_became;
CREATE INDEX updates_of_message ON updates (channel, bot_id, chat_id, platform_id)
    WHERE chat_id IS NOT NULL;
