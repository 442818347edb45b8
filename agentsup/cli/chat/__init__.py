"""The console chat: a conversation over `/ws`, in a terminal or in a pipe."""

from __future__ import annotations

import sys

from agentsup.cli.failure import Failed
from agentsup.cli.locate import Place

__all__ = ["is_in_terminal", "run_chat"]


def is_in_terminal() -> bool:
    """Whether a person can read and write here."""
    return all(each is not None and each.isatty() for each in (sys.stdin, sys.stdout))


def run_chat(place: Place, agent: str, conversation: str, *, warns: bool = True) -> int:
    """Talk to `agent` until the person leaves or the input ends; returns the exit code. `warns`:
    say first what is amiss with the agent.

    Raises `Failed` where the daemon can't be reached at first or refuses the conversation.
    """
    import asyncio

    if is_in_terminal():
        from agentsup.cli.chat.terminal import chat_in_terminal as chat
    else:
        from agentsup.cli.chat.lines import chat_in_lines as chat
    place.address()  # says at once, and before anything heavy runs, that no daemon is known
    try:
        return asyncio.run(chat(place, agent, conversation, warns=warns))
    except KeyboardInterrupt:
        raise Failed(exit_code=130) from None
