"""Handles presses of buttons: they answer a question, run a command or turn a page.

Whether a person may press is decided at the press, by the rule for messages. A press that comes
late, twice or from the wrong chat has no effect, and the person is told so. No state is held in
memory, so a button of an earlier run of the daemon works like a new one. The platform's
``PressDisplay`` shows texts and menus.
"""

from __future__ import annotations

import asyncio
from datetime import tzinfo
from typing import Any, Generic
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agentsup.catalogue import words
from agentsup.channels.core.buttons.display import P, PressDisplay
from agentsup.channels.core.buttons.live_cards import run_button
from agentsup.channels.core.buttons.questions import ChatQuestions
from agentsup.channels.core.buttons.typed_answers import TypedText
from agentsup.channels.core.receiving.inbox import ChatOrigin
from agentsup.channels.core.receiving.messages import BotServices
from agentsup.channels.core.sending import buttons, cards
from agentsup.channels.core.sending.buttons import Pressed, PressRefusal, RefusedPress
from agentsup.kit.tasks import TaskOwner, call_after, is_set_within
from agentsup.mailbox.delivery import outbox, remove_cancel_tx
from agentsup.model.control import CommandButton, CommandReply
from agentsup.model.errors import Conflict, NotFound, Overloaded, StoreUnavailable
from agentsup.model.principal import PersonRole, Principal
from agentsup.store import Tx

_ANSWER_WITHIN_S = 1.5
"""If a command takes longer, the press gets an empty answer first, so that the platform stops
showing it as pending."""
_TRY_AGAIN_S = 30.0
_CLOSE_S = 1.0


class Presses(Generic[P]):
    """The buttons of one agent's bot on one platform."""

    def __init__(self, deps: BotServices, display: PressDisplay[P, Any]) -> None:
        self._deps = deps
        self._channel = display.channel
        self.display = display
        self._asked = ChatQuestions(deps, display, self._timezone)
        self._tasks = TaskOwner(f"{self._channel} menus")
        # Not closed: each task is cancelled or done when its press has been handled.
        self._presses = TaskOwner(f"{self._channel} presses")

    async def run(self, draining: asyncio.Event) -> None:
        """Show the ends of questions, wherever they were answered, until ``draining`` is set.

        Called once per life of the bot.
        """
        changed = asyncio.Event()
        unlisten = self._deps.database.listen(self._asked.topic, changed.set)
        try:
            self._tasks.spawn(
                call_after(draining, changed.set), name=f"drain:{self._channel} menus"
            )
            while not draining.is_set():
                changed.clear()
                try:
                    is_complete = await self._asked.show_ends()
                except (StoreUnavailable, Overloaded):
                    is_complete = False
                await is_set_within(changed, None if is_complete else _TRY_AGAIN_S)
        finally:
            unlisten()
            await self._tasks.close(_CLOSE_S)

    async def on_press(self, press: P, principal: Principal | None) -> None:
        """Handle a press; ``principal`` is None for a person who may not write here.

        May be repeated with the same ``press_id``. Raises only ``StoreUnavailable`` and
        ``Overloaded``, after the person was told.
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
            await self._refuse(press, "press.store_busy")
            raise

    async def on_text(self, typed: TypedText) -> str | None:
        """Handle a typed text; None if it answers no open question here.

        Otherwise the result is the reply for the person (empty: none), and the inbox must not get
        the text.
        """
        if typed.principal.role < PersonRole.USER:
            return None
        said = await self._asked.text(typed)
        return None if said is None else said.text

    # -- questions, repeats, waiting messages ------------------------------------------------------

    async def _question(self, press: P, principal: Principal) -> None:
        said = await self._asked.press(press, principal)
        await self.display.answer(press, said.text, alert=not said.counts)

    async def _again(self, press: P, principal: Principal) -> None:
        """Send a part with unknown outcome again; only the first press of its note does so."""
        say = words(press.language)
        number = press.data.removeprefix(cards.AGAIN)
        note = f"{self._deps.agent_id}/again:{number}"

        def step(tx: Tx) -> tuple[str, bool]:
            if (text := buttons.handled(tx, press.press_id)) is not None:
                return text, True
            if (first := buttons.handled(tx, note)) is not None:
                return first, False
            at = self._deps.clock.now_ms()
            outbox.again_tx(
                tx,
                int(number) if number.isdecimal() else 0,
                agent_id=self._deps.agent_id,
                channel=self._channel,
                conversation=press.conversation,
                at=at,
            )
            when = cards.clock_time(at, self._timezone())
            text = say("press.again")
            buttons.note_tx(tx, press.press_id, text, at)
            buttons.note_tx(tx, note, say("press.used", who=principal.label, when=when), at)
            return text, True

        try:
            text, counts = await self._deps.database.write(step, name="channel.again")
        except (NotFound, Conflict) as error:
            text, counts = error.message, False
        await self.display.answer(press, text, alert=not counts)
        await self.display.take_keyboard(press)

    async def _cancel(self, press: P, principal: Principal) -> None:
        message_id = press.data.removeprefix(cards.CANCEL)
        reply = await self._run(f"/cancel {message_id}", press, principal)
        await self.display.answer(press, reply.text, alert=not reply.ok)
        if reply.ok:
            await self._deps.database.write(remove_cancel_tx, message_id, name="channel.cancelled")
            await self.display.show(press, reply.text)
        else:
            await self.display.take_keyboard(press)

    # -- menus -------------------------------------------------------------------------------------

    async def _menu(self, press: P, principal: Principal) -> None:
        def step(tx: Tx) -> Pressed | RefusedPress:
            return buttons.press_tx(
                tx,
                press.data,
                agent_id=self._deps.agent_id,
                channel=self._channel,
                conversation=press.conversation,
                principal=principal,
                press_id=press.press_id,
                at=self._deps.clock.now_ms(),
            )

        pressed = await self._deps.database.write(step, name="channel.press")
        say = words(press.language)
        if isinstance(pressed, RefusedPress):
            await self._refuse_menu(press, pressed, principal)
        elif pressed.is_repeated:
            await self._show_current(press, pressed, principal)
        elif pressed.confirm:
            await self.display.answer(press)
            yes = CommandButton(
                say("button.yes", label=pressed.label),
                pressed.command,
                once=pressed.once,
                operator=pressed.operator,
            )
            no = CommandButton(say("button.no"), pressed.origin)
            row = (yes, no) if pressed.origin else (yes,)
            await self.display.show(press, pressed.confirm, (row,), origin=pressed.origin)
            await self._showed(press, None, principal)
        else:
            await self._command(press, pressed, principal)

    async def _command(self, press: P, pressed: Pressed, principal: Principal) -> None:
        """Run the command of a button and show its reply in place of the menu."""
        running = self._presses.spawn(
            self._run(pressed.command, press, principal), name=f"press:{press.press_id}"
        )
        try:
            await asyncio.wait({running}, timeout=_ANSWER_WITHIN_S)
            is_late = not running.done()
            if is_late:
                await self.display.answer(press)
            reply = await running
        finally:
            running.cancel()
        if not reply.ok:
            if pressed.once:
                await self._deps.database.write(
                    buttons.release_tx, pressed.token, press.press_id, name="channel.release"
                )
            if is_late:
                await self.display.send(press, reply.text)
            else:
                await self.display.answer(press, reply.text, alert=True)
            return
        if not is_late:
            await self.display.answer(press)
        rows, origin = reply.buttons, pressed.command
        if not rows and pressed.origin:
            back = words(press.language)("button.back")
            rows, origin = ((CommandButton(back, pressed.origin),),), pressed.origin
        await self.display.show(press, reply.text, rows, origin=origin)
        await self._showed(press, reply, principal)

    async def _show_current(self, press: P, pressed: Pressed, principal: Principal) -> None:
        """Show the current state after a press that an earlier life accepted; do nothing twice."""
        await self.display.answer(press)
        if not pressed.origin:
            await self.display.take_keyboard(press)
            return
        reply = await self._run(pressed.origin, press, principal)
        await self.display.show(press, reply.text, reply.buttons, origin=pressed.origin)
        await self._showed(press, reply, principal)

    async def _showed(self, press: P, reply: CommandReply | None, principal: Principal) -> None:
        """Note that a reply is shown now at the press, or below it if the edit was refused.

        ``reply`` None: a question to the person is shown. For platforms with live cards.
        """

    async def _run(self, command: str, press: P, principal: Principal) -> CommandReply:
        where = ChatOrigin(
            self._channel, press.conversation, has_buttons=True, is_shared=press.is_shared
        )
        return await run_button(self._deps, where, command, principal, press.language)

    async def _refuse_menu(self, press: P, refused: RefusedPress, principal: Principal) -> None:
        say = words(press.language)
        match refused.reason:
            case PressRefusal.USED:
                when = cards.clock_time(refused.at, self._timezone())
                text = say("press.used", who=refused.by, when=when)
            case PressRefusal.OPERATORS:
                text = say("press.operators", role=principal.role.name.lower())
            case reason:
                text = say(f"press.{reason.value}")
        await self.display.answer(press, text, alert=True)
        if refused.reason is PressRefusal.UNKNOWN:
            await self.display.take_keyboard(press)

    async def _refuse(self, press: P, key: str) -> None:
        await self.display.answer(press, words(press.language)(key), alert=True)

    def _timezone(self) -> tzinfo | None:
        name = self._deps.spec().user_timezone
        if not name:
            return None
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError):
            return None
