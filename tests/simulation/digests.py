"""Digests of seeded histories, by which two commits are compared seed by seed:

    PYTHONHASHSEED=0 python -m tests.simulation.digests FIRST LAST FILE

writes a line ``SEED DIGEST`` for each seed up to LAST into FILE. Run it on both commits and compare the
files. A change that moves no ``await`` leaves all digests as they are; one that does changes some, and
is judged by the invariants alone. No digests are recorded in the repository: each wanted change of
behaviour would change them, and the invariants hold in any case.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.sim_world import World
from tests.support.simulation import run_simulation

_ID = re.compile(r"\b[a-z]{1,8}_[0-9a-hjkmnp-tv-z]{26}\b")


def digest(world: World) -> str:
    """What the world outside saw, as 16 hex digits. Ids count by their first appearance."""
    seen: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return seen.setdefault(found[0], f"#{len(seen)}")

    facts = (
        world.accepted,
        world.keys,
        sorted(world.effects.items()),
        sorted(world.again.items()),
        sorted(world.delivered.items()),
        sorted(world.arrivals.items()),
        world.questions,
        sorted(world.answers.items()),
        sorted(world.asked.items()),
        world.stopped,
        sorted(world.epochs.items()),
        sorted(world.late.items()),
        sorted(world.passings.items()),
        world.clock.monotonic(),
    )
    return hashlib.sha256(_ID.sub(numbered, repr(facts)).encode()).hexdigest()[:16]


def lines(first: int, last: int) -> Iterator[str]:
    """A line for each seed from ``first`` to ``last``."""
    for seed in range(first, last + 1):
        yield f"{seed} {digest(run_simulation(seed))}\n"


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0" or len(sys.argv) != 4:
        sys.exit("PYTHONHASHSEED=0 python -m tests.simulation.digests FIRST LAST FILE")
    with Path(sys.argv[3]).open("w", encoding="utf-8") as file:
        file.writelines(lines(int(sys.argv[1]), int(sys.argv[2])))
