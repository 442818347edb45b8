"""The budget reservations of turns: reserve, charge, release.

Before its first effect a turn reserves what it will probably use. Each report of its engine is
recorded at once and taken from the reservation. The transaction that ends the turn also releases
the reservation. A turn without any limit has no reservation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Protocol

from agentsup.agents.budget import texts
from agentsup.agents.memory import transcript
from agentsup.agents.persona.context import AgentContext
from agentsup.engines import Price, Prices
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import is_set_within
from agentsup.mailbox.messages import find_message
from agentsup.mailbox.usage.budget import (
    NANO,
    Amount,
    HoldOwner,
    HoldResult,
    Limit,
    LimitExceededBy,
    ScopeKind,
    crossed,
    estimate,
    ledger,
)
from agentsup.mailbox.work import Work
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import Usage
from agentsup.model.errors import BudgetExceeded
from agentsup.model.message import Message
from agentsup.store import Database, Reader, Tx

RESERVED_WAIT_S = 30.0
"""The longest wait of a turn for reservations of others to be released, before it is refused."""
COST_IN_LAST_REPORT = frozenset({"claude"})
"""Engines whose last report has the cost of the whole turn; the earlier ones have only tokens."""
_LOOK_S = 5.0
"""The pause between the checks of a waiting turn. Not every end of a reservation touches the
topic."""


class BudgetLimits(Protocol):
    """The current limits, from ``config.toml`` and the agents' entries."""

    def limits(self, spec: AgentSpec, message: Message, root_agent_id: str, at: int) -> list[Limit]:
        """The limits of a turn on ``message`` that have a value."""

    def has_trees(self) -> bool:
        """Whether any agent, or the daemon, limits all the work that one request causes."""

    def zone(self, scope_kind: ScopeKind, spec: AgentSpec) -> tzinfo | None:
        """The time zone in which the days of a scope of this agent begin and end."""


@dataclass(frozen=True, slots=True)
class StoredBudget:
    """The stored facts about a turn's limits: the agent that got the first message of the request,
    and whether a team or task with a limit counts the turn."""

    root_agent_id: str
    has_limits: bool


@dataclass(frozen=True, slots=True)
class _BudgetedTurn:
    """A running turn; ``limits(at)`` returns its limits at ``at``, wall-clock ms."""

    owner: HoldOwner
    spec: AgentSpec
    limits: Callable[[int], list[Limit]]
    language: str


class BudgetReservations:
    """The reservations of all turns of the daemon."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        boot_id: str,
        settings: BudgetLimits,
        prices: Prices,
    ) -> None:
        self._database = database
        self._clock = clock
        self._boot_id = boot_id
        self._settings = settings
        self._prices = prices
        self._turns: dict[str, _BudgetedTurn] = {}
        self._over: dict[str, str] = {}

    # -- before a turn -----------------------------------------------------------------------------

    def read_stored(self, reader: Reader, message: Message) -> StoredBudget:
        """Read the stored facts about the limits of a turn on ``message``."""
        begun_with: Message | None = None
        if message.root_id != message.message_id and self._settings.has_trees():
            begun_with = find_message(reader, message.root_id)
        limits = ledger.limits_by_rows(reader, message.message_id)
        return StoredBudget((begun_with or message).agent_id, bool(limits))

    async def reserve(
        self,
        work: Work,
        agent: AgentContext,
        model: str = "",
        stored: StoredBudget | None = None,
    ) -> float | None:
        """Reserve what the turn will probably use. Returns the most it may cost, in US dollars
        (None: any). ``model`` is the model that is used, if it is not the agent's primary one;
        ``stored`` is what ``read_stored`` has read.

        Waits up to ``RESERVED_WAIT_S`` with the slot released, while only the reservations of other
        turns are in the way. Raises ``BudgetExceeded`` with a sentence for the sender.
        """
        message, spec = work.lease.message, agent.payer
        if stored is None:
            stored = await self._database.read(self.read_stored, message, name="budget.limits")
        root_agent_id = stored.root_agent_id

        def limits(at: int) -> list[Limit]:
            return self._settings.limits(spec, message, root_agent_id, at)

        if not stored.has_limits and not limits(self._clock.now_ms()):
            return spec.budget.per_turn_usd
        ids = (message.agent_id, message.root_id)
        owner = HoldOwner(message.message_id, message.fence, self._boot_id, *ids)
        turn = _BudgetedTurn(owner, spec, limits, message.principal.language)
        rate = _rate(await self._price(agent.spec, model))
        until_s = self._clock.monotonic() + RESERVED_WAIT_S
        while True:
            freed = asyncio.Event()
            unlisten = self._database.listen(ledger.TOPIC, freed.set)
            try:
                taken = await self._database.write(
                    self._hold_tx, turn, message, rate, name="budget.reserve"
                )
                if taken.over is None:
                    self._turns[message.message_id] = turn
                    return taken.usd_left
                left_s = until_s - self._clock.monotonic()
                if not taken.over.by_holds or left_s <= 0:
                    raise self._refusal(turn, taken.over)
                async with work.slot.released():
                    await is_set_within(freed, min(left_s, _LOOK_S))
            finally:
                unlisten()

    def _hold_tx(
        self, tx: Tx, turn: _BudgetedTurn, message: Message, rate: Amount | None
    ) -> HoldResult:
        at = self._clock.now_ms()
        size = len(message.text) + transcript.request_bytes(tx, message.session_id)
        wanted = estimate(size, rate, ledger.recent(tx, message.agent_id))
        return ledger.hold_tx(tx, turn.owner, self._limits_tx(tx, turn, at), wanted, at=at)

    # -- during a turn -----------------------------------------------------------------------------

    async def priced(
        self, usage: Usage, agent: AgentContext, *, engine: str = "", model: str = ""
    ) -> Usage:
        """A report with the price of its tokens, if that is known and the engine reports none."""
        is_cost_pending = (
            engine or agent.engine.name
        ) in COST_IN_LAST_REPORT and not usage.is_estimated
        if is_cost_pending or not (usage.input_tokens or usage.output_tokens):
            return usage
        price = await self._price(agent.spec, model)
        if price is None:
            return usage
        usd = price.of(
            usage.input_tokens,
            usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        )
        return replace(usage, usd=usd)

    def charge_tx(self, tx: Tx, message: Message, fresh: Sequence[Usage]) -> LimitExceededBy | None:
        """Take newly recorded reports from the turn's reservation. Returns the limit that is used
        up by now, or None."""
        turn = self._turns.get(message.message_id)
        if turn is None or not fresh:
            return None
        used = Amount()
        for each in fresh:
            used += ledger.amount_of(each)
        at = self._clock.now_ms()
        return ledger.charge_tx(tx, turn.owner, self._limits_tx(tx, turn, at), used, at=at)

    def refuse_further_calls(self, message: Message, over: LimitExceededBy) -> str:
        """Refuse the turn's calls from now on. Returns the sentence that says why."""
        turn = self._turns[message.message_id]
        self._over[message.message_id] = sentence = self._sentence(turn, over, has_begun=True)
        return sentence

    def refusal_of(self, message_id: str) -> str | None:
        """Why the calls of this turn are refused, or None."""
        return self._over.get(message_id)

    # -- its end -----------------------------------------------------------------------------------

    def end_tx(self, tx: Tx, message: Message) -> None:
        """Release the turn's reservation, after all of its usage is recorded."""
        turn = self._turns.get(message.message_id)
        if turn is None:
            return
        at = self._clock.now_ms()
        found = ledger.usages(tx, turn.owner, self._limits_tx(tx, turn, at), boot_id=self._boot_id)
        ledger.note_tx(tx, crossed(found), at=at)
        ledger.release_tx(tx, message.message_id, message.fence)

    def forget(self, message: Message) -> None:
        """Drop the in-memory state of a turn that is over."""
        turn = self._turns.get(message.message_id)
        if turn is not None and turn.owner.fence == message.fence:
            del self._turns[message.message_id]
            self._over.pop(message.message_id, None)

    # -- inside ------------------------------------------------------------------------------------

    def _limits_tx(self, tx: Tx, turn: _BudgetedTurn, at: int) -> list[Limit]:
        return [*turn.limits(at), *ledger.limits_by_rows(tx, turn.owner.message_id)]

    def _refusal(self, turn: _BudgetedTurn, over: LimitExceededBy) -> BudgetExceeded:
        scope = over.limit.scope
        return BudgetExceeded(
            self._sentence(turn, over, has_begun=False),
            scope=scope.kind.value,
            subject=scope.subject,
            unit=over.unit,
            free_at=scope.until,
        )

    def _sentence(self, turn: _BudgetedTurn, over: LimitExceededBy, *, has_begun: bool) -> str:
        scope = over.limit.scope
        of_agent = scope.kind in {ScopeKind.AGENT_DAY, ScopeKind.AGENT_MONTH}
        return texts.refusal(
            over,
            name=turn.spec.name if of_agent else scope.subject,
            zone=self._settings.zone(scope.kind, turn.spec),
            language=turn.language,
            has_begun=has_begun,
        )

    async def _price(self, spec: AgentSpec, model: str) -> Price | None:
        return await self._prices.of(*_model_of(spec, model))


def _model_of(spec: AgentSpec, model: str) -> tuple[str, str]:
    """Provider and model as the price table names them. A model other than the agent's primary one
    is found by its name alone."""
    options = spec.engine_options
    first = str(options.get("model") or spec.model or "")
    if model and model != first:
        return "", model
    provider = str(options.get("provider") or spec.provider or "")
    return ("anthropic" if provider == "claude" else provider), first


def _rate(price: Price | None) -> Amount | None:
    if price is None:
        return None
    return Amount(round(price.input * NANO), round(price.output * NANO))
