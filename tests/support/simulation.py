"""Seeded simulation of the whole machine: real code, simulated ground, every promise checked.

One seed is one history: several lives of the daemon on one database file, in which people and
programs chat, ask, stop, interrupt, cancel, answer and repeat themselves, while engines fail,
stacks crash, wall time jumps and the process dies at random instants and at fault points. Then
comes a calm life in which everything must end. ``run_simulation`` raises ``Violation``, whose
``invariant`` names the broken promise; ``simloop`` adds the command that replays the seed.
"""

from __future__ import annotations

import logging
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from random import Random

from agentsup.kit import faults
from agentsup.model.errors import AgentsupError
from agentsup.store import migrate
from tests.support.sim_actors import Actors, answer_all, press
from tests.support.sim_bias import PLAIN, HistoryBias
from tests.support.sim_checks import check_end, check_restart
from tests.support.sim_node import AGENTS, Node, agent_id
from tests.support.sim_world import Violation, World
from tests.support.simloop import (
    BackgroundErrors,
    Crashed,
    SeededLoop,
    SimRun,
    SimulationStuck,
    run_lives,
)

CALM_HORIZON_S = 3000.0
_LOOK_EVERY_S = 1.0
_POINTS = sorted(faults.CORE_POINTS)

Course = Callable[[Node], Awaitable[None]]


def run_simulation(seed: int, leaning: HistoryBias = PLAIN) -> World:
    """Run one seed to its calm end and return what the world saw. Raises ``Violation``.

    With a ``leaning`` the seed is another history, in which some things happen more often.
    """
    with tempfile.TemporaryDirectory(prefix="agentsup-sim-", dir=_ground()) as folder, _silence():
        path = Path(folder) / "state.db"
        path.write_bytes(_template())
        with _world(seed, path) as world:
            return run_lives(seed, lambda run: _history(run, world, leaning))


@contextmanager
def _world(seed: int, path: Path) -> Iterator[World]:
    world = World(seed, path, Random(f"world:{seed}"))
    try:
        yield world
    finally:
        world.close()


def _history(run: SimRun, world: World, leaning: HistoryBias) -> World:
    actors = Actors(run.rng, leaning)
    deaths = leaning.deaths or _POINTS

    async def eventful(node: Node) -> None:
        await _eventful(node, actors, deaths)

    for _ in range(run.rng.choice((1, 1, 1, 2, 2, 3, 4))):
        _live(run, world, eventful)
        check_restart(world)
    world.calm = True
    _live(run, world, _calm)
    check_end(world)
    return world


def _live(run: SimRun, world: World, course: Course) -> None:
    """One life of the daemon."""
    nodes: list[Node] = []

    async def life(loop: SeededLoop) -> None:
        node = Node(world, loop, run.lives)
        nodes.append(node)
        await course(node)

    try:
        run.life(life)
    except Crashed:
        pass
    except SimulationStuck as error:
        raise Violation("everything-ends", str(error)) from error
    except BackgroundErrors as error:
        raise Violation("no-stray-errors", str(error)) from error
    finally:
        for node in nodes:
            node.lay_out()
    world.check()


async def _eventful(node: Node, actors: Actors, deaths: Sequence[str]) -> None:
    """Things happen, then the process dies, or ends in order."""
    world, rng = node.world, node.world.rng
    lasts_s = rng.uniform(0.5, 8)
    how = rng.random()
    with _crash_at(node, rng if how < 0.35 else None, deaths):
        await node.open()
        for question_id, options in list(world.questions.items()):
            node.spawn(_press_later(node, question_id, options), f"press:{question_id}")
        for actor in actors.draw(rng.randint(2, 7), lasts_s * 0.9):
            node.spawn(actor.run(node), f"actor:{actor.name}")
        await world.clock.sleep(lasts_s)
        if how < 0.75:
            node.crash()
            await world.clock.sleep(1)  # where it never comes back from
        await node.close()


async def _press_later(node: Node, question_id: str, options: tuple[str, ...]) -> None:
    rng = node.world.rng
    await node.world.clock.sleep(rng.uniform(0, 5))
    with suppress(AgentsupError):
        await press(node, question_id, rng.choice(options))


async def _calm(node: Node) -> None:
    """Nothing goes wrong any more; wait until everything has ended."""
    world = node.world
    await node.open()
    until = world.clock.monotonic() + CALM_HORIZON_S
    while _is_busy(world):
        if world.clock.monotonic() > until:
            open_rows = world.sql(
                "SELECT message_id, agent_id, state FROM messages"
                " WHERE state IN ('queued', 'leased', 'parked')"
            )
            raise Violation("everything-ends", f"still open: {[tuple(row) for row in open_rows]}")
        await answer_all(node)
        node.revive()
        await world.clock.sleep(_LOOK_EVERY_S)
    await node.close()


def _is_busy(world: World) -> bool:
    found = world.sql(
        "SELECT EXISTS (SELECT 1 FROM messages WHERE state IN ('queued', 'leased', 'parked'))"
        " OR EXISTS (SELECT 1 FROM outbox WHERE state = 'pending')"
    )
    return bool(found[0][0])


# -- ground ----------------------------------------------------------------------------------------


def _ground() -> str | None:
    """A folder in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@cache
def _template() -> bytes:
    """A database file of the present schema in which the agents are known."""
    with tempfile.TemporaryDirectory(dir=_ground()) as folder:
        path = Path(folder) / "state.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            migrate.migrate(connection, migrate.packaged(), now_ms=lambda: 0)
            connection.executemany(
                "INSERT INTO agents (agent_id, name, created_at) VALUES (?, ?, 0)",
                [(agent_id(name), name) for name in AGENTS],
            )
        return path.read_bytes()


class _CrashPlan(faults.FaultPlan):
    """Lets the process die at the n-th passing of a fault point."""

    def __init__(self, node: Node, point: str, nth: int) -> None:
        super().__init__()
        self.is_active = True
        self._node = node
        self._point = point
        self._left = nth

    def pass_point(self, name: str) -> None:
        if name == self._point and not self._node.life.is_dead:
            self._left -= 1
            if self._left == 0:
                self._node.crash()


@contextmanager
def _crash_at(node: Node, rng: Random | None, points: Sequence[str]) -> Iterator[None]:
    """Inside, the process dies at one of these points, drawn from ``rng`` if one is given."""
    if rng is None:
        yield
        return
    before = faults._plan
    faults._plan = _CrashPlan(node, rng.choice(points), rng.choice((1, 1, 2, 3, 5, 8)))
    try:
        yield
    finally:
        faults._plan = before


@contextmanager
def _silence() -> Iterator[None]:
    """No log lines: they would be thousands, and the world keeps its own record."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
