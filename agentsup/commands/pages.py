"""Lists in pages, and the buttons that turn them. Pure.

Only channels that show buttons get pages. On the others a list comes whole, and its text says what
the buttons offer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from agentsup.catalogue import LocalizedTexts
from agentsup.model.control import CommandButton, CommandButtons

T = TypeVar("T")
_MARK = "#"


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """Some items of a list. ``number`` counts from 1, ``first`` is the index of the first item."""

    items: tuple[T, ...]
    number: int
    count: int
    first: int
    total: int

    def heading(self, say: LocalizedTexts) -> str:
        """The range of items on this page, or empty if it is the whole list."""
        if self.count == 1:
            return ""
        last = self.first + len(self.items)
        return say("list.range", first=self.first + 1, last=last, total=self.total)


def wanted_page(rest: str) -> int | None:
    """The number of the page named by ``#3``; 1 for an empty text, None for any other."""
    if not rest:
        return 1
    number = rest.removeprefix(_MARK)
    if rest.startswith(_MARK) and number.isdecimal() and len(number) < 6:
        return max(1, int(number))
    return None


def page_of(items: Sequence[T], number: int, size: int) -> ListPage[T]:
    """The page ``number``, or the last one if the list has become shorter."""
    count = max(1, -(-len(items) // size))
    number = min(max(1, number), count)
    first = (number - 1) * size
    return ListPage(tuple(items[first : first + size]), number, count, first, len(items))


def turning(page: ListPage[T], command: str) -> CommandButtons:
    """The row of buttons to other pages; no row for a single page."""
    if page.count == 1:
        return ()
    row = []
    if page.number > 1:
        row.append(CommandButton("‹", f"{command} {_MARK}{page.number - 1}"))
    row.append(CommandButton(f"{page.number} / {page.count}", f"{command} {_MARK}{page.number}"))
    if page.number < page.count:
        row.append(CommandButton("›", f"{command} {_MARK}{page.number + 1}"))
    return (tuple(row),)


def columns(buttons: Sequence[CommandButton], width: int) -> CommandButtons:
    """Buttons in rows of at most ``width``."""
    return tuple(tuple(buttons[i : i + width]) for i in range(0, len(buttons), width))
