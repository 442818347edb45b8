-- Why a part waits is a column where something acts on it, and no sentence that is compared.
ALTER TABLE outbox ADD COLUMN retry_reason TEXT NOT NULL DEFAULT ''
    CHECK (retry_reason IN ('', 'absent_bot'));
UPDATE outbox SET retry_reason = 'absent_bot'
WHERE state = 'pending' AND detail = 'the bot is not connected';
