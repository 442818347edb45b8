"""Whose entries go where an agent's memory is full. Pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

_AT_ONCE = 50
"""One in so many of a person's entries goes along with those that must."""


class Held(NamedTuple):
    """How many entries a person has, and how many of them may go."""

    person: str
    entries: int
    loose: int


def room(held: Iterable[Held], saver: str, *, over: int, limit: int) -> Counter[str]:
    """How many entries of each person are to be dropped, ``over`` in all and some more so that the
    next savings find room; fewer than ``over`` where no more may go.

    They are always of the person who has the most, the ``saver`` first among equals. Of another than
    the saver nothing goes that is within an equal part of ``limit``.
    """
    of = {each.person: each for each in held}
    part = limit // max(1, len(of))
    drops: Counter[str] = Counter()
    heap = [(-each.entries, each.person != saver, each.person) for each in of.values()]
    heapq.heapify(heap)
    while heap and drops.total() < over:
        fewer, is_other, person = heapq.heappop(heap)
        if drops[person] < of[person].loose and not (is_other and -fewer <= part):
            drops[person] += 1
            heapq.heappush(heap, (fewer + 1, is_other, person))
    for person, number in drops.items():
        _, entries, loose = of[person]
        spare = loose - number if person == saver else min(loose, entries - part) - number
        drops[person] += max(0, min(spare, entries // _AT_ONCE))
    return drops
