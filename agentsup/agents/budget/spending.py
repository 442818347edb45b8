"""Reserve, settle, release: what stands between a turn and the money it would use.

Before its first effect a turn holds what it will probably use; each report of its engine is
recorded at once and comes out of the hold; with the end of the turn the hold ends in the same
transaction. A turn without any limit costs nothing of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Protocol

from agentsup.agents.budget import telling
from agentsup.agents.surroundings import Surroundings
from agentsup.engines.prices import Price, Prices
from agentsup.kit.clock import Clock
from agentsup.mailbox.budget import ledger
from agentsup.mailbox.budget.decide import Over, crossed, estimate
from agentsup.mailbox.budget.ledger import Claim, Taken
from agentsup.mailbox.budget.scopes import NANO, Amount, Limit, ScopeKind
from agentsup.mailbox.pump import Work
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import Usage
from agentsup.model.errors import BudgetExceeded
from agentsup.model.message import Message
from agentsup.store.database import Database, Reader, Tx

HELD_WAIT_S = 30.0
"""How long a turn waits for others to give back what they hold, before it is refused."""
TELL_MONEY = frozenset({"claude"})
"""Engines whose last report says what the whole turn cost; those before it tell tokens."""
_LOOK_S = 5.0
"""A hold that ended in another way than its turn's own rings no bell."""


class Settings(Protocol):
    """The limits of now, from the files and the agents' entries."""

    def limits(self, spec: AgentSpec, message: Message, root_agent_id: str, at: int) -> list[Limit]:
        """Those that hold for a turn on ``message``, set ones only."""

    def has_trees(self) -> bool:
        """Whether any agent, or the daemon, bounds what one request may set off."""

    def zone(self, scope_kind: ScopeKind, spec: AgentSpec) -> tzinfo | None:
        """The time zone in which a scope of this agent has its days."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """A turn that goes on, and the limits that hold for it at a moment."""

    claim: Claim
    spec: AgentSpec
    limits: Callable[[int], list[Limit]]
    language: str


class Spending:
    """The budgets of all turns of the daemon."""

    def __init__(
        self, database: Database, clock: Clock, *, boot_id: str, settings: Settings, prices: Prices
    ) -> None:
        self._database = database
        self._clock = clock
        self._boot_id = boot_id
        self._settings = settings
        self._prices = prices
        self._turns: dict[str, _Turn] = {}
        self._over: dict[str, str] = {}
        self._has_rows: bool | None = None
        database.listen(ledger.ROWS_TOPIC, self._rows_changed)

    # -- before a turn -----------------------------------------------------------------------------

    async def reserve(self, work: Work, around: Surroundings, model: str = "") -> float | None:
        """Hold what the turn will probably use; the most it may cost, in US dollars (None: any).
        ``model`` is the one that is asked, if it is not the agent's first.

        Waits, its slot given back, while only what other turns hold is in the way. Raises
        ``BudgetExceeded``, with a sentence for the asker.
        """
        message, spec = work.lease.message, around.payer
        root_agent_id = await self._begun_with(message)

        def limits(at: int) -> list[Limit]:
            return self._settings.limits(spec, message, root_agent_id, at)

        claim = Claim(
            message.message_id,
            message.fence,
            self._boot_id,
            message.agent_id,
            message.root_id,
        )
        turn = _Turn(claim, spec, limits, message.principal.language)
        if not limits(self._clock.now_ms()) and not await self._is_bound_by_rows(message):
            return spec.budget.per_turn_usd
        rate = _rate(await self._price(around.spec, model))
        until_s = self._clock.monotonic() + HELD_WAIT_S
        while True:
            freed = asyncio.Event()
            unlisten = self._database.listen(ledger.TOPIC, freed.set)
            try:
                taken = await self._database.write(
                    lambda tx: self._hold_tx(tx, turn, message, rate), name="budget.reserve"
                )
                if taken.over is None:
                    self._turns[message.message_id] = turn
                    return taken.usd_left
                left_s = until_s - self._clock.monotonic()
                if not taken.over.by_holds or left_s <= 0:
                    raise self._refusal(turn, taken.over)
                async with work.slot.released():
                    await _rung(freed, min(left_s, _LOOK_S))
            finally:
                unlisten()

    def _hold_tx(self, tx: Tx, turn: _Turn, message: Message, rate: Amount | None) -> Taken:
        at = self._clock.now_ms()
        size = len(message.text) + ledger.request_bytes(tx, message.session_id)
        wanted = estimate(size, rate, ledger.recent(tx, message.agent_id))
        return ledger.hold_tx(tx, turn.claim, self._limits_tx(tx, turn, at), wanted, at=at)

    # -- during a turn -----------------------------------------------------------------------------

    async def priced(
        self, usage: Usage, around: Surroundings, *, engine: str = "", model: str = ""
    ) -> Usage:
        """A report of tokens alone, with its price where that is known."""
        told_later = (engine or around.engine.name) in TELL_MONEY and not usage.is_estimated
        if told_later or not (usage.input_tokens or usage.output_tokens):
            return usage
        price = await self._price(around.spec, model)
        if price is None:
            return usage
        return replace(usage, usd=price.of(usage.input_tokens, usage.output_tokens))

    def charge_tx(self, tx: Tx, message: Message, fresh: Sequence[Usage]) -> Over | None:
        """Reports that were recorded just now come out of the turn's hold. Returns what the next
        request would overrun."""
        turn = self._turns.get(message.message_id)
        if turn is None or not fresh:
            return None
        used = Amount()
        for each in fresh:
            used += ledger.amount_of(each)
        at = self._clock.now_ms()
        return ledger.charge_tx(tx, turn.claim, self._limits_tx(tx, turn, at), used, at=at)

    def overrun(self, message: Message, over: Over) -> str:
        """The turn must not go on; from now on its calls are refused. Returns the sentence."""
        turn = self._turns[message.message_id]
        self._over[message.message_id] = sentence = self._sentence(turn, over, has_begun=True)
        return sentence

    def exhausted(self, message_id: str) -> str | None:
        """Why a call of this turn must not be made, if so."""
        return self._over.get(message_id)

    # -- its end -----------------------------------------------------------------------------------

    def end_tx(self, tx: Tx, message: Message) -> None:
        """Everything the turn has used is recorded: its hold ends."""
        turn = self._turns.get(message.message_id)
        if turn is None:
            return
        at = self._clock.now_ms()
        found = ledger.standings(
            tx, turn.claim, self._limits_tx(tx, turn, at), boot_id=self._boot_id
        )
        ledger.note_tx(tx, crossed(found), at=at)
        ledger.release_tx(tx, message.message_id, message.fence)

    def forget(self, message: Message) -> None:
        """The turn is over, however it ended."""
        turn = self._turns.get(message.message_id)
        if turn is not None and turn.claim.fence == message.fence:
            del self._turns[message.message_id]
            self._over.pop(message.message_id, None)

    # -- inside ------------------------------------------------------------------------------------

    def _limits_tx(self, tx: Tx, turn: _Turn, at: int) -> list[Limit]:
        return [*turn.limits(at), *ledger.limits_by_rows(tx, turn.claim.message_id)]

    def _refusal(self, turn: _Turn, over: Over) -> BudgetExceeded:
        scope = over.limit.scope
        return BudgetExceeded(
            self._sentence(turn, over, has_begun=False),
            scope=scope.kind.value,
            subject=scope.subject,
            unit=over.unit,
            free_at=scope.until,
        )

    def _sentence(self, turn: _Turn, over: Over, *, has_begun: bool) -> str:
        scope = over.limit.scope
        of_agent = scope.kind in {ScopeKind.AGENT_DAY, ScopeKind.AGENT_MONTH}
        return telling.refusal(
            over,
            name=turn.spec.name if of_agent else scope.subject,
            zone=self._settings.zone(scope.kind, turn.spec),
            language=turn.language,
            has_begun=has_begun,
        )

    async def _begun_with(self, message: Message) -> str:
        """The agent that got the first message of the request."""
        if message.root_id == message.message_id or not self._settings.has_trees():
            return message.agent_id

        def find(reader: Reader) -> str:
            found = reader.scalar(
                "SELECT agent_id FROM messages WHERE message_id = ?", (message.root_id,)
            )
            return str(found or message.agent_id)

        return await self._database.read(find, name="budget.root")

    def _rows_changed(self) -> None:
        self._has_rows = None

    async def _is_bound_by_rows(self, message: Message) -> bool:
        if self._has_rows is None:
            self._has_rows = await self._database.read(ledger.has_rows, name="budget.rows")
        if not self._has_rows:
            return False
        return bool(
            await self._database.read(
                lambda reader: ledger.limits_by_rows(reader, message.message_id),
                name="budget.rows",
            )
        )

    async def _price(self, spec: AgentSpec, model: str) -> Price | None:
        return await self._prices.of(*_model_of(spec, model))


def _model_of(spec: AgentSpec, model: str) -> tuple[str, str]:
    """Provider and model as the price table knows them; of another model than the agent's first
    only its own name tells the provider."""
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


async def _rung(bell: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await bell.wait()
    except TimeoutError:
        return
