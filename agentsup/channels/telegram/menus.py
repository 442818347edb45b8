"""What a press of a button does: answer a question, run the command it stands for, turn a page.

Who may press is decided when it is pressed, by the rule for messages; a press that comes late,
twice or from the wrong chat has no effect and is told so. Nothing is kept in memory, so a button
of an earlier run of the daemon works like a fresh one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agentsup.catalogue import load
from agentsup.channels import buttons
from agentsup.channels.buttons import Pressed, Refusal, Refused
from agentsup.channels.telegram import cards
from agentsup.channels.telegram.asked import Asked
from agentsup.channels.telegram.screen import Press, Screen
from agentsup.channels.telegram.sender import Caller, Sender
from agentsup.channels.telegram.updates import CHANNEL
from agentsup.channels.telegram.waiting import buttonless_tx
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox import outbox
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.agent import AgentSpec
from agentsup.model.control import Button, CommandContext, CommandReply, Commands
from agentsup.model.errors import Conflict, NotFound, Overloaded, StoreUnavailable
from agentsup.model.principal import PersonRole, Principal
from agentsup.model.question import QuestionState
from agentsup.store.database import Database, Tx

__all__ = ["Menus", "Press"]

_log = logging.getLogger(__name__)
_ANSWER_WITHIN_S = 1.5
"""A command that takes longer is answered with nothing, so that the button stops turning."""
_TRY_AGAIN_S = 30.0
_CLOSE_S = 1.0


class Menus:
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
        self._agent_id = agent_id
        self._database = database
        self._commands = commands
        self._clock = clock
        self._spec = spec
        self._screen = Screen(
            agent_id=agent_id,
            database=database,
            clock=clock,
            entropy=entropy,
            sender=sender,
            client=client,
        )
        self._asked = Asked(
            agent_id=agent_id,
            database=database,
            mailbox=mailbox,
            clock=clock,
            sender=sender,
            timezone=self._timezone,
        )
        self._tasks = TaskOwner("telegram menus")
        # Not closed: each of its tasks ends with the press that waits for it.
        self._presses = TaskOwner("telegram presses")

    async def run(self, draining: asyncio.Event) -> None:
        """Show how questions ended, wherever that was, until ``draining``; one per bot's life."""
        changed = asyncio.Event()

        async def wake_at_end() -> None:
            await draining.wait()
            changed.set()

        unlisten = self._database.listen(self._asked.topic, changed.set)
        try:
            self._tasks.spawn(wake_at_end(), name="drain:telegram menus")
            while not draining.is_set():
                changed.clear()
                try:
                    is_complete = await self._asked.show_ends()
                except (StoreUnavailable, Overloaded):
                    is_complete = False
                try:
                    async with asyncio.timeout(None if is_complete else _TRY_AGAIN_S):
                        await changed.wait()
                except TimeoutError:
                    continue
        finally:
            unlisten()
            await self._tasks.close(_CLOSE_S)

    # -- presses -----------------------------------------------------------------------------------

    async def on_press(self, press: Press, principal: Principal | None) -> None:
        """Handle a press; ``principal`` None is somebody who may not write here.

        May be repeated with the same ``press_id``. Raises ``StoreUnavailable`` and ``Overloaded``,
        after a word to the person; nothing else.
        """
        try:
            if principal is None:
                await self._refuse(press, "press.foreign")
            elif principal.role < PersonRole.USER:
                await self._refuse(press, "press.viewer")
            elif press.data.startswith(cards.QUESTION):
                await self._question(press, principal)
            elif press.data.startswith(cards.AGAIN):
                await self._again(press, principal)
            elif press.data.startswith(cards.CANCEL):
                await self._cancel(press, principal)
            else:
                await self._menu(press, principal)
        except (StoreUnavailable, Overloaded):
            await self._refuse(press, "press.trouble")
            raise

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
    ) -> str | None:
        """A typed text that is no command: None if it is no answer to an open question here.

        Else it was taken as the answer, or the text returned says why not; the inbox must not get
        it. ``reply_to`` is the platform's id of the message it replies to, which says ``quoted``.
        """
        if principal.role < PersonRole.USER:
            return None
        said = await self._asked.text(
            conversation, text, reply_to, principal, press_id, language, quoted=quoted
        )
        if said is None:
            return None
        return "" if said.counts else said.text

    async def on_reaction(
        self, conversation: str, message_id: int, emoji: str, principal: Principal, press_id: str
    ) -> bool:
        """A reaction set under a message: True if it answered a question (👍 yes, 👎 no)."""
        if principal.role < PersonRole.USER:
            return False
        said = await self._asked.reaction(conversation, message_id, emoji, principal, press_id)
        return said is not None and said.counts

    async def _question(self, press: Press, principal: Principal) -> None:
        with self._asked.in_hand(press.data):
            said = await self._asked.press(
                press.data, press.conversation, principal, press.press_id, press.language
            )
            await self._screen.answer(press, said.text, alert=not said.counts)
            question = said.question
            if question is not None and question.state is QuestionState.OPEN:
                return  # somebody else may press it still
            # Also where the button was still there although its question is closed.
            text = None if question is None else await self._asked.end_of(question, press.language)
            if text and await self._screen.edit(press, "editMessageText", **text):
                if question is not None and said.counts:
                    await self._asked.is_shown(question)
            else:
                await self._screen.take_keyboard(press)

    async def _again(self, press: Press, principal: Principal) -> None:
        """Show a part again whose fate is unknown; one press of its note is all it takes."""
        words = load()
        number = press.data.removeprefix(cards.AGAIN)
        note = f"{self._agent_id}/again:{number}"

        def step(tx: Tx) -> str:
            if (told := buttons.handled(tx, press.press_id)) is not None:
                return told
            if (first := buttons.handled(tx, note)) is not None:
                return first
            at = self._clock.now_ms()
            outbox.again_tx(
                tx,
                int(number) if number.isdecimal() else 0,
                agent_id=self._agent_id,
                channel=CHANNEL,
                conversation=press.conversation,
                at=at,
            )
            when = cards.clock_time(at, self._timezone())
            told = words.text("press.again", press.language)
            buttons.note_tx(tx, press.press_id, told, at)
            used = words.text("press.used", press.language, who=principal.label, when=when)
            buttons.note_tx(tx, note, used, at)
            return told

        try:
            told = await self._database.write(step, name="telegram.again")
        except (NotFound, Conflict) as error:
            told = error.message
        await self._screen.answer(press, told, alert=False)
        await self._screen.take_keyboard(press)

    async def _cancel(self, press: Press, principal: Principal) -> None:
        message_id = press.data.removeprefix(cards.CANCEL)
        reply = await self._run(f"/cancel {message_id}", press, principal)
        await self._screen.answer(press, reply.text, alert=not reply.ok)
        if reply.ok:
            await self._database.write(
                lambda tx: buttonless_tx(tx, message_id), name="telegram.cancelled"
            )
            await self._screen.show(press, reply.text)
        else:
            await self._screen.take_keyboard(press)

    # -- menus -------------------------------------------------------------------------------------

    async def _menu(self, press: Press, principal: Principal) -> None:
        def step(tx: Tx) -> Pressed | Refused:
            return buttons.press_tx(
                tx,
                press.data,
                agent_id=self._agent_id,
                conversation=press.conversation,
                principal=principal,
                press_id=press.press_id,
                at=self._clock.now_ms(),
                channel=CHANNEL,
            )

        pressed = await self._database.write(step, name="telegram.press")
        words = load()
        if isinstance(pressed, Refused):
            await self._refuse_menu(press, pressed, principal)
        elif pressed.is_repeated:
            await self._shown_after_all(press, pressed, principal)
        elif pressed.confirm:
            await self._screen.answer(press)
            yes = Button(
                words.text("button.yes", press.language, label=pressed.label),
                pressed.command,
                once=pressed.once,
                operator=pressed.operator,
            )
            no = Button(words.text("button.no", press.language), pressed.origin)
            row = (yes, no) if pressed.origin else (yes,)
            await self._screen.show(press, pressed.confirm, (row,), origin=pressed.origin)
        else:
            await self._command(press, pressed, principal)

    async def _command(self, press: Press, pressed: Pressed, principal: Principal) -> None:
        """Run the command of a button and show its reply in place of the menu."""
        running = self._presses.spawn(
            self._run(pressed.command, press, principal), name=f"press:{press.press_id}"
        )
        try:
            await asyncio.wait({running}, timeout=_ANSWER_WITHIN_S)
            is_late = not running.done()
            if is_late:
                await self._screen.answer(press)
            reply = await running
        finally:
            running.cancel()
        if not reply.ok:
            if pressed.once:
                await self._database.write(
                    lambda tx: buttons.release_tx(tx, pressed.token, press.press_id),
                    name="telegram.release",
                )
            if is_late:
                await self._screen.send(press, reply.text)
            else:
                await self._screen.answer(press, reply.text, alert=True)
            return
        if not is_late:
            await self._screen.answer(press)
        rows, origin = reply.buttons, pressed.command
        if not rows and pressed.origin:
            back = load().text("button.back", press.language)
            rows, origin = ((Button(back, pressed.origin),),), pressed.origin
        await self._screen.show(press, reply.text, rows, origin=origin)

    async def _shown_after_all(self, press: Press, pressed: Pressed, principal: Principal) -> None:
        """A press taken by a life that ended in it: show how things are, do nothing again."""
        await self._screen.answer(press)
        if not pressed.origin:
            await self._screen.take_keyboard(press)
            return
        reply = await self._run(pressed.origin, press, principal)
        await self._screen.show(press, reply.text, reply.buttons, origin=pressed.origin)

    async def _run(self, command: str, press: Press, principal: Principal) -> CommandReply:
        context = CommandContext(
            agent_id=self._agent_id,
            agent_name=self._spec().name,
            channel=CHANNEL,
            conversation=press.conversation,
            principal=principal,
            language=press.language,
            has_buttons=True,
        )
        return await self._commands.run(command, context)

    async def _refuse_menu(self, press: Press, refused: Refused, principal: Principal) -> None:
        words = load()
        match refused.reason:
            case Refusal.USED:
                when = cards.clock_time(refused.at, self._timezone())
                told = words.text("press.used", press.language, who=refused.by, when=when)
            case Refusal.OPERATORS:
                role = principal.role.name.lower()
                told = words.text("press.operators", press.language, role=role)
            case reason:
                told = words.text(f"press.{reason.value}", press.language)
        await self._screen.answer(press, told, alert=True)
        if refused.reason is Refusal.UNKNOWN:
            await self._screen.take_keyboard(press)

    async def _refuse(self, press: Press, key: str) -> None:
        await self._screen.answer(press, load().text(key, press.language), alert=True)

    def _timezone(self) -> tzinfo | None:
        name = self._spec().user_timezone
        if not name:
            return None
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError):
            return None
