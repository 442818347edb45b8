"""Thousands of seeded histories of the whole machine, each ending in a calm life.

A failing seed prints the command that replays it. Seeds that once failed are run first.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.simulation.digests import digest
from tests.support.sim_world import World
from tests.support.simloop import seeds
from tests.support.simulation import run_simulation

SEEDS = 200
CHUNKS = 6
CORPUS = (
    *(291, 2199),  # an answer committed as the caller's patience ended was told to nobody
    *(1481, 2088, 2462, 2499, 2782, 3054, 3841),  # a returning turn took a slot promised to a claim
    *(1115, 2201),  # a reply to a reply came into a scope that had been stopped
    2319,  # a part taken back held up the ones behind it until the net came by
    *(2613, 3370),  # a session was given out while its cancelled turn was still ending
    *(14993, 41877, 75260),  # a dead letter requeued after a stop is new work and no return
    346,  # a stopped turn was given the result of a call made before
    *(9364, 75722, 79895),  # an engine that had ignored two requests to end worked on, once left
    *(4001, 4238),  # the net came a moment before the wake, and called it lost
    5274,  # work that a stop has left told its result by way of another agent
)


@pytest.mark.timeout(0 if os.environ.get("TEST_SIM_SEEDS") else 120)
@pytest.mark.leaks("tasks", "errors", reason="a history that breaks off leaves its work behind")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_holds_in_every_history(chunk: int) -> None:
    is_single = "TEST_SIM_SEED" in os.environ
    seen: Counter[str] = Counter()
    count = 0
    for position, seed in enumerate(seeds(SEEDS, corpus=CORPUS)):
        if is_single or position % CHUNKS == chunk:
            seen += events_of(run_simulation(seed))
            count += 1
    if count >= SEEDS // CHUNKS:
        are_eventful(seen, count)


def events_of(world: World) -> Counter[str]:
    """What happened in a history, counted."""
    return Counter(
        accepted=len(world.accepted),
        effects=sum(world.effects.values()),
        stopped=len(world.stopped),
        answers=sum(world.answers.values()),
        asked=sum(code == "" for code in world.asked.values()),
        loops=sum(code == "loop_detected" for code in world.asked.values()),
    )


def are_eventful(seen: Counter[str], histories: int) -> None:
    """A simulation in which nothing happens proves nothing: so much in 60 histories at least."""
    least = {"accepted": 200, "effects": 60, "stopped": 20, "answers": 10, "asked": 50, "loops": 10}
    too_few = {name: seen[name] for name in least if seen[name] * 60 <= least[name] * histories}
    assert not too_few, f"in {histories} histories: {too_few}"


def test_a_seed_is_one_history() -> None:
    first, second, other = (run_simulation(seed) for seed in (11, 11, 12))
    assert first.accepted
    assert digest(first) == digest(second)
    assert digest(first) != digest(other)
