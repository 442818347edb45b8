"""The limits and the priority of this process: looked at each minute, and given back.

A program of the same user that runs outside the fence can lower them, and so end or starve the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agentsup.kit.resources import Change, Resources, granted, restore
from agentsup.observe.logging import get_logger

_log = get_logger(__name__)


class ResourceKeeper:
    """Gives back what was taken since it was made, and tells of it once."""

    def __init__(self, give_back: Callable[[Resources], list[Change]] = restore) -> None:
        """``give_back``: finds what is less than at the start."""
        self._start = granted()
        self._give_back = give_back
        self._lasting: tuple[Change, ...] = ()
        self._untold: list[Change] = []

    async def look(self, tell: Callable[[str], Awaitable[None]]) -> None:
        """Give back what can be. Raises ``StoreUnavailable`` where it can't be told; it is told at
        the next look then."""
        found = await asyncio.to_thread(self._give_back, self._start)
        self._untold += [each for each in found if each not in self._lasting]
        self._lasting = tuple(each for each in found if not each.is_restored)
        if self._untold:
            text = told(self._untold)
            _log.error("limits or priority of this process were lowered", what=text)
            await tell(text)
            self._untold = []

    async def probe(self) -> str | None:
        """Limits that can't be given back while this process runs. A daemon with a lower priority is
        slower, and as ready as before: whoever runs it may want that."""
        limits = tuple(each for each in self._lasting if each.is_limit)
        if not limits:
            return None
        return f"lowered from outside, and stays so until a restart: {_listed(limits)}"


def told(changes: list[Change]) -> str:
    """What people read."""
    restored = [each for each in changes if each.is_restored]
    lasting = [each for each in changes if not each.is_restored]
    parts = ["Another program of this user has changed what the daemon's process may use."]
    if restored:
        parts.append(f"Put right: {_listed(restored)}.")
    if lasting:
        parts.append(
            f"It can't be put right, so stop the daemon and start it anew: {_listed(lasting)}."
        )
    return " ".join(parts)


def _listed(changes: list[Change] | tuple[Change, ...]) -> str:
    return "; ".join(map(str, changes))
