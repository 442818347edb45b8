"""A turn: the work on one message in one session, segment by segment.

The end of a turn is one transaction: transcript, usage, segment, message, reply or outbox rows
(P1, P2). A turn that was interrupted runs again with its journal, so that finished calls are not
repeated; where a blind call's outcome is unknown, a person is asked before anything runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from agentsup.agents import prompt, transcript
from agentsup.agents.carried import Carried
from agentsup.agents.delegation import telling as handing_on
from agentsup.agents.host import TurnHost
from agentsup.agents.pipeline.own_calls import our_tool
from agentsup.agents.recovery.breakers import Visit
from agentsup.agents.recovery.tiers import Tier
from agentsup.agents.roles.bounds import Bounds
from agentsup.agents.served import Door
from agentsup.agents.steering import Notes
from agentsup.agents.surroundings import Surroundings
from agentsup.agents.turn_end import TurnEnd
from agentsup.agents.turn_recovery import (
    GO_ON,
    Attempting,
    TurnRecovery,
    how_well,
    missing_answer,
    put_together,
)
from agentsup.agents.turn_services import TurnServices
from agentsup.agents.turn_usage import Heard, TurnUsage
from agentsup.engines import guard_rules
from agentsup.engines.guard import GuardedSession, RunLimits, open_guarded
from agentsup.kit import faults
from agentsup.mailbox.journal import Resolution, Uncertain
from agentsup.mailbox.pump import Work
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import (
    Done,
    EngineEvent,
    FileOut,
    Notice,
    Resume,
    Segment,
    Suspended,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from agentsup.model.errors import EngineFailed, ExitRequested
from agentsup.model.ids import AgentId
from agentsup.model.message import Kind, Lane, Message, Part
from agentsup.model.question import UNCERTAIN, UNCERTAIN_WITHIN_S
from agentsup.observe.logging import bind, get_logger
from agentsup.store.database import Tx

_log = get_logger(__name__)

RESOLUTIONS: dict[str, Resolution] = {
    "it happened": "done",
    "do it again": "again",
    "skip it": "skipped",
}
UNCERTAIN_OPTIONS = tuple(RESOLUTIONS)
Bounding = Callable[[AgentSpec], Awaitable[Bounds]]
"""Says what a turn may use, of the one who works on it."""


class TurnHandler:
    """The default ``Handler``: runs the agent's engine on each message."""

    def __init__(
        self,
        services: TurnServices,
        agent_id: AgentId,
        surroundings: Surroundings,
        bounds: Bounding | None = None,
    ) -> None:
        """``agent_id`` is whose messages these are, ``surroundings`` who works on them; without
        ``bounds`` those of the agent in the session's role hold."""
        self._services = services
        self._agent_id = agent_id
        self._around = surroundings
        self._bounding = bounds
        self._end = TurnEnd(services, agent_id, surroundings)
        self._recovery = TurnRecovery(services, surroundings, self._end)

    async def handle(self, work: Work) -> None:
        """Run one segment of the message's turn and settle the lease.

        Raises ``ExitRequested`` after the commit of a turn that asked for it, ``LeaseLost`` when
        the lease moved, and what an engine lets escape on purpose.
        """
        message = work.lease.message
        name, began_s, outcome = (
            self._around.spec.name,
            self._services.clock.monotonic(),
            "cancelled",
        )
        try:
            with (
                bind(
                    agent=name,
                    session=message.session_id,
                    message=message.message_id,
                    trace=message.traceparent[3:35],
                ),
                self._services.tracer.segment(message, name) as traced,
            ):
                outcome = traced.outcome = await self._work_on(work)
        except ExitRequested:
            outcome = "ok"
            raise
        finally:
            self._end.usage.forget(work)
            seconds = self._services.clock.monotonic() - began_s
            self._services.turn_ended(self._around.payer.name, outcome, seconds)

    async def _work_on(self, work: Work) -> str:
        """One attempt after the other, as long as one leads to the next in this turn."""
        attempt = await self._recovery.begin(work)
        is_again = work.lease.resumed
        while True:
            resume: Resume | None = None
            if is_again:
                resume = await self._services.journal.load_resume(work.lease.message.message_id)
                held_back = await self._held_back(work)
                if isinstance(held_back, Done):
                    return await self._give_up(work, held_back, resume, attempt)
                if held_back:
                    return "parked"
            left_alone_s = self._recovery.choose(attempt)
            if left_alone_s:
                return await self._recovery.wait(work, attempt, left_alone_s)
            with self._services.breakers.visit(attempt.tier.provider) as visit:
                outcome = await self._run_segment(work, resume, attempt, visit)
            if outcome != GO_ON:
                return outcome
            is_again = True

    # -- before ------------------------------------------------------------------------------------

    async def _held_back(self, work: Work) -> bool | Done:
        """Whether an interrupted turn must not simply run again: a person is asked, or it has failed
        because nobody said what became of its call."""
        message = work.lease.message
        journal = self._services.journal
        within_s = None if message.deliver_to.kind == "chat" else UNCERTAIN_WITHIN_S
        for call in await journal.uncertain(message.message_id):
            if call.answer == "" and within_s is not None:
                return Done("failed", error=_nobody_knew(call.name, within_s), code=Uncertain.code)
            if call.answer is not None:
                # An unanswered or odd answer means: leave it out. Nothing blind is repeated unasked.
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
            await self._end.park(work, question, call_id=call.call_id)
            return True
        return False

    async def _give_up(
        self, work: Work, end: Done, resume: Resume | None, attempt: Attempting
    ) -> str:
        """End the turn without asking its engine."""
        self._recovery.choose(attempt)
        heard = attempt.listen(work.lease.message, Carried.of(resume))
        number, _ = await self._begin_segment(work, attempt.tier)
        return await self._end.settle(work, end, heard, number)

    # -- a segment ---------------------------------------------------------------------------------

    async def _run_segment(
        self, work: Work, resume: Resume | None, attempt: Attempting, visit: Visit
    ) -> str:
        """Returns how it ended: ok | failed | parked | retry, or ``GO_ON``."""
        services, message, around = self._services, work.lease.message, self._around
        tier, carried = attempt.tier, Carried.of(resume)
        brief = attempt.brief = await services.brief(message)
        heard = attempt.listen(message, carried)
        if (refused := await self._end.usage.reserve(work, heard)) is not None:
            return await self._end.settle(
                work, refused, heard, (await self._begin_segment(work, tier))[0]
            )
        remembered = await self._remember(work, heard, tier, may_shorten=resume is None)
        bounds = await self._bounds(message.session_id)
        segment_no, memory = await self._begin_segment(work, tier)
        host = TurnHost(
            services.calls,
            work=work,
            agent_id=self._agent_id,
            spec=around.spec,
            workspace=str(around.workspace),
            can_suspend=tier.engine.caps.suspend,
            carried=carried,
            answer=resume.answer if resume else None,
            on_tool=lambda name, state: services.live.tool(message.message_id, name, state),
            bounds=bounds,
            own_tools=await around.own_tools(is_patient=resume is not None),
            acts_as=around.agent_id,
            notes=Notes(services.database, message, heard.told),
        )
        segment = Segment(
            message_id=message.message_id,
            session_id=message.session_id,
            text=message.text,
            prompt=prompt.envelope(message),
            system=prompt.joined(
                around.system_prompt(),
                self._handing_on(host, bounds),
                bounds.instruction,
                remembered,
                brief.text,
            ),
            parts=message.parts,
            history=memory.history,
            engine_state=memory.engine_state,
            resume=Resume(carried.checkpoint, resume.answer) if resume else None,
        )
        token = services.tokens.issue_run(self._agent_id, around.payer.name, message.message_id)
        services.live.begin(self._agent_id, _conversation(message), message.message_id)
        faults.point("turn.before_engine")
        try:
            with services.tracer.engine(
                message.message_id, tier.engine.name, tier.model, tier.provider
            ) as traced:
                heard.trace = traced
                end = await self._think(host, segment, token, heard, work, attempt)
                traced.ended(end, heard.usage)
                visit.well = how_well(end)
        except BaseException:
            await self._end.usage.of_unfinished(heard)
            raise
        finally:
            services.tokens.revoke(token)
            services.live.end(message.message_id)
        faults.point("turn.after_engine")
        if isinstance(end, Suspended):
            carry = host.carried(
                files=tuple(heard.files), checkpoint=end.checkpoint, held=end.call_id
            )
            await self._end.park(work, end, segment=(segment_no, carry), heard=heard)
            return "parked"
        if end.outcome == "failed":
            return await self._recovery.after(
                work, attempt, end, heard, segment_no, has_checkpoint=bool(carried.checkpoint)
            )
        return await self._end.settle(work, end, heard, segment_no)

    def _handing_on(self, host: TurnHost, bounds: Bounds) -> str:
        """What the model is told of handing work on."""
        roles = self._services.roles
        known = () if roles is None else roles.for_others(bounds)
        return handing_on.about((tool.name for tool in host.tools()), known)

    async def _bounds(self, session_id: str) -> Bounds:
        """What the agent may use in this session, and what its role tells it."""
        roles, spec = self._services.roles, self._around.spec
        if self._bounding is not None:
            return await self._bounding(spec)
        return Bounds(spec.tools) if roles is None else await roles.bounds(spec, session_id)

    async def _remember(self, work: Work, heard: Heard, tier: Tier, *, may_shorten: bool) -> str:
        """What the agent remembers of this message's matter; first, a long session is shortened."""
        services = self._services
        if services.before_turn is None:
            return ""
        turn = self._recovery.upcoming(work, tier, heard, may_shorten=may_shorten)
        try:
            return await services.before_turn.prepare(turn)
        except BaseException:
            await self._end.usage.of_unfinished(heard)
            raise

    async def _begin_segment(self, work: Work, tier: Tier) -> tuple[int, transcript.SessionMemory]:
        """Open the segment and read what it starts from, in one way to the store and back."""
        services, lease, message = self._services, work.lease, work.lease.message
        now, engine = services.clock.now_ms(), tier.engine.name

        def begin(tx: Tx) -> tuple[int, transcript.SessionMemory]:
            number = services.journal.begin_segment_tx(tx, message.message_id, lease.fence, now)
            return number, transcript.load_memory(tx, message.session_id, engine)

        return await services.database.write(begin, name="turn.begin")

    async def _think(
        self,
        host: TurnHost,
        segment: Segment,
        token: str,
        heard: Heard,
        work: Work,
        attempt: Attempting,
    ) -> Done | Suspended:
        """One run of the engine, or two: it may be asked once more where an answer is missing."""
        tier, agent, brief = attempt.tier, self._around.spec, attempt.brief
        limits = RunLimits(idle_s=agent.idle_timeout_s, hard_s=brief.hard_s or agent.turn_timeout_s)
        try:
            spec = tier.engine_spec(token, work.lease.message.person)
            env = {**spec.env, **brief.env}
            spec = replace(spec, max_usd=heard.usd_left, env=env, folders=brief.folders)
            session = await open_guarded(tier.engine, spec, host, limits=limits)
        except EngineFailed as error:
            return guard_rules.failure(error, "")
        try:
            async with self._services.served.serving(token, Door(host, session)):
                end = await self._consume(session, segment, heard, host)
                while isinstance(end, Done) and not heard.over:
                    end = missing_answer(end, heard)
                    more = await self._recovery.nudged(work, attempt, segment, end)
                    if more is None:
                        break
                    await host.own_ended()
                    host.again(is_last=more.nudge == "wrap_up")
                    end = put_together(end, await self._consume(session, more, heard, host))
                return TurnUsage.ended(end, heard)
        finally:
            await session.close()

    async def _consume(
        self, session: GuardedSession, segment: Segment, heard: Heard, host: TurnHost
    ) -> Done | Suspended:
        shown = self._services.redactor.stream()
        self._end.usage.asked(segment, heard)
        async with aclosing(session.run(segment)) as events:
            async for event in events:
                if heard.trace is not None:
                    heard.trace.heard(event)
                if isinstance(event, ToolFinished):
                    await host.own_finished(event.name, event.ok, event.preview)
                if isinstance(event, Suspended) or (
                    isinstance(event, Done) and event.outcome == "ok"
                ):
                    await host.own_ended()
                if isinstance(event, Done | Suspended):
                    self._services.live.delta(segment.message_id, shown.rest())
                    await self._end.usage.measured(event, heard)
                    return event
                if not await self._end.usage.may_pass(event, heard):
                    end = TurnUsage.over_budget(heard)
                    await self._end.usage.measured(end, heard)
                    return end
                if isinstance(event, TextDelta):
                    self._services.live.delta(segment.message_id, shown.take(event.text))
                self._note(event, heard)
        raise AssertionError("the guard ends every run")

    @staticmethod
    def _note(event: EngineEvent, heard: Heard) -> None:
        match event:
            case TextDelta(text=text):
                heard.said.append(text)
            case FileOut(path=path):
                heard.files.append(Part("file", path=path, name=Path(path).name))
            case Notice(text=text):
                heard.notices.append(text)
            case ToolStarted(name=name):
                heard.used_tools = True
                heard.has_acted = heard.has_acted or our_tool(name) is None
                _log.debug("tool", tool=name)
            case _:
                return


def _nobody_knew(tool: str, within_s: float) -> str:
    return (
        f"the daemon was interrupted while {tool} ran, and nobody said within {within_s / 60:.0f} "
        "minutes whether it happened; look before you repeat it"
    )


def _conversation(message: Message) -> str:
    """Where people see its text while it is written; nowhere for work in the background, whose
    result comes as one message."""
    to = message.deliver_to
    is_of_talk = message.kind is not Kind.TASK and message.lane is not Lane.BACKGROUND
    return f"{to.channel}:{to.conversation}" if to.kind == "chat" and is_of_talk else ""
