"""The console chat: a conversation over ``/ws``, in a terminal or in a pipe."""

from __future__ import annotations

import sys

from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation

__all__ = ["is_in_terminal", "run_chat"]


def is_in_terminal() -> bool:
    """Whether a person can read and write here."""
    return all(each is not None and each.isatty() for each in (sys.stdin, sys.stdout))


def run_chat(
    location: DaemonLocation, agent: str, conversation: str, *, warns: bool = True
) -> None:
    """Talk to ``agent`` until the person leaves or the input ends.

    ``warns``: show the agent's warnings first. Raises ``CommandFailed`` if the daemon can't be
    reached at first or refuses the conversation.
    """
    import asyncio

    from agentsup.cli.chat.conversation import ChatState
    from agentsup.kit.clock import SystemClock
    from agentsup.kit.entropy import SystemEntropy

    if is_in_terminal():
        from agentsup.cli.chat.terminal import chat_in_terminal as chat
    else:
        from agentsup.cli.chat.lines import chat_in_lines as chat
    location.address()  # raises at once, before anything heavy runs, if no daemon is known
    clock = SystemClock()
    entropy = SystemEntropy(clock)
    talk = ChatState(agent, conversation, lambda: entropy.new_id("say"), warns)
    try:
        asyncio.run(chat(location, talk, clock))
    except KeyboardInterrupt:
        raise CommandFailed(exit_code=130) from None
