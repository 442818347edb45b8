"""Buttons in Telegram: a press is a callback query, and its result a short answer or other buttons."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

from agentsup.channels.core.buttons.display import EndShown, PressDisplay
from agentsup.channels.core.buttons.live_cards import (
    CardAddress,
    Keyboard,
    LiveCards,
    live_fact,
)
from agentsup.channels.core.buttons.presses import Presses
from agentsup.channels.core.buttons.typed_answers import AskedCard
from agentsup.channels.core.errors import PlatformError
from agentsup.channels.core.receiving.messages import BotServices
from agentsup.channels.core.sending import cards
from agentsup.channels.telegram.address import parse
from agentsup.channels.telegram.client import TelegramClient
from agentsup.channels.telegram.errors import NotModified
from agentsup.channels.telegram.flood import CallKind
from agentsup.channels.telegram.outgoing import inline_keyboard
from agentsup.channels.telegram.received import CHANNEL
from agentsup.channels.telegram.render import NO_PREVIEW, Piece, render
from agentsup.channels.telegram.sender import Sender, SendPriority
from agentsup.channels.text.split import utf16_len
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner
from agentsup.model.control import CommandButton, CommandReply
from agentsup.model.principal import PersonRole, Principal
from agentsup.model.question import Question, QuestionState

_log = get_logger(__name__)
_ALERT_CHARS = 190
_TEXT_LIMIT = 4096
_ANSWER_S = 10.0
_TEXT: Final = "editMessageText"
_KEYBOARD: Final = "editMessageReplyMarkup"
_CLOSE_S = 1.0


@dataclass(frozen=True, slots=True)
class TelegramPress:
    """One callback query. ``press_id`` is its name in the ledger: ``update:<bot_id>:<number>``."""

    callback_id: str
    data: str
    press_id: str
    conversation: str
    chat_id: int
    message_id: int | None
    """The message with the button; None if the platform does not give it any more."""
    language: str = ""

    @property
    def card(self) -> CardAddress:
        """The message with the button, if it is a live card."""
        return self.conversation, str(self.message_id)

    @property
    def is_shared(self) -> bool:
        return is_shared(self.conversation)


def is_shared(conversation: str) -> bool:
    """Whether other people read the conversation."""
    return not parse(conversation).is_private


class TelegramPressDisplay(PressDisplay[TelegramPress, Piece]):
    """Shows the results of presses in the chats of one agent's bot."""

    channel = CHANNEL
    _render = staticmethod(render)

    def __init__(self, deps: BotServices, sender: Sender, client: TelegramClient) -> None:
        super().__init__(deps)
        self._sender = sender
        self._client = client

    async def answer(self, press: TelegramPress, text: str = "", *, alert: bool = False) -> None:
        """Confirm the press with a short text; the effect of the press does not depend on it."""
        fields: dict[str, Any] = {"callback_query_id": press.callback_id}
        if text:
            line = text if len(text) <= _ALERT_CHARS else text[: _ALERT_CHARS - 1] + "…"
            fields |= {"text": line, "show_alert": alert}
        try:
            await self._client.call("answerCallbackQuery", timeout_s=_ANSWER_S, **fields)
        except PlatformError as error:  # most often too old: the daemon was down when it came
            _log.info(f"a press was not answered: {error}")

    async def show(
        self,
        press: TelegramPress,
        text: str,
        rows: Sequence[Sequence[CommandButton]] = (),
        *,
        origin: str = "",
    ) -> None:
        """Replace the pressed message by text and buttons; if that fails, send them.

        ``origin`` is the command to which the buttons belong.
        """
        write = self._deps.database.write
        shown = (
            await write(
                lambda tx: self._notices.mint_tx(tx, press.conversation, rows, origin),
                name="telegram.mint",
            )
            if rows
            else []
        )
        fields: dict[str, Any] = {"text": text, **NO_PREVIEW}
        if shown:
            fields["reply_markup"] = inline_keyboard(shown)
        fits = utf16_len(text) <= _TEXT_LIMIT
        if not fits or not await self._edit_pressed(press, _TEXT, **fields):
            more = {"buttons": shown} if shown else {}
            await write(lambda tx: self._say_tx(tx, press, text, **more), name="telegram.say")

    async def take_keyboard(self, press: TelegramPress) -> None:
        """Remove the buttons of the pressed message; its text stays."""
        await self._edit_pressed(press, _KEYBOARD)

    async def show_question(
        self, press: TelegramPress, question: Question, timezone: tzinfo | None
    ) -> bool:
        """Edit the pressed message to say how its question ended; False if that is not possible.

        It is possible if the question is closed and its text fits one message.
        """
        if question.state is QuestionState.OPEN:
            return False
        text = cards.ended_text(question, timezone=timezone, language=press.language)
        pieces = await self._rendered(text)
        return len(pieces) == 1 and await self._edit_pressed(
            press, _TEXT, **pieces[0].fields(), **NO_PREVIEW
        )

    def needs_no_end(self, conversation: str) -> bool:
        """True in a private chat: the reply is shown below, and such a question can't be edited."""
        return parse(conversation).is_private

    async def _close_question(self, card: AskedCard, last: Piece, *, is_end: bool) -> EndShown:
        method, fields = (_TEXT, {**last.fields(), **NO_PREVIEW}) if is_end else (_KEYBOARD, {})
        chat_id = parse(card.conversation).chat_id
        return await self._edit(chat_id, int(card.platform_ids[-1]), method, **fields)

    async def _close_note(self, conversation: str, platform_id: str, text: str) -> EndShown:
        chat_id = parse(conversation).chat_id
        return await self._edit(
            chat_id, int(platform_id), _TEXT, priority=SendPriority.EDIT, text=text
        )

    def _pause_s(self, conversation: str) -> float:
        return self._sender.pause_s(parse(conversation).chat_id, CallKind.EDIT)

    async def edit_card(self, at: CardAddress, text: str, keyboard: Keyboard) -> None:
        """Edit a live card; droppable, so it delays no answer. Raises a ``PlatformError``."""
        conversation, message_id = at
        fields: dict[str, Any] = {"text": text, **NO_PREVIEW}
        if keyboard:
            fields["reply_markup"] = inline_keyboard(keyboard)
        with suppress(NotModified):
            await self._sender.send(
                parse(conversation).chat_id,
                _TEXT,
                priority=SendPriority.EDIT,
                droppable=True,
                message_id=int(message_id),
                **fields,
            )

    async def _edit_pressed(self, press: TelegramPress, method: str, **fields: Any) -> bool:
        """Edit the pressed message; False if it may not show the new content."""
        if press.message_id is None:
            return False
        done = await self._edit(press.chat_id, press.message_id, method, **fields)
        return done is EndShown.DONE

    async def _edit(
        self,
        chat_id: int,
        message_id: int,
        method: str,
        *,
        priority: SendPriority = SendPriority.BUTTONS,
        **fields: Any,
    ) -> EndShown:
        async def edit() -> None:
            with suppress(NotModified):
                await self._sender.send(
                    chat_id, method, priority=priority, message_id=message_id, **fields
                )

        return await self._edited(edit)


class Menus(Presses[TelegramPress]):
    """The buttons of one agent's bot."""

    display: TelegramPressDisplay

    def __init__(self, deps: BotServices, sender: Sender, client: TelegramClient) -> None:
        display = TelegramPressDisplay(deps, sender, client)
        role_now = deps.mailbox.context.role_now
        self._cards = LiveCards(deps, CHANNEL, display.edit_card, is_shared, role_now=role_now)
        super().__init__(deps, display)

    async def run(self, draining: asyncio.Event) -> None:
        """Show the ends of questions, and update live cards, until ``draining`` is set."""
        following = TaskOwner("telegram cards")
        try:
            following.spawn(self._cards.run(draining), name="telegram cards")
            await super().run(draining)
        finally:
            await following.close(_CLOSE_S)

    async def _menu(self, press: TelegramPress, principal: Principal) -> None:
        with self._cards.left_alone(press.card):
            await super()._menu(press, principal)

    async def _showed(
        self, press: TelegramPress, reply: CommandReply | None, principal: Principal
    ) -> None:
        live = "" if reply is None else reply.live
        await self._cards.shows(press.card, live_fact(live, principal, press.language))

    async def on_reaction(
        self, conversation: str, message_id: int, emoji: str, principal: Principal, press_id: str
    ) -> bool:
        """Handle a reaction to a message; True if it answered a question (👍 yes, 👎 no)."""
        if principal.role < PersonRole.USER:
            return False
        # The platform does not give the topic, and its message ids are unique per chat.
        chat = str(parse(conversation).chat_id)
        said = await self._asked.reaction(chat, str(message_id), emoji, principal, press_id)
        return said is not None and said.counts

    async def _question(self, press: TelegramPress, principal: Principal) -> None:
        """Answer the question; the pressed message then shows the end at once."""
        with self._asked.showing_end(press.data):
            said = await self._asked.press(press, principal)
            await self.display.answer(press, said.text, alert=not said.counts)
            question = said.question
            if question is not None and (said.stays or self._is_answerable(question)):
                return  # another person may still press it
            # Also done if the question was closed before and its buttons were still shown.
            if question is not None and await self.display.show_question(
                press, question, self._timezone()
            ):
                if said.counts:
                    await self._asked.is_shown(question)
            else:
                await self.display.take_keyboard(press)

    def _is_answerable(self, question: Question) -> bool:
        """Whether it is open and its deadline has not passed; an expired one may still be open."""
        deadline_at = question.deadline_at
        is_past = deadline_at is not None and deadline_at <= self._deps.clock.now_ms()
        return question.state is QuestionState.OPEN and not is_past
