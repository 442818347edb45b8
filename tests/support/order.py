"""The order in which the workers of a run take its tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def dealt(tests: Sequence[T], workers: int, allowed_s: Callable[[T], float]) -> list[T]:
    """``tests`` in as many equal parts as there are workers, each with its share of those that are
    allowed time of their own, most first. The others keep their order.

    pytest-xdist (``worksteal``) gives each worker such a part, from front to back, and takes from the
    end of a part what another worker has time for. With all long tests in front the first worker would
    have them alone.

    Args:
        tests: what is to be run, in the order that was drawn.
        workers: how many run side by side, 1 or more.
        allowed_s: the seconds that a test is allowed, 0 if it has no limit of its own.
    """
    long = sorted(filter(allowed_s, tests), key=allowed_s, reverse=True)
    others = [test for test in tests if not allowed_s(test)]
    order: list[T] = []
    for left in range(workers, 0, -1):
        share = long[left - 1 :: workers]
        room = (len(tests) - len(order)) // left - len(share)
        taken, others = others[:room], others[room:]
        order += [*share, *taken]
    return order
