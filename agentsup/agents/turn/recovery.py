"""Continuation of a turn after a failure: asked once more, on the fallback, later, or not at all.

``agents.recovery`` decides; this module carries the decision out. It records each attempt first, so
that a restart continues from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from agentsup.agents.budget.limits import zone_of
from agentsup.agents.memory.preparation import TurnPreparation
from agentsup.agents.recovery import texts
from agentsup.agents.recovery.decisions import (
    FALLBACK,
    PRIMARY,
    SICK,
    Attempt,
    Failure,
    FailureKind,
    RecoveryAction,
    RecoveryContext,
    RecoveryStep,
    decide,
    failure_kind_of,
    has_waited_enough,
    tier_of,
)
from agentsup.agents.recovery.tiers import ModelTier, has_fallback
from agentsup.agents.turn.ending import TurnEnd, notify_person_tx
from agentsup.agents.turn.outcomes import conversation_of
from agentsup.agents.turn.services import TurnContext
from agentsup.agents.turn.usage import SegmentState, SuspendedTurn
from agentsup.engines import EmptyAfterToolUse, TurnLimitReached
from agentsup.kit import faults
from agentsup.kit.log import get_logger
from agentsup.mailbox.lifecycle import ending
from agentsup.mailbox.messages import AttemptRow, attempts, need_message, segments
from agentsup.model.engine import EngineDone, HistoryItem, Segment, Usage
from agentsup.model.errors import EngineFailed
from agentsup.model.message import Message, MessageState
from agentsup.store import Tx
from agentsup.tasks import Brief

_log = get_logger(__name__)

LEAST_MS = 20_000
"""No notice is sent for a shorter wait."""
RETRY_NOW = "retry_now"
"""The turn makes another attempt at once."""
PROVIDER_OUT = "provider_out"
"""The error code of a message that waits for a provider whose breaker is open."""
_COUNTED = frozenset(RecoveryAction) - {RecoveryAction.HINT, RecoveryAction.WRAP_UP}
"""The actions that still count under a later lease. An interrupted hint or last request got no
answer, so it is made again; the calls made after it are in the journal."""


@dataclass(slots=True)
class AttemptState:
    """The attempts on one message: those that failed, and the model of the current one."""

    course: list[Attempt] = field(default_factory=list)
    tier: ModelTier = field(init=False)
    spare: ModelTier | None = None
    """The fallback, while the primary model is tried."""
    usage: list[Usage] = field(default_factory=list)
    """The usage reports of all attempts under this lease, in order: the index identifies a
    report."""
    brief: Brief = field(default_factory=Brief)
    """Instructions, environment and folders of the current attempt beside the message."""

    def listen(self, message: Message, suspended: SuspendedTurn) -> SegmentState:
        """The state that collects the next attempt's events."""
        return SegmentState(
            message,
            self.tier,
            files=list(suspended.files),
            usage=self.usage,
            informed=self.brief.reported,
        )


@dataclass(frozen=True, slots=True)
class _FailedAttempt:
    """An attempt that failed, or could not be made."""

    kind: FailureKind
    end: EngineDone
    has_checkpoint: bool = False
    """The turn was suspended before, and its engine continued from a checkpoint."""


class TurnRecovery:
    """Carries out the decisions about failures of one turn."""

    def __init__(self, turn: TurnContext, end: TurnEnd) -> None:
        self._turn = turn
        self._services = turn.services
        self._end = end
        self.attempt = AttemptState()

    # -- before --------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Take the recorded attempts on this message under earlier leases."""
        if not self._turn.lease.resumed:
            return
        rows = await self._services.database.read(
            attempts.of_message, self._turn.message.message_id, name="attempts.read"
        )
        self.attempt.course = [
            Attempt(row.tier, _failure_kind(row.failure_kind), RecoveryAction(row.act), row.at)
            for row in rows
            if row.act in _COUNTED
        ]

    def choose(self) -> float:
        """Set the model of the next attempt. Returns the seconds until its provider may be asked;
        0 also if the fallback can answer meanwhile."""
        attempt, spec, breakers = self.attempt, self._turn.agent.spec, self._services.breakers
        spare = self._fallback()
        wanted = tier_of(attempt.course, spec.model_tier, has_fallback=spare is not None)
        primary = self._turn.agent.tier(PRIMARY)
        if wanted == FALLBACK and spare is not None:
            attempt.tier, attempt.spare = spare, None
            return breakers.wait_s(spare.provider)
        attempt.tier, attempt.spare = primary, spare
        wait_s = breakers.wait_s(primary.provider)
        if wait_s and spare is not None and not breakers.wait_s(spare.provider):
            attempt.tier, attempt.spare = spare, None
            return 0.0
        return wait_s

    def _fallback(self) -> ModelTier | None:
        spec = self._turn.agent.spec
        if not has_fallback(spec):
            return None
        try:
            return self._turn.agent.tier(FALLBACK)
        except EngineFailed as error:
            _log.warning("the fallback can't be used", code=error.code, error=error.message)
            return None

    async def wait(self, wait_s: float) -> str:
        """Queue the message again until its provider may be asked, which counts as no attempt.
        After ``MOST_WAIT_MS`` in all, dead-letter it."""
        attempt, work, now = self.attempt, self._turn.work, self._services.clock.now_ms()
        tier = attempt.tier
        text = f"{tier.provider} failed several times in a row and is left alone for {wait_s:.0f} s"
        is_over = has_waited_enough(attempt.course, now)
        act = RecoveryAction.BURY if is_over else RecoveryAction.WAIT
        end = EngineDone("failed", error=text, code=PROVIDER_OUT, permanent=False)
        row = self._row(_FailedAttempt(FailureKind.PROVIDER, end), act, now)
        context, lease = self._services.mailbox.context, work.lease
        unit = context.entropy.uniform(0.0, 1.0)

        def commit(tx: Tx) -> None:
            if work.segment_no is not None:
                segments.withdraw_tx(tx, lease.message.message_id, work.segment_no)
            if is_over:
                attempts.record_tx(tx, row)
                notice = texts.provider_out(lease.message, text)
                self._services.mailbox.leases.retry_tx(
                    tx,
                    lease,
                    code=PROVIDER_OUT,
                    text=text,
                    unit=unit,
                    is_last=True,
                    notice=notice,
                )
                return
            if not attempt.course or attempt.course[-1].act is not RecoveryAction.WAIT:
                attempts.record_tx(tx, row)
            self._services.mailbox.leases.postpone_tx(
                tx, lease, code=PROVIDER_OUT, text=text, wait_s=wait_s, unit=unit
            )
            self._notify_wait_tx(tx, row)

        await self._services.database.write(commit, name="turn.wait", closing=True)
        if not is_over:
            self._tell_retry(row, lease.message.attempts)
        _log.warning("turn waits for its provider", provider=tier.provider, seconds=round(wait_s))
        return "retry"

    def upcoming(self, state: SegmentState, *, may_shorten: bool) -> TurnPreparation:
        """The attempt, for ``memory.preparation``."""
        tier, message, agent = self.attempt.tier, self._turn.message, self._turn.agent
        return TurnPreparation(
            agent_id=agent.agent_id,
            message=message,
            spec=agent.spec,
            engine=tier.engine,
            engine_spec=lambda: tier.engine_spec("", message.person),
            usage=state.usage,
            may_shorten=may_shorten,
        )

    # -- asked once more in the same run ---------------------------------------------------------------

    async def nudged(self, segment: Segment, end: EngineDone) -> Segment | None:
        """The segment that asks the engine once more after ``end``, for an answer or for a summary
        at the limit of steps; or None."""
        if end.outcome != "failed":
            return None
        kind = failure_kind_of(end.code, permanent=end.permanent)
        if kind not in {FailureKind.EMPTY, FailureKind.TURN_LIMIT}:
            return None
        knows = end.engine_state is not None
        # Without a state the engine starts the turn again. That is safe only if every call is in
        # our journal and no question was answered before.
        has_checkpoint = segment.resume is not None and segment.resume.checkpoint is not None
        may_go_on = knows or (self.attempt.tier.engine.caps.tools and not has_checkpoint)
        step = decide(Failure(kind), self.attempt.course, RecoveryContext(may_go_on=may_go_on))
        if step.act not in {RecoveryAction.HINT, RecoveryAction.WRAP_UP}:
            return None
        await self._note(_FailedAttempt(kind, end), step.act)
        faults.point("turn.nudged")
        is_hint = step.act is RecoveryAction.HINT
        words = texts.HINT if is_hint else texts.WRAP_UP
        said = HistoryItem("user", segment.prompt)
        return replace(
            segment,
            prompt=words if knows else f"{segment.prompt}\n\n{words}",
            history=(*segment.history, said) if knows else segment.history,
            engine_state=end.engine_state or segment.engine_state,
            resume=None,
            nudge="hint" if is_hint else "wrap_up",
        )

    # -- after -----------------------------------------------------------------------------------------

    async def after(self, end: EngineDone, state: SegmentState, *, has_checkpoint: bool) -> str:
        """Act on a failed attempt. Returns how the segment ended, or ``RETRY_NOW``."""
        attempt = self.attempt
        kind = failure_kind_of(end.code, permanent=end.permanent)
        if end.code in {TurnLimitReached.code, EmptyAfterToolUse.code}:
            end = replace(end, engine_state=None)
        failed = _FailedAttempt(kind, end, has_checkpoint)
        step = self._decide(failed, state)
        if step.act is RecoveryAction.SHORTEN:
            turn = self.upcoming(state, may_shorten=True)
            if not await self._services.before_turn.shorten(turn):
                # Counted as done without success, so that the next decision is a different one.
                now = self._services.clock.now_ms()
                attempt.course.append(Attempt(attempt.tier.name, kind, step.act, now))
                step = self._decide(failed, state)
        _log.warning(
            "attempt failed",
            code=end.code,
            error=end.error,
            trouble=kind.value,
            provider=attempt.tier.provider,
            model=attempt.tier.model,
            then=step.act.value,
        )
        match step.act:
            case RecoveryAction.SWITCH | RecoveryAction.SHORTEN:
                await self._note(failed, step.act, state)
                faults.point("turn.attempt_failed")
                return RETRY_NOW
            case RecoveryAction.RETRY | RecoveryAction.BURY:
                await self._later(failed, step, state)
                return "retry"
        return await self._end.settle(end, state)

    def _decide(self, failed: _FailedAttempt, state: SegmentState) -> RecoveryStep:
        tier, spare, kind = self.attempt.tier, self.attempt.spare, failed.kind
        has_acted = state.has_acted and not tier.engine.caps.tools
        is_same_engine = spare is not None and spare.engine.name == tier.engine.name
        most = self._services.mailbox.context.limits.max_attempts
        return decide(
            Failure(kind, failed.end.retry_after_s),
            self.attempt.course,
            RecoveryContext(
                tier=tier.name,
                has_fallback=spare is not None,
                may_begin_anew=not has_acted,
                # Only the engine that wrote the checkpoint of a suspended turn can read it.
                may_switch=is_same_engine or not (has_acted or failed.has_checkpoint),
                may_shorten=not failed.has_checkpoint,
                attempts_left=self._turn.message.attempts < most,
                is_left_alone=kind in SICK and self._services.breakers.wait_s(tier.provider) > 0,
            ),
        )

    def _row(self, failed: _FailedAttempt, act: RecoveryAction, at: int) -> AttemptRow:
        """A failed attempt and what is done about it, to be recorded."""
        tier = self.attempt.tier
        return AttemptRow(
            message_id=self._turn.message.message_id,
            tier=tier.name,
            engine=tier.engine.name,
            provider=tier.provider,
            model=tier.model,
            failure_kind=failed.kind.value,
            code=failed.end.code,
            text=failed.end.error,
            act=act.value,
            at=at,
        )

    async def _note(
        self, failed: _FailedAttempt, act: RecoveryAction, state: SegmentState | None = None
    ) -> None:
        """Record a failed attempt and its usage."""
        row = self._row(failed, act, self._services.clock.now_ms())

        def commit(tx: Tx) -> None:
            ending.leased_tx(self._services.mailbox.context, tx, self._turn.lease)
            attempts.record_tx(tx, row)
            if state is not None:
                self._end.usage.end_tx(tx, state)

        await self._services.database.write(commit, name="turn.attempt")
        self.attempt.course.append(Attempt(row.tier, failed.kind, act, row.at))

    async def _later(
        self, failed: _FailedAttempt, step: RecoveryStep, segment_state: SegmentState
    ) -> None:
        """Queue the message again or dead-letter it, and record the attempt and its usage."""
        services, lease, end = self._services, self._turn.lease, failed.end
        row = self._row(failed, step.act, services.clock.now_ms())
        context = services.mailbox.context
        unit = context.entropy.uniform(0.0, 1.0)
        notice = self._end.failure_text(lease.message, end, segment_state)

        def commit(tx: Tx) -> str:
            self._end.usage.end_tx(tx, segment_state)
            attempts.record_tx(tx, row)
            state = services.mailbox.leases.retry_tx(
                tx,
                lease,
                code=end.code,
                text=end.error,
                unit=unit,
                least_s=step.least_s,
                is_last=step.act is RecoveryAction.BURY,
                notice=notice,
            )
            self._notify_wait_tx(tx, row)
            return state.value

        state = await services.database.write(commit, name="turn.later", closing=True)
        faults.point("turn.attempt_failed")
        if state == MessageState.QUEUED.value:
            self._tell_retry(row, lease.message.attempts + 1)
        _log.warning("turn will be retried", code=end.code, error=end.error, state=state)

    def _tell_retry(self, row: AttemptRow, attempt: int) -> None:
        """Tell those who watch the conversation now."""
        message = self._turn.message
        self._services.live.retry(
            self._turn.agent.agent_id,
            conversation_of(message),
            message.message_id,
            why=self._services.redactor.text(row.text),
            kind=row.failure_kind,
            attempt=attempt,
            most=self._services.mailbox.context.limits.max_attempts,
        )

    def _notify_wait_tx(self, tx: Tx, row: AttemptRow) -> None:
        """Notify the people of the message, which this transaction has queued again, if it waits
        long, its answer goes to a chat, and it had no notice before."""
        message, to = self._turn.message, self._turn.message.deliver_to
        if to.kind != "chat" or to.silent:
            return
        queued = need_message(tx, message.message_id)
        if queued.state is not MessageState.QUEUED:
            return
        pause_ms = (queued.not_before or 0) - self._services.mailbox.context.steady.now_ms()
        if pause_ms < LEAST_MS or not attempts.note_wait_notice_tx(tx, row.message_id, row.at):
            return
        spec = self._turn.agent.spec
        until = datetime.fromtimestamp((row.at + pause_ms) / 1000, tz=UTC)
        text = texts.waits(
            message,
            spec.name,
            row.provider,
            FailureKind(row.failure_kind),
            pause_s=pause_ms / 1000,
            until=until.astimezone(zone_of(spec.user_timezone)),
        )
        notify_person_tx(tx, message, text, row.at)


def _failure_kind(text: str) -> FailureKind:
    try:
        return FailureKind(text)
    except ValueError:
        return FailureKind.OTHER
