"""Shows the result of a press in a room: a notice, another text in the event, or the next menu.

A menu that is used by reactions can't stay one event: the person's own reaction on it would be in
the way of the next press. So the next menu is a new message, and the one before keeps its text and
offers nothing any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agentsup.channels.core.buttons.display import EndShown, PressDisplay
from agentsup.channels.core.buttons.typed_answers import AskedCard
from agentsup.channels.core.errors import TRANSIENT, PlatformError, TokenRefused
from agentsup.channels.core.receiving.messages import BotServices
from agentsup.channels.core.sending import buttons
from agentsup.channels.matrix import choices
from agentsup.channels.matrix.address import parse
from agentsup.channels.matrix.outgoing import MARK, MESSAGE, REPLACES, content_of, edit_of, short
from agentsup.channels.matrix.received import CHANNEL
from agentsup.channels.matrix.render import Piece, render
from agentsup.channels.matrix.sender import Sender
from agentsup.channels.matrix.status import REACTION, annotation
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.model.control import CommandButton
from agentsup.store import Tx

_log = get_logger(__name__)

_REACT_TRIES = 20
_REACT_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class MatrixPress:
    """One press, by a reaction or by a number. ``press_id`` is its id, also after a restart."""

    data: str
    press_id: str
    conversation: str
    event_id: str
    """The event that offers the choice."""
    text: str
    """The text of that event, above the choices."""
    language: str = ""
    is_shared: bool = True


class MatrixPressDisplay(PressDisplay[MatrixPress, Piece]):
    """Shows the results of presses in the rooms of one agent's bot."""

    channel = CHANNEL
    command_mark = MARK
    edit_pause_s = 1.0
    _render = staticmethod(render)

    def __init__(self, deps: BotServices, sender: Sender) -> None:
        super().__init__(deps)
        self._sender = sender
        self._owner = TaskOwner("matrix reactions")

    async def close(self) -> None:
        """Set no more reactions."""
        await self._owner.close(1.0)

    # -- what can be pressed -----------------------------------------------------------------------

    def set_reactions(self, conversation: str, event_id: str, keys: Sequence[str]) -> None:
        """Set the reactions under an event for people to press. Returns at once. They may be
        missing: the numbers can be used instead."""
        setting = self._set_reactions(parse(conversation).room_id, event_id, keys)
        with suppress(OwnerClosed):
            self._owner.spawn(setting, name=f"reactions:{event_id}")

    async def _set_reactions(self, room_id: str, event_id: str, keys: Sequence[str]) -> None:
        for key in keys:
            for _ in range(_REACT_TRIES):
                try:
                    await self._sender.send(
                        room_id,
                        REACTION,
                        annotation(event_id, key),
                        txn_id=f"ag-r-{short(event_id + key)}",
                        droppable=True,
                    )
                except TRANSIENT:
                    await self._deps.clock.sleep(max(_REACT_PAUSE_S, self._sender.pause_s(room_id)))
                except TokenRefused:
                    return
                except PlatformError as error:
                    _log.debug(f"a reaction was not set: {error}")
                    break
                else:
                    break

    # -- ``PressDisplay`` --------------------------------------------------------------------------

    async def answer(self, press: MatrixPress, text: str = "", *, alert: bool = False) -> None:
        """Send ``text`` if ``alert`` is set. That a press counted needs no message here."""
        if alert and text:
            await self.send(press, text)

    async def show(
        self,
        press: MatrixPress,
        text: str,
        rows: Sequence[Sequence[CommandButton]] = (),
        *,
        origin: str = "",
    ) -> None:
        """Send a text with choices as the next message; a text alone replaces the pressed event's.

        Both go through the outbox, so that an edit of unknown outcome is made again with the same
        transaction id until the outcome is known, and nothing is shown twice.
        """

        def step(tx: Tx) -> None:
            if rows:
                self._say_tx(tx, press, text, rows=rows, origin=origin)
            else:
                replaces: dict[str, Any] = {REPLACES: press.event_id}
                self._say_tx(tx, press, text, **replaces)
                buttons.note_tx(tx, _replaced(press), "", self._deps.clock.now_ms())
                choices.close_card_tx(tx, self._deps.agent_id, press.event_id)

        await self._deps.database.write(step, name="matrix.show")
        if rows:
            await self.take_keyboard(press)

    async def take_keyboard(self, press: MatrixPress) -> None:
        """Close the choices of the pressed event and keep its text.

        A reply that this press has put there stays, also if the press is handled again.
        """
        await self._close(press.event_id)
        is_replaced = await self._deps.database.read(
            lambda reader: buttons.handled(reader, _replaced(press)) is not None,
            name="matrix.replaced",
        )
        if is_replaced:
            return
        # The edit may fail: the choices are closed already, and the text stays the same.
        txn_id = f"ag-c-{short(press.event_id + press.press_id)}-closed"
        content = content_of(Piece(press.text or "·"))
        await self._edit(press.conversation, press.event_id, content, txn_id)

    def _say_tx(
        self,
        tx: Tx,
        press: MatrixPress,
        text: str,
        *,
        rows: Sequence[Sequence[CommandButton]] = (),
        origin: str = "",
        **facts: Any,
    ) -> None:
        """As ``PressDisplay._say_tx``, with choices and once for each press."""
        once = f"{press.press_id}#said"
        if buttons.handled(tx, once) is not None:
            return
        buttons.note_tx(tx, once, text, self._deps.clock.now_ms())
        if press.language:
            facts["language"] = press.language
        if rows:
            facts["buttons"] = self._notices.mint_tx(tx, press.conversation, rows, origin)
        super()._say_tx(tx, press, text, **facts)

    async def _close_question(self, card: AskedCard, last: Piece, *, is_end: bool) -> EndShown:
        event_id = card.platform_ids[-1]
        await self._close(event_id)
        txn_id = f"ag-q-{short(event_id + card.question.question_id)}"
        return await self._edit(card.conversation, event_id, content_of(last), txn_id)

    async def _close_note(self, conversation: str, platform_id: str, text: str) -> EndShown:
        await self._close(platform_id)
        content = {**content_of(Piece(text)), "msgtype": "m.notice"}
        return await self._edit(conversation, platform_id, content, f"ag-n-{short(platform_id)}")

    def _pause_s(self, conversation: str) -> float:
        return self._sender.pause_s(parse(conversation).room_id)

    async def _close(self, event_id: str) -> None:
        """Close the choices of an event in the store."""
        await self._deps.database.write(
            choices.close_card_tx, self._deps.agent_id, event_id, name="matrix.close"
        )

    async def _edit(
        self, conversation: str, event_id: str, content: Mapping[str, Any], txn_id: str
    ) -> EndShown:
        """Replace the content of an event with ``content``; harmless when repeated."""
        room_id, new = parse(conversation).room_id, edit_of(content, event_id)
        return await self._edited(lambda: self._sender.send(room_id, MESSAGE, new, txn_id=txn_id))


def _replaced(press: MatrixPress) -> str:
    """The record that this press's reply replaces the pressed event's text."""
    return f"{press.press_id}#replaced"
