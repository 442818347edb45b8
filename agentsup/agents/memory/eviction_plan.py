"""Decides whose entries are dropped if an agent's memory is full. Pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

_AT_ONCE = 50
"""One in this many of a person's entries is dropped in addition, as room for the next saves."""


class PersonShare(NamedTuple):
    """Number of a person's entries, and of those that may be dropped (``loose``)."""

    person: str
    entries: int
    loose: int


def entries_to_drop(
    stored: Iterable[PersonShare], saver: str, *, over: int, limit: int
) -> Counter[str]:
    """Entries to evict per person: from whoever holds most, the ``saver`` first on ties,
    and of any other person never below an equal share of ``limit``.

    It is ``over`` in all, and some more so that the next saves find room; or fewer than ``over`` if
    no more may be dropped.
    """
    of = {each.person: each for each in stored}
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
