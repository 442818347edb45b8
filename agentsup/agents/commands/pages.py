"""Lists in pages, and the buttons that turn them. Pure.

Only channels that show buttons get pages; elsewhere a list comes whole, and the text says by itself
what the buttons offer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from agentsup.catalogue import Words
from agentsup.model.control import Button

__all__ = ["Page", "columns", "page_of", "turning", "wanted_page"]

T = TypeVar("T")
_MARK = "#"


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items of a list; ``number`` counts from 1, ``first`` is the place of the first item."""

    items: tuple[T, ...]
    number: int
    count: int
    first: int
    total: int

    def heading(self, say: Words) -> str:
        """Where in the list this is, or nothing if it is the whole list."""
        if self.count == 1:
            return ""
        last = self.first + len(self.items)
        return say("list.place", first=self.first + 1, last=last, total=self.total)


def wanted_page(rest: str) -> int | None:
    """The page asked for by ``#3``; 1 for nothing, None for anything else."""
    if not rest:
        return 1
    number = rest.removeprefix(_MARK)
    if rest.startswith(_MARK) and number.isdecimal() and len(number) < 6:
        return max(1, int(number))
    return None


def page_of(items: Sequence[T], number: int, size: int) -> Page[T]:
    """The page ``number``, or the last one if the list has become shorter."""
    count = max(1, -(-len(items) // size))
    number = min(max(1, number), count)
    first = (number - 1) * size
    return Page(tuple(items[first : first + size]), number, count, first, len(items))


def turning(page: Page[T], command: str) -> tuple[tuple[Button, ...], ...]:
    """The row that turns pages; no row for a single page."""
    if page.count == 1:
        return ()
    row = []
    if page.number > 1:
        row.append(Button("‹", f"{command} {_MARK}{page.number - 1}"))
    row.append(Button(f"{page.number} / {page.count}", f"{command} {_MARK}{page.number}"))
    if page.number < page.count:
        row.append(Button("›", f"{command} {_MARK}{page.number + 1}"))
    return (tuple(row),)


def columns(buttons: Sequence[Button], width: int) -> tuple[tuple[Button, ...], ...]:
    """Buttons in rows of at most ``width``."""
    return tuple(tuple(buttons[i : i + width]) for i in range(0, len(buttons), width))
