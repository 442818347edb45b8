"""The agents' bots: one supervised child for each agent with a Telegram token.

A bot lives as long as its agent is wanted up, not as long as one of its stacks: while an agent is
rebuilt or backs off, its bot goes on listening and what it hears waits in the mailbox. Network
trouble is waited out for ever; a refused token leaves the bot ``failed`` until the entry changes or
an operator acts. Neither touches the agent, which is ``degraded`` meanwhile (P3).

Nothing of Telegram is imported before the first bot is wanted.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import zoneinfo
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agentsup.channels.inbox import Inbox
from agentsup.channels.telegram import library
from agentsup.channels.telegram.errors import TokenRefused
from agentsup.channels.telegram.report import ChannelReport, ChannelState
from agentsup.config.home import Home
from agentsup.config.secrets import resolve
from agentsup.daemon.people import People
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.agent import AgentSpec, Secret
from agentsup.model.channel import Channel, Delivery, DeliveryOutcome, OutboxPart
from agentsup.model.control import Commands
from agentsup.model.errors import ConfigError
from agentsup.observe.live import LiveHub
from agentsup.observe.logging import get_logger
from agentsup.store.database import Database
from agentsup.store.events import EventLog
from agentsup.supervision.board import Board, ChildStatus
from agentsup.supervision.child import SupervisedChild
from agentsup.supervision.policy import RestartPolicy
from agentsup.supervision.spec import ChildContext, ChildSpec, Grace, Restart

if TYPE_CHECKING:
    from agentsup.channels.telegram.life import TelegramDeps
    from agentsup.channels.telegram.outgoing import TelegramSettings

_log = get_logger(__name__)

TELEGRAM = "telegram"
LIFE = "agentsup.channels.telegram.life"
NOT_CONNECTED = "the bot is not connected"
"""Why a part waits; the same words as the channel itself uses, whose bots wake such parts."""
FOR_EVER = RestartPolicy(max_restarts=None, cap_s=60.0)
LEAVE = Grace(drain_s=5.0, cancel_s=1.0, kill_s=0.5)
WEDGED_S = 180.0
"""A bot that says it is connected has finished a poll within this time."""
_ABSENT_S = 5.0


class TelegramDoor:
    """What the relay holds; the channel behind it comes with the first bot."""

    name = TELEGRAM
    idempotent = False
    in_pieces = True

    def __init__(self) -> None:
        self.channel: Channel | None = None

    async def deliver(self, part: OutboxPart) -> Delivery:
        """Implements ``model.channel.Channel``."""
        if self.channel is None:
            return Delivery(
                DeliveryOutcome.RETRY, NOT_CONNECTED, retry_after_s=_ABSENT_S, is_free=True
            )
        return await self.channel.deliver(part)


@dataclass(frozen=True, slots=True)
class ChannelServices:
    """What bots stand on."""

    home: Home
    environ: Mapping[str, str]
    database: Database
    mailbox: Mailbox
    inbox: Inbox
    commands: Commands
    events: EventLog
    live: LiveHub
    people: People
    tell: Callable[[str], Awaitable[None]]
    """Reaches the operator, where need be past the bot that has the trouble."""


@dataclass(slots=True, eq=False)
class _Bot:
    """One agent's bot, over all its lives."""

    agent_id: str
    spec: AgentSpec
    child: SupervisedChild
    is_wanted: bool = True
    report: ChannelReport | None = None
    was_tried: asyncio.Event = field(default_factory=asyncio.Event)
    """The first attempt to connect has ended, well or not."""

    @property
    def trouble(self) -> str | None:
        """What is amiss, or None while it hears."""
        if self.report is None:
            return "its Telegram bot is not connected yet"
        if self.report.is_well:
            return None
        return self.report.detail or f"its Telegram bot is {self.report.state.value}"


class Channels:
    """The bots by ``agent_id``."""

    def __init__(
        self,
        *,
        clock: Clock,
        entropy: Entropy,
        board: Board,
        relay_channels: dict[str, Channel],
        on_change: Callable[[str, str | None], None],
        services: Callable[[], ChannelServices],
        after_imports: Callable[[], None],
    ) -> None:
        """``relay_channels`` grows by Telegram's door;
        ``on_change(agent_id, trouble)`` hears what is amiss with a bot, or None; ``services`` is
        asked for in each life; ``after_imports()`` is called when the library was loaded."""
        self._bots: dict[str, _Bot] = {}
        self._door = TelegramDoor()
        self._life: Any = None
        self._loading = asyncio.Lock()
        self._http: Any = None
        self._is_closed = False
        self._clock = clock
        self._entropy = entropy
        self._board = board
        relay_channels.setdefault(TELEGRAM, self._door)
        self._on_change = on_change
        self._services = services
        self._after_imports = after_imports

    # -- what is wanted ----------------------------------------------------------------------------

    def match(self, agent_id: str, spec: AgentSpec, *, is_up: bool, retry: bool = False) -> None:
        """Have the bot that ``spec`` asks for, if the agent is wanted up. Returns at once.

        ``retry``: an operator acted or the entry changed, so a bot that is not well tries anew.
        One that isn't wanted any more goes on until ``release``.
        """
        is_wanted = is_up and has_bot(spec) and not self._is_closed
        bot = self._bots.get(agent_id)
        if bot is None:
            if is_wanted:
                self._begin(agent_id, spec)
            return
        old, bot.spec = bot.spec, spec
        was_wanted, bot.is_wanted = bot.is_wanted, is_wanted
        if not is_wanted:
            return
        is_other = _identity(old) != _identity(spec)
        if is_other or (retry and bot.trouble is not None):
            bot.report = None
            bot.child.replace(self._child_spec(bot))
        if not was_wanted:
            bot.child.start()

    async def release(self, agent_id: str) -> None:
        """Stop the bot if it isn't wanted any more, and wait for that."""
        bot = self._bots.get(agent_id)
        if bot is None or bot.is_wanted:
            return
        await bot.child.stop()
        if not bot.is_wanted and self._bots.get(agent_id) is bot:
            del self._bots[agent_id]
            bot.was_tried.set()
            self._board.forget(bot.child.spec.child_id)
            self._on_change(agent_id, None)

    async def close(self) -> None:
        """Stop all bots and close their connections. Bounded by ``LEAVE``."""
        self._is_closed = True
        async with asyncio.TaskGroup() as stops:
            for bot in self._bots.values():
                bot.is_wanted = False
                stops.create_task(bot.child.stop(LEAVE), name=f"stop:{bot.child.spec.child_id}")
        if self._http is not None:
            await self._http.close()

    # -- what others see ---------------------------------------------------------------------------

    def untried(self, agent_id: str) -> asyncio.Event | None:
        """Set once the agent's bot has tried to connect; None where there is nothing to wait for.

        An agent counts as ready only after its bot's first attempt.
        """
        bot = self._bots.get(agent_id)
        return None if bot is None or bot.was_tried.is_set() else bot.was_tried

    def trouble(self, agent_id: str) -> str | None:
        """What is amiss with the agent's bot, or None."""
        bot = self._bots.get(agent_id)
        return None if bot is None or not bot.is_wanted else bot.trouble

    def notes(self, agent_id: str) -> tuple[str, ...]:
        """What the agent's view says about its bot."""
        bot = self._bots.get(agent_id)
        if bot is None or not bot.is_wanted:
            return ()
        set_aside = bot.report.quarantined if bot.report is not None else 0
        poison = f"{set_aside} Telegram updates could not be handled and are set aside"
        return tuple(filter(None, (bot.trouble, poison if set_aside else "")))

    def warnings(self) -> tuple[str, ...]:
        """All that is amiss, for the daemon's status."""
        bots = sorted(self._bots.values(), key=lambda bot: bot.spec.name)
        return tuple(
            f"{bot.spec.name}: {note}" for bot in bots for note in self.notes(bot.agent_id)
        )

    def connected(self) -> frozenset[str]:
        """The agents whose bots hear."""
        return frozenset(bot.agent_id for bot in self._bots.values() if bot.trouble is None)

    async def probe(self) -> str | None:
        """A bot that says it is connected has finished a poll lately. Trouble of the network is no
        illness of the daemon: a restart would not mend it."""
        now = self._clock.now_ms()
        wedged = [
            bot.spec.name
            for bot in self._bots.values()
            if bot.trouble is None
            and bot.report is not None
            and now - (bot.report.last_poll_at or now) > WEDGED_S * 1000
        ]
        return f"no poll has ended for {WEDGED_S:g} s: {', '.join(wedged)}" if wedged else None

    def gauges(self) -> dict[str, float]:
        """Figures for metrics; none while there is no bot."""
        if not self._bots:
            return {}
        reports = [bot.report for bot in self._bots.values() if bot.report is not None]
        now = self._clock.now_ms()
        polled = [each.last_poll_at for each in reports if each.last_poll_at is not None]
        return {
            "telegram_bots": len(self._bots),
            "telegram_bots_connected": len(self.connected()),
            "telegram_updates_quarantined": sum(each.quarantined for each in reports),
            "telegram_oldest_poll_seconds": max((now - at) / 1000 for at in polled)
            if polled
            else 0.0,
        }

    # -- lives -------------------------------------------------------------------------------------

    def _begin(self, agent_id: str, spec: AgentSpec) -> None:
        child_id = f"{TELEGRAM}:{agent_id}"
        child = SupervisedChild(
            ChildSpec(child_id, _nothing),
            clock=self._clock,
            entropy=self._entropy,
            record=self._record,
        )
        bot = _Bot(agent_id, spec, child)
        child.spec = self._child_spec(bot)
        self._bots[agent_id] = bot
        self._on_change(agent_id, bot.trouble)
        child.start()

    def _child_spec(self, bot: _Bot) -> ChildSpec:
        async def life(ctx: ChildContext) -> None:
            await self._live(bot, ctx)

        return ChildSpec(
            bot.child.spec.child_id, life, Restart.PERMANENT, grace=LEAVE, policy=FOR_EVER
        )

    async def _live(self, bot: _Bot, ctx: ChildContext) -> None:
        """One life of a bot."""
        try:
            token = await self._token(bot.spec)
            bot_module = await self._loaded()
            deps = self._deps(bot, token, bot_module)
            await bot_module.TelegramBot(deps).run(ctx.ready, ctx.draining)
        except (ConfigError, TokenRefused) as error:
            # No further life helps: it is failed, not in back-off.
            bot.child.spec = replace(bot.child.spec, restart=Restart.TEMPORARY)
            await self._refused(bot, error.message)
            raise

    async def _loaded(self) -> Any:
        """The module of a bot's life; with the first bot, what all of them share."""
        async with self._loading:
            if self._life is None:
                await library.load()
                life = await asyncio.to_thread(importlib.import_module, LIFE)
                self._door.channel, self._http = life.TelegramChannel(), life.SharedHttp()
                self._after_imports()
                self._life = life
        return self._life

    async def _token(self, spec: AgentSpec) -> Secret:
        if importlib.util.find_spec("telegram") is None:
            raise ConfigError(
                "python-telegram-bot is not installed; install agentsup[telegram] and start again"
            )
        assert spec.telegram_token is not None
        return await asyncio.to_thread(
            resolve,
            spec.telegram_token,
            base=self._services().home.root,
            environ=self._services().environ,
        )

    def _deps(self, bot: _Bot, token: Secret, module: Any) -> TelegramDeps:
        s = self._services()
        workspace = s.home.workspace(bot.spec.name)

        def settings() -> TelegramSettings:
            zone = bot.spec.user_timezone
            made: TelegramSettings = module.TelegramSettings(
                workspace=workspace,
                long_as_file_pieces=bot.spec.telegram_file_after_pieces or 0,
                timezone=zoneinfo.ZoneInfo(zone) if zone else None,
            )
            return made

        made: TelegramDeps = module.TelegramDeps(
            agent_id=bot.agent_id,
            agent_name=bot.spec.name,
            workspace=workspace,
            token=token,
            spec=lambda: bot.spec,
            database=s.database,
            mailbox=s.mailbox,
            inbox=s.inbox,
            commands=s.commands,
            events=s.events,
            live=s.live,
            clock=self._clock,
            entropy=self._entropy,
            channel=self._door.channel,
            http=self._http,
            people=s.people,
            report=lambda report: self._heard(bot, report),
            tell=s.tell,
            settings=settings,
            catalogue=importlib.import_module("agentsup.catalogue").load(),
            limits=module.ReceiveLimits(max_age_s=bot.spec.telegram_backlog_hours * 3600),
        )
        return made

    # -- how it fares ------------------------------------------------------------------------------

    def _heard(self, bot: _Bot, report: ChannelReport) -> None:
        before, bot.report = bot.trouble, report
        if report.state is not ChannelState.CONNECTING:
            bot.was_tried.set()
        if bot.is_wanted and bot.trouble != before:
            level = _log.warning if bot.trouble else _log.info
            level("bot", agent=bot.spec.name, state=report.state.value, detail=report.detail)
            self._on_change(bot.agent_id, bot.trouble)

    async def _refused(self, bot: _Bot, why: str) -> None:
        last = bot.report or ChannelReport(bot.agent_id, ChannelState.CONNECTING)
        self._heard(bot, replace(last, state=ChannelState.REFUSED, detail=why))
        bot.was_tried.set()
        await self._services().tell(
            f"The Telegram bot of {bot.spec.name} stays down: {why} "
            "The agent itself goes on. A changed token or "
            f"/agent_restart {bot.spec.name} tries again."
        )

    def _record(self, status: ChildStatus) -> None:
        self._board.record(status)
        bot = self._bots.get(status.child_id.partition(":")[2])
        if bot is None or status.next_retry_at is None:
            return
        last = bot.report or ChannelReport(bot.agent_id, ChannelState.CONNECTING)
        why = f"its Telegram bot ended with an error and is started again: {status.reason}"
        self._heard(bot, replace(last, state=ChannelState.RETRYING, detail=why))


def has_bot(spec: AgentSpec) -> bool:
    """Whether the entry asks for a Telegram bot and says which."""
    return TELEGRAM in spec.channels and spec.telegram_token is not None


def _identity(spec: AgentSpec) -> tuple[object, ...]:
    """What a bot can't change while it lives."""
    return (spec.telegram_token, spec.telegram_base_url, spec.telegram_backlog_hours)


async def _nothing(ctx: ChildContext) -> None:
    """Stands in until the bot's own life is known."""
