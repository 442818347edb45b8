"""The end of a segment: the turn is completed, parked, released or queued again with a notice, in one
transaction. The usage is recorded in that transaction, however the segment ended."""

from __future__ import annotations

from dataclasses import replace

from agentsup.agents.memory import transcript
from agentsup.agents.persona import prompt
from agentsup.agents.recovery import texts
from agentsup.agents.recovery.decisions import FALLBACK, PRIMARY
from agentsup.agents.turn import steering
from agentsup.agents.turn.services import TurnContext
from agentsup.agents.turn.usage import SegmentState, SuspendedTurn, TurnUsage
from agentsup.engines import TurnLimitReached
from agentsup.kit.log import get_logger
from agentsup.mailbox.delivery import notices
from agentsup.mailbox.messages import Completion, attempts, segments
from agentsup.model.engine import EngineDone, Suspended
from agentsup.model.errors import ExitRequested
from agentsup.model.message import Message, MessageKind, MessageOutcome, Part
from agentsup.store import Tx
from agentsup.supervision import REBUILD_CODE
from agentsup.tasks import brief

_log = get_logger(__name__)


class TurnEnd:
    """Ends the segments of one turn."""

    def __init__(self, turn: TurnContext) -> None:
        self._turn = turn
        self._services = turn.services
        self.usage = TurnUsage(turn)

    async def settle(self, end: EngineDone, state: SegmentState) -> str:
        """End the turn. Returns "ok", "failed" or "parked".

        "parked": a run goes on later, when the question is answered that was asked in its name from
        outside, or at once if the answer came too late for the brief of this turn.

        Raises ``ExitRequested`` after the commit of a turn that asked for it.
        """
        message = self._turn.message
        is_restart = self._services.restarts.is_asked(message.message_id)
        code = REBUILD_CODE if is_restart and end.exit_code is None else end.exit_code
        if not await self._complete(end, state, is_last=code is not None):
            await self._release_unfinished(end, state)
            return "parked"
        self._services.restarts.take(message.message_id)
        if code is not None:
            raise ExitRequested(code, f"asked for by message {message.message_id}")
        return "ok" if end.outcome == "ok" else "failed"

    async def _complete(self, end: EngineDone, state: SegmentState, *, is_last: bool) -> bool:
        """Commit the end and claim the next message, unless the agent restarts after this turn.

        False, and nothing is written, if it is a run that has to go on (see ``settle``).
        """
        services, lease = self._services, self._turn.lease
        message, now = lease.message, services.clock.now_ms()
        failed = end.outcome != "ok"
        end = self._shown_end(end)
        text = end.text  # with our notices; the transcript gets it without them
        if not failed and end.code == TurnLimitReached.code:
            text = texts.wrapped_up(message, text)
        completion = Completion(
            outcome=MessageOutcome.FAILED if failed else MessageOutcome.OK,
            text=text,
            error_code=end.code,
            error_text=end.error,
            notice=self.failure_text(message, end, state) if failed else "",
            parts=tuple(state.files),
            engine=state.tier.engine.name,
            # b"" clears the stored engine state, so that the next turn starts from the transcript.
            engine_state=end.engine_state if failed else end.engine_state or b"",
        )

        claim_next = None if is_last else self._turn.work.next_claim()

        def commit(tx: Tx) -> bool:
            is_run = message.kind is MessageKind.TASK and not failed
            if is_run and brief.has_news(tx, message.message_id, state.informed):
                return False
            answer = completion
            if not failed and self._note_fallback_tx(tx, message, state, now):
                answer = replace(answer, text=texts.on_fallback(message, text, state.tier.model))
            services.mailbox.leases.complete_tx(tx, lease, answer)
            if failed:
                _transcribe_tx(tx, message, now, "note", f"(failed: {end.error})")
            else:
                _transcribe_tx(tx, message, now, "assistant", end.text, tuple(state.files))
            self._report_tx(tx, state, now)
            segments.end_tx(tx, message.message_id, state.number, now, **_ran_with(state))
            if claim_next is not None:
                claim_next(tx)
            return True

        if not await services.database.write(commit, name="turn.complete", closing=True):
            return False
        if failed:
            _log.warning("turn failed", code=end.code, error=end.error)
        else:
            _log.info("turn done", chars=len(end.text))
        return True

    def _shown_end(self, end: EngineDone) -> EngineDone:
        """The end without secrets. A cancelled engine counts as a failed one."""
        text, error = (self._services.redactor.text(each) for each in (end.text, end.error))
        if end.outcome == "cancelled":
            return EngineDone(
                "failed", text=text, error="the engine was cancelled", code="cancelled"
            )
        if (text, error) != (end.text, end.error):
            return replace(end, text=text, error=error)
        return end

    def failure_text(self, message: Message, end: EngineDone, state: SegmentState) -> str:
        """The text about a failure for the sender of the message."""
        is_primary = state.tier.name == PRIMARY
        chat_model = self._turn.agent.chat_model if is_primary else ""
        return texts.sentence(message, end, chat_model)

    async def _release_unfinished(self, end: EngineDone, state: SegmentState) -> None:
        """Write the text so far to the transcript and release the message, which continues when its
        questions are answered."""
        services, lease = self._services, self._turn.lease
        message, now = lease.message, services.clock.now_ms()

        def commit(tx: Tx) -> None:
            services.mailbox.leases.release_tx(tx, lease)
            _transcribe_tx(tx, message, now, "assistant", services.redactor.text(end.text))
            self.usage.end_tx(tx, state)
            segments.end_tx(tx, message.message_id, state.number, now, **_ran_with(state))

        await services.database.write(commit, name="turn.release", closing=True)

    def _note_fallback_tx(self, tx: Tx, message: Message, state: SegmentState, at: int) -> bool:
        """Record which model answered. Returns whether the answer must say that it is the fallback's:
        in chats, once until the primary model answers again, and not if the fallback was chosen."""
        if message.deliver_to.kind != "chat":
            return False
        is_stopgap = state.tier.name == FALLBACK and self._turn.agent.spec.model_tier == PRIMARY
        return attempts.note_model_notice_tx(tx, message.session_id, on_fallback=is_stopgap, at=at)

    async def park(
        self,
        question: Suspended,
        *,
        saved: SuspendedTurn | None = None,
        call_id: str = "",
        state: SegmentState | None = None,
    ) -> None:
        """Park the turn with a question: of the suspended segment ``state`` with what is ``saved``
        of it, or about the uncertain call ``call_id``."""
        services, lease = self._services, self._turn.lease
        now, mask = services.clock.now_ms(), services.redactor.text
        masked = replace(
            question, text=mask(question.text), options=tuple(map(mask, question.options))
        )

        def commit(tx: Tx) -> None:
            asked = services.mailbox.questions.park_tx(tx, lease, masked)
            if state is not None and saved is not None:
                segments.suspend_tx(
                    tx,
                    lease.message.message_id,
                    state.number,
                    saved.pack(),
                    asked.question_id,
                    now,
                    **_ran_with(state),
                )
                self._report_tx(tx, state, now)
            if call_id:
                services.journal.ask_about_tx(tx, call_id, asked.question_id)

        await services.database.write(commit, name="turn.park", closing=True)
        _log.info("turn parked", question=masked.text)

    def _report_tx(self, tx: Tx, state: SegmentState, at: int) -> None:
        """Queue the engine's notices, record the usage and close the notes that were shown."""
        for notice in state.notices:
            notify_person_tx(tx, state.message, self._services.redactor.text(notice), at)
        self.usage.end_tx(tx, state)
        context = self._services.mailbox.context
        steering.close_notes_tx(context, tx, state.shown_notes, state.message, at=at)


def _ran_with(state: SegmentState) -> dict[str, str]:
    """The engine and the model of a segment, as columns of its row."""
    return {"engine": state.tier.engine.name, "model": state.tier.model or ""}


def _transcribe_tx(
    tx: Tx, message: Message, at: int, role: str, text: str, parts: tuple[Part, ...] = ()
) -> None:
    """Append the message as its agent has read it, and what came of it."""
    asked = ("user", prompt.envelope(message), message.parts)
    for each_role, each_text, each_parts in (asked, (role, text, parts)):
        transcript.append_tx(
            tx,
            session_id=message.session_id,
            message_id=message.message_id,
            role=each_role,
            text=each_text,
            at=at,
            parts=each_parts,
        )


def notify_person_tx(tx: Tx, message: Message, text: str, at: int) -> None:
    """Queue a notice for the person, apart from the answer, if the answer goes to a chat."""
    to = message.deliver_to
    if to.kind == "chat" and not to.silent:
        notices.notify_of_tx(tx, message, to, text, at=at)
