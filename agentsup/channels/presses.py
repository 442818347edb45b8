"""What a press of a button does: answer a question, run the command it stands for, turn a page.

Who may press is decided when it is pressed, by the rule for messages; a press that comes late,
twice or from the wrong chat has no effect and is told so. Nothing is kept in memory, so a button
of an earlier run of the daemon works like a fresh one. How words and menus are shown is the
platform's `Screen`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import Generic, Protocol, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agentsup.catalogue import words
from agentsup.channels import buttons, cards
from agentsup.channels.asked import Asked, Shows
from agentsup.channels.buttons import Pressed, Refusal, Refused
from agentsup.channels.waiting import buttonless_tx
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox import outbox
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.agent import AgentSpec
from agentsup.model.control import Button, CommandContext, CommandReply, Commands
from agentsup.model.errors import Conflict, NotFound, Overloaded, StoreUnavailable
from agentsup.model.principal import PersonRole, Principal
from agentsup.store.database import Database, Tx

__all__ = ["Press", "Presses", "Screen"]

_log = logging.getLogger(__name__)
_ANSWER_WITHIN_S = 1.5
"""A command that takes longer is answered with nothing, so that the button stops turning."""
_TRY_AGAIN_S = 30.0
_CLOSE_S = 1.0


class Press(Protocol):
    """One press of a button."""

    @property
    def data(self) -> str: ...
    @property
    def press_id(self) -> str:
        """Names it for good, also over a restart."""

    @property
    def conversation(self) -> str: ...
    @property
    def language(self) -> str: ...
    @property
    def is_shared(self) -> bool:
        """Whether others read what is shown there."""


P = TypeVar("P", bound=Press)
P_contra = TypeVar("P_contra", bound=Press, contravariant=True)


class Screen(Protocol[P_contra]):
    """Where a platform shows what a press led to."""

    async def answer(self, press: P_contra, text: str = "", *, alert: bool = False) -> None:
        """The press was taken; a word to the person, which matters if it is an ``alert``."""

    async def show(
        self,
        press: P_contra,
        text: str,
        rows: Sequence[Sequence[Button]] = (),
        *,
        origin: str = "",
    ) -> None:
        """Text and buttons in place of what was pressed. ``origin`` is the buttons' command."""

    async def take_keyboard(self, press: P_contra) -> None:
        """Leave the text, offer nothing there any more."""

    async def send(self, press: P_contra, text: str) -> None:
        """Say it in a message of its own."""


class Presses(Generic[P]):
    """The buttons of one agent's bot on one platform."""

    def __init__(
        self,
        *,
        channel: str,
        agent_id: str,
        database: Database,
        mailbox: Mailbox,
        commands: Commands,
        clock: Clock,
        spec: Callable[[], AgentSpec],
        screen: Screen[P],
        shows: Shows,
    ) -> None:
        self._channel = channel
        self._agent_id = agent_id
        self._database = database
        self._commands = commands
        self._clock = clock
        self._spec = spec
        self._screen = screen
        self._asked = Asked(
            agent_id=agent_id,
            database=database,
            mailbox=mailbox,
            clock=clock,
            channel=channel,
            shows=shows,
            timezone=self._timezone,
        )
        self._tasks = TaskOwner(f"{channel} menus")
        # Not closed: each of its tasks ends with the press that waits for it.
        self._presses = TaskOwner(f"{channel} presses")

    async def run(self, draining: asyncio.Event) -> None:
        """Show how questions ended, wherever that was, until ``draining``; one per bot's life."""
        changed = asyncio.Event()

        async def wake_at_end() -> None:
            await draining.wait()
            changed.set()

        unlisten = self._database.listen(self._asked.topic, changed.set)
        try:
            self._tasks.spawn(wake_at_end(), name=f"drain:{self._channel} menus")
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

    async def on_press(self, press: P, principal: Principal | None) -> None:
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

    # -- questions, repeats, waiting messages ------------------------------------------------------

    async def _question(self, press: P, principal: Principal) -> None:
        said = await self._asked.press(
            press.data, press.conversation, principal, press.press_id, press.language
        )
        await self._screen.answer(press, said.text, alert=not said.counts)

    async def _again(self, press: P, principal: Principal) -> None:
        """Show a part again whose fate is unknown; one press of its note is all it takes."""
        say = words(press.language)
        number = press.data.removeprefix(cards.AGAIN)
        note = f"{self._agent_id}/again:{number}"

        def step(tx: Tx) -> tuple[str, bool]:
            if (told := buttons.handled(tx, press.press_id)) is not None:
                return told, True
            if (first := buttons.handled(tx, note)) is not None:
                return first, False
            at = self._clock.now_ms()
            outbox.again_tx(
                tx,
                int(number) if number.isdecimal() else 0,
                agent_id=self._agent_id,
                channel=self._channel,
                conversation=press.conversation,
                at=at,
            )
            when = cards.clock_time(at, self._timezone())
            told = say("press.again")
            buttons.note_tx(tx, press.press_id, told, at)
            buttons.note_tx(tx, note, say("press.used", who=principal.label, when=when), at)
            return told, True

        try:
            told, counts = await self._database.write(step, name="channel.again")
        except (NotFound, Conflict) as error:
            told, counts = error.message, False
        await self._screen.answer(press, told, alert=not counts)
        await self._screen.take_keyboard(press)

    async def _cancel(self, press: P, principal: Principal) -> None:
        message_id = press.data.removeprefix(cards.CANCEL)
        reply = await self._run(f"/cancel {message_id}", press, principal)
        await self._screen.answer(press, reply.text, alert=not reply.ok)
        if reply.ok:
            await self._database.write(
                lambda tx: buttonless_tx(tx, message_id), name="channel.cancelled"
            )
            await self._screen.show(press, reply.text)
        else:
            await self._screen.take_keyboard(press)

    # -- menus -------------------------------------------------------------------------------------

    async def _menu(self, press: P, principal: Principal) -> None:
        def step(tx: Tx) -> Pressed | Refused:
            return buttons.press_tx(
                tx,
                press.data,
                agent_id=self._agent_id,
                channel=self._channel,
                conversation=press.conversation,
                principal=principal,
                press_id=press.press_id,
                at=self._clock.now_ms(),
            )

        pressed = await self._database.write(step, name="channel.press")
        say = words(press.language)
        if isinstance(pressed, Refused):
            await self._refuse_menu(press, pressed, principal)
        elif pressed.is_repeated:
            await self._shown_after_all(press, pressed, principal)
        elif pressed.confirm:
            await self._screen.answer(press)
            yes = Button(
                say("button.yes", label=pressed.label),
                pressed.command,
                once=pressed.once,
                operator=pressed.operator,
            )
            no = Button(say("button.no"), pressed.origin)
            row = (yes, no) if pressed.origin else (yes,)
            await self._screen.show(press, pressed.confirm, (row,), origin=pressed.origin)
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
                await self._screen.answer(press)
            reply = await running
        finally:
            running.cancel()
        if not reply.ok:
            if pressed.once:
                await self._database.write(
                    lambda tx: buttons.release_tx(tx, pressed.token, press.press_id),
                    name="channel.release",
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
            back = words(press.language)("button.back")
            rows, origin = ((Button(back, pressed.origin),),), pressed.origin
        await self._screen.show(press, reply.text, rows, origin=origin)
        await self._showed(press, reply, principal)

    async def _shown_after_all(self, press: P, pressed: Pressed, principal: Principal) -> None:
        """A press taken by a life that ended in it: show how things are, do nothing again."""
        await self._screen.answer(press)
        if not pressed.origin:
            await self._screen.take_keyboard(press)
            return
        reply = await self._run(pressed.origin, press, principal)
        await self._screen.show(press, reply.text, reply.buttons, origin=pressed.origin)
        await self._showed(press, reply, principal)

    async def _showed(self, press: P, reply: CommandReply | None, principal: Principal) -> None:
        """That reply (None: a question to the person) stands now where it was pressed, or, if that
        can't be, below. For platforms whose cards follow what they show."""

    async def _run(self, command: str, press: P, principal: Principal) -> CommandReply:
        context = CommandContext(
            agent_id=self._agent_id,
            agent_name=self._spec().name,
            channel=self._channel,
            conversation=press.conversation,
            principal=principal,
            language=press.language,
            has_buttons=True,
            is_pressed=True,
            is_shared=press.is_shared,
        )
        return await self._commands.run(command, context)

    async def _refuse_menu(self, press: P, refused: Refused, principal: Principal) -> None:
        say = words(press.language)
        match refused.reason:
            case Refusal.USED:
                when = cards.clock_time(refused.at, self._timezone())
                told = say("press.used", who=refused.by, when=when)
            case Refusal.OPERATORS:
                told = say("press.operators", role=principal.role.name.lower())
            case reason:
                told = say(f"press.{reason.value}")
        await self._screen.answer(press, told, alert=True)
        if refused.reason is Refusal.UNKNOWN:
            await self._screen.take_keyboard(press)

    async def _refuse(self, press: P, key: str) -> None:
        await self._screen.answer(press, words(press.language)(key), alert=True)

    def _timezone(self) -> tzinfo | None:
        name = self._spec().user_timezone
        if not name:
            return None
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError):
            return None
