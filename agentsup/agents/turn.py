"""A turn: the work on one message in one session, segment by segment.

The end of a turn is one transaction: transcript, usage, segment, message, reply or outbox rows
(P1, P2). A turn that was interrupted runs again with its journal, so that finished calls are not
repeated; where a blind call's outcome is unknown, a person is asked before anything runs.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from agentsup.agents import prompt, transcript
from agentsup.agents.carried import Carried
from agentsup.agents.host import TurnHost
from agentsup.agents.memory.before_turn import Upcoming
from agentsup.agents.roles.bounds import Bounds
from agentsup.agents.served import Door
from agentsup.agents.surroundings import Surroundings
from agentsup.agents.turn_end import TurnEnd
from agentsup.agents.turn_services import TurnServices
from agentsup.agents.turn_usage import Heard, TurnUsage
from agentsup.engines.guard import GuardedSession, RunLimits, open_guarded
from agentsup.kit import faults
from agentsup.mailbox.journal import Resolution
from agentsup.mailbox.pump import Work
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
from agentsup.model.message import Message, Part
from agentsup.observe.logging import bind, get_logger
from agentsup.store.database import Tx

_log = get_logger(__name__)

UNCERTAIN: dict[str, Resolution] = {
    "it happened": "done",
    "do it again": "again",
    "skip it": "skipped",
}
UNCERTAIN_OPTIONS = tuple(UNCERTAIN)


class TurnHandler:
    """The default ``Handler``: runs the agent's engine on each message."""

    def __init__(
        self, services: TurnServices, agent_id: AgentId, surroundings: Surroundings
    ) -> None:
        self._services = services
        self._agent_id = agent_id
        self._around = surroundings
        self._end = TurnEnd(services, agent_id, surroundings)

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
            self._services.turn_ended(name, outcome, seconds)

    async def _work_on(self, work: Work) -> str:
        resume: Resume | None = None
        if work.lease.resumed:
            resume = await self._services.journal.load_resume(work.lease.message.message_id)
            if await self._held_back(work):
                return "parked"
        return await self._run_segment(work, resume)

    # -- before ------------------------------------------------------------------------------------

    async def _held_back(self, work: Work) -> bool:
        """Whether an interrupted turn must not simply run again; settles it then."""
        message = work.lease.message
        journal = self._services.journal
        for call in await journal.uncertain(message.message_id):
            if call.answer is not None:
                # An unanswered or odd answer means: leave it out. Nothing blind is repeated unasked.
                await journal.resolve(call.call_id, UNCERTAIN.get(call.answer, "skipped"))
                continue
            question = Suspended(
                checkpoint=b"",
                text=(
                    f"I was interrupted while doing “{call.name}”, and can't tell whether it "
                    "happened. What shall I do?"
                ),
                options=UNCERTAIN_OPTIONS,
                kind="uncertain",
            )
            await self._end.park(work, question, call_id=call.call_id)
            return True
        return False

    # -- a segment ---------------------------------------------------------------------------------

    async def _run_segment(self, work: Work, resume: Resume | None) -> str:
        """Returns how it ended: ok | failed | parked | retry."""
        services, message, around = self._services, work.lease.message, self._around
        carried = Carried.of(resume)
        heard = Heard(message, files=list(carried.files))
        if (refused := await self._end.usage.reserve(work, heard)) is not None:
            return await self._end.settle(
                work, refused, heard, (await self._begin_segment(work))[0]
            )
        remembered = await self._remember(work, heard, may_shorten=resume is None)
        bounds = await self._bounds(message.session_id)
        segment_no, memory = await self._begin_segment(work)
        host = TurnHost(
            services.calls,
            work=work,
            agent_id=self._agent_id,
            spec=around.spec,
            workspace=str(around.workspace),
            can_suspend=around.engine.caps.suspend,
            carried=carried,
            answer=resume.answer if resume else None,
            on_tool=lambda name, state: services.live.tool(message.message_id, name, state),
            bounds=bounds,
            own_tools=await around.own_tools(is_patient=resume is not None),
        )
        segment = Segment(
            message_id=message.message_id,
            session_id=message.session_id,
            text=message.text,
            prompt=prompt.envelope(message),
            system="\n\n".join(
                filter(None, (around.system_prompt(), bounds.instruction, remembered))
            ),
            parts=message.parts,
            history=memory.history,
            engine_state=memory.engine_state,
            resume=Resume(carried.checkpoint, resume.answer) if resume else None,
        )
        token = services.tokens.issue_run(self._agent_id, around.spec.name, message.message_id)
        services.live.begin(self._agent_id, _conversation(message), message.message_id)
        faults.point("turn.before_engine")
        try:
            engine, model = around.engine.name, around.spec.model or ""
            with services.tracer.engine(message.message_id, engine, model) as traced:
                end = await self._think(host, segment, token, heard)
                traced.ended(end, heard.usage)
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
        return await self._end.settle(work, end, heard, segment_no)

    async def _bounds(self, session_id: str) -> Bounds:
        """What the agent may use in this session, and what its role tells it."""
        roles, spec = self._services.roles, self._around.spec
        return Bounds(spec.tools) if roles is None else await roles.bounds(spec, session_id)

    async def _remember(self, work: Work, heard: Heard, *, may_shorten: bool) -> str:
        """What the agent remembers of this message's matter; first, a long session is shortened."""
        services, around, message = self._services, self._around, work.lease.message
        if services.before_turn is None:
            return ""
        turn = Upcoming(
            agent_id=self._agent_id,
            session_id=message.session_id,
            text=message.text,
            spec=around.spec,
            engine=around.engine,
            engine_spec=lambda: around.engine_spec(""),
            usage=heard.usage,
            may_shorten=may_shorten,
        )
        try:
            return await services.before_turn.prepare(turn)
        except BaseException:
            await self._end.usage.of_unfinished(heard)
            raise

    async def _begin_segment(self, work: Work) -> tuple[int, transcript.SessionMemory]:
        """Open the segment and read what it starts from, in one way to the store and back."""
        services, lease, message = self._services, work.lease, work.lease.message
        now, engine = services.clock.now_ms(), self._around.engine.name

        def begin(tx: Tx) -> tuple[int, transcript.SessionMemory]:
            number = services.journal.begin_segment_tx(tx, message.message_id, lease.fence, now)
            return number, transcript.load_memory(tx, message.session_id, engine)

        return await services.database.write(begin, name="turn.begin")

    async def _think(
        self, host: TurnHost, segment: Segment, token: str, heard: Heard
    ) -> Done | Suspended:
        around = self._around
        limits = RunLimits(hard_s=around.spec.turn_timeout_s)
        try:
            spec = replace(around.engine_spec(token), max_usd=heard.usd_left)
            session = await open_guarded(around.engine, spec, host, limits=limits)
        except EngineFailed as error:
            return Done("failed", error=error.message, code=error.code, permanent=error.permanent)
        try:
            async with self._services.served.serving(token, Door(host, session)):
                return await self._consume(session, segment, heard, host)
        finally:
            await session.close()

    async def _consume(
        self, session: GuardedSession, segment: Segment, heard: Heard, host: TurnHost
    ) -> Done | Suspended:
        async with aclosing(session.run(segment)) as events:
            async for event in events:
                if isinstance(event, ToolFinished):
                    await host.own_finished(event.name, event.ok, event.preview)
                if isinstance(event, Suspended) or (
                    isinstance(event, Done) and event.outcome == "ok"
                ):
                    await host.own_ended()
                if isinstance(event, Done | Suspended):
                    return event
                if not await self._end.usage.may_pass(event, heard):
                    return TurnUsage.over_budget(heard)
                self._note(event, segment, heard)
        raise AssertionError("the guard ends every run")

    def _note(self, event: EngineEvent, segment: Segment, heard: Heard) -> None:
        match event:
            case TextDelta(text=text):
                self._services.live.delta(segment.message_id, text)
                heard.said.append(text)
            case FileOut(path=path):
                heard.files.append(Part("file", path=path, name=Path(path).name))
            case Notice(text=text):
                heard.notices.append(text)
            case ToolStarted(name=name):
                _log.debug("tool", tool=name)
            case _:
                return


def _conversation(message: Message) -> str:
    to = message.deliver_to
    return f"{to.channel}:{to.conversation}" if to.kind == "chat" else ""
