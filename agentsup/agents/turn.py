"""A turn: the work on one message in one session, segment by segment.

The end of a turn is one transaction: transcript, usage, segment, message, reply or outbox rows
(P1, P2). A turn that was interrupted runs again with its journal, so that finished calls are not
repeated; where a blind call's outcome is unknown, a person is asked before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agentsup.agents import prompt, transcript
from agentsup.agents.carried import Carried
from agentsup.agents.host import HostServices, TurnHost
from agentsup.agents.memory.before_turn import BeforeTurn, Upcoming
from agentsup.agents.roles.bounds import Bounds, Roles
from agentsup.agents.served import Door, ServedTurns
from agentsup.agents.surroundings import RunTokens, Surroundings
from agentsup.engines.guard import GuardedSession, RunLimits, open_guarded
from agentsup.kit import faults
from agentsup.kit.clock import Clock
from agentsup.mailbox import notices
from agentsup.mailbox import usage as usage_rows
from agentsup.mailbox.journal import Journal, Resolution
from agentsup.mailbox.mailbox import Completion, Mailbox
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
    Usage,
)
from agentsup.model.errors import EngineFailed, ExitRequested, StoreUnavailable
from agentsup.model.ids import AgentId
from agentsup.model.message import Message, Outcome, Part
from agentsup.observe.live import LiveHub
from agentsup.observe.logging import bind, get_logger
from agentsup.store.database import Database, Tx

_log = get_logger(__name__)

UNCERTAIN: dict[str, Resolution] = {
    "it happened": "done",
    "do it again": "again",
    "skip it": "skipped",
}
UNCERTAIN_OPTIONS = tuple(UNCERTAIN)


@dataclass(frozen=True, slots=True)
class TurnServices:
    """What every turn of the daemon shares."""

    database: Database
    mailbox: Mailbox
    journal: Journal
    live: LiveHub
    clock: Clock
    calls: HostServices
    tokens: RunTokens
    served: ServedTurns = field(default_factory=ServedTurns)
    """The turns whose programs call our tools over MCP."""
    before_turn: BeforeTurn | None = None
    """Remembers, and shortens long sessions; without it neither is done."""
    roles: Roles | None = None
    """Says what a turn may use because of its role; without it there are no roles."""
    turn_ended: Callable[[str, str, float], None] = lambda agent, outcome, seconds: None
    """Hears of each segment's end: the agent's name, ok | failed | parked | retry | cancelled,
    and how long it ran."""


@dataclass(slots=True)
class _Heard:
    """What a segment's events left for its end."""

    files: list[Part] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)


class TurnHandler:
    """The default ``Handler``: runs the agent's engine on each message."""

    def __init__(
        self, services: TurnServices, agent_id: AgentId, surroundings: Surroundings
    ) -> None:
        self._services = services
        self._agent_id = agent_id
        self._around = surroundings

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
            with bind(
                agent=name,
                session=message.session_id,
                message=message.message_id,
                trace=message.traceparent[3:35],
            ):
                outcome = await self._work_on(work)
        except ExitRequested:
            outcome = "ok"
            raise
        finally:
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
            await self._park(work, question, call_id=call.call_id)
            return True
        return False

    # -- a segment ---------------------------------------------------------------------------------

    async def _run_segment(self, work: Work, resume: Resume | None) -> str:
        """Returns how it ended: ok | failed | parked | retry."""
        services, message, around = self._services, work.lease.message, self._around
        carried = Carried.of(resume)
        heard = _Heard(files=list(carried.files))
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
            end = await self._think(host, segment, token, heard)
        except BaseException:
            await self._cost_of_unfinished(work, heard)
            raise
        finally:
            services.tokens.revoke(token)
            services.live.end(message.message_id)
        faults.point("turn.after_engine")
        if isinstance(end, Suspended):
            carry = host.carried(
                files=tuple(heard.files), checkpoint=end.checkpoint, held=end.call_id
            )
            await self._park(work, end, segment=(segment_no, carry), heard=heard)
            return "parked"
        return await self._settle(work, end, heard, segment_no)

    async def _bounds(self, session_id: str) -> Bounds:
        """What the agent may use in this session, and what its role tells it."""
        roles, spec = self._services.roles, self._around.spec
        return Bounds(spec.tools) if roles is None else await roles.bounds(spec, session_id)

    async def _remember(self, work: Work, heard: _Heard, *, may_shorten: bool) -> str:
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
            await self._cost_of_unfinished(work, heard)
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
        self, host: TurnHost, segment: Segment, token: str, heard: _Heard
    ) -> Done | Suspended:
        around = self._around
        limits = RunLimits(hard_s=around.spec.turn_timeout_s)
        try:
            session = await open_guarded(
                around.engine, around.engine_spec(token), host, limits=limits
            )
        except EngineFailed as error:
            return Done("failed", error=error.message, code=error.code, permanent=error.permanent)
        try:
            async with self._services.served.serving(token, Door(host, session)):
                return await self._consume(session, segment, heard, host)
        finally:
            await session.close()

    async def _cost_of_unfinished(self, work: Work, heard: _Heard) -> None:
        """What a stopped or crashed turn has used is paid for all the same."""
        try:
            await self._record_usage(work, heard)
        except StoreUnavailable as error:
            _log.warning("usage of an unfinished turn is not recorded", reason=error.message)

    async def _consume(
        self, session: GuardedSession, segment: Segment, heard: _Heard, host: TurnHost
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
                self._note(event, segment, heard)
        raise AssertionError("the guard ends every run")

    def _note(self, event: EngineEvent, segment: Segment, heard: _Heard) -> None:
        match event:
            case TextDelta(text=text):
                self._services.live.delta(segment.message_id, text)
            case FileOut(path=path):
                heard.files.append(Part("file", path=path, name=Path(path).name))
            case Notice(text=text):
                heard.notices.append(text)
            case Usage():
                heard.usage.append(event)
            case ToolStarted(name=name):
                _log.debug("tool", tool=name)
            case _:
                return

    # -- after -------------------------------------------------------------------------------------

    async def _settle(self, work: Work, end: Done, heard: _Heard, segment_no: int) -> str:
        if end.outcome == "failed" and not end.permanent:
            await self._record_usage(work, heard)
            state = await self._services.mailbox.retry(
                work.lease, code=end.code, text=end.error, least_s=end.retry_after_s or 0.0
            )
            _log.warning("turn will be retried", code=end.code, error=end.error, state=state.value)
            return "retry"
        await self._complete(work, end, heard, segment_no)
        if end.exit_code is not None:
            raise ExitRequested(
                end.exit_code, f"asked for by message {work.lease.message.message_id}"
            )
        return "ok" if end.outcome == "ok" else "failed"

    async def _complete(self, work: Work, end: Done, heard: _Heard, segment_no: int) -> None:
        services, lease, around = self._services, work.lease, self._around
        message, now = lease.message, services.clock.now_ms()
        failed = end.outcome != "ok"
        if end.outcome == "cancelled":
            end = Done("failed", text=end.text, error="the engine was cancelled", code="cancelled")
        completion = Completion(
            outcome=Outcome.FAILED if failed else Outcome.OK,
            text=end.text,
            error_code=end.code,
            error_text=end.error,
            parts=tuple(heard.files),
            engine=around.engine.name,
            # After an answer, nothing kept means: start from the transcript, not from older state.
            engine_state=end.engine_state if failed else end.engine_state or b"",
        )

        def commit(tx: Tx) -> None:
            services.mailbox.complete_tx(tx, lease, completion)
            say = partial(
                transcript.append_tx,
                tx,
                session_id=message.session_id,
                message_id=message.message_id,
                at=now,
            )
            say(role="user", text=prompt.envelope(message), parts=message.parts)
            if failed:
                say(role="note", text=f"(failed: {end.error})")
            else:
                say(role="assistant", text=end.text, parts=tuple(heard.files))
            for notice in heard.notices:
                _notify_tx(tx, message, notice, now)
            self._usage_tx(tx, message, heard)
            services.journal.end_segment_tx(tx, message.message_id, segment_no, now)

        await services.database.write(commit, name="turn.complete", closing=True)
        if failed:
            _log.warning("turn failed", code=end.code, error=end.error)
        else:
            _log.info("turn done", chars=len(end.text))

    async def _park(
        self,
        work: Work,
        end: Suspended,
        *,
        segment: tuple[int, Carried] | None = None,
        call_id: str = "",
        heard: _Heard | None = None,
    ) -> None:
        """Ask and wait: for the answer to ``segment`` (its number and what it hands on), or for
        word about the uncertain call ``call_id``."""
        services, lease = self._services, work.lease
        now = services.clock.now_ms()

        def commit(tx: Tx) -> None:
            question = services.mailbox.park_tx(tx, lease, end)
            if segment is not None:
                services.journal.suspend_segment_tx(
                    tx,
                    lease.message.message_id,
                    segment[0],
                    segment[1].pack(),
                    question.question_id,
                    now,
                )
            if call_id:
                services.journal.ask_about_tx(tx, call_id, question.question_id)
            if heard is not None:
                for notice in heard.notices:
                    _notify_tx(tx, lease.message, notice, now)
                self._usage_tx(tx, lease.message, heard)

        await services.database.write(commit, name="turn.park", closing=True)
        _log.info("turn parked", question=end.text)

    async def _record_usage(self, work: Work, heard: _Heard) -> None:
        if heard.usage:
            await self._services.database.write(
                lambda tx: self._usage_tx(tx, work.lease.message, heard), name="turn.usage"
            )

    def _usage_tx(self, tx: Tx, message: Message, heard: _Heard) -> None:
        for usage in heard.usage:
            usage_rows.record_tx(
                tx,
                usage,
                message_id=message.message_id,
                agent_id=self._agent_id,
                session_id=message.session_id,
                engine=self._around.engine.name,
                model=self._around.spec.model or "",
                at=self._services.clock.now_ms(),
            )


def _notify_tx(tx: Tx, message: Message, text: str, at: int) -> None:
    """A line of the engine's for the person, beside the answer."""
    to = message.deliver_to
    if to.kind == "chat" and not to.silent:
        notices.notify_tx(
            tx,
            message_id=message.message_id,
            agent_id=to.agent_id or message.agent_id,
            session_id=message.session_id,
            text=text,
            at=at,
            place=(to.channel, to.conversation),
        )


def _conversation(message: Message) -> str:
    to = message.deliver_to
    return f"{to.channel}:{to.conversation}" if to.kind == "chat" else ""
