"""What clients of `/ws` have said and is not accepted yet: its order, its bounds, and what a stop
does to it.

A text waits here for the one before it, for its files and for the store. Where a stop is read
meanwhile it must not begin after it (P5): it is marked, and the transaction that would accept it
looks at the mark. The store takes one transaction after the other, so a text is either accepted
before the stop is written, and stopped by that, or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from agentsup.channels.stops import Scope
from agentsup.model.errors import Conflict, Overloaded
from agentsup.model.message import Accepted
from agentsup.store.database import Tx

__all__ = ["Said", "Says", "Spoken", "Stopped"]


class Stopped(Conflict):
    """A stop came before the text was accepted."""

    code: ClassVar[str] = "stopped"


@dataclass(slots=True, eq=False)
class Said:
    """One text on its way into the mailbox."""

    agent_id: str
    place: str
    after: tuple[asyncio.Event, ...]
    """Ends of the stops that its client gave before it."""
    is_stopped: bool = False

    async def turn(self) -> None:
        """Wait for the stops before it. Raises `Stopped` for one after it."""
        for ended in self.after:
            await ended.wait()
        self._check()

    def also(self, tx: Tx, accepted: Accepted) -> None:
        """The last look, in the transaction that accepts it."""
        del tx
        if not accepted.duplicate:
            self._check()

    def _check(self) -> None:
        if self.is_stopped:
            raise Stopped("a stop came before this text was accepted; say it again if it counts")


class Spoken:
    """All texts under way, whoever said them."""

    def __init__(self) -> None:
        """Nobody has said anything."""
        self._texts: set[Said] = set()

    @contextmanager
    def among(self, said: Said) -> Iterator[None]:
        """A stop finds it during the block."""
        self._texts.add(said)
        try:
            yield
        finally:
            self._texts.discard(said)

    def stop(self, scope: Scope) -> None:
        """A stop was read: what was said in its scope before is not accepted any more."""
        for said in self._texts:
            if scope.covers(said.agent_id, said.place):
                said.is_stopped = True


class Says:
    """What one client has under way. Commands are counted apart, so that texts keep out no stop."""

    def __init__(self, limit: int) -> None:
        """At most `limit` texts, and as many commands."""
        self._limit = limit
        self._counts = {"texts": 0, "commands": 0}
        self._stops: set[asyncio.Event] = set()
        self.in_order = asyncio.Lock()
        """Held by the text that is being accepted."""

    def begin(self, *, is_command: bool) -> None:
        """Count one more until `end`. Raises `Overloaded`."""
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
        """It is accepted, answered or refused."""
        self._counts["commands" if is_command else "texts"] -= 1

    def said(self, agent_id: str, place: str, *, is_command: bool) -> Said:
        """What was read just now; a command waits for no stop."""
        return Said(agent_id, place, () if is_command else tuple(self._stops))

    def stop(self) -> asyncio.Event:
        """A stop was read: texts wait until the event is set, by `stopped`."""
        ended = asyncio.Event()
        self._stops.add(ended)
        return ended

    def stopped(self, ended: asyncio.Event) -> None:
        """That stop has ended."""
        ended.set()
        self._stops.discard(ended)
