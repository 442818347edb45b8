"""The agents' bots: one supervised child for each agent on each platform that its entry names.

A bot runs as long as its agent is wanted up, not as long as one of its stacks. While an agent is
rebuilt or in back-off, its bot goes on receiving, and the messages are queued in the mailbox.
Network failures are retried without a limit. After a refused token the bot is ``failed`` until the
entry changes or an operator acts. Neither affects the agent, which is ``degraded`` meanwhile, nor
its bot on another platform (P3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agentsup.channels.core import ChannelReport, ChannelState, TokenRefused
from agentsup.daemon.runtime.transports import (
    TRANSPORTS,
    BotLife,
    ChannelServices,
    TelegramTransport,
    Transport,
)
from agentsup.kit.log import get_logger
from agentsup.model.agent import AgentSpec
from agentsup.model.channel import Channel
from agentsup.model.errors import ConfigError
from agentsup.model.platforms import TELEGRAM
from agentsup.supervision import (
    Board,
    ChildContext,
    ChildSpec,
    ChildStatus,
    Grace,
    Restart,
    RestartPolicy,
    SupervisedChild,
)

if TYPE_CHECKING:
    from agentsup.channels.core.sending import HttpPool

_log = get_logger(__name__)

FOR_EVER = RestartPolicy(is_endless=True, cap_s=60.0)
STOP_GRACE = Grace(drain_s=5.0, cancel_s=1.0, kill_s=0.5)
WEDGED_S = 180.0
"""A connected bot must have finished a poll within this time."""


@dataclass(slots=True, eq=False)
class _Bot:
    """One agent's bot on one platform, over all its lives."""

    agent_id: str
    transport: Transport
    spec: AgentSpec
    child: SupervisedChild
    is_wanted: bool = True
    report: ChannelReport | None = None
    was_renewed: bool = False
    """Whether a new token was got for it since it was last well."""
    was_tried: bool = False
    """Whether the first attempt to connect has ended, with or without success."""

    @property
    def problem(self) -> str | None:
        """Why the bot does not receive messages, or None while it does."""
        if self.report is None:
            return f"its {self.transport.platform.title} bot is not connected yet"
        if self.report.is_well:
            return None
        return (
            self.report.detail
            or f"its {self.transport.platform.title} bot is {self.report.state.value}"
        )

    @property
    def any_problem(self) -> str | None:
        """Why the bot does not receive or does not send, or None."""
        return self.problem or (self.report.paused if self.report is not None else "") or None

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines about the bot for the agent's view."""
        quarantined = self.report.quarantined if self.report is not None else 0
        what = (
            f"{quarantined} {self.transport.platform.title} updates could not be handled and are in quarantine: "
            "`agentsup quarantine list`"
        )
        own = () if self.report is None else self.report.notes
        return tuple(filter(None, (self.any_problem, what if quarantined else "", *own)))


class Channels:
    """The bots by agent and platform."""

    def __init__(
        self,
        board: Board,
        relay_channels: dict[str, Channel],
        on_change: Callable[[str, str | None], None],
        services: Callable[[], ChannelServices],
    ) -> None:
        """``relay_channels`` gets an entry for each platform.

        ``on_change(agent_id, problem)`` is called with what is wrong with an agent's bots, or None;
        ``services`` is called when something is done, since it is built later.
        """
        self._bots: dict[tuple[str, str], _Bot] = {}
        self._first: dict[str, asyncio.Event] = {}
        """Set once all bots of an agent have tried to connect."""
        self._is_closed = False
        self._board = board
        self._on_change = on_change
        self._services = services
        self._pool: HttpPool | None = None
        self.transports: dict[str, Transport] = {}
        for kind in TRANSPORTS:
            made = kind(services, self._shared_pool)
            self.transports[made.name] = made
            relay_channels.setdefault(made.name, made.proxy)

    # -- wanted bots -------------------------------------------------------------------------------

    def match(self, agent_id: str, spec: AgentSpec, *, is_up: bool, retry: bool = False) -> None:
        """Start the bots that ``spec`` asks for, if the agent is wanted up. Returns at once.

        ``retry``: an operator acted or the entry changed, so a bot that is not connected tries
        again. A bot that is no longer wanted goes on until ``release``.
        """
        for transport in self.transports.values():
            is_wanted = is_up and transport.platform.wants(spec) and not self._is_closed
            bot = self._bots.get((agent_id, transport.name))
            if bot is not None:
                self._match_one(bot, spec, is_wanted=is_wanted, retry=retry)
            elif is_wanted:
                self._begin(agent_id, transport, spec)

    def _match_one(self, bot: _Bot, spec: AgentSpec, *, is_wanted: bool, retry: bool) -> None:
        old, bot.spec = bot.spec, spec
        was_wanted, bot.is_wanted = bot.is_wanted, is_wanted
        if not is_wanted:
            return
        platform = bot.transport.platform
        is_other = platform.identity(old) != platform.identity(spec)
        if is_other or (retry and bot.problem is not None):
            bot.report = None
            bot.child.replace(self._child_spec(bot))
        if not was_wanted:
            bot.child.start()

    def renew(self, agent_id: str) -> None:
        """Let the agent's Telegram bot begin a new life, which reads its token anew."""
        bot = self._bots.get((agent_id, TELEGRAM.name))
        if bot is not None and bot.is_wanted:
            bot.report = None
            bot.child.replace(self._child_spec(bot))

    async def release(self, agent_id: str) -> None:
        """Stop the bots that are no longer wanted, and wait until they have ended."""
        unwanted = [bot for bot in self._of(agent_id) if not bot.is_wanted]
        if not unwanted:
            return
        async with asyncio.TaskGroup() as stops:
            for bot in unwanted:
                stops.create_task(bot.child.stop(), name=f"stop:{bot.child.spec.child_id}")
        for bot in unwanted:
            key = (agent_id, bot.transport.name)
            if not bot.is_wanted and self._bots.get(key) is bot:
                del self._bots[key]
                self._tried(bot)
                self._on_change(agent_id, self.problem(agent_id))

    async def close(self) -> None:
        """Stop all bots and close their connections. Bounded by ``STOP_GRACE``."""
        self._is_closed = True
        async with asyncio.TaskGroup() as stops:
            for bot in self._bots.values():
                bot.is_wanted = False
                stops.create_task(
                    bot.child.stop(STOP_GRACE), name=f"stop:{bot.child.spec.child_id}"
                )
        if self._pool is not None:
            await self._pool.close()

    def _shared_pool(self) -> HttpPool:
        from agentsup.channels.core.sending import HttpPool  # noqa: PLC0415 - the first bot loaded it

        if self._pool is None:
            self._pool = HttpPool()
        return self._pool

    # -- views -------------------------------------------------------------------------------------

    def untried(self, agent_id: str) -> asyncio.Event | None:
        """An event that is set once all bots of the agent have tried to connect.

        None if there is nothing to wait for. An agent counts as ready only after the first attempt
        of each of its bots.
        """
        first = self._first.get(agent_id)
        return None if first is None or first.is_set() else first

    def problem(self, agent_id: str) -> str | None:
        """The problem of the agent's bots, or None."""
        found = [bot.any_problem for bot in self._of(agent_id) if bot.is_wanted]
        return "; ".join(filter(None, found)) or None

    def notes(self, agent_id: str) -> tuple[str, ...]:
        """Lines about the agent's bots for its view."""
        return tuple(note for bot in self._of(agent_id) if bot.is_wanted for note in bot.notes)

    def warnings(self) -> tuple[str, ...]:
        """Everything that is wrong with bots, for the daemon's status."""
        bots = sorted(self._bots.values(), key=lambda bot: (bot.spec.name, bot.transport.name))
        return tuple(
            f"{bot.spec.name}: {note}" for bot in bots if bot.is_wanted for note in bot.notes
        )

    def connected(self, channel: str) -> frozenset[str]:
        """The agents whose bots receive messages on that platform."""
        return frozenset(
            bot.agent_id for bot in self._on(channel) if bot.is_wanted and bot.problem is None
        )

    async def ask(self, agent_id: str, method: str, **fields: Any) -> Any:
        """Call a method of Telegram that sends nothing, as the agent's bot. Raises a
        ``PlatformError``."""
        telegram = self.transports[TELEGRAM.name]
        assert isinstance(telegram, TelegramTransport)
        return await telegram.ask(agent_id, method, **fields)

    async def alone_with(self, channel: str, agent_id: str, conversation: str) -> str:
        """The platform id of the only person in the conversation with the agent's bot now.

        Empty if there are several people or none, or if the platform does not answer.
        """
        return await self.transports[channel].alone_with(agent_id, conversation)

    async def probe(self) -> str | None:
        """Say which connected bots have not finished a poll within ``WEDGED_S``.

        Network failures do not count as a fault of the daemon, since a restart would not help.
        """
        now = self._services().clock.now_ms()
        wedged = [
            bot.spec.name
            for bot in self._bots.values()
            if bot.problem is None
            and bot.report is not None
            and now - (bot.report.last_poll_at or now) > WEDGED_S * 1000
        ]
        return f"no poll has ended for {WEDGED_S:g} s: {', '.join(wedged)}" if wedged else None

    def gauges(self) -> dict[str, float]:
        """Values for metrics; none for a platform without bots."""
        now = self._services().clock.now_ms()
        found: dict[str, float] = {}
        for name in self.transports:
            bots = self._on(name)
            if not bots:
                continue
            reports = [bot.report for bot in bots if bot.report is not None]
            polled = [each.last_poll_at for each in reports if each.last_poll_at is not None]
            oldest = max(((now - at) / 1000 for at in polled), default=0.0)
            found |= {
                f"{name}_bots": len(bots),
                f"{name}_bots_connected": len(self.connected(name)),
                f"{name}_updates_quarantined": sum(each.quarantined for each in reports),
                f"{name}_oldest_poll_seconds": oldest,
            }
        return found

    def _of(self, agent_id: str) -> list[_Bot]:
        keys = ((agent_id, name) for name in self.transports)
        return [self._bots[key] for key in keys if key in self._bots]

    def _on(self, channel: str) -> list[_Bot]:
        return [bot for bot in self._bots.values() if bot.transport.name == channel]

    # -- lives -------------------------------------------------------------------------------------

    def _begin(self, agent_id: str, transport: Transport, spec: AgentSpec) -> None:
        child = SupervisedChild(
            ChildSpec(f"{transport.name}:{agent_id}", _nothing),
            clock=self._services().clock,
            entropy=self._services().entropy,
            record=self._record,
        )
        bot = _Bot(agent_id, transport, spec, child)
        child.spec = self._child_spec(bot)
        self._bots[agent_id, transport.name] = bot
        first = self._first.get(agent_id)
        if first is None or first.is_set():
            self._first[agent_id] = asyncio.Event()
        self._on_change(agent_id, self.problem(agent_id))
        child.start()

    def _child_spec(self, bot: _Bot) -> ChildSpec:
        async def life(ctx: ChildContext) -> None:
            await self._live(bot, ctx)

        return ChildSpec(
            bot.child.spec.child_id, life, Restart.PERMANENT, grace=STOP_GRACE, policy=FOR_EVER
        )

    async def _live(self, bot: _Bot, ctx: ChildContext) -> None:
        """One life of a bot."""
        spec = bot.child.spec
        life = BotLife(bot.agent_id, lambda: bot.spec, lambda report: self._on_report(bot, report))
        try:
            await bot.transport.live(life, ctx)
        except (ConfigError, TokenRefused) as error:
            if isinstance(error, TokenRefused) and await self._renewed(bot):
                raise  # the next life reads the new token
            if bot.child.spec is not spec:
                raise  # by ``renew``: the next life has the new token, and its own chances
            # Another life would fail too: the bot is failed, not in back-off.
            bot.child.spec = replace(spec, restart=Restart.TEMPORARY)
            await self._refused(bot, error.message)
            raise

    async def _renewed(self, bot: _Bot) -> bool:
        """Whether there is a new token in place of a refused one; once until the bot is well."""
        if bot.was_renewed or bot.transport.name != TELEGRAM.name:
            return False
        bot.was_renewed = await self._services().bots.renew_token(bot.agent_id)
        return bot.was_renewed

    # -- reports -----------------------------------------------------------------------------------

    def _on_report(self, bot: _Bot, report: ChannelReport) -> None:
        bot.was_renewed = bot.was_renewed and not report.is_well
        before, bot.report, known = bot.any_problem, report, bot.report
        if report.state is not ChannelState.CONNECTING:
            self._tried(bot)
        if bot.is_wanted:
            for note in report.notes:
                if known is None or note not in known.notes:
                    _log.warning(note, agent=bot.spec.name, channel=bot.transport.name)
        if bot.is_wanted and bot.any_problem != before:
            level = _log.warning if bot.any_problem else _log.info
            level(
                "bot",
                agent=bot.spec.name,
                channel=bot.transport.name,
                state=report.state.value,
                detail=report.detail or report.paused,
            )
            self._on_change(bot.agent_id, self.problem(bot.agent_id))

    def _tried(self, bot: _Bot) -> None:
        """Note that the first attempt to connect has ended, with or without success."""
        bot.was_tried = True
        if all(each.was_tried for each in self._of(bot.agent_id)):
            self._first[bot.agent_id].set()

    async def _refused(self, bot: _Bot, why: str) -> None:
        self._on_report(bot, replace(_last(bot), state=ChannelState.REFUSED, detail=why))
        await self._services().tell(
            f"The {bot.transport.platform.title} bot of {bot.spec.name} stays down: {why} "
            f"The agent itself goes on. {bot.transport.platform.remedy} or "
            f"/agent_restart {bot.spec.name} tries again."
        )

    def _record(self, status: ChildStatus) -> None:
        self._board.record(status)
        name, _, agent_id = status.child_id.partition(":")
        bot = self._bots.get((agent_id, name))
        if bot is None or status.next_retry_at is None:
            return
        title = bot.transport.platform.title
        why = f"its {title} bot ended with an error and is started again: {status.reason}"
        self._on_report(bot, replace(_last(bot), state=ChannelState.RETRYING, detail=why))


def _last(bot: _Bot) -> ChannelReport:
    return bot.report or ChannelReport(bot.agent_id, ChannelState.CONNECTING, bot.transport.name)


async def _nothing(ctx: ChildContext) -> None:
    """A placeholder until the bot's own life is set."""
