"""The model that was chosen for one chat or topic of an agent, and the port that chooses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agentsup.model.principal import Principal


@dataclass(frozen=True, slots=True)
class ChatModel:
    """A choice as people see it. ``chat`` is ``<channel>:<conversation>``."""

    agent: str
    chat: str
    model: str
    chosen_by: str
    chosen_at: int
    not_used: str = ""
    """The service for which it was chosen, if another one answers now; then the agent's own model
    answers. Else empty."""
    unchecked: str = ""
    """Why the provider could not be asked for it just now; empty if it was, or need not be."""


class ChatModelChoices(Protocol):
    """Implemented by ``daemon.runtime.chat_models``. Methods raise ``NotFound`` for an unknown agent
    and ``BadRequest`` for a chat that is no ``<channel>:<conversation>``."""

    async def of(self, name: str) -> tuple[ChatModel, ...]:
        """The choices for chats of the agent."""

    async def here(self, name: str, chat: str) -> ChatModel | None:
        """The choice that holds in a chat or topic; a topic without one has that of its chat."""

    async def set(self, name: str, chat: str, model: str | None, by: Principal) -> ChatModel | None:
        """Choose ``model`` for a chat, or drop its choice. Returns what holds there now.

        Raises ``Forbidden`` for anybody but an operator, and ``Conflict`` if the choice would have
        no effect, or the provider lacks the model.
        """
