"""Buttons in Telegram: a press is a callback query on the message that has the button."""

from __future__ import annotations

import asyncio

from agentsup.channels.core.buttons.presses import Presses
from agentsup.channels.core.receiving.messages import BotServices
from agentsup.channels.telegram.address import parse
from agentsup.channels.telegram.client import TelegramClient
from agentsup.channels.telegram.live_cards import LiveCards
from agentsup.channels.telegram.screen import TelegramPress, TelegramPressDisplay
from agentsup.channels.telegram.sender import Sender
from agentsup.kit.tasks import TaskOwner
from agentsup.model.control import CommandReply
from agentsup.model.principal import PersonRole, Principal
from agentsup.model.question import Question, QuestionState

_CLOSE_S = 1.0


class Menus(Presses[TelegramPress]):
    """The buttons of one agent's bot."""

    def __init__(self, deps: BotServices, sender: Sender, client: TelegramClient) -> None:
        self._shown = TelegramPressDisplay(deps, sender, client)
        self._cards = LiveCards(deps, sender, role_now=deps.mailbox.context.role_now)
        super().__init__(deps, self._shown)

    async def run(self, draining: asyncio.Event) -> None:
        """Show the ends of questions, and update live cards, until ``draining`` is set."""
        following = TaskOwner("telegram cards")
        try:
            following.spawn(self._cards.run(draining), name="telegram cards")
            await super().run(draining)
        finally:
            await following.close(_CLOSE_S)

    async def _menu(self, press: TelegramPress, principal: Principal) -> None:
        with self._cards.left_alone(press):
            await super()._menu(press, principal)

    async def _showed(
        self, press: TelegramPress, reply: CommandReply | None, principal: Principal
    ) -> None:
        await self._cards.shows(press, reply, principal)

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
            await self._shown.answer(press, said.text, alert=not said.counts)
            question = said.question
            if question is not None and (said.stays or self._is_answerable(question)):
                return  # another person may still press it
            # Also done if the question was closed before and its buttons were still shown.
            if question is not None and await self._shown.show_question(
                press, question, self._timezone()
            ):
                if said.counts:
                    await self._asked.is_shown(question)
            else:
                await self._shown.take_keyboard(press)

    def _is_answerable(self, question: Question) -> bool:
        """Whether it is open and its deadline has not passed; an expired one may still be open."""
        deadline_at = question.deadline_at
        is_past = deadline_at is not None and deadline_at <= self._deps.clock.now_ms()
        return question.state is QuestionState.OPEN and not is_past
