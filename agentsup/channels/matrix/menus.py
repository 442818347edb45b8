"""Buttons in Matrix: a reaction or a number presses a choice that was listed below a text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from agentsup.catalogue import words
from agentsup.channels import buttons
from agentsup.channels.matrix import offers
from agentsup.channels.matrix.choices import Choice, by_emoji, by_text, emojis
from agentsup.channels.matrix.offers import Offer
from agentsup.channels.matrix.outgoing import Outgoing
from agentsup.channels.matrix.place import Place, parse
from agentsup.channels.matrix.screen import CHANNEL, MatrixPress, MatrixScreen
from agentsup.channels.matrix.upkeep import Outbound
from agentsup.channels.presses import Presses
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.agent import AgentSpec
from agentsup.model.control import Commands
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.model.principal import PersonRole, Principal
from agentsup.store.database import Database, Reader

__all__ = ["Menus"]

_FRESH_MS = 600_000
_FRESH_MAX = 20
_COMING_S = 25.0
"""So long presses wait, all together, for what they may press to be on record: a sending whose answer
is lost goes again after 20 s."""
_AWAITED_MAX = 1000


class Menus(Presses[MatrixPress]):
    """The choices of one agent's bot."""

    def __init__(
        self,
        *,
        agent_id: str,
        database: Database,
        mailbox: Mailbox,
        commands: Commands,
        clock: Clock,
        entropy: Entropy,
        sender: Outbound,
        spec: Callable[[], AgentSpec],
    ) -> None:
        self._came = asyncio.Event()
        """Set, and replaced by another, when something to press comes on record."""
        self._awaited: dict[str, tuple[int, float]] = {}
        """By room: the part that presses wait for, and until when, by the loop's clock."""
        self._shown = MatrixScreen(
            agent_id=agent_id, database=database, clock=clock, entropy=entropy, sender=sender
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
        """Show how questions ended until ``draining``; one per bot's life."""
        try:
            await self._go_on()
            await super().run(draining)
        finally:
            await self._shown.close()

    async def _go_on(self) -> None:
        """Set the reactions that an earlier life may not have come to; those that are there stay."""
        since = self._clock.now_ms() - _FRESH_MS
        try:
            left = await self._database.read(
                lambda reader: offers.fresh(reader, self._agent_id, since, _FRESH_MAX),
                name="matrix.fresh",
            )
        except (StoreUnavailable, Overloaded):
            return  # the numbers do as well
        for offer in left:
            self._shown.set_reactions(offer.conversation, offer.event_id, emojis(offer.choices))

    async def offered(self, place: Place, event_id: str, piece: Outgoing) -> None:
        """An event with choices was sent: keep what they stand for and set the reactions.

        May be repeated. Raises ``StoreUnavailable`` or ``Overloaded``.
        """
        offer = Offer(
            event_id, place.conversation, piece.choices, piece.above, self._clock.now_ms()
        )
        await self._database.write(
            partial(offers.put_tx, agent_id=self._agent_id, offer=offer), name="matrix.offered"
        )
        self._came.set()
        self._came = asyncio.Event()
        self._shown.set_reactions(place.conversation, event_id, emojis(piece.choices))

    async def end_note(self, conversation: str, platform_id: str, text: str) -> bool:
        """A note says ``text`` from now on and offers nothing any more (`waiting.Notes`)."""
        return await self._shown.end_note(conversation, platform_id, text)

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
        """A reaction set under an event: True if it pressed something, or is answered honestly.

        ``principal`` None is somebody who may not write there. May be repeated with the same
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

    async def _offer(self, room_id: str, event_id: str) -> Offer | None:
        """What is offered at an event. People can be quicker than the note of what they press, so
        while something is being sent there it is waited for, once for all of them: what is
        pressed may be anything, and a sending that fails takes long."""

        def look(reader: Reader) -> tuple[Offer | None, int]:
            found = offers.find(reader, self._agent_id, event_id)
            return found, 0 if found else offers.coming(reader, self._agent_id, room_id)

        while True:
            came = self._came
            offer, coming = await self._database.read(look, name="matrix.offer")
            if not coming:
                return offer
            left_s = self._until(room_id, coming) - self._clock.monotonic()
            if left_s <= 0:
                return None
            try:
                async with asyncio.timeout(left_s):
                    await came.wait()
            except TimeoutError:
                continue

    def _until(self, room_id: str, coming: int) -> float:
        awaited, until = self._awaited.get(room_id, (0, 0.0))
        if awaited < coming:
            until = self._clock.monotonic() + _COMING_S
            if len(self._awaited) >= _AWAITED_MAX:
                del self._awaited[next(iter(self._awaited))]
            self._awaited[room_id] = (coming, until)
        return until

    async def on_text(
        self,
        conversation: str,
        text: str,
        reply_to: str | None,
        principal: Principal,
        press_id: str,
        language: str = "",
        *,
        quoted: str = "",
        is_private: bool = False,
    ) -> str | None:
        """A typed text that is no command: None if it is neither an answer nor a press.

        Else it was taken, or the text returned says why not; the inbox must not get it.
        ``reply_to`` is the event it replies to; ``quoted`` what that says, if we wrote it.
        """
        if principal.role < PersonRole.USER:
            return None
        language = language or principal.language
        number = text.strip().removesuffix(".")
        is_bare = reply_to is None and number.isdecimal()
        text = number if is_bare else text

        def look(reader: Reader) -> tuple[bool, Offer | None]:
            if buttons.handled(reader, f"{press_id}#pressed") is not None:
                return True, None
            if reply_to is not None:
                return False, offers.find(reader, self._agent_id, reply_to)
            if not is_bare:
                return False, None
            now = self._clock.now_ms()
            return False, offers.said_last(reader, self._agent_id, conversation, now)

        was_pressed, offer = await self._database.read(look, name="matrix.offers")
        if was_pressed:
            return ""
        if offer is None and reply_to is not None and quoted:
            offer = await self._offer(parse(conversation).room_id, reply_to)
        if offer is not None and offer.conversation == conversation:
            choice = by_text(offer.choices, text)
            is_menu = not any(each.data.startswith("q:") for each in offer.choices)
            if choice is not None and is_menu:
                if is_bare and await self._asked.is_open_in(conversation):
                    return words(language)("choice.several")
                await self._pressed(offer, choice, principal, press_id, language, is_private)
                return ""
        said = await self._asked.text(
            conversation,
            text,
            reply_to,
            principal,
            press_id,
            language,
            quoted=quoted,
            is_private=is_private,
        )
        if said is None:
            return None
        return said.text

    async def _pressed(
        self,
        offer: Offer,
        choice: Choice,
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
        at = self._clock.now_ms()
        await self._database.write(
            lambda tx: buttons.note_tx(tx, f"{press_id}#pressed", "", at), name="matrix.pressed"
        )
