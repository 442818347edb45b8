"""Continuation of a turn after a failure: asked once more, on the fallback, later, or not at all.

``agents.recovery`` decides; this module carries the decision out. It records each attempt first, so
that a restart continues from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agentsup.agents.memory.preparation import TurnPreparation
from agentsup.agents.persona.context import AgentContext
from agentsup.agents.recovery import texts
from agentsup.agents.recovery.decisions import (
    FALLBACK,
    PRIMARY,
    SICK,
    UNSAID,
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
from agentsup.agents.turn.ending import TurnEnd, notify_wait_tx
from agentsup.agents.turn.services import TurnServices
from agentsup.agents.turn.usage import SegmentState, SuspendedTurn
from agentsup.engines import EmptyAfterToolUse, NotConfigured, TurnLimitReached
from agentsup.kit import faults
from agentsup.kit.log import get_logger
from agentsup.kit.own_command import with_home
from agentsup.mailbox.lifecycle import ending
from agentsup.mailbox.messages import AttemptRow, attempts, segments
from agentsup.mailbox.work import Work
from agentsup.model.agent import OFFLINE, AgentSpec
from agentsup.model.engine import EngineDone, HistoryItem, Segment, Suspended, Usage
from agentsup.model.errors import EngineFailed
from agentsup.model.message import LaneName, Message, MessageKind, MessageState
from agentsup.store import Tx
from agentsup.tasks import Brief

_log = get_logger(__name__)

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

    work: Work
    attempt: AttemptState
    kind: FailureKind
    end: EngineDone
    has_checkpoint: bool = False
    """The turn was suspended before, and its engine continued from a checkpoint."""

    def row(self, act: RecoveryAction, at: int) -> AttemptRow:
        """The attempt and what is done about it, to be recorded."""
        tier = self.attempt.tier
        return AttemptRow(
            message_id=self.work.lease.message.message_id,
            tier=tier.name,
            engine=tier.engine.name,
            provider=tier.provider,
            model=tier.model,
            failure_kind=self.kind.value,
            code=self.end.code,
            text=self.end.error,
            act=act.value,
            at=at,
        )


class TurnRecovery:
    """Carries out the decisions about failures of one agent's turns."""

    def __init__(self, services: TurnServices, agent: AgentContext, end: TurnEnd) -> None:
        self._services = services
        self._agent_context = agent
        self._end = end

    # -- before --------------------------------------------------------------------------------------

    async def begin(self, work: Work) -> AttemptState:
        """The recorded attempts on this message under earlier leases."""
        if not work.lease.resumed:
            return AttemptState()
        rows = await self._services.database.read(
            attempts.of_message, work.lease.message.message_id, name="attempts.read"
        )
        course = [
            Attempt(row.tier, _failure_kind(row.failure_kind), RecoveryAction(row.act), row.at)
            for row in rows
            if row.act in _COUNTED
        ]
        return AttemptState(course)

    def choose(self, attempt: AttemptState) -> float:
        """Set the model of the next attempt. Returns the seconds until its provider may be asked;
        0 also if the fallback can answer meanwhile."""
        spec, breakers = self._agent_context.spec, self._services.breakers
        spare = self._fallback()
        wanted = tier_of(attempt.course, spec.model_tier, has_fallback=spare is not None)
        primary = self._agent_context.tier(PRIMARY)
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
        spec = self._agent_context.spec
        if not has_fallback(spec):
            return None
        try:
            return self._agent_context.tier(FALLBACK)
        except EngineFailed as error:
            _log.warning("the fallback can't be used", code=error.code, error=error.message)
            return None

    async def wait(self, work: Work, attempt: AttemptState, wait_s: float) -> str:
        """Queue the message again until its provider may be asked, which counts as no attempt.
        After ``MOST_WAIT_MS`` in all, dead-letter it."""
        tier, now = attempt.tier, self._services.clock.now_ms()
        text = f"{tier.provider} failed several times in a row and is left alone for {wait_s:.0f} s"
        is_over = has_waited_enough(attempt.course, now)
        act = RecoveryAction.BURY if is_over else RecoveryAction.WAIT
        end = EngineDone("failed", error=text, code=PROVIDER_OUT, permanent=False)
        row = _FailedAttempt(work, attempt, FailureKind.PROVIDER, end).row(act, now)
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
            self._notify_wait_tx(tx, lease.message, row)

        await self._services.database.write(commit, name="turn.wait", closing=True)
        if not is_over:
            self._tell_retry(lease.message, row, lease.message.attempts)
        _log.warning("turn waits for its provider", provider=tier.provider, seconds=round(wait_s))
        return "retry"

    def upcoming(
        self, work: Work, tier: ModelTier, state: SegmentState, *, may_shorten: bool
    ) -> TurnPreparation:
        """The attempt, for ``memory.preparation``."""
        message = work.lease.message
        return TurnPreparation(
            agent_id=self._agent_context.agent_id,
            message=message,
            spec=self._agent_context.spec,
            engine=tier.engine,
            engine_spec=lambda: tier.engine_spec("", message.person),
            usage=state.usage,
            may_shorten=may_shorten,
        )

    # -- asked once more in the same run ---------------------------------------------------------------

    async def nudged(
        self, work: Work, attempt: AttemptState, segment: Segment, end: EngineDone
    ) -> Segment | None:
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
        may_go_on = knows or (attempt.tier.engine.caps.tools and not has_checkpoint)
        step = decide(Failure(kind), attempt.course, RecoveryContext(may_go_on=may_go_on))
        if step.act not in {RecoveryAction.HINT, RecoveryAction.WRAP_UP}:
            return None
        await self._note(_FailedAttempt(work, attempt, kind, end), step.act)
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

    async def after(
        self,
        work: Work,
        attempt: AttemptState,
        end: EngineDone,
        state: SegmentState,
        segment_no: int,
        *,
        has_checkpoint: bool,
    ) -> str:
        """Act on a failed attempt. Returns how the segment ended, or ``RETRY_NOW``."""
        kind = failure_kind_of(end.code, permanent=end.permanent)
        if end.code in {TurnLimitReached.code, EmptyAfterToolUse.code}:
            end = replace(end, engine_state=None)
        failed = _FailedAttempt(work, attempt, kind, end, has_checkpoint)
        step = self._decide(failed, state)
        if step.act is RecoveryAction.SHORTEN:
            turn = self.upcoming(work, attempt.tier, state, may_shorten=True)
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
        return await self._end.settle(work, end, state, segment_no)

    def _decide(self, failed: _FailedAttempt, state: SegmentState) -> RecoveryStep:
        tier, spare, kind = failed.attempt.tier, failed.attempt.spare, failed.kind
        has_acted = state.has_acted and not tier.engine.caps.tools
        is_same_engine = spare is not None and spare.engine.name == tier.engine.name
        most = self._services.mailbox.context.limits.max_attempts
        return decide(
            Failure(kind, failed.end.retry_after_s),
            failed.attempt.course,
            RecoveryContext(
                tier=tier.name,
                has_fallback=spare is not None,
                may_begin_anew=not has_acted,
                # Only the engine that wrote the checkpoint of a suspended turn can read it.
                may_switch=is_same_engine or not (has_acted or failed.has_checkpoint),
                may_shorten=not failed.has_checkpoint,
                attempts_left=failed.work.lease.message.attempts < most,
                is_left_alone=kind in SICK and self._services.breakers.wait_s(tier.provider) > 0,
            ),
        )

    async def _note(
        self, failed: _FailedAttempt, act: RecoveryAction, state: SegmentState | None = None
    ) -> None:
        """Record a failed attempt and its usage."""
        row = failed.row(act, self._services.clock.now_ms())

        def commit(tx: Tx) -> None:
            ending.leased_tx(self._services.mailbox.context, tx, failed.work.lease)
            attempts.record_tx(tx, row)
            if state is not None:
                self._end.usage.end_tx(tx, state)

        await self._services.database.write(commit, name="turn.attempt")
        failed.attempt.course.append(Attempt(row.tier, failed.kind, act, row.at))

    async def _later(
        self, failed: _FailedAttempt, step: RecoveryStep, segment_state: SegmentState
    ) -> None:
        """Queue the message again or dead-letter it, and record the attempt and its usage."""
        services, lease, end = self._services, failed.work.lease, failed.end
        row, context = failed.row(step.act, services.clock.now_ms()), services.mailbox.context
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
            self._notify_wait_tx(tx, lease.message, row)
            return state.value

        state = await services.database.write(commit, name="turn.later", closing=True)
        faults.point("turn.attempt_failed")
        if state == MessageState.QUEUED.value:
            self._tell_retry(lease.message, row, lease.message.attempts + 1)
        _log.warning("turn will be retried", code=end.code, error=end.error, state=state)

    def _tell_retry(self, message: Message, row: AttemptRow, attempt: int) -> None:
        """Tell those who watch the conversation now."""
        self._services.live.retry(
            self._agent_context.agent_id,
            conversation_of(message),
            message.message_id,
            why=self._services.redactor.text(row.text),
            kind=row.failure_kind,
            attempt=attempt,
            most=self._services.mailbox.context.limits.max_attempts,
        )

    def _notify_wait_tx(self, tx: Tx, message: Message, row: AttemptRow) -> None:
        """Notify the people of the message if it must wait long."""
        notify_wait_tx(
            tx,
            message,
            spec=self._agent_context.spec,
            provider=row.provider,
            kind=FailureKind(row.failure_kind),
            at=row.at,
            own_ms=self._services.mailbox.context.steady.now_ms(),
        )


# -- pure --------------------------------------------------------------------------------------------


def conversation_of(message: Message) -> str:
    """The conversation that shows the text while it is written. Empty outside chats, and for
    background work, whose result comes as one message."""
    to = message.deliver_to
    is_of_talk = message.kind is not MessageKind.TASK and message.lane is not LaneName.BACKGROUND
    return f"{to.channel}:{to.conversation}" if to.kind == "chat" and is_of_talk else ""


def how_well(end: EngineDone | Suspended) -> bool | None:
    """How an end counts for the provider's breaker: True for it, False against it, None not at all."""
    if isinstance(end, Suspended) or end.outcome == "ok":
        return True
    if end.outcome == "cancelled":
        return None
    kind = failure_kind_of(end.code, permanent=end.permanent)
    if kind in SICK:
        return False
    return None if kind in UNSAID or kind is FailureKind.OTHER else True


def missing_answer(end: EngineDone, state: SegmentState) -> EngineDone:
    """``end``, or a failure if tools were used but no text was written and no file sent."""
    says_nothing = not end.text.strip() and not state.files and end.exit_code is None
    if end.outcome != "ok" or not state.used_tools or not says_nothing:
        return end
    return EngineDone(
        "failed",
        error="the model used its tools and then said nothing, also when asked once more",
        code=EmptyAfterToolUse.code,
        engine_state=end.engine_state,
    )


def no_task_offline(
    end: EngineDone | Suspended, message: Message, tier: ModelTier, spec: AgentSpec
) -> EngineDone | Suspended:
    """``end``, or a failure if it is a task's and the offline engine stood in for a model because
    nobody named one: nobody looks for work that is called done."""
    stands_in = tier.engine.name == OFFLINE and spec.engine != OFFLINE
    if isinstance(end, Suspended) or end.outcome != "ok" or not stands_in:
        return end
    if message.kind is not MessageKind.TASK:
        return end
    error = with_home(
        "no model is set up, so this task can't be done; `agentsup setup` sets one up"
    )
    return replace(end, outcome="failed", permanent=True, error=error, code=NotConfigured.code)


def joined_end(before: EngineDone, after: EngineDone | Suspended) -> EngineDone | Suspended:
    """The end of a turn whose engine was asked once more. A summary at the limit of steps is put
    after the earlier text; if the summary failed, the end is ``before``."""
    if before.code != TurnLimitReached.code or isinstance(after, Suspended):
        return after
    if after.outcome != "ok" or not after.text.strip():
        return before if after.outcome != "cancelled" else after
    text = "\n\n".join(part for part in (before.text.strip(), after.text) if part)
    return replace(after, text=text, code=before.code)


def _failure_kind(text: str) -> FailureKind:
    try:
        return FailureKind(text)
    except ValueError:
        return FailureKind.OTHER
