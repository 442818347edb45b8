-- Offers to create a bot for an agent through main's bot, and the bots that people created so.
CREATE TABLE bot_offers (
    offer_id INTEGER PRIMARY KEY AUTOINCREMENT,
    agent    TEXT NOT NULL,
    -- The suggested user name; of a created bot, its own.
    username TEXT NOT NULL,
    -- The Telegram id of who was offered it, 0 if any operator was; of a created bot, its creator's.
    maker    INTEGER NOT NULL,
    made_at  INTEGER NOT NULL,
    bot_id   INTEGER UNIQUE,
    state    TEXT NOT NULL CHECK (state IN ('open', 'asked', 'bound', 'taken', 'refused'))
) STRICT;
