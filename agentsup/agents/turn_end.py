"""How a segment ends: one transaction with all that is known of it, or a retry.

What a turn used is paid for however it ended.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from agentsup.agents import prompt, steering, transcript
from agentsup.agents.carried import Carried
from agentsup.agents.recovery import telling
from agentsup.agents.recovery.decisions import FALLBACK, PRIMARY
from agentsup.agents.surroundings import Surroundings
from agentsup.agents.turn_services import TurnServices
from agentsup.agents.turn_usage import Heard, TurnUsage
from agentsup.engines.failures import TurnLimitReached
from agentsup.mailbox import attempts, notices
from agentsup.mailbox.mailbox import Completion
from agentsup.mailbox.pump import Work
from agentsup.model.engine import Done, Suspended
from agentsup.model.errors import ExitRequested
from agentsup.model.ids import AgentId
from agentsup.model.message import Kind, Message, Outcome
from agentsup.observe.logging import get_logger
from agentsup.store.database import Tx
from agentsup.supervision.policy import REBUILD_CODE
from agentsup.tasks import brief

_log = get_logger(__name__)


class TurnEnd:
    """Ends the segments of one agent's turns."""

    def __init__(
        self, services: TurnServices, agent_id: AgentId, surroundings: Surroundings
    ) -> None:
        self._services = services
        self._agent_id = agent_id
        self._around = surroundings
        self.usage = TurnUsage(services, agent_id, surroundings)

    async def settle(self, work: Work, end: Done, heard: Heard, segment_no: int) -> str:
        """End the turn for good; not while the answer to a question is out that was put in its name
        from outside: it goes on with that."""
        message = work.lease.message
        if message.kind is Kind.TASK and end.outcome == "ok":
            is_untold = await self._services.database.read(
                lambda reader: brief.is_untold(reader, message.message_id, heard.informed),
                name="turn.untold",
            )
            if is_untold:
                await self._put_down(work, end, heard, segment_no)
                return "parked"
        await self._complete(work, end, heard, segment_no)
        is_restart = self._services.restarts.take(message.message_id)
        code = REBUILD_CODE if is_restart and end.exit_code is None else end.exit_code
        if code is not None:
            raise ExitRequested(code, f"asked for by message {message.message_id}")
        return "ok" if end.outcome == "ok" else "failed"

    async def _complete(self, work: Work, end: Done, heard: Heard, segment_no: int) -> None:
        services, lease = self._services, work.lease
        message, now = lease.message, services.clock.now_ms()
        failed = end.outcome != "ok"
        end = replace(
            end, text=services.redactor.text(end.text), error=services.redactor.text(end.error)
        )
        if end.outcome == "cancelled":
            end = Done("failed", text=end.text, error="the engine was cancelled", code="cancelled")
        text = end.text
        if not failed and end.code == TurnLimitReached.code:
            text = telling.wrapped_up(message, text)
        completion = Completion(
            outcome=Outcome.FAILED if failed else Outcome.OK,
            text=text,
            error_code=end.code,
            error_text=end.error,
            notice=telling.sentence(message, end) if failed else "",
            parts=tuple(heard.files),
            engine=heard.engine or self._around.engine.name,
            # After an answer, nothing kept means: start from the transcript, not from older state.
            engine_state=end.engine_state if failed else end.engine_state or b"",
        )

        def commit(tx: Tx) -> None:
            answer = completion
            if not failed and self._must_tell(tx, message, heard, now):
                answer = replace(answer, text=telling.on_fallback(message, text, heard.model))
            services.mailbox.complete_tx(tx, lease, answer)
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
                _notify_tx(tx, message, services.redactor.text(notice), now)
            self.usage.end_tx(tx, heard)
            steering.close_tx(tx, heard.told, message, at=now)
            services.journal.end_segment_tx(tx, message.message_id, segment_no, now)

        await services.database.write(commit, name="turn.complete", closing=True)
        if failed:
            _log.warning("turn failed", code=end.code, error=end.error)
        else:
            _log.info("turn done", chars=len(end.text))

    async def _put_down(self, work: Work, end: Done, heard: Heard, segment_no: int) -> None:
        """Keep what was said so far in the transcript, and give the message back until it is known
        what was asked."""
        services, lease = self._services, work.lease
        message, now = lease.message, services.clock.now_ms()

        def commit(tx: Tx) -> None:
            services.mailbox.release_tx(tx, lease)
            say = partial(
                transcript.append_tx,
                tx,
                session_id=message.session_id,
                message_id=message.message_id,
                at=now,
            )
            say(role="user", text=prompt.envelope(message), parts=message.parts)
            say(role="assistant", text=services.redactor.text(end.text), parts=())
            self.usage.end_tx(tx, heard)
            services.journal.end_segment_tx(tx, message.message_id, segment_no, now)

        await services.database.write(commit, name="turn.put_down", closing=True)

    def _must_tell(self, tx: Tx, message: Message, heard: Heard, at: int) -> bool:
        """Whether the answer says that it is the fallback's: once in a session, in chats, unless
        the fallback is wanted."""
        if message.deliver_to.kind != "chat":
            return False
        is_stopgap = heard.tier == FALLBACK and self._around.spec.model_tier == PRIMARY
        return attempts.told_tx(tx, message.session_id, on_fallback=is_stopgap, at=at)

    async def park(
        self,
        work: Work,
        end: Suspended,
        *,
        segment: tuple[int, Carried] | None = None,
        call_id: str = "",
        heard: Heard | None = None,
    ) -> None:
        """Ask and wait: for the answer to ``segment`` (its number and what it hands on), or for
        word about the uncertain call ``call_id``."""
        services, lease = self._services, work.lease
        now, mask = services.clock.now_ms(), services.redactor.text
        end = replace(end, text=mask(end.text), options=tuple(map(mask, end.options)))

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
                    _notify_tx(tx, lease.message, services.redactor.text(notice), now)
                self.usage.end_tx(tx, heard)
                steering.close_tx(tx, heard.told, lease.message, at=now)

        await services.database.write(commit, name="turn.park", closing=True)
        _log.info("turn parked", question=end.text)


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
