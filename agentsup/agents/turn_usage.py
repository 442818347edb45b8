"""What a turn uses: held before it begins, recorded while it runs, paid for however it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentsup.agents.budget.metering import Meter
from agentsup.agents.recovery.decisions import PRIMARY
from agentsup.agents.surroundings import Surroundings
from agentsup.agents.turn_services import TurnServices
from agentsup.catalogue import words
from agentsup.mailbox import usage as usage_rows
from agentsup.mailbox.budget.decide import Over
from agentsup.mailbox.pump import Work
from agentsup.model.engine import Done, EngineEvent, Segment, Suspended, ToolStarted, Usage
from agentsup.model.errors import BudgetExceeded, StoreUnavailable
from agentsup.model.ids import AgentId
from agentsup.model.message import Message, Part
from agentsup.model.trace import EngineTrace
from agentsup.observe.logging import get_logger
from agentsup.store.database import Tx

_log = get_logger(__name__)


@dataclass(slots=True)
class Heard:
    """What a segment's events left for its end."""

    message: Message
    files: list[Part] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    tier: str = PRIMARY
    """Which of the agent's models is heard, on which engine."""
    engine: str = ""
    model: str = ""
    used_tools: bool = False
    has_acted: bool = False
    """A call was made that is not ours: only the engine knows of it."""
    over: str = ""
    """Why the engine must not go on: a budget is used up."""
    usd_left: float | None = None
    """What the turn may cost, for an engine that can see to it itself."""
    may_not_tell: bool = False
    """What it uses is measured, in case that it does not tell it."""
    meter: Meter | None = None
    """Measures a run whose engine may tell no tokens."""
    estimates: list[int] = field(default_factory=list)
    """Places in ``usage`` of what was estimated in the run."""
    trace: EngineTrace | None = None
    """Where the run is told to."""
    tells_money: bool = False
    """The engine has said what something cost: its tokens have their price in reports of its own."""
    told: list[str] = field(default_factory=list)
    """Notes to a run that it was shown: messages that need no turn of their own."""
    informed: frozenset[str] = frozenset()
    """Questions put in its name from outside, of whose end it was told at its beginning."""


class TurnUsage:
    """Meters the segments of one agent's turns."""

    def __init__(
        self, services: TurnServices, agent_id: AgentId, surroundings: Surroundings
    ) -> None:
        self._services = services
        self._agent_id = agent_id
        self._around = surroundings

    async def reserve(self, work: Work, heard: Heard) -> Done | None:
        """Hold what the segment will probably use. The end of the turn where a budget forbids it."""
        heard.usd_left = self._around.payer.budget.per_turn_usd
        if self._services.spending is None:
            return None
        try:
            heard.usd_left = await self._services.spending.reserve(work, self._around, heard.model)
        except BudgetExceeded as error:
            return Done("failed", error=error.message, code=error.code)
        return None

    async def may_pass(self, event: EngineEvent, heard: Heard) -> bool:
        """Whether the engine may go on; what it reports of its use is recorded.

        Over its budget it may say what it has to say of the request that was paid, but it makes no
        call, and its next report is its last.
        """
        was_over, meter = bool(heard.over), heard.meter
        if isinstance(event, Usage):
            await self._note(event if meter is None else meter.reported(event), heard)
        elif meter is not None and (guessed := meter.heard(event)) is not None:
            await self._note(guessed, heard)
            if was_over:
                return False
        return not (was_over and isinstance(event, Usage | ToolStarted))

    @staticmethod
    def asked(segment: Segment, heard: Heard) -> None:
        """The engine is asked this now; what it uses is measured, should it not tell it."""
        if not heard.may_not_tell:
            return
        heard.meter, heard.estimates = Meter(), []
        heard.meter.asked(segment)

    async def measured(self, end: Done | Suspended | None, heard: Heard) -> None:
        """The run is over (None: it was cut off): what it did not tell is estimated. It is recorded
        with the segment's end."""
        guessed = heard.meter.ended(end) if heard.meter is not None else None
        heard.meter = None
        if guessed is not None:
            await self._add(guessed, heard)

    async def _add(self, usage: Usage, heard: Heard) -> None:
        """Keep a report, with its price where that is known."""
        spending = self._services.spending
        if not usage.is_estimated:
            heard.tells_money = heard.tells_money or usage.usd is not None
        if spending is not None and not heard.tells_money:
            usage = await spending.priced(
                usage, self._around, engine=heard.engine, model=heard.model
            )
        if usage.is_estimated:
            heard.estimates.append(len(heard.usage))
            if heard.meter is not None:
                heard.meter.counted(usage)
        heard.usage.append(usage)

    async def _note(self, usage: Usage, heard: Heard) -> None:
        """Record a report at once, so that not even a kill loses it."""
        spending = self._services.spending
        await self._add(usage, heard)
        if spending is None:
            return

        def write(tx: Tx) -> Over | None:
            fresh = self._rows_tx(tx, heard)
            if heard.estimates and heard.meter is not None and heard.meter.is_covered:
                ids = [_report_id(heard.message, number) for number in heard.estimates]
                usage_rows.told_tx(tx, ids)
            return spending.charge_tx(tx, heard.message, fresh)

        try:
            over = await self._services.database.write(write, name="turn.used")
        except StoreUnavailable as error:
            # It is recorded with the end of the turn, if the store is back by then.
            _log.warning("usage of a turn is not recorded yet", reason=error.message)
            return
        if over is not None and not heard.over:
            heard.over = spending.overrun(heard.message, over)

    @staticmethod
    def over_budget(heard: Heard) -> Done:
        """The end of a turn that used up its budget; what it has said is kept."""
        text = "".join(heard.said).strip()
        if text:
            say = words(heard.message.principal.language)
            heard.notices.append(say("budget.so_far", text=text))
        return Done("failed", text=text, error=heard.over, code=BudgetExceeded.code)

    @staticmethod
    def ended(end: Done | Suspended, heard: Heard) -> Done | Suspended:
        """``end``, unless the budget was used up before there was an answer."""
        if not heard.over or isinstance(end, Suspended) or end.outcome != "ok":
            return end
        has_answer = end.text.strip() or heard.files or end.exit_code is not None
        return end if has_answer else TurnUsage.over_budget(heard)

    # -- its end -----------------------------------------------------------------------------------

    def end_tx(self, tx: Tx, heard: Heard) -> None:
        """Record all that was used, and give up what is held."""
        self._rows_tx(tx, heard)
        if self._services.spending is not None:
            self._services.spending.end_tx(tx, heard.message)

    async def record(self, heard: Heard) -> None:
        """The same by itself, for a segment without an end of its own."""
        if heard.usage or self._services.spending is not None:
            await self._services.database.write(
                lambda tx: self.end_tx(tx, heard), name="turn.usage"
            )

    async def of_unfinished(self, heard: Heard) -> None:
        """What a stopped or crashed turn has used is paid for all the same."""
        try:
            await self.measured(None, heard)
            await self.record(heard)
        except StoreUnavailable as error:
            _log.warning("usage of an unfinished turn is not recorded", reason=error.message)

    def forget(self, work: Work) -> None:
        """The segment is over, however it ended."""
        if self._services.spending is not None:
            self._services.spending.forget(work.lease.message)

    def _rows_tx(self, tx: Tx, heard: Heard) -> Sequence[Usage]:
        """Store what is not stored yet; returns that. A report is known by its lease and number."""
        message, fresh = heard.message, []
        for number, usage in enumerate(heard.usage):
            stored = usage_rows.record_tx(
                tx,
                usage,
                message_id=message.message_id,
                agent_id=self._agent_id,
                session_id=message.session_id,
                engine=heard.engine or self._around.engine.name,
                model=heard.model or self._around.spec.model or "",
                at=self._services.clock.now_ms(),
                report_id=_report_id(message, number),
            )
            if stored is not None:
                fresh.append(stored)
        return fresh


def _report_id(message: Message, number: int) -> str:
    """A report is known by its lease and its place."""
    return f"{message.message_id}:{message.fence}:{number}"
