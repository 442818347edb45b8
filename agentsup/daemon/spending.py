"""Budgets in this daemon: the limits of its settings, its prices, and who is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import tzinfo
from functools import partial

from agentsup.agents.budget import limits, telling
from agentsup.agents.budget.desk import CostDesk
from agentsup.agents.budget.spending import Spending
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon.ground import Ground
from agentsup.engines.prices import Price, Prices
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.budget import ledger
from agentsup.mailbox.budget.scopes import Limit, ScopeKind
from agentsup.model.agent import MAIN, AgentSpec
from agentsup.model.errors import StoreUnavailable
from agentsup.model.message import Message
from agentsup.store.database import Database, Tx
from agentsup.supervision.policy import RestartPolicy
from agentsup.supervision.spec import ChildContext, ChildSpec, Grace, Restart

_SHORT = Grace(drain_s=2.0, cancel_s=1.0, kill_s=0.5)
_FOR_EVER = RestartPolicy(max_restarts=None, cap_s=30.0)
_AGAIN_S = 30.0
_AGENTS = frozenset({ScopeKind.AGENT_DAY, ScopeKind.AGENT_MONTH})


class _Settings:
    """The limits of the configuration as it is now. Implements ``spending.Settings``."""

    def __init__(self, ground: Ground, current: Callable[[], ConfigSnapshot]) -> None:
        self._roster = ground.roster
        self._current = current

    def limits(self, spec: AgentSpec, message: Message, root_agent_id: str, at: int) -> list[Limit]:
        now = self._current()
        root = self.spec_of(root_agent_id)
        found = [
            *limits.of_turn(
                spec.budget,
                root.budget if root is not None else None,
                now.settings.budget,
                message=message.message_id,
                root=message.root_id,
            ),
            *limits.of_agent(spec, message.agent_id, at=at),
            *limits.of_daemon(now.settings.budget, self.daemon_zone(), at=at),
        ]
        return [limit for limit in found if limit.is_set]

    def has_trees(self) -> bool:
        now = self._current()
        of_all = now.settings.budget
        bounds = [(of_all.per_tree_usd, of_all.per_tree_tokens)]
        bounds += [(s.budget.per_tree_usd, s.budget.per_tree_tokens) for s in now.specs.values()]
        return any(usd is not None or tokens is not None for usd, tokens in bounds)

    def zone(self, scope_kind: ScopeKind, spec: AgentSpec) -> tzinfo | None:
        return limits.zone_of(spec.user_timezone) if scope_kind in _AGENTS else self.daemon_zone()

    def daemon_zone(self) -> tzinfo | None:
        """Where all agents together have their days: where main's people are."""
        main = self._current().find(MAIN)
        return limits.zone_of(main.user_timezone if main is not None else None)

    def standing_limits(self, agent_id: str, at: int) -> list[Limit]:
        """Those of an agent, or of the daemon (empty), that hold without a turn."""
        if not agent_id:
            return limits.of_daemon(self._current().settings.budget, self.daemon_zone(), at=at)
        spec = self.spec_of(agent_id) or AgentSpec(name=agent_id)
        return limits.of_agent(spec, agent_id, at=at)

    def spec_of(self, agent_id: str) -> AgentSpec | None:
        """What is declared of an agent, by its id."""
        return self._current().find(self._roster.name_of(agent_id))


class DaemonSpending:
    """The budgets of this boot, put together."""

    def __init__(
        self,
        ground: Ground,
        current: Callable[[], ConfigSnapshot],
        tell: Callable[[str], Awaitable[None]],
    ) -> None:
        """``tell`` says something to the operators."""
        self._ground = ground
        self._tell = tell
        self._settings = _Settings(ground, current)
        self.turns = Spending(
            ground.database,
            ground.clock,
            boot_id=ground.boot.boot_id,
            settings=self._settings,
            prices=Prices(lambda: _own_prices(current())),
        )
        self.desk = CostDesk(
            ground.database,
            ground.clock,
            ground.roster,
            boot_id=ground.boot.boot_id,
            limits=self._settings.standing_limits,
        )

    def spec(self) -> ChildSpec:
        """The child that drops what earlier boots held, and tells operators what runs low."""

        async def life(ctx: ChildContext) -> None:
            boot_id = self._ground.boot.boot_id
            await self._ground.database.write(
                lambda tx: ledger.drop_void_tx(tx, boot_id), name="budget.void"
            )
            ctx.ready()
            await _telling(self._ground.database, self._ground.clock, self._say, ctx.draining)

        return ChildSpec("budgets", life, Restart.PERMANENT, grace=_SHORT, policy=_FOR_EVER)

    async def _say(self, one: ledger.Notice) -> None:
        scope = one.scope
        of_agent = scope.kind in _AGENTS
        spec = self._settings.spec_of(scope.subject) if of_agent else None
        zone = self._settings.zone(scope.kind, spec or AgentSpec(name=MAIN))
        name = self._ground.roster.name_of(scope.subject) if of_agent else scope.subject
        await self._tell(telling.notice(one, name=name, zone=zone))


async def _telling(
    database: Database,
    clock: Clock,
    say: Callable[[ledger.Notice], Awaitable[None]],
    draining: asyncio.Event,
) -> None:
    """Tell what is untold, whenever there may be something; until drained.

    It is marked after it was told: a kill between the two tells it twice, and never not at all.
    """
    news = asyncio.Event()
    unlisten = database.listen(ledger.TOPIC, news.set)

    async def ended() -> None:
        await draining.wait()
        news.set()

    waiting = TaskOwner("budgets-end")
    waiting.spawn(ended(), name="drain:budgets")
    try:
        while not draining.is_set():
            news.clear()
            try:
                for one in await database.read(ledger.untold, name="budget.untold"):
                    await say(one)
                    await database.write(partial(_mark_told, one), name="budget.told")
            except StoreUnavailable:
                await clock.sleep(_AGAIN_S)
                continue
            if not draining.is_set():
                await news.wait()
    finally:
        unlisten()
        await waiting.close(0.1)


def _mark_told(one: ledger.Notice, tx: Tx) -> None:
    ledger.mark_told_tx(tx, one)


def _own_prices(now: ConfigSnapshot) -> Mapping[str, Price]:
    return {model: Price(price.input, price.output) for model, price in now.settings.prices.items()}
