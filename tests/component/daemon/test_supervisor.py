"""The order of start and end, and what decides the exit code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from agentsup.agents import AgentStack
from agentsup.api.server import ApiServer
from agentsup.daemon.runtime.boot import Boot, EarlierBoot, restart_storm
from agentsup.daemon.runtime.ending import DaemonExit
from agentsup.daemon.runtime.supervisor import AgentSupervisor, SupervisedParts
from agentsup.model.errors import ConfigError
from agentsup.model.health import AgentState
from agentsup.model.ids import BootId
from agentsup.supervision import (
    Board,
    ChildContext,
    ChildSpec,
    ChildStatus,
    Grace,
    Restart,
    RestartPolicy,
    RestForOneSupervisor,
    SupervisedChild,
)
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

SLOW = {"match": "slow", "steps": [{"sleep": 20}, {"say": "slept"}]}


class Fixture:
    """An AgentSupervisor over the real fleet, everything else noted as it starts and stops."""

    def __init__(self, house: VirtualDaemon) -> None:
        self.house, self.ending = house, house.daemon.ending
        self.log: list[str] = []
        self.states: dict[str, AgentState] = {}
        self.api_error: Exception | None = None
        self.knowledge: Callable[[], Awaitable[object]] = self._knowledge
        house.daemon.board.listen(self._changed)

    def build(self, *, main_ready_timeout_s: float = 120.0) -> None:
        house, daemon = self.house, self.house.daemon
        spine_board = Board()
        self.spine = RestForOneSupervisor(
            (self._spec("relay"), self._spec("watchdog")),
            clock=house.clock,
            entropy=house.entropy,
            board=spine_board,
        )
        self.watcher = SupervisedChild(
            self._spec("watcher"), clock=house.clock, entropy=house.entropy, record=lambda s: None
        )
        self.supervisor = AgentSupervisor(
            SupervisedParts(
                ending=self.ending,
                api=cast(ApiServer, self),
                spine=self.spine,
                fleet=daemon.fleet,
                reconciler=daemon.reconciler,
                watcher=self.watcher,
                tasks=daemon.tasks,
                on_listening=self._listening,
                refresh_knowledge=lambda: self.knowledge(),  # noqa: PLW0108 - replaced by a test
                check_health=self._nothing,
                close_channels=self._close_channels,
                main_ready_timeout_s=lambda: main_ready_timeout_s,
                first_complaint=None,
            )
        )

    def go(self) -> asyncio.Task[DaemonExit]:
        return asyncio.ensure_future(self.supervisor.run())

    async def up(self) -> None:
        await self.house.until(lambda: self.ending.state == "running")
        await self.house.settled()

    async def told(self) -> list[str]:
        """What operators are told of the end of main."""
        rows = await self.house.sql(
            "SELECT body ->> '$.text' FROM outbox WHERE kind = 'notice'"
            " AND body ->> '$.text' LIKE 'main %'"
        )
        return [text for (text,) in rows]

    # -- the listener ------------------------------------------------------------------------------

    async def start(self) -> int:
        if self.api_error is not None:
            raise self.api_error
        self.log.append("+api")
        return 8799

    async def close(self) -> None:
        self.log.append("-api")

    async def _close_channels(self) -> None:
        self.log.append("-channels")

    async def _listening(self, port: int) -> None:
        assert port == 8799

    async def _knowledge(self) -> None:
        self.log.append("+knowledge")

    async def _nothing(self) -> None:
        return

    def _spec(self, name: str) -> ChildSpec:
        async def life(ctx: ChildContext) -> None:
            self.log.append(f"+{name}")
            ctx.ready()
            try:
                await ctx.draining.wait()
            finally:
                self.log.append(f"-{name}")

        grace = Grace(drain_s=1, cancel_s=1, kill_s=1)
        return ChildSpec(name, life, Restart.PERMANENT, grace=grace, policy=RestartPolicy())

    def _changed(self, status: ChildStatus) -> None:
        name = self.house.roster.name_of(status.child_id)
        if self.states.get(name) is status.state:
            return
        self.states[name] = status.state
        if status.state is AgentState.STARTING:
            self.log.append(f"+{name}")
        if status.state is AgentState.STOPPED:
            self.log.append(f"-{name}")


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Fixture]:
    house = VirtualDaemon(tmp_path / "home")
    house.home.create()
    exits = {"match": "end", "steps": [{"exit": 42}]}
    house.write(
        [
            agent(
                "main",
                exits,
                {"match": "crash", "steps": [{"crash": "boom"}]},
                *({"match": f"end with {n}", "steps": [{"exit": n}]} for n in (0, 7)),
            ),
            agent("ann", SLOW),
            agent("ben"),
        ]
    )
    await house.assemble()
    yield Fixture(house)
    await house.daemon.tasks.close(1)
    await house.registry.close()
    await house.db.close()


def order(log: list[str], sign: str) -> list[str]:
    """Starts or stops in order; the sub-agents, which go together, as one."""
    found: list[str] = []
    for each in log:
        if each[0] == sign:
            name = "subs" if each[1:] in ("ann", "ben") else each[1:]
            if found[-1:] != [name]:
                found.append(name)
    return found


async def test_the_end_is_the_reverse_of_the_start(stage: Fixture) -> None:
    stage.build()
    running = stage.go()
    await stage.up()
    started = order(stage.log, "+")
    assert started[0] == "api"
    assert started.index("main") < started.index("subs") < len(started)
    stage.ending.end(0, "asked")
    stage.ending.end(3, "too late")
    ending = await running
    assert (ending.code, ending.reason) == (0, "asked")
    # Knowledge is read, not run: there is nothing to stop.
    started.remove("knowledge")
    # Channels start with their agents and end after the relay, which delivers through them.
    ended = order(stage.log, "-")
    assert ended[-2:] == ["channels", "api"]
    ended.remove("channels")
    assert ended == started[::-1]
    assert {u.child.state for u in stage.house.daemon.fleet.units()} == {AgentState.STOPPED}


async def test_turns_drain_before_the_end(stage: Fixture) -> None:
    stage.build()
    running = stage.go()
    await stage.up()
    slow = await stage.house.said("ann", "slow")
    await stage.house.clock.sleep(1)
    stage.ending.end(0, "asked")
    await running
    message = await stage.house.daemon.mailbox.messages.get(slow)
    assert (message.result_text, message.attempts) == ("slept", 1)


async def test_force_cuts_the_drain_and_loses_nothing(stage: Fixture) -> None:
    stage.build()
    running = stage.go()
    await stage.up()
    slow = await stage.house.said("ann", "slow")
    await stage.house.clock.sleep(1)
    began = stage.house.clock.monotonic()
    stage.ending.end(0, "asked")
    await stage.house.clock.sleep(1)
    stage.ending.force()
    await running
    assert stage.house.clock.monotonic() - began < 5
    message = await stage.house.daemon.mailbox.messages.get(slow)
    assert (message.state, message.attempts) == ("queued", 0)


async def test_a_port_that_is_taken_ends_the_start(stage: Fixture) -> None:
    stage.build()
    stage.api_error = ConfigError("port 8799 on 127.0.0.1 is in use by another process")
    with pytest.raises(ConfigError, match="8799"):
        await stage.supervisor.run()
    assert stage.log == ["-channels", "-api"], "nothing else was begun"


async def test_an_end_before_the_start_is_finished(stage: Fixture) -> None:
    hangs = asyncio.Event()

    async def never() -> object:
        await hangs.wait()
        return None

    stage.knowledge = never
    stage.build()
    running = stage.go()
    await stage.house.clock.sleep(5)
    assert stage.ending.state == "starting"
    stage.ending.end(0, "signal SIGTERM")
    ending = await running
    assert ending.code == 0
    assert order(stage.log, "-") == ["watchdog", "relay", "channels", "api"]
    assert "+main" not in stage.log


async def test_sub_agents_start_without_a_main_that_is_late(
    stage: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = asyncio.Event()
    run = AgentStack.run

    async def late(self: AgentStack, ready: Any, draining: asyncio.Event) -> None:
        if self.spec.is_main:
            await held.wait()
        await run(self, ready, draining)

    monkeypatch.setattr(AgentStack, "run", late)
    stage.build(main_ready_timeout_s=120)
    running = stage.go()
    await stage.house.clock.sleep(119)
    assert "+ann" not in stage.log
    await stage.house.clock.sleep(10)
    assert "+ann" in stage.log
    assert stage.house.state("main") == "starting"
    assert stage.ending.state == "running"
    held.set()
    await stage.house.settled()
    assert stage.house.state("main") == "running"
    stage.ending.end(0, "asked")
    await running


async def test_42_of_main_ends_the_daemon_with_42(stage: Fixture) -> None:
    stage.build()
    running = stage.go()
    await stage.up()
    message = await stage.house.said("main", "end")
    ending = await running
    assert ending.code == 42
    assert (await stage.house.daemon.mailbox.messages.get(message)).outcome == "ok"


async def test_a_crash_of_main_ends_the_daemon_with_1(stage: Fixture) -> None:
    stage.build()
    running = stage.go()
    await stage.up()
    slow = await stage.house.said("ann", "slow")
    await stage.house.clock.sleep(1)
    await stage.house.said("main", "crash")
    ending = await running
    assert ending.code == 1
    (told,) = await stage.told()
    assert told.startswith("main has failed: EngineCrash: boom. The whole daemon ends with it")
    # What could be drained was drained.
    assert (await stage.house.daemon.mailbox.messages.get(slow)).result_text == "slept"


@pytest.mark.parametrize("code", [0, 7])
async def test_an_end_that_main_asks_for_is_told_as_the_end_of_the_daemon(
    stage: Fixture, code: int
) -> None:
    stage.build()
    running = stage.go()
    await stage.up()
    await stage.house.said("main", f"end with {code}")
    assert (await running).code == code
    (told,) = await stage.told()
    assert told.startswith(f"main asked for the end with code {code}")
    assert "/agent_start" not in told


async def test_an_operators_end_is_no_news(stage: Fixture) -> None:
    stage.build()
    running = stage.go()
    await stage.up()
    stage.ending.end(0, "asked")
    await running
    assert await stage.told() == []


async def test_no_agent_is_started_while_the_daemon_ends(stage: Fixture) -> None:
    stage.build()
    running = stage.go()
    await stage.up()
    await stage.house.said("ann", "slow")
    await stage.house.clock.sleep(1)
    stage.ending.end(0, "asked")
    await stage.house.clock.sleep(1)
    await stage.house.save([agent("main"), agent("ann", SLOW, provider="x"), agent("cat")])
    await running
    assert stage.log.count("+ann") == 1
    assert "+cat" not in stage.log


def boot_with(*earlier: tuple[int, int | None]) -> Boot:
    """A boot at 100 s after those that ended at these seconds with these codes."""
    past = tuple(EarlierBoot(at * 1000, code) for at, code in earlier)
    return Boot(BootId("boot"), "node", 100_000, past)


@pytest.mark.parametrize(
    "earlier, storms",
    [
        ((), False),
        (((99, 42),) * 9, False),
        (((99, 42),) * 11, True),
        (((30, 42),) * 11, False),
        (((99, 0),) * 11, False),
        (((99, None),) * 11, False),
    ],
)
def test_a_restart_storm_is_seen_over_boots(
    earlier: tuple[tuple[int, int | None], ...], storms: bool
) -> None:
    assert restart_storm(boot_with(*earlier), 42, limit=10, window_ms=60_000) is storms
