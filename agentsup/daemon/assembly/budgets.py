"""Budgets in this daemon: the limits and prices of its settings, and notices to operators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import tzinfo

from agentsup.agents.budget import BudgetReservations, CostReport, limits, texts
from agentsup.config import BudgetSettings, ConfigSnapshot
from agentsup.daemon.assembly.children import permanent_child
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.roster import RosterDirectory
from agentsup.engines import Price, Prices
from agentsup.kit.tasks import TaskOwner, call_after
from agentsup.mailbox.usage.budget import BudgetNotice, Limit, ScopeKind, ledger
from agentsup.model.agent import MAIN, AgentSpec, Budget
from agentsup.model.errors import StoreUnavailable
from agentsup.model.message import Message
from agentsup.supervision import ChildContext, ChildSpec

_AGAIN_S = 30.0
_AGENTS = frozenset({ScopeKind.AGENT_DAY, ScopeKind.AGENT_MONTH})


class _Settings:
    """The current limits. Implements ``agents.budget.spending.BudgetLimits``."""

    def __init__(self, boot_context: BootContext) -> None:
        self.spec_of = boot_context.spec_of
        self._current = boot_context.current
        self._trees: tuple[ConfigSnapshot, bool] | None = None
        """Whether that configuration limits trees."""

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
        ]
        if limits.is_lasting(spec.budget):
            found += limits.of_agent(spec, message.agent_id, at=at)
        if limits.is_lasting(now.settings.budget):
            found += limits.of_daemon(now.settings.budget, self.daemon_zone(), at=at)
        return [limit for limit in found if limit.is_set]

    def has_trees(self) -> bool:
        now = self._current()
        if self._trees is None or self._trees[0] is not now:
            budgets: list[Budget | BudgetSettings] = [now.settings.budget]
            budgets += [spec.budget for spec in now.specs.values()]
            has_any = any(
                each.per_tree_usd is not None or each.per_tree_tokens is not None
                for each in budgets
            )
            self._trees = now, has_any
        return self._trees[1]

    def zone(self, scope_kind: ScopeKind, spec: AgentSpec) -> tzinfo | None:
        return limits.zone_of(spec.user_timezone) if scope_kind in _AGENTS else self.daemon_zone()

    def daemon_zone(self) -> tzinfo | None:
        """The time zone of the daemon's budget periods, which is that of main's people."""
        main = self._current().find(MAIN)
        return limits.zone_of(main.user_timezone if main is not None else None)

    def lasting_limits(self, agent_id: str, at: int) -> list[Limit]:
        """The limits of an agent, or of the daemon (empty id), that hold without a turn."""
        if not agent_id:
            return limits.of_daemon(self._current().settings.budget, self.daemon_zone(), at=at)
        spec = self.spec_of(agent_id) or AgentSpec(name=agent_id)
        return limits.of_agent(spec, agent_id, at=at)


class DaemonSpending:
    """The assembly of this boot's budgets."""

    def __init__(
        self,
        boot_context: BootContext,
        directory: RosterDirectory,
        tell: Callable[[str], Awaitable[None]],
    ) -> None:
        """``tell`` sends a text to the operators."""
        self._boot_context = boot_context
        self._tell = tell
        self._settings = _Settings(boot_context)
        self.prices = Prices(lambda: _own_prices(boot_context.current()))
        self.turns = BudgetReservations(
            boot_context.database,
            boot_context.clock,
            boot_id=boot_context.boot.boot_id,
            settings=self._settings,
            prices=self.prices,
        )
        self.report = CostReport(
            boot_context.database,
            boot_context.clock,
            directory,
            boot_id=boot_context.boot.boot_id,
            limits=self._settings.lasting_limits,
        )

    def spec(self) -> ChildSpec:
        """The child that drops reservations of earlier boots, and tells operators which budgets run
        low."""

        async def life(ctx: ChildContext) -> None:
            boot_id = self._boot_context.boot.boot_id
            await self._boot_context.database.write(
                ledger.drop_void_tx, boot_id, name="budget.void"
            )
            ctx.ready()
            await self._notify(ctx.draining)

        return permanent_child("budgets", life)

    async def _notify(self, draining: asyncio.Event) -> None:
        """Send pending budget notices, whenever there may be some, until the child is drained.

        A notice is marked after it was sent: a kill between the two sends it twice rather than never.
        """
        database = self._boot_context.database
        news = asyncio.Event()
        unlisten = database.listen(ledger.TOPIC, news.set)
        waiting = TaskOwner("budgets-end")
        waiting.spawn(call_after(draining, news.set), name="drain:budgets")
        try:
            while not draining.is_set():
                news.clear()
                try:
                    for one in await database.read(ledger.pending_notices, name="budget.untold"):
                        await self._say(one)
                        await database.write(ledger.mark_notified_tx, one, name="budget.told")
                except StoreUnavailable:
                    await self._boot_context.clock.sleep(_AGAIN_S)
                    continue
                if not draining.is_set():
                    await news.wait()
        finally:
            unlisten()
            await waiting.close(0.1)

    async def _say(self, one: BudgetNotice) -> None:
        scope = one.scope
        of_agent = scope.kind in _AGENTS
        spec = self._settings.spec_of(scope.subject) if of_agent else None
        zone = self._settings.zone(scope.kind, spec or AgentSpec(name=MAIN))
        name = self._boot_context.roster.name_of(scope.subject) if of_agent else scope.subject
        await self._tell(texts.notice(one, name=name, zone=zone))


def _own_prices(now: ConfigSnapshot) -> Mapping[str, Price]:
    return {
        model: Price(price.input, price.output, price.cache_read, price.cache_write)
        for model, price in now.settings.prices.items()
    }
