"""The scope of a stop given in a chat, for channels that hold unread texts. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.model.agent import MAIN
from agentsup.model.control import CommandInfo
from agentsup.model.principal import PersonRole, Principal

_ENDING = re.compile(
    r"\s*[/!](stop|stop_all|interrupt)(?:@\S+)?(?:\s.*)?\Z", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class StopScope:
    """The scope of a stop. ``bot_id`` empty: all bots; ``conversation`` empty: all chats."""

    bot_id: str = ""
    conversation: str = ""

    def covers(self, bot_id: str, conversation: str) -> bool:
        """Whether that conversation of that bot is in the scope."""
        return self.bot_id in ("", bot_id) and self.conversation in ("", conversation)


def is_stop(text: str) -> bool:
    """Whether the text is a command that ends running work."""
    return _ENDING.match(text) is not None


def scope_of(
    text: str,
    *,
    agent_name: str,
    bot_id: str,
    conversation: str,
    principal: Principal,
    offered: Sequence[CommandInfo],
) -> StopScope | None:
    """Return what ``text`` stops, or None if it is no stop or one that this person may not give.

    ``offered``: the commands of that agent's chat.
    """
    match = _ENDING.match(text)
    if match is None or principal.role < PersonRole.USER:
        return None
    name = match[1].casefold()
    if name == "interrupt":
        return None  # it ends the running turn, and waiting texts stay
    info = next((each for each in offered if each.name == name), None)
    if info is None or (info.operator and principal.role < PersonRole.OPERATOR):
        return None
    if name == "stop":
        return StopScope(bot_id, conversation)
    return StopScope() if agent_name == MAIN else StopScope(bot_id)
