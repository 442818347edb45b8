"""Live cards: a message that shows a task is edited when the task changes.

The outbox part as which a card was sent stores the command that shows it, so cards of an earlier
life of the daemon are updated, too. Nothing is sent anew: a card that cannot be edited is not
updated any more. How a card is edited is defined by each platform.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agentsup.channels.core.errors import TRANSIENT, PlatformError
from agentsup.channels.core.receiving.inbox import ChatOrigin
from agentsup.channels.core.receiving.messages import BotServices
from agentsup.channels.core.sending.buttons import ChatNotices
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner, is_set_within
from agentsup.mailbox.delivery import shown_parts
from agentsup.mailbox.messages import RoleNow, principal_now, unchanged
from agentsup.model.control import CommandContext, CommandReply
from agentsup.model.errors import Overloaded, RightsLost, StoreUnavailable
from agentsup.model.principal import Principal
from agentsup.store import Reader, Tx, changed_tasks

_log = get_logger(__name__)
PAUSE_S = 5.0
"""The pause after a check that edited cards; a group's rate limit leaves room for that."""
_GATHER_S = 0.3
"""The pause after a check without an edit, so that changes of this time are handled together."""
UPDATED_MS = 86_400_000
"""A card that was sent longer ago is not updated until somebody presses it."""
_LATEST = 1000
"""The latest parts of the outbox among which cards are searched."""
_AT_ONCE = 5
"""Most cards per check: a stop that ends many tasks must not use up a chat's rate limit."""
_TRIES = 20
_CLOSE_S = 1.0

CardAddress = tuple[str, str]
"""A message: its conversation, and the platform's id of it."""
Keyboard = list[list[dict[str, str]]]
"""Rows of buttons, as an outbox body has them."""
EditCard = Callable[[CardAddress, str, Keyboard], Awaitable[None]]
"""Edits a message to a text with buttons; harmless when repeated. Raises a ``PlatformError``."""


async def run_button(
    deps: BotServices, where: ChatOrigin, command: str, principal: Principal, language: str
) -> CommandReply:
    """Run the command of a button or card, and return its reply."""
    context = CommandContext(
        agent_id=deps.agent_id,
        agent_name=deps.spec().name,
        channel=where.channel,
        conversation=where.conversation,
        principal=principal,
        language=language,
        has_buttons=where.has_buttons,
        is_pressed=True,
        is_shared=where.is_shared,
    )
    return await deps.commands.run(command, context)


def live_fact(reply_live: str, principal: Principal, language: str) -> dict[str, Any]:
    """Return the fields that are stored with a card: its command, and for whom it is run."""
    if not reply_live:
        return {}
    return {"live": {"command": reply_live, "by": principal.to_json(), "language": language}}


@dataclass(frozen=True, slots=True)
class _LiveCard:
    outbox_id: int
    at: CardAddress
    live: Mapping[str, Any]

    @property
    def task_id(self) -> str:
        """The task that its command shows."""
        return str(self.live["command"]).rpartition(" ")[2]


class LiveCards:
    """The live cards of one agent's bot."""

    def __init__(
        self,
        deps: BotServices,
        channel: str,
        edit: EditCard,
        is_shared: Callable[[str], bool],
        *,
        role_now: RoleNow = unchanged,
    ) -> None:
        """``is_shared``: whether other people read a conversation.

        ``role_now`` gives the current role of a card's person, whose rights limit the card.
        """
        self._role_now = role_now
        self._deps = deps
        self._channel = channel
        self._notices = ChatNotices(deps.agent_id, channel, deps.clock, deps.entropy)
        self._edit_card = edit
        self._is_shared = is_shared
        self._busy: Counter[CardAddress] = Counter()
        self._editing: dict[CardAddress, asyncio.Task[bool]] = {}
        self._tasks = TaskOwner(f"{channel} cards")
        self._said: dict[int, str] = {}
        """By ``outbox_id``, the text that this life has last put into each card."""
        self._missed: dict[str, int] = {}
        """Task ids to failed tries to show a change, most often because of a press."""
        self._later: tuple[int, ...] = ()
        """The ``outbox_id`` of cards for which the last check had no room."""
        self._keyboards: dict[int, tuple[object, Keyboard]] = {}
        """By ``outbox_id``, the buttons of each card and their keyboard: equal buttons reuse it."""
        self._wake = asyncio.Event()

    # -- presses -----------------------------------------------------------------------------------

    @contextmanager
    def left_alone(self, at: CardAddress) -> Iterator[None]:
        """Make no edit of that message in the block, and cancel a waiting one: a press edits it."""
        self._busy[at] += 1
        if at in self._editing:
            self._editing[at].cancel()
        try:
            yield
        finally:
            self._busy[at] -= 1
            self._busy += Counter()  # removes zero counts
            if self._missed:
                self._wake.set()

    async def shows(self, at: CardAddress, live: Mapping[str, Any]) -> None:
        """Note that a press has put a reply with the fields ``live`` into that message."""

        def step(tx: Tx) -> int | None:
            part = shown_parts.shown_as(tx, self._deps.agent_id, self._channel, *at, _LATEST)
            if part is None:
                return None
            if part.body.get("live") != live.get("live"):
                body = {name: each for name, each in part.body.items() if name != "live"}
                shown_parts.set_body_tx(tx, part.outbox_id, {**body, **live})
            return part.outbox_id

        outbox_id = await self._deps.database.write(step, name=f"{self._channel}.card")
        if outbox_id is not None:
            self._forget(outbox_id)

    # -- updating ----------------------------------------------------------------------------------

    async def run(self, draining: asyncio.Event) -> None:
        """Update cards until ``draining`` is set; the first check covers all, as any may be old."""
        after, is_edited = None, False
        unlisten = self._deps.database.listen("events", self._wake.set)
        try:
            while not draining.is_set():
                self._wake.clear()
                try:
                    after, is_edited = await self._look(after)
                except (StoreUnavailable, Overloaded) as error:
                    _log.info(f"cards are not followed now: {error}")
                is_left = bool(self._missed or self._later)
                if is_left:
                    self._wake.set()
                await self._rest(draining, PAUSE_S if is_edited or is_left else _GATHER_S)
        finally:
            unlisten()
            await self._tasks.close(_CLOSE_S)

    async def _rest(self, draining: asyncio.Event, pause_s: float) -> None:
        """Wait ``pause_s`` seconds, and then until an event comes."""
        if not await is_set_within(draining, pause_s):
            await self._wake.wait()

    async def _look(self, after: int | None) -> tuple[int, bool]:
        """Edit the cards of tasks that have changed after the event ``after`` (None: all cards).

        At most ``_AT_ONCE`` are edited, the others by the next check. Returns the number of the
        latest event, and whether a card was edited.
        """
        missed = frozenset(self._missed)

        def read(reader: Reader) -> tuple[int, list[_LiveCard]]:
            last = int(reader.scalar("SELECT seq FROM sqlite_sequence WHERE name = 'events'") or 0)
            return last, self._changed(reader, after, missed)

        last, cards = await self._deps.database.read(read, name=f"{self._channel}.cards")
        for task_id in missed - {card.task_id for card in cards}:
            self._missed.pop(task_id, None)
        waited = {outbox_id: index for index, outbox_id in enumerate(self._later)}
        cards.sort(key=lambda card: waited.get(card.outbox_id, len(waited)))
        self._later = tuple(card.outbox_id for card in cards[_AT_ONCE:])
        is_edited = False
        for card in cards[:_AT_ONCE]:
            is_edited |= await self._refresh(card)
        return last, is_edited

    def _changed(
        self, reader: Reader, after: int | None, missed: frozenset[str]
    ) -> list[_LiveCard]:
        tasks: set[str] | None = None
        if after is not None:
            tasks = {*missed, *changed_tasks(reader, after)}
            if not tasks and not self._later:
                return []
        since = self._deps.clock.now_ms() - UPDATED_MS
        cards = []
        for part in shown_parts.live_cards(
            reader, self._deps.agent_id, self._channel, since=since, latest=_LATEST
        ):
            if len(part.platform_ids) != 1:
                continue
            at = (part.conversation, part.platform_ids[0])
            card = _LiveCard(part.outbox_id, at, part.body["live"])
            is_left = card.outbox_id in self._later
            if tasks is None or is_left or card.task_id in tasks:
                cards.append(card)
        return cards

    async def _refresh(self, card: _LiveCard) -> bool:
        """Show the current state of the task if the card differs; return whether it was edited."""
        try:
            by = principal_now(Principal.from_json(dict(card.live["by"])), self._role_now)
        except RightsLost:
            await self._stop_updating(card)
            return False
        conversation, _ = at = card.at
        where = ChatOrigin(
            self._channel, conversation, has_buttons=True, is_shared=self._is_shared(conversation)
        )
        language = str(card.live["language"])
        reply = await run_button(self._deps, where, card.live["command"], by, language)
        if not reply.ok or not reply.live:
            await self._stop_updating(card)
            return False
        if self._said.get(card.outbox_id) == reply.text:
            self._missed.pop(card.task_id, None)
            return False
        keyboard = await self._keyboard(card, reply)
        if not self._busy[at]:
            editing = self._tasks.spawn(
                self._edit(card, reply.text, keyboard), name=f"card:{card.task_id}"
            )
            self._editing[at] = editing
            try:
                await asyncio.wait({editing})
            finally:
                del self._editing[at]
            if not editing.cancelled() and editing.exception() is None and editing.result():
                self._missed.pop(card.task_id, None)
                return True
        self._missed[card.task_id] = self._missed.get(card.task_id, 0) + 1
        if self._missed[card.task_id] > _TRIES:
            await self._stop_updating(card)
        return False

    async def _keyboard(self, card: _LiveCard, reply: CommandReply) -> Keyboard:
        known = self._keyboards.get(card.outbox_id)
        if known is not None and known[0] == reply.buttons:
            return known[1]
        made = await self._deps.database.write(
            self._notices.mint_tx,
            card.at[0],
            reply.buttons,
            card.live["command"],
            name=f"{self._channel}.mint",
        )
        self._keyboards[card.outbox_id] = (reply.buttons, made)
        return made

    async def _edit(self, card: _LiveCard, text: str, keyboard: Keyboard) -> bool:
        """Edit the card; False if it may be tried again. Droppable, so it delays no answer."""
        try:
            await self._edit_card(card.at, text, keyboard)
        except TRANSIENT:
            return False
        except PlatformError as error:
            _log.info(f"a card is followed no more: {error}")
            await self._stop_updating(card)
            return True
        self._said[card.outbox_id] = text
        return True

    async def _stop_updating(self, card: _LiveCard) -> None:
        """Stop updating the card: it has nothing to show, or its message cannot be edited."""
        self._forget(card.outbox_id)
        self._missed.pop(card.task_id, None)
        await self._deps.database.write(
            shown_parts.end_live_tx, card.outbox_id, name=f"{self._channel}.card"
        )

    def _forget(self, outbox_id: int) -> None:
        """Forget the text and the keyboard of that card, because a press has changed them."""
        self._said.pop(outbox_id, None)
        self._keyboards.pop(outbox_id, None)
