"""Offers to create bots, and the bots that were created, as rows. Times are wall ms.

A row is an offer until a bot is bound to it; a bot whose offer is not certain gets a row of its own.
Later updates about the same bot find its row, so that each is handled once, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from agentsup.model.managed_bots import OFFER_MS, CreatedBot
from agentsup.store import Reader, Retention, Tx

ASKED: Final = "asked"
"""An operator was asked for which agent the bot is."""
BOUND: Final = "bound"
"""It is certain for which agent it is; its token may not be kept yet."""
TAKEN: Final = "taken"
REFUSED: Final = "refused"
"""Telegram gave no token."""
_COLUMNS: Final = "agent, username, maker, bot_id, state"
_ROW_MS: Final = 30 * 86_400_000


@dataclass(frozen=True, slots=True)
class BotRow:
    """An open offer, or a bot that was created. ``maker`` 0: any operator was offered it."""

    agent: str
    username: str
    maker: int
    bot_id: int | None
    state: str


def offer_tx(tx: Tx, agent: str, username: str, maker: int, *, at: int) -> int:
    """Store an offer and return its id."""
    cursor = tx.execute(
        "INSERT INTO bot_offers (agent, username, maker, made_at, state)"
        " VALUES (?, ?, ?, ?, 'open')",
        (agent, username, maker, at),
    )
    return int(cursor.lastrowid or 0)


def of_bot(reader: Reader, bot_id: int) -> BotRow | None:
    """The row of a bot; None if it was not seen before."""
    row = reader.one(f"SELECT {_COLUMNS} FROM bot_offers WHERE bot_id = ?", (bot_id,))  # noqa: S608
    return None if row is None else BotRow(*row)


def open_for(reader: Reader, maker: int, *, at: int) -> tuple[BotRow, ...]:
    """The offers that this person may take now, the latest first."""
    rows = reader.all(
        f"SELECT {_COLUMNS} FROM bot_offers WHERE state = 'open' AND maker IN (0, ?)"  # noqa: S608
        " AND made_at > ? AND made_at <= ? ORDER BY offer_id DESC",
        (maker, at - OFFER_MS, at),
    )
    return tuple(BotRow(*row) for row in rows)


def bind_tx(tx: Tx, bot: CreatedBot, maker: int, *, at: int) -> BotRow:
    """Bind a bot that an operator created to the offer that it was created for.

    That is the offer with its user name, or else the only agent that this person was offered a bot
    for: user names can be changed in the form. If it is not certain, the row says ``ASKED``.
    """
    offers = open_for(tx, maker, at=at)
    named = [each for each in offers if each.username.casefold() == bot.username.casefold()]
    own = [each for each in offers if each.maker == maker]
    agents = {each.agent for each in named or offers}
    state = BOUND if len(agents) == 1 and (named or own) else ASKED
    agent = agents.pop() if state == BOUND else ""
    if state == BOUND:
        # All offers for this agent end with it.
        tx.execute("DELETE FROM bot_offers WHERE state = 'open' AND agent = ?", (agent,))
    tx.execute(
        "INSERT INTO bot_offers (agent, username, maker, bot_id, state, made_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (agent, bot.username, maker, bot.bot_id, state, at),
    )
    return BotRow(agent, bot.username, maker, bot.bot_id, state)


def give_tx(tx: Tx, bot_id: int, agent: str) -> BotRow | None:
    """Bind a bot that has no agent to one; None if there is no such bot."""
    tx.execute(
        "UPDATE bot_offers SET agent = ?, state = 'bound' WHERE bot_id = ? AND state <> 'taken'",
        (agent, bot_id),
    )
    return of_bot(tx, bot_id)


def end_tx(tx: Tx, bot_id: int, state: str) -> bool:
    """Set the state of a bound bot; False if it was not bound."""
    cursor: Any = tx.execute(
        "UPDATE bot_offers SET state = ? WHERE bot_id = ? AND state = 'bound'", (state, bot_id)
    )
    return bool(cursor.rowcount)


def retention_rules() -> tuple[Retention, ...]:
    """A bot of which Telegram tells later is known by its agent's token."""
    return (Retention("bot_offers", "made_at < :cutoff", _ROW_MS, key="offer_id"),)
