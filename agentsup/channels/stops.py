"""What a stop in a chat is about, for channels that hold texts which nobody has read yet. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.model.agent import MAIN
from agentsup.model.control import CommandInfo
from agentsup.model.principal import PersonRole, Principal

__all__ = ["ELSEWHERE", "HERE", "Scope", "is_stop", "scope_of"]

_ENDING = re.compile(
    r"\s*[/!](stop|stop_all|interrupt)(?:@\S+)?(?:\s.*)?\Z", re.IGNORECASE | re.DOTALL
)
HERE = "stopped"
ELSEWHERE = "stopped from another chat"
"""Why a row was skipped whose people have not been told by the answer to the stop."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a stop is about. ``bot_id`` empty: all bots; ``conversation`` empty: all chats."""

    bot_id: str = ""
    conversation: str = ""

    def covers(self, bot_id: str, conversation: str) -> bool:
        """Whether that conversation of that bot is in it."""
        return self.bot_id in ("", bot_id) and self.conversation in ("", conversation)


def is_stop(text: str) -> bool:
    """Whether the text is a command that ends what runs."""
    return _ENDING.match(text) is not None


def scope_of(
    text: str,
    *,
    agent_name: str,
    bot_id: str,
    conversation: str,
    principal: Principal,
    offered: Sequence[CommandInfo],
) -> Scope | None:
    """What ``text`` stops, or None if it is no stop, or not one that this person may give.
    ``offered``: the commands of that agent's chat."""
    match = _ENDING.match(text)
    if match is None or principal.role < PersonRole.USER:
        return None
    name = match[1].casefold()
    if name == "interrupt":
        return None  # it ends what runs, and leaves what waits
    info = next((each for each in offered if each.name == name), None)
    if info is None or (info.operator and principal.role < PersonRole.OPERATOR):
        return None
    if name == "stop":
        return Scope(bot_id, conversation)
    return Scope() if agent_name == MAIN else Scope(bot_id)
