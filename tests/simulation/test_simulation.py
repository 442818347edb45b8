"""Thousands of seeded histories of the whole machine, each ending in a calm life.

A failing seed prints the command that replays it. Seeds that once failed are run first.
"""

import os

import pytest

from agentsup.testing.simloop import seeds
from agentsup.testing.simulation import run_simulation

SEEDS = 200
CHUNKS = 20
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
)


@pytest.mark.timeout(0 if os.environ.get("AGENTSUP_SIM_SEEDS") else 120)
@pytest.mark.leaks("tasks", "errors", reason="a history that breaks off leaves its work behind")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_holds_in_every_history(chunk: int) -> None:
    is_single = "AGENTSUP_SIM_SEED" in os.environ
    for position, seed in enumerate(seeds(SEEDS, corpus=CORPUS)):
        if is_single or position % CHUNKS == chunk:
            run_simulation(seed)


def test_a_seed_is_one_history() -> None:
    first, second = run_simulation(11), run_simulation(11)
    assert first.accepted
    assert first.accepted == second.accepted
    assert first.delivered == second.delivered
    assert first.asked == second.asked


def test_the_histories_are_eventful() -> None:
    """A simulation in which nothing happens proves nothing."""
    worlds = [run_simulation(seed) for seed in range(60)]
    assert sum(len(world.accepted) for world in worlds) > 200
    assert sum(sum(world.effects.values()) for world in worlds) > 60
    assert sum(len(world.stopped) for world in worlds) > 20
    assert sum(sum(world.answers.values()) for world in worlds) > 10
    assert sum(code == "" for world in worlds for code in world.asked.values()) > 50
    assert sum(code == "loop_detected" for world in worlds for code in world.asked.values()) > 10
