"""Texts from clients of ``/ws`` that are not accepted yet: their order, their limits, and stops.

A text waits for the text before it, for its files and for the store. If a stop is read meanwhile,
the text must not begin after it (P5). So the stop marks the text, and the transaction that accepts
the text checks the mark. The store runs one transaction after the other. A text is therefore either
accepted before the stop is written, and cancelled by the stop, or not accepted at all.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from agentsup.model.errors import Conflict, Overloaded
from agentsup.model.message import Accepted
from agentsup.store import Tx


class StoppedBeforeAccept(Conflict):
    """A stop came before the text was accepted."""

    code: ClassVar[str] = "stopped"


@dataclass(slots=True, eq=False)
class PendingText:
    """One text on its way into the mailbox."""

    agent_id: str
    conversation: str
    after: tuple[asyncio.Event, ...]
    """Set when the stops end that the same client gave before the text."""
    is_stopped: bool = False

    async def turn(self) -> None:
        """Wait for the stops before the text. Raises ``StoppedBeforeAccept`` for one after it."""
        for ended in self.after:
            await ended.wait()
        self._check()

    def also(self, tx: Tx, accepted: Accepted) -> None:
        """Check the mark a last time, in the transaction that accepts the text."""
        del tx
        if not accepted.duplicate:
            self._check()

    def _check(self) -> None:
        if self.is_stopped:
            raise StoppedBeforeAccept(
                "a stop came before this text was accepted; say it again if it counts"
            )


class PendingTexts:
    """The texts and commands of one client that are not accepted or answered yet.

    Commands are counted separately, so that many texts can't block a stop.
    """

    def __init__(self, limit: int) -> None:
        """Allow ``limit`` texts, and as many commands."""
        self._limit = limit
        self._counts = {"texts": 0, "commands": 0}
        self._stops: set[asyncio.Event] = set()
        self.in_order = asyncio.Lock()
        """Held by the text that is being accepted."""

    def begin(self, *, is_command: bool) -> None:
        """Count one more until ``end``. Raises ``Overloaded`` at the limit."""
        kind = "commands" if is_command else "texts"
        if self._counts[kind] >= self._limit:
            raise Overloaded(
                f"{self._limit} {kind} of this connection are not accepted yet; wait for them",
                queue="ws.says",
                size=self._limit,
                limit=self._limit,
            )
        self._counts[kind] += 1

    def end(self, *, is_command: bool) -> None:
        """The text or command was accepted, answered or refused."""
        self._counts["commands" if is_command else "texts"] -= 1

    def said(self, agent_id: str, conversation: str, *, is_command: bool) -> PendingText:
        """Make the ``PendingText`` of what was read just now. A command waits for no stop."""
        return PendingText(agent_id, conversation, () if is_command else tuple(self._stops))

    def stop(self) -> asyncio.Event:
        """A stop was read: later texts wait for the returned event, which ``stopped`` sets."""
        ended = asyncio.Event()
        self._stops.add(ended)
        return ended

    def stopped(self, ended: asyncio.Event) -> None:
        """That stop has ended."""
        ended.set()
        self._stops.discard(ended)
