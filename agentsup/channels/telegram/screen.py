"""The message that was pressed, as a screen: a word to the person, another text, other buttons."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from agentsup.channels import buttons, cards
from agentsup.channels.asked import AskedCard, Shown
from agentsup.channels.telegram.errors import (
    FateUnknown,
    FloodWait,
    NotModified,
    NotSent,
    Refused,
    TelegramError,
)
from agentsup.channels.telegram.keyboard import inline_keyboard
from agentsup.channels.telegram.place import parse
from agentsup.channels.telegram.render import ON_LOOP_MAX_CHARS, Piece, render, utf16_len
from agentsup.channels.telegram.sender import Caller, Sender, SendPriority
from agentsup.channels.telegram.updates import CHANNEL
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox import outbox
from agentsup.model.control import Button
from agentsup.model.question import Question, QuestionState
from agentsup.store.database import Database, Tx

__all__ = ["Press", "Screen"]

_log = logging.getLogger(__name__)
_ALERT_CHARS = 190
_EDIT_TRIES = 3
_TEXT_LIMIT = 4096
_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Press:
    """One callback query. ``press_id`` names it for good: ``update:<bot_id>:<update_id>``."""

    callback_id: str
    data: str
    press_id: str
    conversation: str
    chat_id: int
    message_id: int | None
    """The message with the button; None if the platform has forgotten it."""
    language: str = ""

    @property
    def is_shared(self) -> bool:
        return not parse(self.conversation).is_private


class Screen:
    """Shows what a press led to, in the chats of one agent's bot."""

    def __init__(
        self,
        *,
        agent_id: str,
        database: Database,
        clock: Clock,
        entropy: Entropy,
        sender: Sender,
        client: Caller,
    ) -> None:
        self._agent_id = agent_id
        self._database = database
        self._clock = clock
        self._entropy = entropy
        self._sender = sender
        self._client = client

    async def answer(self, press: Press, text: str = "", *, alert: bool = False) -> None:
        """Stop the button from turning and say a word; nothing depends on its arrival."""
        fields: dict[str, Any] = {"callback_query_id": press.callback_id}
        if text:
            line = text if len(text) <= _ALERT_CHARS else text[: _ALERT_CHARS - 1] + "…"
            fields |= {"text": line, "show_alert": alert}
        try:
            await self._client.call("answerCallbackQuery", timeout_s=_ANSWER_S, **fields)
        except TelegramError as error:  # most often too old: the daemon was down when it came
            _log.info("a press was not answered: %s", error)

    async def show(
        self,
        press: Press,
        text: str,
        rows: Sequence[Sequence[Button]] = (),
        *,
        origin: str = "",
    ) -> None:
        """Put text and buttons in place of the message that was pressed; where that can't be,
        send them. ``origin`` is the command that these buttons belong to."""

        def mint(tx: Tx) -> list[list[dict[str, str]]]:
            return buttons.mint_tx(
                tx,
                rows,
                agent_id=self._agent_id,
                conversation=press.conversation,
                origin=origin,
                at=self._clock.now_ms(),
                entropy=self._entropy,
                channel=CHANNEL,
            )

        shown = await self._database.write(mint, name="telegram.mint") if rows else []
        fields: dict[str, Any] = {"text": text, "link_preview_options": {"is_disabled": True}}
        if shown:
            fields["reply_markup"] = inline_keyboard(shown)
        fits = utf16_len(text) <= _TEXT_LIMIT
        if not fits or not await self.edit(press, "editMessageText", **fields):
            await self.send(press, text, shown)

    async def take_keyboard(self, press: Press) -> None:
        """Leave the text, take the buttons away."""
        await self.edit(press, "editMessageReplyMarkup")

    async def edit(self, press: Press, method: str, **fields: Any) -> bool:
        """Edit the message that was pressed; False if it does not show what it should.

        An edit does no harm when repeated, so one of unknown fate is made again.
        """
        if press.message_id is None:
            return False
        for _ in range(_EDIT_TRIES):
            try:
                await self._sender.send(
                    press.chat_id,
                    method,
                    priority=SendPriority.BUTTONS,
                    message_id=press.message_id,
                    **fields,
                )
            except NotModified:
                return True
            except (NotSent, FateUnknown) as error:
                _log.info("%s is tried again: %s", method, error)
            except TelegramError as error:
                _log.info("%s was refused: %s", method, error)
                return False
            else:
                return True
        return False

    async def send(
        self, press: Press, text: str, shown: Sequence[Sequence[dict[str, str]]] = ()
    ) -> None:
        """Say it in a message of its own, through the outbox."""
        body: dict[str, Any] = {"text": text, "plain": True}
        if shown:
            body["buttons"] = [list(row) for row in shown]
        await self._database.write(
            lambda tx: outbox.add_tx(
                tx,
                agent_id=self._agent_id,
                channel=CHANNEL,
                conversation=press.conversation,
                kind="notice",
                body=body,
                at=self._clock.now_ms(),
            ),
            name="telegram.say",
        )

    # -- questions ---------------------------------------------------------------------------------

    async def show_question(
        self, press: Press, question: Question, timezone: tzinfo | None
    ) -> bool:
        """Let the message that was pressed say how its question ended, where one message can."""
        if question.state is QuestionState.OPEN:
            return False
        text = cards.ended_text(question, timezone=timezone, language=press.language)
        pieces = await _rendered(text)
        return len(pieces) == 1 and await self.edit(press, "editMessageText", **_edit_of(pieces[0]))

    def needs_no_end(self, conversation: str) -> bool:
        """In a private chat the reply stands right below, and such a question can't be edited."""
        return parse(conversation).is_private

    async def show_end(self, card: AskedCard, timezone: tzinfo | None) -> Shown:
        """Let the question's last message say how it ended, without its keyboard."""
        pieces = await _rendered(
            cards.ended_text(card.question, timezone=timezone, language=card.language)
        )
        shown = await _rendered(
            cards.text_of("question", card.body, timezone=timezone, language=card.language)
        )
        chat_id = parse(card.conversation).chat_id
        last = int(card.platform_ids[-1])
        # The last message has the keyboard. It shows the end too, unless the end would take a
        # message more (or less) than there are.
        has_room = len(pieces) == len(shown)
        try:
            if has_room:
                await self._sender.send(
                    chat_id,
                    "editMessageText",
                    priority=SendPriority.BUTTONS,
                    message_id=last,
                    **_edit_of(pieces[-1]),
                )
            else:
                await self._sender.send(
                    chat_id,
                    "editMessageReplyMarkup",
                    priority=SendPriority.BUTTONS,
                    message_id=last,
                )
        except (FloodWait, NotSent, FateUnknown) as error:
            _log.info("the end of %s is not shown yet: %s", card.question.question_id, error)
            return Shown.LATER
        except NotModified:
            return Shown.DONE
        except TelegramError as error:
            _log.info("the end of %s can't be shown: %s", card.question.question_id, error)
            return Shown.REFUSED if isinstance(error, Refused) else Shown.DONE
        return Shown.DONE


async def _rendered(text: str) -> tuple[Piece, ...]:
    if len(text) > ON_LOOP_MAX_CHARS:
        return await asyncio.to_thread(render, text)
    return render(text)


def _edit_of(piece: Piece) -> dict[str, Any]:
    return {**piece.fields(), "link_preview_options": {"is_disabled": True}}
