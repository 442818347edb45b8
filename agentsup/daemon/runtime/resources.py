"""The limits and the priority of this process: checked each minute, and restored.

A program of the same user that runs outside the program fence can lower them, and so end or starve
the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agentsup.kit.log import get_logger
from agentsup.kit.resources import Change, Resources, granted, restore

_log = get_logger(__name__)


class ResourceKeeper:
    """Restores what was lowered since this object was made, and reports each change once."""

    def __init__(self, give_back: Callable[[Resources], list[Change]] = restore) -> None:
        """``give_back`` restores what is lower than at the start, and returns these changes."""
        self._start = granted()
        self._give_back = give_back
        self._lasting: tuple[Change, ...] = ()
        self._unreported: list[Change] = []

    async def look(self, tell: Callable[[str], Awaitable[None]]) -> None:
        """Restore what can be restored, and report it.

        Raises ``StoreUnavailable`` if it can't be reported; the next check reports it then.
        """
        found = await asyncio.to_thread(self._give_back, self._start)
        self._unreported += [each for each in found if each not in self._lasting]
        self._lasting = tuple(each for each in found if not each.is_restored)
        if self._unreported:
            text = report_text(self._unreported)
            _log.error("limits or priority of this process were lowered", what=text)
            await tell(text)
            self._unreported = []

    async def probe(self) -> str | None:
        """Name the limits that can't be restored while this process runs.

        A lower priority is no fault: the daemon is slower but works, and its owner may want that.
        """
        limits = tuple(each for each in self._lasting if each.is_limit)
        if not limits:
            return None
        return f"lowered from outside, and stays so until a restart: {_listed(limits)}"


def report_text(changes: list[Change]) -> str:
    """The text for people."""
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
