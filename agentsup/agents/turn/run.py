"""A turn: the work on one message in one session, segment by segment.

The end of a turn is one transaction: transcript, usage, segment, message, reply or outbox rows
(P1, P2). A turn that was interrupted runs again with its journal, so that finished calls are not
repeated; where a blind call's outcome is unknown, a person is asked before anything runs.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from functools import partial

from agentsup.agents.media import NOTHING, Seen
from agentsup.agents.memory.preparation import PreparedTurn, TurnPreparation, TurnStart
from agentsup.agents.persona import prompt
from agentsup.agents.recovery.breakers import BreakerAttempt
from agentsup.agents.recovery.decisions import PRIMARY
from agentsup.agents.recovery.tiers import ModelTier, chat_model_problem
from agentsup.agents.roles.limits import RoleLimits
from agentsup.agents.turn.calls import CallContext
from agentsup.agents.turn.ending import TurnEnd
from agentsup.agents.turn.engine_host import TurnHost
from agentsup.agents.turn.outcomes import (
    conversation_of,
    how_well,
    joined_end,
    missing_answer,
    no_task_offline,
)
from agentsup.agents.turn.recovery import RETRY_NOW, TurnRecovery
from agentsup.agents.turn.services import StoredTurn, TurnContext
from agentsup.agents.turn.steering import SteeringNotes
from agentsup.agents.turn.usage import (
    SegmentState,
    SuspendedTurn,
    TurnUsage,
    engine_span,
    follow_requests,
    note_engine_end,
    segment_span,
)
from agentsup.engines.guard import GuardedSession, SegmentLimits, open_guarded, rules
from agentsup.kit import faults
from agentsup.mailbox.messages import segments
from agentsup.mailbox.work import Resolution, Uncertain
from agentsup.model.engine import (
    EngineDone,
    Resume,
    Segment,
    Suspended,
    TextDelta,
    ToolFinished,
)
from agentsup.model.errors import EngineFailed, ExitRequested
from agentsup.model.message import Message
from agentsup.model.question import UNCERTAIN, UNCERTAIN_WITHIN_S
from agentsup.observe import bind

RESOLUTIONS: dict[str, Resolution] = {
    "it happened": "done",
    "do it again": "again",
    "skip it": "skipped",
}
UNCERTAIN_OPTIONS = tuple(RESOLUTIONS)
_NOT_READ = StoredTurn()


class TurnRun:
    """Runs the engine on the message of one turn."""

    def __init__(self, turn: TurnContext) -> None:
        self._turn = turn
        self._services = turn.services
        self._end = TurnEnd(turn)
        self._recovery = TurnRecovery(turn, self._end)

    async def handle(self, start: StoredTurn = _NOT_READ) -> None:
        """Work on the message's turn until it ends, parks or is retried, and settle the lease.
        ``start`` is what is stored for it, as far as that has been read already.

        Raises ``ExitRequested`` after the commit of a turn that asked for it, ``LeaseLost`` when
        the lease moved, and the other errors of ``engines.guard.guard.PASSED_ON``.
        """
        message, agent = self._turn.message, self._turn.agent
        name, outcome = agent.spec.name, "cancelled"
        began_s = self._services.clock.monotonic()
        try:
            with (
                bind(
                    agent=name,
                    session=message.session_id,
                    message=message.message_id,
                    trace=message.traceparent[3:35],
                ),
                segment_span(self._services.tracer, self._turn.work, name) as sent,
            ):
                outcome = sent.facts["agentsup.outcome"] = await self._work_on(start)
                sent.error = "failed" if outcome == "failed" else ""
        except ExitRequested:
            outcome = "ok"
            raise
        finally:
            self._services.spending.forget(message)
            seconds = self._services.clock.monotonic() - began_s
            self._services.turn_ended(agent.payer.name, outcome, seconds)

    async def _work_on(self, start: StoredTurn) -> str:
        """Make attempts until one settles the lease. Returns how that one ended."""
        await self._recovery.begin()
        is_again = self._turn.lease.resumed
        while True:
            resume: Resume | None = None
            if is_again:
                message_id = self._turn.message.message_id
                resume = await self._services.database.read(
                    segments.resume_of, message_id, name="turn.resume"
                )
                unable = await self._may_not_run()
                if isinstance(unable, EngineDone):
                    return await self._give_up(unable, resume)
                if unable:
                    return "parked"
            left_alone_s = self._recovery.choose()
            if left_alone_s:
                return await self._recovery.wait(left_alone_s)
            provider = self._recovery.attempt.tier.provider
            with self._services.breakers.visit(provider) as visit:
                outcome = await self._run_segment(resume, visit, start)
            if outcome != RETRY_NOW:
                return outcome
            is_again, start = True, _NOT_READ

    # -- before ------------------------------------------------------------------------------------

    async def _may_not_run(self) -> bool | EngineDone:
        """Whether an interrupted turn must not run again. True: a person is asked about a call with
        an unknown outcome. ``EngineDone``: the turn fails, because nobody answered in time."""
        message, journal = self._turn.message, self._services.journal
        within_s = None if message.is_said_in_chat else UNCERTAIN_WITHIN_S
        for call in await journal.uncertain(message.message_id):
            if call.answer == "" and within_s is not None:
                return EngineDone(
                    "failed", error=_nobody_knew(call.name, within_s), code=Uncertain.code
                )
            if call.answer is not None:
                # No option, no answer: it is skipped. Only a person has a blind call repeated.
                await journal.resolve(call.call_id, RESOLUTIONS.get(call.answer, "skipped"))
                continue
            question = Suspended(
                checkpoint=b"",
                text=(
                    f"I was interrupted while doing “{call.name}”, and can't tell whether it "
                    "happened. What shall I do?"
                ),
                options=UNCERTAIN_OPTIONS,
                kind=UNCERTAIN,
                timeout_s=within_s,
            )
            await self._end.park(question, call_id=call.call_id)
            return True
        return False

    async def _give_up(self, end: EngineDone, resume: Resume | None) -> str:
        """End the turn without asking its engine."""
        self._recovery.choose()
        state = self._recovery.attempt.listen(self._turn.message, SuspendedTurn.of(resume))
        await self._begin_segment(state)
        return await self._end.settle(end, state)

    # -- a segment ---------------------------------------------------------------------------------

    async def _run_segment(
        self, resume: Resume | None, visit: BreakerAttempt, start: StoredTurn
    ) -> str:
        """Run one segment. Returns ok | failed | parked | retry, or ``RETRY_NOW``."""
        services, message, around = self._services, self._turn.message, self._turn.agent
        attempt, suspended = self._recovery.attempt, SuspendedTurn.of(resume)
        tier = attempt.tier
        brief = attempt.brief = await services.brief.of(message, start.run)
        segment_state = attempt.listen(message, suspended)
        refused = await self._end.usage.reserve(segment_state, start.budget)
        if refused is not None:
            await self._begin_segment(segment_state)
            return await self._end.settle(refused, segment_state)
        upcoming = self._recovery.upcoming(segment_state, may_shorten=resume is None)
        prepared = await self._prepare(upcoming, start.memory, segment_state)
        bounds = await self._turn.bounds(around.spec)
        await self._begin_segment(segment_state)
        host = await self._host(bounds, segment_state, resume)
        seen = await self._look(suspended, segment_state)
        segment = Segment(
            message_id=message.message_id,
            session_id=message.session_id,
            text=message.text,
            prompt=prompt.joined(prompt.envelope(message), seen.text, self._now(message)),
            system=prompt.joined(
                around.system_prompt(),
                self._handing_on(host, bounds),
                bounds.instruction,
                prepared.notes,
                brief.text,
            ),
            recalled=prepared.recalled,
            parts=message.parts,
            pictures=seen.pictures,
            history=prepared.session.history,
            engine_state=prepared.session.state_for(tier.engine.name),
            resume=Resume(suspended.checkpoint, resume.answer) if resume else None,
        )
        token = services.tokens.issue_run(
            self._turn.agent_id, around.payer.name, message.message_id
        )
        services.live.begin(self._turn.agent_id, conversation_of(message), message.message_id)
        faults.point("turn.before_engine")
        try:
            with engine_span(services.tracer, message, tier) as sent:
                end = await self._think(host, segment, token, segment_state)
                note_engine_end(sent, end, segment_state)
                visit.well = how_well(end)
                self._note_end(tier, end)
                end = no_task_offline(end, message, tier, around.spec)
        except BaseException:
            await self._end.usage.of_unfinished(segment_state)
            raise
        finally:
            services.tokens.revoke(token)
            services.live.end(message.message_id)
        faults.point("turn.after_engine")
        if isinstance(end, Suspended):
            carry = host.suspended(
                files=tuple(segment_state.files),
                checkpoint=end.checkpoint,
                waiting_call=end.call_id,
            )
            await self._end.park(end, saved=carry, state=segment_state)
            return "parked"
        if end.outcome == "failed":
            has_checkpoint = bool(suspended.checkpoint)
            return await self._recovery.after(end, segment_state, has_checkpoint=has_checkpoint)
        return await self._end.settle(end, segment_state)

    async def _host(
        self, bounds: RoleLimits, state: SegmentState, resume: Resume | None
    ) -> TurnHost:
        """The services of the turn for the engine of a segment."""
        turn, services, agent = self._turn, self._services, self._turn.agent
        context = CallContext(
            work=turn.work,
            agent_id=turn.agent_id,
            acts_as=agent.agent_id,
            spec=agent.spec,
            bounds=bounds,
            workspace=str(agent.workspace),
            can_suspend=state.tier.engine.caps.suspend,
            own_tools=await agent.own_tools(is_patient=resume is not None),
            notes=SteeringNotes(turn, state.shown_notes),
            on_tool=partial(services.live.tool, turn.message.message_id),
        )
        answer = resume.answer if resume else None
        return TurnHost(services.calls, context, SuspendedTurn.of(resume), answer)

    def _note_end(self, tier: ModelTier, end: EngineDone | Suspended) -> None:
        """Let people see why a model can't answer, or that it does again."""
        error = "" if isinstance(end, Suspended) else self._services.redactor.text(end.error)
        agent = self._turn.agent
        of_chat = chat_model_problem(agent.chat_model) if agent.chat_model else ""
        which = of_chat if of_chat and tier.name == PRIMARY else tier.name
        self._services.problems.ended(agent.agent_id, which, end, error)

    def _handing_on(self, host: TurnHost, bounds: RoleLimits) -> str:
        """The part of the system prompt that explains delegation."""
        offered = host.offered_of(prompt.TOOLS)
        known = self._services.roles.for_others(bounds) if offered else ()
        return prompt.delegation_notes(offered, known)

    def _now(self, message: Message) -> str:
        zone = self._services.zone_of(message.agent_id, message.person)
        return prompt.now(self._services.clock.now_ms(), zone)

    async def _look(self, suspended: SuspendedTurn, state: SegmentState) -> Seen:
        """Return the message's files as the engine sees them. A turn that goes on from a checkpoint
        has seen them."""
        message = self._turn.message
        if suspended.checkpoint or not any(part.type == "file" for part in message.parts):
            return NOTHING
        workspace, sees = self._turn.agent.workspace, state.tier.engine.caps.pictures
        seen = await self._services.media.of(message, workspace, sees=sees)
        state.notices += seen.problems
        return seen

    async def _prepare(
        self, turn: TurnPreparation, start: TurnStart | None, state: SegmentState
    ) -> PreparedTurn:
        """Shorten a session that is too long, and find the memories that fit the message."""
        try:
            return await self._services.before_turn.prepare(turn, start)
        except BaseException:
            await self._end.usage.of_unfinished(state)
            raise

    async def _begin_segment(self, state: SegmentState) -> None:
        """Give the segment its number: of the one begun with the claim, once, or of a new one."""
        services, work = self._services, self._turn.work
        if work.segment_no is not None and not services.database.stats.is_disk_low:
            state.number, work.segment_no = work.segment_no, None
            return
        # With a full disk this write is refused, so that no engine starts whose end can't be stored.
        state.number = await services.database.write(
            segments.begin_tx,
            work.lease.message.message_id,
            work.lease.fence,
            services.clock.now_ms(),
            name="turn.begin",
        )

    async def _think(
        self,
        host: TurnHost,
        segment: Segment,
        token: str,
        state: SegmentState,
    ) -> EngineDone | Suspended:
        """Run the engine, and again if ``TurnRecovery.nudged`` asks for an answer or a summary."""
        tier, agent, brief = state.tier, self._turn.agent.spec, self._recovery.attempt.brief
        limits = SegmentLimits(
            idle_s=agent.idle_timeout_s, hard_s=brief.hard_s or agent.turn_timeout_s
        )
        try:
            spec = tier.engine_spec(token, self._turn.message.person)
            if (state.usd_left, brief.env, brief.folders) != (spec.max_usd, {}, spec.folders):
                env = {**spec.env, **brief.env}
                spec = replace(spec, max_usd=state.usd_left, env=env, folders=brief.folders)
            clock = self._services.clock
            session = await open_guarded(tier.engine, spec, host, limits=limits, clock=clock)
        except EngineFailed as error:
            return rules.failure(error, "")
        try:
            # The engine's guard watches the calls of its program, too.
            serve = partial(session.serve, serve=host.serve)
            async with self._services.served.serving(token, host.served, serve):
                end = await self._consume(session, segment, state, host)
                while isinstance(end, EngineDone) and not state.over:
                    end = missing_answer(end, state)
                    more = await self._recovery.nudged(segment, end)
                    if more is None:
                        break
                    await host.own_ended()
                    host.again(is_last=more.nudge == "wrap_up")
                    end = joined_end(end, await self._consume(session, more, state, host))
                return TurnUsage.ended(end, state)
        finally:
            await session.close()

    async def _consume(
        self, session: GuardedSession, segment: Segment, state: SegmentState, host: TurnHost
    ) -> EngineDone | Suspended:
        shown = self._services.redactor.stream()
        self._end.usage.asked(segment, state)
        async with aclosing(session.run(segment)) as events, AsyncExitStack() as asked:
            async for event in events:
                await follow_requests(self._services.tracer, event, state, asked)
                if isinstance(event, ToolFinished):
                    await host.own_finished(event.name, event.ok, event.preview)
                if isinstance(event, Suspended) or (
                    isinstance(event, EngineDone) and event.outcome == "ok"
                ):
                    await host.own_ended()
                if isinstance(event, EngineDone | Suspended):
                    self._services.live.delta(segment.message_id, shown.rest())
                    await self._end.usage.measured(event, state)
                    return event
                if not await self._end.usage.may_pass(event, state):
                    end = TurnUsage.over_budget(state)
                    await self._end.usage.measured(end, state)
                    return end
                if isinstance(event, TextDelta):
                    self._services.live.delta(segment.message_id, shown.take(event.text))
                state.add(event)
        raise AssertionError("the guard ends every run")


def _nobody_knew(tool: str, within_s: float) -> str:
    return (
        f"the daemon was interrupted while {tool} ran, and nobody said within {within_s / 60:.0f} "
        "minutes whether it happened; look before you repeat it"
    )
