"""How a turn goes on after a failure: asked once more, on the fallback, later, or not at all.

What is decided is in ``recovery``; here it is carried out, each attempt put on record first, so that
a restart goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agentsup.agents.carried import Carried
from agentsup.agents.memory.before_turn import Upcoming
from agentsup.agents.recovery import telling, waiting
from agentsup.agents.recovery.decisions import (
    FALLBACK,
    PRIMARY,
    Act,
    Attempt,
    Circumstances,
    Failure,
    Step,
    decide,
    has_waited_enough,
    tier_of,
)
from agentsup.agents.recovery.tiers import Tier, has_fallback
from agentsup.agents.recovery.troubles import SICK, UNSAID, Trouble, trouble_of
from agentsup.agents.surroundings import Surroundings
from agentsup.agents.turn_end import TurnEnd
from agentsup.agents.turn_services import TurnServices
from agentsup.agents.turn_usage import Heard
from agentsup.engines.failures import EmptyAfterToolUse, TurnLimitReached
from agentsup.kit import faults
from agentsup.mailbox import attempts, ending
from agentsup.mailbox.attempts import AttemptRow
from agentsup.mailbox.pump import Work
from agentsup.model.engine import Done, HistoryItem, Segment, Suspended, Usage
from agentsup.model.errors import EngineFailed
from agentsup.model.message import Message
from agentsup.observe.logging import get_logger
from agentsup.store.database import Tx
from agentsup.tasks.brief import Brief

_log = get_logger(__name__)

GO_ON = "go_on"
"""The turn makes another attempt at once."""
PROVIDER_OUT = "provider_out"
"""The code of a message that waits for a provider that is left alone."""
_KEPT = frozenset(Act) - {Act.HINT, Act.WRAP_UP}
"""What still counts under a later lease. An engine that was asked once more when all ended has not
answered; calls that it made are in the journal."""


@dataclass(slots=True)
class Attempting:
    """The attempts of one message: those that failed, and the model of the present one."""

    course: list[Attempt] = field(default_factory=list)
    tier: Tier = field(init=False)
    spare: Tier | None = None
    """The fallback, while the primary model is tried."""
    usage: list[Usage] = field(default_factory=list)
    """What all of them used under this lease, in order: a report is known by its place."""
    brief: Brief = field(default_factory=Brief)
    """What the present one was told and lent beside the message."""

    def listen(self, message: Message, carried: Carried) -> Heard:
        """Where the next attempt's events go."""
        return Heard(
            message,
            files=list(carried.files),
            usage=self.usage,
            tier=self.tier.name,
            engine=self.tier.engine.name,
            model=self.tier.model,
            may_not_tell=self.tier.engine.caps.may_not_tell,
            informed=self.brief.told,
        )


class TurnRecovery:
    """Carries out what is decided about the failures of one agent's turns."""

    def __init__(
        self,
        services: TurnServices,
        surroundings: Surroundings,
        end: TurnEnd,
    ) -> None:
        self._services = services
        self._around = surroundings
        self._end = end

    # -- before --------------------------------------------------------------------------------------

    async def begin(self, work: Work) -> Attempting:
        """What was tried on this message before."""
        if not work.lease.resumed:
            return Attempting()
        rows = await self._services.database.read(
            lambda r: attempts.of_message(r, work.lease.message.message_id), name="attempts.read"
        )
        course = [
            Attempt(row.tier, _trouble(row.trouble), Act(row.act), row.at)
            for row in rows
            if row.act in _KEPT
        ]
        return Attempting(course)

    def choose(self, attempt: Attempting) -> float:
        """Set the model of the next attempt. Returns for how many seconds its provider is left
        alone, where no other may answer."""
        spec, breakers = self._around.spec, self._services.breakers
        spare = self._fallback()
        wanted = tier_of(attempt.course, spec.model_tier, has_fallback=spare is not None)
        primary = self._around.tier(PRIMARY)
        if wanted == FALLBACK and spare is not None:
            attempt.tier, attempt.spare = spare, None
            return breakers.wait_s(spare.provider)
        attempt.tier, attempt.spare = primary, spare
        wait_s = breakers.wait_s(primary.provider)
        if wait_s and spare is not None and not breakers.wait_s(spare.provider):
            attempt.tier, attempt.spare = spare, None
            return 0.0
        return wait_s

    def _fallback(self) -> Tier | None:
        spec = self._around.spec
        if not has_fallback(spec):
            return None
        try:
            return self._around.tier(FALLBACK)
        except EngineFailed as error:
            _log.warning("the fallback can't be used", code=error.code, error=error.message)
            return None

    async def wait(self, work: Work, attempt: Attempting, wait_s: float) -> str:
        """Put the message back until its provider is asked again; it counts as no attempt."""
        tier, now = attempt.tier, self._services.clock.now_ms()
        text = f"{tier.provider} failed several times in a row and is left alone for {wait_s:.0f} s"
        is_over = has_waited_enough(attempt.course, now)
        act = Act.BURY if is_over else Act.WAIT
        end = Done("failed", error=text, code=PROVIDER_OUT, permanent=False)
        row = self._row(work, tier, Trouble.PROVIDER, end, act)
        desk, lease = self._services.mailbox.desk, work.lease
        unit = desk.entropy.uniform(0.0, 1.0)

        def commit(tx: Tx) -> None:
            if is_over:
                attempts.record_tx(tx, row)
                notice = telling.provider_out(lease.message, text)
                ending.retry_tx(
                    desk,
                    tx,
                    lease,
                    code=PROVIDER_OUT,
                    text=text,
                    unit=unit,
                    is_last=True,
                    notice=notice,
                )
                return
            if not attempt.course or attempt.course[-1].act is not Act.WAIT:
                attempts.record_tx(tx, row)
            ending.put_off_tx(
                desk, tx, lease, code=PROVIDER_OUT, text=text, wait_s=wait_s, unit=unit
            )
            self._tell_tx(tx, lease.message, row)

        await self._services.database.write(commit, name="turn.wait", closing=True)
        _log.warning("turn waits for its provider", provider=tier.provider, seconds=round(wait_s))
        return "retry"

    def upcoming(self, work: Work, tier: Tier, heard: Heard, *, may_shorten: bool) -> Upcoming:
        """The attempt as memory sees it."""
        message = work.lease.message
        return Upcoming(
            agent_id=self._around.agent_id,
            session_id=message.session_id,
            person=message.person,
            text=message.text,
            spec=self._around.spec,
            engine=tier.engine,
            engine_spec=lambda: tier.engine_spec("", message.person),
            usage=heard.usage,
            may_shorten=may_shorten,
        )

    # -- asked once more in the same run ---------------------------------------------------------------

    async def nudged(
        self, work: Work, attempt: Attempting, segment: Segment, end: Done
    ) -> Segment | None:
        """What to ask the engine once more after ``end``; None: nothing."""
        if end.outcome != "failed":
            return None
        trouble = trouble_of(end.code, permanent=end.permanent)
        if trouble not in {Trouble.EMPTY, Trouble.TURN_LIMIT}:
            return None
        knows = end.engine_state is not None
        # Without a state it begins anew: good only where each call is in our journal, and no
        # question was answered before.
        has_checkpoint = segment.resume is not None and segment.resume.checkpoint is not None
        may_go_on = knows or (attempt.tier.engine.caps.tools and not has_checkpoint)
        step = decide(Failure(trouble), attempt.course, Circumstances(may_go_on=may_go_on))
        if step.act not in {Act.HINT, Act.WRAP_UP}:
            return None
        await self._note(work, attempt, trouble, end, step.act)
        faults.point("turn.nudged")
        is_hint = step.act is Act.HINT
        words = telling.HINT if is_hint else telling.WRAP_UP
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
        attempt: Attempting,
        end: Done,
        heard: Heard,
        segment_no: int,
        *,
        has_checkpoint: bool,
    ) -> str:
        """Go on after an attempt that failed; returns how the segment ended, or ``GO_ON``."""
        trouble = trouble_of(end.code, permanent=end.permanent)
        if end.code in {TurnLimitReached.code, EmptyAfterToolUse.code}:
            end = replace(end, engine_state=None)
        step = self._decide(work, attempt, trouble, end, heard, has_checkpoint=has_checkpoint)
        if step.act is Act.SHORTEN and not await self._shorten(work, attempt.tier, heard):
            # As if it had been done, to no avail.
            attempt.course.append(
                Attempt(attempt.tier.name, trouble, Act.SHORTEN, self._services.clock.now_ms())
            )
            step = self._decide(work, attempt, trouble, end, heard, has_checkpoint=has_checkpoint)
        _log.warning(
            "attempt failed",
            code=end.code,
            error=end.error,
            trouble=trouble.value,
            provider=attempt.tier.provider,
            model=attempt.tier.model,
            then=step.act.value,
        )
        match step.act:
            case Act.SWITCH | Act.SHORTEN:
                await self._note(work, attempt, trouble, end, step.act, heard)
                faults.point("turn.attempt_failed")
                return GO_ON
            case Act.RETRY | Act.BURY:
                await self._later(work, attempt, trouble, end, heard, step)
                return "retry"
        return await self._end.settle(work, end, heard, segment_no)

    def _decide(
        self,
        work: Work,
        attempt: Attempting,
        trouble: Trouble,
        end: Done,
        heard: Heard,
        *,
        has_checkpoint: bool,
    ) -> Step:
        tier, spare, message = attempt.tier, attempt.spare, work.lease.message
        has_acted = heard.has_acted and not tier.engine.caps.tools
        is_same_engine = spare is not None and spare.engine.name == tier.engine.name
        return decide(
            Failure(trouble, end.retry_after_s),
            attempt.course,
            Circumstances(
                tier=tier.name,
                has_fallback=spare is not None,
                may_begin_anew=not has_acted,
                # What a suspended turn has worked out, only its own engine can read.
                may_switch=is_same_engine or not (has_acted or has_checkpoint),
                may_shorten=not has_checkpoint and self._services.before_turn is not None,
                attempts_left=message.attempts < self._services.mailbox.limits.max_attempts,
                is_left_alone=trouble in SICK and self._is_left_alone(tier.provider),
            ),
        )

    def _is_left_alone(self, provider: str) -> bool:
        return self._services.breakers.wait_s(provider) > 0

    async def _shorten(self, work: Work, tier: Tier, heard: Heard) -> bool:
        before_turn = self._services.before_turn
        if before_turn is None:
            return False
        return await before_turn.shorten(self.upcoming(work, tier, heard, may_shorten=True))

    async def _note(
        self,
        work: Work,
        attempt: Attempting,
        trouble: Trouble,
        end: Done,
        act: Act,
        heard: Heard | None = None,
    ) -> None:
        """Put a failed attempt on record, and what it used."""
        row = self._row(work, attempt.tier, trouble, end, act)

        def commit(tx: Tx) -> None:
            ending.held_tx(self._services.mailbox.desk, tx, work.lease)
            attempts.record_tx(tx, row)
            if heard is not None:
                self._end.usage.end_tx(tx, heard)

        await self._services.database.write(commit, name="turn.attempt")
        attempt.course.append(Attempt(attempt.tier.name, trouble, act, row.at))

    async def _later(
        self,
        work: Work,
        attempt: Attempting,
        trouble: Trouble,
        end: Done,
        heard: Heard,
        step: Step,
    ) -> None:
        """Back to the queue, or a dead letter; the attempt and what it used with it."""
        services, lease = self._services, work.lease
        row, desk = self._row(work, attempt.tier, trouble, end, step.act), services.mailbox.desk
        unit = desk.entropy.uniform(0.0, 1.0)
        notice = telling.sentence(lease.message, end)

        def commit(tx: Tx) -> str:
            self._end.usage.end_tx(tx, heard)
            attempts.record_tx(tx, row)
            state = ending.retry_tx(
                desk,
                tx,
                lease,
                code=end.code,
                text=end.error,
                unit=unit,
                least_s=step.least_s,
                is_last=step.act is Act.BURY,
                notice=notice,
            )
            self._tell_tx(tx, lease.message, row)
            return state.value

        state = await services.database.write(commit, name="turn.later", closing=True)
        faults.point("turn.attempt_failed")
        _log.warning("turn will be retried", code=end.code, error=end.error, state=state)

    def _tell_tx(self, tx: Tx, message: Message, row: AttemptRow) -> None:
        """Tell the message's people where it waits for long now."""
        waiting.tell_tx(
            tx,
            message,
            spec=self._around.spec,
            provider=row.provider,
            trouble=Trouble(row.trouble),
            at=row.at,
            own_ms=self._services.mailbox.desk.steady.now_ms(),
        )

    def _row(self, work: Work, tier: Tier, trouble: Trouble, end: Done, act: Act) -> AttemptRow:
        return AttemptRow(
            message_id=work.lease.message.message_id,
            tier=tier.name,
            engine=tier.engine.name,
            provider=tier.provider,
            model=tier.model,
            trouble=trouble.value,
            code=end.code,
            text=end.error,
            act=act.value,
            at=self._services.clock.now_ms(),
        )


# -- pure --------------------------------------------------------------------------------------------


def how_well(end: Done | Suspended) -> bool | None:
    """What an end tells of the provider: that it is well, that it is sick, or nothing."""
    if isinstance(end, Suspended) or end.outcome == "ok":
        return True
    if end.outcome == "cancelled":
        return None
    trouble = trouble_of(end.code, permanent=end.permanent)
    if trouble in SICK:
        return False
    return None if trouble in UNSAID or trouble is Trouble.OTHER else True


def missing_answer(end: Done, heard: Heard) -> Done:
    """``end``, but as a failure where tools were used and nothing was said or sent."""
    says_nothing = not end.text.strip() and not heard.files and end.exit_code is None
    if end.outcome != "ok" or not heard.used_tools or not says_nothing:
        return end
    return Done(
        "failed",
        error="the model used its tools and then said nothing, also when asked once more",
        code=EmptyAfterToolUse.code,
        engine_state=end.engine_state,
    )


def put_together(before: Done, after: Done | Suspended) -> Done | Suspended:
    """The end of a turn that was asked once more. A summary at the limit follows what was said; one
    that failed leaves the end as it was."""
    if before.code != TurnLimitReached.code or isinstance(after, Suspended):
        return after
    if after.outcome != "ok" or not after.text.strip():
        return before if after.outcome != "cancelled" else after
    text = "\n\n".join(part for part in (before.text.strip(), after.text) if part)
    return replace(after, text=text, code=before.code)


def _trouble(text: str) -> Trouble:
    try:
        return Trouble(text)
    except ValueError:
        return Trouble.OTHER
