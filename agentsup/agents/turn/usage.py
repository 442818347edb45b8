"""What a segment of a turn collects: its events, its usage (reserved before it, recorded during it,
settled however it ends), the spans that it sends, and what is saved of it when it is suspended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from agentsup.agents.budget.spending import StoredBudget
from agentsup.agents.budget.token_estimate import TokenEstimate
from agentsup.agents.recovery.tiers import ModelTier
from agentsup.agents.turn.own_calls import our_tool
from agentsup.agents.turn.services import TurnContext
from agentsup.catalogue import words
from agentsup.kit.log import get_logger
from agentsup.mailbox.usage import reports as usage_rows
from agentsup.mailbox.usage.budget import LimitExceededBy
from agentsup.mailbox.work import Work
from agentsup.model.engine import (
    EngineDone,
    EngineEvent,
    EngineNotice,
    FileOut,
    ModelRequest,
    Resume,
    Segment,
    Suspended,
    TextDelta,
    ToolStarted,
    Usage,
)
from agentsup.model.errors import BudgetExceeded, StoreUnavailable
from agentsup.model.message import Message, Part
from agentsup.model.trace import by_turn_of, turn_span
from agentsup.observe.traces import OtelTracer, SentSpan
from agentsup.store import Tx

_log = get_logger(__name__)


@dataclass(slots=True)
class SegmentState:
    """The events of a segment so far, collected."""

    message: Message
    tier: ModelTier
    """The one of the agent's models that runs."""
    number: int = 0
    """The number of the segment, from when it has begun."""
    files: list[Part] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    used_tools: bool = False
    has_acted: bool = False
    """The engine made a call of its own. Only the engine knows of it."""
    over: str = ""
    """The sentence about a budget that is used up: the engine must not go on."""
    usd_left: float | None = None
    """US dollars that the turn may cost (None: any), for an engine that enforces it itself."""
    meter: TokenEstimate | None = None
    """Estimates the usage of a run whose engine may report no tokens."""
    estimates: list[int] = field(default_factory=list)
    """Indexes in ``usage`` of the estimates of this run."""
    reports_cost: bool = False
    """The engine has reported a cost, so its tokens get no price from our table."""
    shown_notes: list[str] = field(default_factory=list)
    """Ids of the notes that the run was shown. These messages need no turn of their own."""
    informed: frozenset[str] = frozenset()
    """Ids of the questions asked in the run's name from outside whose end was in its
    instructions."""

    def add(self, event: EngineEvent) -> None:
        """Take what the end of the segment needs from an event."""
        match event:
            case TextDelta(text=text):
                self.said.append(text)
            case FileOut(path=path):
                self.files.append(Part("file", path=path, name=Path(path).name))
            case EngineNotice(text=text):
                self.notices.append(text)
            case ToolStarted(name=name):
                self.used_tools = True
                self.has_acted = self.has_acted or our_tool(name) is None
                _log.debug("tool", tool=name)
            case _:
                return


class TurnUsage:
    """Reserves for and records the segments of one turn."""

    def __init__(self, turn: TurnContext) -> None:
        self._turn = turn
        self._services = turn.services

    async def reserve(
        self, state: SegmentState, stored: StoredBudget | None = None
    ) -> EngineDone | None:
        """Reserve what the segment will probably use. Returns the end if a budget refuses."""
        try:
            state.usd_left = await self._services.spending.reserve(
                self._turn.work, self._turn.agent, state.tier.model, stored
            )
        except BudgetExceeded as error:
            return EngineDone("failed", error=error.message, code=error.code)
        return None

    async def may_pass(self, event: EngineEvent, state: SegmentState) -> bool:
        """Record the usage in ``event``. Returns whether the engine may go on.

        Over its budget the engine may finish the text of the request that was paid. It may make no
        call, and its next usage report ends the run.
        """
        was_over, meter = bool(state.over), state.meter
        if isinstance(event, Usage):
            await self._note(event if meter is None else meter.reported(event), state)
        elif meter is not None and (guessed := meter.observe(event)) is not None:
            await self._note(guessed, state)
            if was_over:
                return False
        return not (was_over and isinstance(event, Usage | ToolStarted))

    @staticmethod
    def asked(segment: Segment, state: SegmentState) -> None:
        """Start an estimate for a run of ``segment`` if the engine may report no usage."""
        if not state.tier.engine.caps.may_not_report:
            return
        state.meter, state.estimates = TokenEstimate(), []
        state.meter.asked(segment)

    async def measured(self, end: EngineDone | Suspended | None, state: SegmentState) -> None:
        """Add the estimate of what a run did not report (``end`` None: it was cut off). It is
        recorded with the segment's end."""
        guessed = state.meter.ended(end) if state.meter is not None else None
        state.meter = None
        if guessed is not None:
            await self._add(guessed, state)

    async def _add(self, usage: Usage, state: SegmentState) -> None:
        """Add a report, with its price if that is known."""
        if not usage.is_estimated:
            state.reports_cost = state.reports_cost or usage.usd is not None
        if not state.reports_cost:
            usage = await self._services.spending.priced(
                usage, self._turn.agent, engine=state.tier.engine.name, model=state.tier.model
            )
        if usage.is_estimated:
            state.estimates.append(len(state.usage))
            if state.meter is not None:
                state.meter.counted(usage)
        state.usage.append(usage)

    async def _note(self, usage: Usage, state: SegmentState) -> None:
        """Record a report at once, so that not even a kill loses it."""
        spending = self._services.spending
        await self._add(usage, state)

        def write(tx: Tx) -> LimitExceededBy | None:
            fresh = self._rows_tx(tx, state)
            if state.estimates and state.meter is not None and state.meter.is_covered:
                ids = [_report_id(state.message, number) for number in state.estimates]
                usage_rows.replace_estimate_tx(tx, ids)
            return spending.charge_tx(tx, state.message, fresh)

        try:
            over = await self._services.database.write(write, name="turn.used")
        except StoreUnavailable as error:
            # It is recorded with the end of the turn, if the store is back by then.
            _log.warning("usage of a turn is not recorded yet", reason=error.message)
            return
        if over is not None and not state.over:
            state.over = spending.refuse_further_calls(state.message, over)

    @staticmethod
    def over_budget(state: SegmentState) -> EngineDone:
        """The end of a turn that used up its budget. Its text so far goes out as a notice."""
        text = "".join(state.said).strip()
        if text:
            say = words(state.message.principal.language)
            state.notices.append(say("budget.so_far", text=text))
        return EngineDone("failed", text=text, error=state.over, code=BudgetExceeded.code)

    @staticmethod
    def ended(end: EngineDone | Suspended, state: SegmentState) -> EngineDone | Suspended:
        """``end``, unless the budget was used up before there was an answer."""
        if not state.over or isinstance(end, Suspended) or end.outcome != "ok":
            return end
        has_answer = end.text.strip() or state.files or end.exit_code is not None
        return end if has_answer else TurnUsage.over_budget(state)

    # -- its end -----------------------------------------------------------------------------------

    def end_tx(self, tx: Tx, state: SegmentState) -> None:
        """Record all usage and release the reservation."""
        self._rows_tx(tx, state)
        self._services.spending.end_tx(tx, state.message)

    async def of_unfinished(self, state: SegmentState) -> None:
        """Record what a stopped or crashed turn has used."""
        try:
            await self.measured(None, state)
            await self._services.database.write(self.end_tx, state, name="turn.usage")
        except StoreUnavailable as error:
            _log.warning("usage of an unfinished turn is not recorded", reason=error.message)

    def _rows_tx(self, tx: Tx, state: SegmentState) -> Sequence[Usage]:
        """Store the reports that are not stored yet and return them."""
        message, fresh = state.message, []
        source = usage_rows.UsageSource(
            message.message_id,
            self._turn.agent_id,
            message.session_id,
            state.tier.engine.name,
            state.tier.model or self._turn.agent.spec.model or "",
        )
        at = self._services.clock.now_ms()
        for number, usage in enumerate(state.usage):
            stored = usage_rows.record_tx(
                tx, usage, source, at=at, report_id=_report_id(message, number)
            )
            if stored is not None:
                fresh.append(stored)
        return fresh


def _report_id(message: Message, number: int) -> str:
    """The id of a report: its lease, and its index among those of the lease."""
    return f"{message.message_id}:{message.fence}:{number}"


@dataclass(frozen=True, slots=True)
class SuspendedTurn:
    """The saved state of a suspended segment, for the segment that continues the turn."""

    counts: dict[str, int] = field(default_factory=dict)
    files: tuple[Part, ...] = ()
    checkpoint: bytes | None = None
    waiting_call: str = ""
    """The call that waits for an approval."""
    shown: int = 0
    """Characters of tool results that the model has seen in this turn."""

    def pack(self) -> bytes:
        """The state as bytes: one JSON line, then the engine's checkpoint."""
        head = {
            "calls": self.counts,
            "files": [part.to_json() for part in self.files],
            "held": self.waiting_call,
            "shown": self.shown,
        }
        return json.dumps(head).encode() + b"\n" + (self.checkpoint or b"")

    @classmethod
    def of(cls, resume: Resume | None) -> SuspendedTurn:
        """The state that the earlier segment saved; empty after a crash before any suspension."""
        if resume is None or not resume.checkpoint:
            return cls()
        head, _, checkpoint = resume.checkpoint.partition(b"\n")
        saved = json.loads(head)
        files = tuple(Part.from_json(part) for part in saved["files"])
        return cls(
            saved["calls"],
            files,
            checkpoint,
            waiting_call=saved.get("held", ""),
            shown=saved.get("shown", 0),
        )


def segment_span(tracer: OtelTracer, work: Work, agent: str) -> AbstractContextManager[SentSpan]:
    """Around a segment. The span of the first one has the id that others name as the cause of their
    work."""
    message, name = work.lease.message, f"turn {agent}"
    if work.lease.resumed or message.attempts > 1:
        return tracer.span(name, by_turn_of(message))
    return tracer.span(name, message.traceparent, span_id=turn_span(message.message_id))


def engine_span(
    tracer: OtelTracer, message: Message, tier: ModelTier
) -> AbstractContextManager[SentSpan]:
    """Around an engine's run."""
    return tracer.span(f"engine {tier.engine.name}", by_turn_of(message))


def note_engine_end(sent: SentSpan, end: EngineDone | Suspended, state: SegmentState) -> None:
    """Note how the run ended and what it used."""
    sent.facts = {
        "gen_ai.request.model": state.tier.model,
        "gen_ai.usage.input_tokens": sum(each.input_tokens for each in state.usage),
        "gen_ai.usage.output_tokens": sum(each.output_tokens for each in state.usage),
        "agentsup.provider": state.tier.provider,
    }
    if isinstance(end, EngineDone) and end.outcome != "ok":
        sent.error, sent.text = end.code or end.outcome, end.error


async def follow_requests(
    tracer: OtelTracer, event: EngineEvent, state: SegmentState, asked: AsyncExitStack
) -> None:
    """Keep a span in ``asked`` while the engine reports that it waits for its model."""
    if isinstance(event, ModelRequest):
        await asked.aclose()
        if not event.has_ended:
            name = f"model {state.tier.model or state.tier.engine.name}"
            asked.enter_context(tracer.span(name, by_turn_of(state.message), is_request=True))
