"""Managed bots: main's bot offers to create a bot for an agent, and a person does so with one tap.

On Telegram only people create bots. A bot with *Bot Management Mode* may suggest a name, and gets the
token of each bot that a person creates at its suggestion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote

from agentsup.model.principal import Principal

OFFER_MS: Final = 900_000
"""Time for which an offer is open. Telegram does not say when a person declines."""


@dataclass(frozen=True, slots=True)
class CreatedBot:
    """A bot that Telegram reports to main's bot. If ``is_new`` is False, the report may be about a
    changed token or owner."""

    bot_id: int
    username: str
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class BotOffer:
    """A bot that an operator may create for an agent, with the names that Telegram suggests."""

    offer_id: int
    agent: str
    name: str
    username: str
    manager: str
    """The user name of main's bot."""
    expires_at: int
    """Wall ms."""

    @property
    def link(self) -> str:
        """The link that opens Telegram's form for this bot."""
        return (
            f"https://t.me/newbot/{self.manager}/{self.username}?name={quote(self.name, safe='')}"
        )


class BotMaker(Protocol):
    """Adds agents, and offers and assigns bots, for operators. Every method raises ``Forbidden``
    for other principals."""

    async def add(self, agent: str, description: str, by: Principal) -> None:
        """Add an agent to agents.json. Raises ``Refused``, ``ConfigError`` and ``ConfigErrors``."""

    async def offer(self, agent: str, by: Principal, *, maker: int = 0) -> BotOffer:
        """Offer to create the agent's bot; an agent that is not there is added to agents.json.

        ``maker`` is the Telegram id of the person who is offered it, 0 for any operator. Raises
        ``Conflict`` with what to do if the agent has a bot or main's bot may not create any,
        ``BadRequest``, ``ConfigError`` and what the platform raises.
        """

    async def assign(self, bot_id: int, agent: str, by: Principal) -> str:
        """Give a bot to an agent that is there, if it was created through main's bot and has no
        agent; returns what to tell the person. Raises ``NotFound`` and what the platform raises."""


class BotKeeper(Protocol):
    """Handles events of bots: a bot was created, or its token was refused."""

    async def seen(self, bot: CreatedBot, maker: int, language: str) -> None:
        """Handle what Telegram told main's bot of ``bot``; ``maker`` is its owner. It may be called
        any number of times. Returns once the token is kept; raises what the platform raises if it
        has to be called again."""

    async def renew_token(self, agent_id: str) -> bool:
        """Whether there is a new token in place of one that Telegram refuses."""


class NoBotKeeper:
    """A ``BotKeeper`` that does nothing."""

    async def seen(self, bot: CreatedBot, maker: int, language: str) -> None:
        """Do nothing."""

    async def renew_token(self, agent_id: str) -> bool:
        """Return False."""
        return False
