from __future__ import annotations

import asyncio
import re

import pytest

from agentsup.fakes.entropy import SeededEntropy
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from tests.support.loop_clock import LoopClock


class HandClock:
    """A clock that stands where the test puts it."""

    def __init__(self, now_ms: int) -> None:
        self.wall_ms = now_ms

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.wall_ms / 1000

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


async def test_monotonic_is_the_loops_time() -> None:
    loop = asyncio.get_running_loop()
    before = loop.time()
    assert before <= SystemClock().monotonic() <= loop.time()


def test_monotonic_works_in_a_thread_without_a_loop() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()


async def test_loop_clock_derives_the_wall_from_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = LoopClock(epoch_ms=5_000)
    loop = asyncio.get_running_loop()
    origin = loop.time()
    monkeypatch.setattr(loop, "time", lambda: origin)
    assert clock.now_ms() == 5_000
    monkeypatch.setattr(loop, "time", lambda: origin + 1.5)
    assert clock.now_ms() == 6_500
    clock.jump_ms(-3_600_000)
    assert clock.now_ms() == 6_500 - 3_600_000
    assert clock.monotonic() == origin + 1.5


async def test_sleep_accepts_zero_and_negative() -> None:
    await SystemClock().sleep(-1)
    await LoopClock().sleep(0)


def test_ids_sort_in_order_of_creation_also_when_the_wall_steps_back() -> None:
    clock = HandClock(1_800_000_000_000)
    entropy = SystemEntropy(clock)
    ids = []
    for step in (0, 0, 1, 0, -5_000, 0, 3, 0):
        clock.wall_ms += step
        ids += [entropy.new_id("msg") for _ in range(50)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"msg_[0-9abcdefghjkmnpqrstvwxyz]{26}", one) for one in ids)


def test_ids_of_a_later_source_sort_after_those_of_an_earlier_one() -> None:
    early = SystemEntropy(HandClock(1_000)).new_id("a")
    late = SystemEntropy(HandClock(1_001)).new_id("a")
    assert early < late


def test_tokens_carry_256_bits_and_are_url_safe() -> None:
    for entropy in (SystemEntropy(HandClock(0)), SeededEntropy(HandClock(0), 1)):
        first, second = entropy.token(), entropy.token()
        assert first != second
        assert re.fullmatch(r"[A-Za-z0-9_-]{43}", first)


def test_seeded_entropy_repeats_itself_and_only_itself() -> None:
    def draw(seed: int) -> tuple[str, str, float]:
        entropy = SeededEntropy(HandClock(7), seed)
        return entropy.new_id("x"), entropy.token(), entropy.uniform(0, 1)

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_uniform_stays_in_its_bounds() -> None:
    for entropy in (SystemEntropy(HandClock(0)), SeededEntropy(HandClock(0), 3)):
        assert all(0.5 <= entropy.uniform(0.5, 1.5) <= 1.5 for _ in range(200))
