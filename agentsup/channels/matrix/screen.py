"""What a press led to, in a room: a word, another text in its place, or the next menu below.

A menu that is gone through by reactions can't stay one event: the person's own reaction on it would
be in the way of the next press. So the next menu is a message of its own, and the one before keeps
its text and offers nothing any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

from agentsup.channels import buttons, cards
from agentsup.channels.asked import AskedCard, Shown
from agentsup.channels.matrix import offers
from agentsup.channels.matrix.errors import (
    Dropped,
    FateUnknown,
    MatrixError,
    NotSent,
    RateLimited,
    TokenRefused,
)
from agentsup.channels.matrix.outgoing import MARK, MESSAGE, REPLACES, edit_of
from agentsup.channels.matrix.place import parse
from agentsup.channels.matrix.placeholders import short
from agentsup.channels.matrix.render import ON_LOOP_MAX_CHARS, Piece, render
from agentsup.channels.matrix.status import REACTION, annotation
from agentsup.channels.matrix.upkeep import Outbound, content_of
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.mailbox import outbox
from agentsup.model.control import Button
from agentsup.store.database import Database, Tx

__all__ = ["CHANNEL", "MatrixPress", "MatrixScreen"]

_log = logging.getLogger(__name__)

CHANNEL: Final = "matrix"
_EDIT_TRIES = 3
_EDIT_PAUSE_S = 1.0
_REACT_TRIES = 20
_REACT_PAUSE_S = 2.0
_WAIT_MAX_S = 60.0


@dataclass(frozen=True, slots=True)
class MatrixPress:
    """One press, by a reaction or by a number. ``press_id`` names it for good."""

    data: str
    press_id: str
    conversation: str
    event_id: str
    """The event at which it was offered."""
    text: str
    """What stands there above the choices."""
    language: str = ""
    is_shared: bool = True


class MatrixScreen:
    """Shows what presses lead to, in the rooms of one agent's bot."""

    def __init__(
        self,
        *,
        agent_id: str,
        database: Database,
        clock: Clock,
        entropy: Entropy,
        sender: Outbound,
    ) -> None:
        self._agent_id = agent_id
        self._database = database
        self._clock = clock
        self._entropy = entropy
        self._sender = sender
        self._owner = TaskOwner("matrix reactions")

    async def close(self) -> None:
        """Set no more reactions."""
        await self._owner.close(1.0)

    # -- what can be pressed -----------------------------------------------------------------------

    def set_reactions(self, conversation: str, event_id: str, keys: Sequence[str]) -> None:
        """Put the reactions under an event for people to press. Returns at once; a courtesy, as
        the numbers do as well."""
        try:
            self._owner.spawn(
                self._set_reactions(parse(conversation).room_id, event_id, keys),
                name=f"reactions:{event_id}",
            )
        except OwnerClosed:
            return

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
                except (RateLimited, Dropped, NotSent, FateUnknown):
                    await self._clock.sleep(max(_REACT_PAUSE_S, self._sender.pause_s(room_id)))
                except TokenRefused:
                    return
                except MatrixError as error:
                    _log.debug("a reaction was not set: %s", error)
                    break
                else:
                    break

    # -- `Screen` ----------------------------------------------------------------------------------

    async def answer(self, press: MatrixPress, text: str = "", *, alert: bool = False) -> None:
        """Only what matters is said: that a press counted shows by itself."""
        if alert and text:
            await self.send(press, text)

    async def show(
        self,
        press: MatrixPress,
        text: str,
        rows: Sequence[Sequence[Button]] = (),
        *,
        origin: str = "",
    ) -> None:
        """Text and choices as the next message, a text alone in place of what was pressed.

        Both go through the outbox, so that an edit of unknown fate is made again with the same
        transaction id until it is known, and nothing is shown twice.
        """

        def step(tx: Tx) -> None:
            self._say_tx(tx, press, text, rows=rows, origin=origin, in_place=not rows)
            if not rows:
                offers.close_tx(tx, self._agent_id, press.event_id)

        await self._database.write(step, name="matrix.show")
        if rows:
            await self.take_keyboard(press)

    async def take_keyboard(self, press: MatrixPress) -> None:
        """Leave the text, offer nothing there any more."""
        await self._database.write(
            lambda tx: offers.close_tx(tx, self._agent_id, press.event_id), name="matrix.close"
        )
        # Of whatever fate: the event offers nothing any more, and says what it said.
        txn_id = f"ag-c-{short(press.event_id + press.press_id)}-closed"
        content = content_of(Piece(press.text or "·"))
        await self.edit(press.conversation, press.event_id, content, txn_id)

    async def send(self, press: MatrixPress, text: str) -> None:
        """Say it in a message of its own, once for each press."""
        await self._database.write(lambda tx: self._say_tx(tx, press, text), name="matrix.say")

    def _say_tx(
        self,
        tx: Tx,
        press: MatrixPress,
        text: str,
        *,
        rows: Sequence[Sequence[Button]] = (),
        origin: str = "",
        in_place: bool = False,
    ) -> None:
        at = self._clock.now_ms()
        once = f"{press.press_id}#said"
        if buttons.handled(tx, once) is not None:
            return
        buttons.note_tx(tx, once, text, at)
        body: dict[str, Any] = {"text": text, "plain": True}
        if press.language:
            body["language"] = press.language
        if in_place:
            body[REPLACES] = press.event_id
        if rows:
            body["buttons"] = buttons.mint_tx(
                tx,
                rows,
                agent_id=self._agent_id,
                conversation=press.conversation,
                origin=origin,
                at=at,
                entropy=self._entropy,
                channel=CHANNEL,
            )
        outbox.add_tx(
            tx,
            agent_id=self._agent_id,
            channel=CHANNEL,
            conversation=press.conversation,
            kind="notice",
            body=body,
            at=at,
        )

    async def edit(
        self, conversation: str, event_id: str, content: Mapping[str, Any], txn_id: str
    ) -> Shown:
        """Put ``content`` in an event's place; the same edit again does no harm."""
        for attempt in range(_EDIT_TRIES):
            try:
                await self._sender.send(
                    parse(conversation).room_id, MESSAGE, edit_of(content, event_id), txn_id=txn_id
                )
            except (NotSent, FateUnknown) as error:
                _log.info("an edit is tried again: %s", error)
            except (RateLimited, Dropped, TokenRefused) as error:
                _log.info("an edit has to wait: %s", error)
                return Shown.LATER
            except MatrixError as error:
                _log.info("an edit was refused: %s", error)
                return Shown.REFUSED
            else:
                return Shown.DONE
            await self._clock.sleep(_EDIT_PAUSE_S * attempt)
        return Shown.LATER

    async def end_note(self, conversation: str, event_id: str, text: str) -> bool:
        """Let a note say ``text`` and offer nothing any more; False, after a while, if the
        homeserver can't be reached."""
        await self._database.write(
            lambda tx: offers.close_tx(tx, self._agent_id, event_id), name="matrix.close"
        )
        content = {**content_of(Piece(text)), "msgtype": "m.notice"}
        shown = await self.edit(conversation, event_id, content, f"ag-n-{short(event_id)}")
        if shown is Shown.LATER:
            pause_s = self._sender.pause_s(parse(conversation).room_id)
            await self._clock.sleep(max(_REACT_PAUSE_S, min(pause_s, _WAIT_MAX_S)))
        return shown is not Shown.LATER

    # -- `Shows` -----------------------------------------------------------------------------------

    def needs_no_end(self, conversation: str) -> bool:
        """Every message can be edited."""
        return False

    async def show_end(self, card: AskedCard, timezone: tzinfo | None) -> Shown:
        """Let the question's last event say how it ended."""
        ended = await _rendered(
            cards.ended_text(card.question, timezone=timezone, language=card.language)
        )
        shown = await _rendered(
            cards.text_of(
                "question",
                card.body,
                timezone=timezone,
                language=card.language,
                mark=MARK,
            )
        )
        # It shows the end too, unless that would take an event more (or less) than there are.
        last = (ended if len(ended) == len(shown) else shown)[-1]
        event_id = card.platform_ids[-1]
        await self._database.write(
            lambda tx: offers.close_tx(tx, self._agent_id, event_id), name="matrix.close"
        )
        txn_id = f"ag-q-{short(event_id + card.question.question_id)}"
        return await self.edit(card.conversation, event_id, content_of(last), txn_id)


async def _rendered(text: str) -> tuple[Piece, ...]:
    if len(text) > ON_LOOP_MAX_CHARS:
        return await asyncio.to_thread(render, text)
    return render(text)
