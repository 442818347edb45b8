"""Buttons in Matrix: a reaction or a number presses a choice that was listed below a text."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from agentsup.catalogue import words
from agentsup.channels.core.buttons.presses import Presses
from agentsup.channels.core.buttons.typed_answers import TypedText
from agentsup.channels.core.receiving.messages import BotServices
from agentsup.channels.core.sending import buttons
from agentsup.channels.matrix import choices
from agentsup.channels.matrix.address import RoomAddress, parse
from agentsup.channels.matrix.choices import ChoiceCard, ListedChoice, by_emoji, by_text, emojis
from agentsup.channels.matrix.outgoing import OutgoingEvent
from agentsup.channels.matrix.screen import MatrixPress, MatrixPressDisplay
from agentsup.channels.matrix.sender import Sender
from agentsup.kit.tasks import is_set_within
from agentsup.mailbox.delivery import shown_parts
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.model.principal import PersonRole, Principal
from agentsup.store import Reader

_FRESH_MS = 600_000
_FRESH_MAX = 20
_COMING_S = 25.0
"""The longest wait of the presses in a room, all together, for the card that they may press to be
stored: a delivery whose answer was lost is repeated after 20 s."""
_AWAITED_MAX = 1000


class Menus(Presses[MatrixPress]):
    """Handles the presses on choices of one agent's bot."""

    display: MatrixPressDisplay

    def __init__(self, deps: BotServices, sender: Sender) -> None:
        self._came = asyncio.Event()
        """Set, and replaced by another, when a card is stored."""
        self._awaited: dict[str, tuple[int, float]] = {}
        """By room: the part that presses wait for, and until when, by the loop's clock."""
        super().__init__(deps, MatrixPressDisplay(deps, sender))

    async def run(self, draining: asyncio.Event) -> None:
        """Show how questions ended until ``draining``; one per bot's life."""
        try:
            await self._go_on()
            await super().run(draining)
        finally:
            await self.display.close()

    async def _go_on(self) -> None:
        """Set the reactions that an earlier life may not have set; repeating one is harmless."""
        since = self._deps.clock.now_ms() - _FRESH_MS
        try:
            left = await self._deps.database.read(
                choices.fresh, self._deps.agent_id, since, _FRESH_MAX, name="matrix.fresh"
            )
        except (StoreUnavailable, Overloaded):
            return  # people can use the numbers
        for offer in left:
            self.display.set_reactions(offer.conversation, offer.event_id, emojis(offer.choices))

    async def offered(self, address: RoomAddress, event_id: str, piece: OutgoingEvent) -> None:
        """Store the card of an event with choices that was sent, and set the reactions.

        May be repeated. Raises ``StoreUnavailable`` or ``Overloaded``.
        """
        offer = ChoiceCard(
            event_id, address.conversation, piece.choices, piece.above, self._deps.clock.now_ms()
        )
        await self._deps.database.write(
            choices.put_tx, self._deps.agent_id, offer, name="matrix.offered"
        )
        self._came.set()
        self._came = asyncio.Event()
        self.display.set_reactions(address.conversation, event_id, emojis(piece.choices))

    # -- presses -----------------------------------------------------------------------------------

    async def on_reaction(
        self,
        room_id: str,
        event_id: str,
        emoji: str,
        principal: Principal | None,
        press_id: str,
        language: str = "",
        *,
        is_private: bool = False,
    ) -> bool:
        """Handle a reaction to an event; True if it was a press, also a refused one.

        ``principal`` None is a person who may not write there. May be repeated with the same
        ``press_id``.
        """
        offer = await self._offer(room_id, event_id)
        if offer is None or parse(offer.conversation).room_id != room_id:
            return False
        choice = by_emoji(offer.choices, emoji)
        if choice is None:
            return False
        if principal is not None:
            language = language or principal.language
        await self._pressed(offer, choice, principal, press_id, language, is_private)
        return True

    async def _offer(self, room_id: str, event_id: str) -> ChoiceCard | None:
        """Return the card of an event.

        A press can come before the card is stored, so while a part with choices is being sent into
        the room, this waits for it. The time limit is shared by all presses that wait for the part:
        a reaction may be to any event, and a delivery that fails takes long.
        """
        bot = (self._deps.agent_id, self._channel)

        def look(reader: Reader) -> tuple[ChoiceCard | None, int]:
            found = choices.find(reader, self._deps.agent_id, event_id)
            # People may see a part already whose card is not stored yet.
            return found, 0 if found else shown_parts.newest_choices_begun(reader, *bot, room_id)

        while True:
            came = self._came
            offer, coming = await self._deps.database.read(look, name="matrix.offer")
            if not coming:
                return offer
            left_s = self._until(room_id, coming) - self._deps.clock.monotonic()
            if left_s <= 0:
                return None
            await is_set_within(came, left_s)

    def _until(self, room_id: str, coming: int) -> float:
        awaited, until = self._awaited.get(room_id, (0, 0.0))
        if awaited < coming:
            until = self._deps.clock.monotonic() + _COMING_S
            if len(self._awaited) >= _AWAITED_MAX:
                del self._awaited[next(iter(self._awaited))]
            self._awaited[room_id] = (coming, until)
        return until

    async def on_text(self, typed: TypedText) -> str | None:
        """As ``Presses.on_text``, but the text may also be the number or the words of a choice."""
        if typed.principal.role < PersonRole.USER:
            return None
        number = typed.text.strip().removesuffix(".")
        is_bare = typed.reply_to is None and number.isdecimal()
        typed = replace(
            typed,
            text=number if is_bare else typed.text,
            language=typed.language or typed.principal.language,
        )
        said = await self._chosen(typed, is_bare=is_bare)
        return await super().on_text(typed) if said is None else said

    async def _chosen(self, typed: TypedText, *, is_bare: bool) -> str | None:
        """Take the text as the number or the words of a choice; None if it is none of a menu.

        ``is_bare``: it is a number that replies to nothing, so it means the newest menu.
        """
        conversation, press_id, reply_to = typed.conversation, typed.press_id, typed.reply_to

        def look(reader: Reader) -> tuple[bool, ChoiceCard | None]:
            if buttons.handled(reader, f"{press_id}#pressed") is not None:
                return True, None
            if reply_to is not None:
                return False, choices.find(reader, self._deps.agent_id, reply_to)
            if not is_bare:
                return False, None
            now = self._deps.clock.now_ms()
            return False, choices.newest_open(reader, self._deps.agent_id, conversation, now)

        was_pressed, offer = await self._deps.database.read(look, name="matrix.offers")
        if was_pressed:
            return ""
        if offer is None and reply_to is not None and typed.quoted:
            offer = await self._offer(parse(conversation).room_id, reply_to)
        if offer is None or offer.conversation != conversation:
            return None
        choice = by_text(offer.choices, typed.text)
        if choice is None or any(each.data.startswith("q:") for each in offer.choices):
            return None
        if is_bare and await self._asked.is_open_in(conversation):
            return words(typed.language)("choice.several")
        await self._pressed(
            offer, choice, typed.principal, press_id, typed.language, typed.is_private
        )
        return ""

    async def _pressed(
        self,
        offer: ChoiceCard,
        choice: ListedChoice,
        principal: Principal | None,
        press_id: str,
        language: str,
        is_private: bool,
    ) -> None:
        press = MatrixPress(
            choice.data,
            press_id,
            offer.conversation,
            offer.event_id,
            offer.text,
            language,
            is_shared=not is_private,
        )
        await self.on_press(press, principal)
        at = self._deps.clock.now_ms()
        await self._deps.database.write(
            buttons.note_tx, f"{press_id}#pressed", "", at, name="matrix.pressed"
        )
