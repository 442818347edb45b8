"""Buttons in Telegram: a press is a callback query, its menu the message it hangs from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agentsup.channels.presses import Presses
from agentsup.channels.telegram.following import Following
from agentsup.channels.telegram.place import parse
from agentsup.channels.telegram.screen import Press, Screen
from agentsup.channels.telegram.sender import Caller, Sender
from agentsup.channels.telegram.updates import CHANNEL
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.agent import AgentSpec
from agentsup.model.control import CommandReply, Commands
from agentsup.model.principal import PersonRole, Principal
from agentsup.model.question import Question, QuestionState
from agentsup.store.database import Database

__all__ = ["Menus", "Press"]

_CLOSE_S = 1.0


class Menus(Presses[Press]):
    """The buttons of one agent's bot."""

    def __init__(
        self,
        *,
        agent_id: str,
        database: Database,
        mailbox: Mailbox,
        commands: Commands,
        clock: Clock,
        entropy: Entropy,
        sender: Sender,
        client: Caller,
        spec: Callable[[], AgentSpec],
    ) -> None:
        self._shown = Screen(
            agent_id=agent_id,
            database=database,
            clock=clock,
            entropy=entropy,
            sender=sender,
            client=client,
        )
        self._cards = Following(
            agent_id=agent_id,
            database=database,
            commands=commands,
            clock=clock,
            entropy=entropy,
            spec=spec,
            sender=sender,
        )
        super().__init__(
            channel=CHANNEL,
            agent_id=agent_id,
            database=database,
            mailbox=mailbox,
            commands=commands,
            clock=clock,
            spec=spec,
            screen=self._shown,
            shows=self._shown,
        )

    async def run(self, draining: asyncio.Event) -> None:
        """Show how questions ended, and let cards follow their tasks, until ``draining``."""
        following = TaskOwner("telegram cards")
        try:
            following.spawn(self._cards.run(draining), name="telegram cards")
            await super().run(draining)
        finally:
            await following.close(_CLOSE_S)

    async def _menu(self, press: Press, principal: Principal) -> None:
        with self._cards.left_alone(press):
            await super()._menu(press, principal)

    async def _showed(self, press: Press, reply: CommandReply | None, principal: Principal) -> None:
        await self._cards.shows(press, reply, principal)

    async def on_text(
        self,
        conversation: str,
        text: str,
        reply_to: int | None,
        principal: Principal,
        press_id: str,
        language: str = "",
        *,
        quoted: str = "",
        is_private: bool = False,
    ) -> str | None:
        """A typed text that is no command: None if it is no answer to an open question here.

        Else it was taken as the answer, or the text returned says why not; the inbox must not get
        it. ``reply_to`` is the platform's id of the message it replies to, which says ``quoted``.
        """
        if principal.role < PersonRole.USER:
            return None
        replied = None if reply_to is None else str(reply_to)
        said = await self._asked.text(
            conversation,
            text,
            replied,
            principal,
            press_id,
            language,
            quoted=quoted,
            is_private=is_private,
        )
        if said is None:
            return None
        return said.text

    async def on_reaction(
        self, conversation: str, message_id: int, emoji: str, principal: Principal, press_id: str
    ) -> bool:
        """A reaction set under a message: True if it answered a question (👍 yes, 👎 no)."""
        if principal.role < PersonRole.USER:
            return False
        # The platform does not say in which topic, and numbers messages by chat.
        chat = str(parse(conversation).chat_id)
        said = await self._asked.reaction(chat, str(message_id), emoji, principal, press_id)
        return said is not None and said.counts

    async def _question(self, press: Press, principal: Principal) -> None:
        """As everywhere, but the message that was pressed shows the end at once."""
        with self._asked.in_hand(press.data):
            said = await self._asked.press(
                press.data, press.conversation, principal, press.press_id, press.language
            )
            await self._screen.answer(press, said.text, alert=not said.counts)
            question = said.question
            if question is not None and (said.stays or self._is_answerable(question)):
                return  # somebody else may press it still
            # Also where the button was still there although its question is closed.
            if question is not None and await self._shown.show_question(
                press, question, self._timezone()
            ):
                if said.counts:
                    await self._asked.is_shown(question)
            else:
                await self._screen.take_keyboard(press)

    def _is_answerable(self, question: Question) -> bool:
        """Whether it is open, and not past a deadline that nobody has noticed yet."""
        deadline_at = question.deadline_at
        is_past = deadline_at is not None and deadline_at <= self._clock.now_ms()
        return question.state is QuestionState.OPEN and not is_past
