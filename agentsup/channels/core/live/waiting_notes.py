"""Waiting notes: texts for a person whose message is behind others.

A note is sent once the message has waited for a while. When the message waits no longer, the note
says so and loses its cancel button. The outbox records which notes still have a button, so also
after a crash no note offers what is not possible any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from agentsup.catalogue import LocalizedTexts, words
from agentsup.channels.core.receiving.messages import BotServices
from agentsup.channels.core.sending.buttons import ChatNotices
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import OwnerClosed, TaskOwner, is_set_within
from agentsup.mailbox.delivery import outbox, preview, shown_parts
from agentsup.mailbox.messages import find_message
from agentsup.mailbox.queue import holder_of_session, open_before
from agentsup.model.channel import OutboxState
from agentsup.model.control import CommandButton
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.model.message import MessageState
from agentsup.model.question import OF_AGENTS, Question
from agentsup.store import Reader, Tx, failures

_log = get_logger(__name__)
_STORED_MS: Final = 14 * 86_400_000
"""After a restart, notes older than this are not edited any more."""
_LOOK_GAP_S: Final = 0.3
_LOOK_AGAIN_S: Final = 10.0
_TRY_AGAIN_S: Final = 2.0
_QUESTION_CHARS: Final = 200


class WaitingNotes:
    """Sends and ends waiting notes for the messages of one bot that have others before them.

    A conversation has one note at a time. The note is status and no answer: if the process ends
    before it is written, it is not sent.
    """

    def __init__(
        self,
        deps: BotServices,
        channel: str,
        end_note: Callable[[str, str, str], Awaitable[bool]],
        after_s: float,
    ) -> None:
        """``end_note`` edits a note; see ``PressDisplay.end_note``.

        ``after_s``: seconds that a message must wait before a note is sent.
        """
        self._agent_id = deps.agent_id
        self._database = deps.database
        self._channel = channel
        self._end_note = end_note
        self._clock = deps.clock
        self._notices = ChatNotices(deps.agent_id, channel, deps.clock, deps.entropy)
        self._after_s = after_s
        self._owner = TaskOwner(f"{channel} waiting")
        self._noted: set[str] = set()

    async def run(self, draining: asyncio.Event) -> None:
        """Take over the notes of earlier lives; called once per life of the bot."""
        while not draining.is_set():
            try:
                left = await self._database.read(self._left, name="channel.waiting_left")
            except (StoreUnavailable, Overloaded):
                await self._clock.sleep(_TRY_AGAIN_S)
                continue
            for message_id, conversation in left:
                self._spawn(self._end, message_id, conversation)
            return

    def watch(self, message_id: str, conversation: str) -> None:
        """Watch a message, unless the conversation has a note already. Never blocks."""
        if conversation not in self._noted:
            self._spawn(self._serve, message_id, conversation)

    def _spawn(
        self, life: Callable[[str, str], Awaitable[None]], message_id: str, conversation: str
    ) -> None:
        self._noted.add(conversation)

        async def serve() -> None:
            try:
                await life(message_id, conversation)
            except (StoreUnavailable, Overloaded) as error:
                _log.info(f"a note about {message_id} is left to the next life: {error}")
            finally:
                self._noted.discard(conversation)

        with contextlib.suppress(OwnerClosed):
            self._owner.spawn(serve(), name=f"waiting:{conversation}")

    async def _serve(self, message_id: str, conversation: str) -> None:
        await self._clock.sleep(self._after_s)
        is_noted = await self._database.write(
            self._note_tx, message_id, conversation, name="channel.waiting"
        )
        if is_noted:
            await self._end(message_id, conversation)

    def _note_tx(self, tx: Tx, message_id: str, conversation: str) -> bool:
        message = find_message(tx, message_id)
        if message is None or message.state is not MessageState.QUEUED:
            return False
        ahead = open_before(tx, self._agent_id, message.session_id, message_id)
        if not ahead:
            return False
        say = words(outbox.language_of(tx, message_id))
        asked = holder_of_session(tx, self._agent_id, message.session_id)
        text = say.count("message.waits", ahead) if asked is None else _of_question(asked, say)
        facts: dict[str, Any] = {"cancel": message_id}
        if asked is not None and asked.kind in OF_AGENTS:
            facts["buttons"] = self._notices.mint_tx(tx, conversation, _ways(asked, say))
        self._notices.add_tx(
            tx,
            conversation,
            text,
            message_id=message_id,
            **facts,
        )
        return True

    async def close(self) -> None:
        """Stop watching; the next life takes over the notes that were sent."""
        await self._owner.close(1.0)

    # -- the end of a note -------------------------------------------------------------------------

    def _left(self, reader: Reader) -> list[tuple[str, str]]:
        since = self._clock.now_ms() - _STORED_MS
        return shown_parts.cancellable_since(reader, self._agent_id, self._channel, since)

    async def _end(self, message_id: str, conversation: str) -> None:
        """Wait until the message waits no longer, then edit its notes.

        Tries again while the store is not available; raises ``StoreUnavailable`` once it is closed.
        """
        changed = asyncio.Event()
        with contextlib.ExitStack() as listening:
            for topic in ("events", outbox.topic_of(self._channel)):
                listening.callback(self._database.listen(topic, changed.set))
            while True:
                changed.clear()
                try:
                    notes, ended = await self._database.read(
                        _notes, message_id, name="channel.waiting_note"
                    )
                    if not notes:
                        return
                    if ended and await self._end_all(notes, ended, conversation):
                        await self._database.write(
                            shown_parts.remove_cancel_tx, message_id, name="channel.waiting_over"
                        )
                        return
                except (StoreUnavailable, Overloaded) as error:
                    if failures.is_over(error):
                        raise
                    await self._clock.sleep(_TRY_AGAIN_S)
                    continue
                await self._clock.sleep(_LOOK_GAP_S)  # much else makes events
                if not ended:
                    await is_set_within(changed, _LOOK_AGAIN_S)

    async def _end_all(
        self, notes: list[shown_parts.ShownPart], ended: str, conversation: str
    ) -> bool:
        """End the notes; False if one could not be edited or is being sent at this moment."""
        is_done = True
        for note in notes:
            if note.state is OutboxState.PENDING:
                is_done &= await self._database.write(
                    self._drop_tx, note.outbox_id, name="channel.waiting_over"
                )
            elif note.platform_ids:
                text = words(str(note.body.get("language", "")))(ended)
                is_done &= await self._end_note(conversation, note.platform_ids[-1], text)
        return is_done

    def _drop_tx(self, tx: Tx, outbox_id: int) -> bool:
        """Drop a note that was not sent yet; False if it is being sent at this moment."""
        at = self._clock.now_ms()
        return shown_parts.drop_unsent_tx(tx, outbox_id, at=at, detail="it waits no longer")


def _of_question(asked: Question, say: LocalizedTexts) -> str:
    """Return the text that a message waits for a question to be answered, and how to go on."""
    key = "message.waits_options" if asked.options else "message.waits_text"
    if asked.kind not in OF_AGENTS:
        key = "message.waits_approval"
    question = preview(asked.text, _QUESTION_CHARS)
    return say(key, question=question, id=asked.question_id)


def _ways(asked: Question, say: LocalizedTexts) -> list[list[CommandButton]]:
    """Return buttons for the options of the question, and one to go on without an answer."""
    options = [
        [CommandButton(option, f"/answer {asked.question_id} {number}", once=True)]
        for number, option in enumerate(asked.options, start=1)
    ]
    skip = CommandButton(say("button.skip"), f"/skip {asked.question_id}", once=True)
    return [*options, [skip]]


def _notes(reader: Reader, message_id: str) -> tuple[list[shown_parts.ShownPart], str]:
    """Return the notes about a message that have a button, and the key of their final text.

    The key is empty while the message waits.
    """
    message = find_message(reader, message_id)
    if message is None or message.started_at is not None:
        ended = "message.begun"
    else:
        ended = "" if message.state is MessageState.QUEUED else "message.not_begun"
    return shown_parts.cancellable(reader, message_id), ended
