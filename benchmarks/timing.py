"""Calibration and timing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter


async def _nothing() -> None:
    pass


async def calibrate(rounds: int = 20) -> float:
    """Microseconds to await an empty coroutine: how fast this machine is at this moment.

    The smallest of many short repetitions, so that other processes do not count.
    """
    best_s = float("inf")
    for _ in range(rounds):
        began_s = perf_counter()
        for _ in range(1_000):
            await _nothing()
        best_s = min(best_s, perf_counter() - began_s)
    return best_s * 1_000


async def each_ms(count: int, act: Callable[[int], Awaitable[object]]) -> list[float]:
    """Do ``act(number)`` one after another; how long each took, in ms."""
    took = []
    for number in range(count):
        began_s = perf_counter()
        await act(number)
        took.append((perf_counter() - began_s) * 1_000)
    return took
