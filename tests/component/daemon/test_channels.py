"""The bots as children: they crash, are refused, replaced and stopped apart from their agents."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentsup.channels.core import ChannelReport, ChannelState, TokenRefused
from agentsup.config import Home
from agentsup.daemon.runtime.channels import Channels
from agentsup.daemon.runtime.transports import ChannelProxy, ChannelServices
from agentsup.fakes.entropy import SeededEntropy
from agentsup.kit.pool import BoundedPool
from agentsup.model.agent import AgentSpec, MatrixIdentity
from agentsup.model.channel import Channel, DeliveryOutcome, OutboxPart
from agentsup.model.health import AgentState
from agentsup.model.secret import Secret
from agentsup.supervision import Board
from tests.support.loop_clock import LoopClock
from tests.support.recording_channel import NoMark

pytestmark = pytest.mark.virtual

BOB = AgentSpec("bob", telegram_token=Secret("1:good"))
ACCOUNT = MatrixIdentity(
    homeserver="http://127.0.0.1:1", user_id="@bob:here", access_token=Secret("syt")
)
BOTH = AgentSpec("bob", telegram_token=Secret("1:good"), matrix=ACCOUNT)
PART = OutboxPart(1, "m", "a", "s", "telegram", "5", 0, "answer", {"text": "x"}, 0)
Life = Callable[["Fixture", Any, asyncio.Event], Any]


async def up(stage: Fixture, deps: Any, draining: asyncio.Event) -> None:
    state = ChannelReport(deps.agent_id, ChannelState.UP, "telegram")
    deps.report(replace(state, last_poll_at=stage.clock.now_ms()))
    await draining.wait()
    deps.report(replace(state, state=ChannelState.STOPPED))


async def crash(stage: Fixture, deps: Any, draining: asyncio.Event) -> None:
    raise RuntimeError("a defect")


async def refused(stage: Fixture, deps: Any, draining: asyncio.Event) -> None:
    raise TokenRefused("nobody knows this token.")


@dataclass
class Fixture:
    """The bots on a stage without a platform: each life does what the script says."""

    root: Path
    script: list[Life] = field(default_factory=list)
    lives: list[Any] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    renewals: list[Callable[[], bool]] = field(default_factory=list)
    """What comes of each refused token; nothing after the last."""
    changes: list[tuple[str, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = LoopClock(epoch_ms=1_000)
        self.entropy = SeededEntropy(self.clock, 1)
        self.board = Board()
        self.relay: dict[str, Channel] = {}
        self.channels = Channels(
            self.board,
            self.relay,
            on_change=lambda agent_id, trouble: self.changes.append((agent_id, trouble)),
            services=self.services,
        )
        stage = self

        class Bot:
            def __init__(self, deps: Any) -> None:
                self.deps = deps

            async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
                stage.lives.append(self.deps)
                ready()
                await (stage.script.pop(0) if stage.script else up)(stage, self.deps, draining)

        common = ("ReceiveLimits",)
        self._replace("telegram", Bot, "TelegramDeps", *common)
        self._replace("matrix", Bot, "MatrixDeps", "BotAccount", *common)

    def _replace(self, platform: str, bot: type, *values: str) -> None:
        """Give the transport a module with ``bot`` and plain values, all of which the real one has."""
        transport = self.channels.transports[platform]
        real = importlib.import_module(f"agentsup.channels.{platform}.life")
        names = {f"{platform.capitalize()}Bot": bot, **dict.fromkeys(values, SimpleNamespace)}
        assert all(hasattr(real, name) for name in names)
        transport._life = SimpleNamespace(**names)

    def services(self) -> ChannelServices:
        nothing = cast(Any, None)

        async def tell(text: str) -> None:
            self.told.append(text)

        return ChannelServices(
            home=Home(self.root),
            environ={"OTHER": "1:other"},
            database=nothing,
            clock=self.clock,
            entropy=self.entropy,
            mailbox=nothing,
            inbox=nothing,
            commands=nothing,
            events=nothing,
            live=nothing,
            people=cast(Any, SimpleNamespace(matrix=None)),
            files=BoundedPool("files"),
            tell=tell,
            after_imports=lambda: None,
            pairing=nothing,
            bots=cast(Any, SimpleNamespace(renew_token=self.renew_token)),
        )

    async def renew_token(self, agent_id: str) -> bool:
        return self.renewals.pop(0)() if self.renewals else False

    def state(self, channel: str = "telegram") -> AgentState | None:
        bot = self.channels._bots.get(("a", channel))
        return bot.child.state if bot is not None else None

    async def until(self, *states: AgentState) -> None:
        async with asyncio.timeout(600):
            while self.state() not in states:
                await asyncio.sleep(0.05)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Fixture]:
    made = Fixture(tmp_path)
    yield made
    await made.channels.close()


async def test_a_bot_that_crashes_comes_back_and_says_so_meanwhile(stage: Fixture) -> None:
    stage.script = [crash] * 20
    stage.channels.match("a", BOB, is_up=True)
    assert stage.channels.problem("a") == "its Telegram bot is not connected yet"
    tried = stage.channels.untried("a")
    assert tried is not None
    await tried.wait()
    assert "a defect" in (stage.channels.problem("a") or "")
    async with asyncio.timeout(3_000):
        while stage.channels.problem("a") is not None:
            await asyncio.sleep(1)
    # Never given up, and nobody is bothered for what mends itself.
    assert len(stage.lives) == 21
    assert stage.told == []
    assert stage.changes[-1] == ("a", None)
    assert stage.channels.connected("telegram") == {"a"}


async def test_a_refused_token_is_failed_until_somebody_acts(stage: Fixture) -> None:
    stage.script = [refused, refused]
    stage.channels.match("a", BOB, is_up=True)
    await stage.until(AgentState.FAILED)
    assert len(stage.told) == 1
    assert "nobody knows this token" in stage.told[0]
    stage.channels.match("a", BOB, is_up=True)
    await asyncio.sleep(600)
    assert len(stage.lives) == 1, "a look alone tries nothing"
    stage.channels.match("a", BOB, is_up=True, retry=True)
    await asyncio.sleep(1)
    assert (len(stage.lives), len(stage.told)) == (2, 2)
    other = AgentSpec("bob", telegram_token=Secret("env:OTHER"))
    stage.channels.match("a", other, is_up=True)
    await stage.until(AgentState.RUNNING)
    assert stage.lives[-1].token == Secret("1:other")
    assert stage.channels.problem("a") is None


async def test_a_token_that_main_renewed_meanwhile_leaves_the_bot_its_chances(
    stage: Fixture,
) -> None:
    def by_main() -> bool:
        stage.channels.renew("a")
        return False

    stage.script = [refused, refused]
    stage.renewals = [by_main, lambda: True]
    stage.channels.match("a", BOB, is_up=True)
    async with asyncio.timeout(600):
        while len(stage.lives) < 3 or stage.state() is not AgentState.RUNNING:
            await asyncio.sleep(0.05)
    assert stage.told == []


async def test_a_secret_that_is_not_there_is_told_by_its_name(stage: Fixture) -> None:
    gone = AgentSpec("bob", telegram_token=Secret("env:GONE"))
    stage.channels.match("a", gone, is_up=True)
    await stage.until(AgentState.FAILED)
    assert "GONE" in stage.told[0]
    assert stage.lives == []
    stage.channels.match("a", BOB, is_up=True)
    await stage.until(AgentState.RUNNING)


async def test_a_live_edit_leaves_the_bot_alone_and_reaches_it(stage: Fixture) -> None:
    stage.channels.match("a", BOB, is_up=True)
    await stage.until(AgentState.RUNNING)
    edited = AgentSpec("bob", telegram_token=Secret("1:good"), allowed_user_ids=(7,))
    stage.channels.match("a", edited, is_up=True, retry=True)
    await asyncio.sleep(5)
    (deps,) = stage.lives
    assert deps.spec().allowed_user_ids == (7,)


async def test_a_bot_goes_when_released_and_comes_back_when_wanted(stage: Fixture) -> None:
    stage.channels.match("a", BOB, is_up=True)
    await stage.until(AgentState.RUNNING)
    stage.channels.match("a", BOB, is_up=False)
    await asyncio.sleep(5)
    assert stage.state() is AgentState.RUNNING, "the last answers still need it"
    await stage.channels.release("a")
    assert stage.state() is None
    assert stage.channels.notes("a") == ()
    stage.channels.match("a", BOB, is_up=True)
    await stage.channels.release("a")  # wanted again: nothing to release
    await stage.until(AgentState.RUNNING)
    assert len(stage.lives) == 2
    without = AgentSpec("bob")
    stage.channels.match("a", without, is_up=True)
    await stage.channels.release("a")
    assert stage.channels.gauges() == {}


async def test_a_bot_that_only_claims_to_be_connected_is_found_out(stage: Fixture) -> None:
    stage.channels.match("a", BOB, is_up=True)
    await stage.until(AgentState.RUNNING)
    assert await stage.channels.probe() is None
    await asyncio.sleep(200)
    assert "bob" in (await stage.channels.probe() or "")


async def test_an_agent_may_have_a_bot_on_each_platform_and_one_does_not_touch_the_other(
    stage: Fixture,
) -> None:
    stage.script = [up, crash, crash]
    stage.channels.match("a", BOTH, is_up=True)
    tried = stage.channels.untried("a")
    assert tried is not None
    await tried.wait()
    assert "Matrix bot ended with an error" in (stage.channels.problem("a") or "")
    assert stage.channels.connected("telegram") == {"a"}
    assert stage.channels.connected("matrix") == frozenset()
    async with asyncio.timeout(600):
        while stage.channels.problem("a") is not None:
            await asyncio.sleep(1)
    assert stage.changes[-1] == ("a", None)
    before = len(stage.lives)
    other = replace(BOTH, matrix=replace(ACCOUNT, access_token=Secret("env:OTHER")))
    stage.channels.match("a", other, is_up=True)
    await asyncio.sleep(5)
    (fresh,) = stage.lives[before:]
    assert fresh.account.access_token == Secret("1:other"), "and Telegram's bot lives on"
    gauges = stage.channels.gauges()
    assert (gauges["telegram_bots_connected"], gauges["matrix_bots_connected"]) == (1, 1)
    stage.channels.match("a", BOB, is_up=True)
    await stage.channels.release("a")
    assert stage.state("matrix") is None
    assert stage.state("telegram") is AgentState.RUNNING


async def test_the_first_attempt_of_both_bots_is_waited_for(stage: Fixture) -> None:
    hold = asyncio.Event()

    async def slow(stage: Fixture, deps: Any, draining: asyncio.Event) -> None:
        await hold.wait()
        await up(stage, deps, draining)

    stage.script = [up, slow]
    stage.channels.match("a", BOTH, is_up=True)
    await stage.until(AgentState.RUNNING)
    await asyncio.sleep(5)
    tried = stage.channels.untried("a")
    assert tried is not None
    assert not tried.is_set()
    hold.set()
    await tried.wait()
    assert stage.channels.untried("a") is None


async def test_before_the_first_bot_a_part_waits_without_an_attempt() -> None:
    mark = NoMark()
    delivery = await ChannelProxy("telegram", idempotent=False).deliver(PART, mark)
    assert not mark.begun, "nothing is sent"
    assert (delivery.outcome, delivery.is_free) == (DeliveryOutcome.RETRY, True)


async def test_a_long_pause_degrades_the_agent_whose_bot_still_hears(
    stage: Fixture, caplog: pytest.LogCaptureFixture
) -> None:
    async def pausing(stage: Fixture, deps: Any, draining: asyncio.Event) -> None:
        at = stage.clock.now_ms()
        state = ChannelReport(deps.agent_id, ChannelState.UP, "telegram", last_poll_at=at)
        deps.report(
            replace(state, paused="Telegram asks for a pause until noon", notes=("set up",))
        )
        await asyncio.sleep(100)
        deps.report(state)
        await draining.wait()

    stage.script = [pausing]
    stage.channels.match("a", BOB, is_up=True)
    await asyncio.sleep(1)
    assert stage.channels.problem("a") == "Telegram asks for a pause until noon"
    assert stage.channels.notes("a") == ("Telegram asks for a pause until noon", "set up")
    assert stage.channels.connected("telegram") == {"a"}
    assert any("until noon" in str(vars(each)) for each in caplog.records)
    assert "set up" in caplog.text
    await asyncio.sleep(100)
    assert stage.channels.problem("a") is None
