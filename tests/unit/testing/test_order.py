"""The order of tests over workers."""

from __future__ import annotations

import pytest

from tests.support.order import dealt


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("long", [0, 1, 7, 20])
def test_each_worker_begins_with_its_share_of_the_long_ones(workers: int, long: int) -> None:
    tests = [(f"t{n}", float(n % 4 + 1) if n < long else 0.0) for n in range(20)]
    order = dealt(tests, workers, lambda test: test[1])
    assert sorted(order) == sorted(tests)
    rest = list(order)
    shares = []
    for number in range(workers):
        size = len(rest) // (workers - number)  # as worksteal divides them
        part, rest = rest[:size], rest[size:]
        times = [allowed for _, allowed in part]
        assert times == sorted(times, reverse=True)
        shares.append(sum(map(bool, times)))
    assert max(shares) - min(shares) <= 1


def test_the_others_keep_the_order_that_was_drawn() -> None:
    tests = [("c", 0.0), ("long", 9.0), ("a", 0.0), ("b", 0.0)]
    assert [name for name, _ in dealt(tests, 1, lambda test: test[1])] == ["long", "c", "a", "b"]
