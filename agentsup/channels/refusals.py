"""Texts that found the agent's queue full: one word about all of them, once no more come.

Until then their rows stay as they came: a life that ends in between leaves them to the next one,
and never does a text vanish without a word.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from agentsup.kit.clock import Clock
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.model.errors import Overloaded, StoreUnavailable

__all__ = ["Refusal", "Refusals"]

_QUIET_S: Final = 1.0
_AT_MOST_S: Final = 5.0


class Kept(Protocol):
    """A row that a text is kept in."""

    @property
    def row_id(self) -> int: ...


RowT = TypeVar("RowT", bound=Kept)


@dataclass(slots=True)
class Refusal(Generic[RowT]):
    """What was refused in one conversation, in order. ``why`` is for the person."""

    conversation: str
    why: str = ""
    language: str = ""
    rows: list[RowT] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    """A few words by which a text is known again, by the number of its first row."""
    more: asyncio.Event = field(default_factory=asyncio.Event)


class Refusals(Generic[RowT]):
    """The refusals of one bot."""

    def __init__(self, clock: Clock, tell: Callable[[Refusal[RowT]], Awaitable[None]]) -> None:
        """``tell`` says it and closes the rows, in one transaction."""
        self._clock = clock
        self._tell = tell
        self._open: dict[str, Refusal[RowT]] = {}
        self._owner = TaskOwner("refusals")

    def add(
        self, conversation: str, rows: Sequence[RowT], text: str, *, why: str, language: str
    ) -> None:
        """One more was refused. Never blocks."""
        refusal = self._open.get(conversation)
        if refusal is None:
            refusal = self._open[conversation] = Refusal(conversation)
            try:
                self._owner.spawn(self._serve(refusal), name=f"refusals:{conversation}")
            except OwnerClosed:
                return  # the rows wait for the next life
        refusal.why, refusal.language = why, language
        refusal.rows += rows
        refusal.texts[rows[0].row_id] = text
        refusal.more.set()

    async def close(self) -> None:
        """What is not told yet is left to the next life."""
        await self._owner.close(1.0)

    async def _serve(self, refusal: Refusal[RowT]) -> None:
        until = self._clock.monotonic() + _AT_MOST_S
        try:
            while (left_s := until - self._clock.monotonic()) > 0:
                refusal.more.clear()
                async with asyncio.timeout(min(left_s, _QUIET_S)):
                    await refusal.more.wait()
        except TimeoutError:
            pass
        finally:
            del self._open[refusal.conversation]
        try:
            await self._tell(refusal)
        except (StoreUnavailable, Overloaded):
            return  # the store is closed: the rows wait for the next life
