"""Cards that follow what they show: a message is edited in place when its task has changed.

Which message shows what stands in the outbox, with the part it was sent as, so that a card of an
earlier life of the daemon is followed too. Nothing is sent anew: what can't be edited is let go.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agentsup.channels import buttons
from agentsup.channels.telegram.errors import (
    Dropped,
    FateUnknown,
    FloodWait,
    NotModified,
    NotSent,
    TelegramError,
)
from agentsup.channels.telegram.keyboard import inline_keyboard
from agentsup.channels.telegram.place import parse
from agentsup.channels.telegram.screen import Press
from agentsup.channels.telegram.sender import Sender, SendPriority
from agentsup.channels.telegram.updates import CHANNEL
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.tasks import TaskOwner
from agentsup.model.agent import AgentSpec
from agentsup.model.control import CommandContext, CommandReply, Commands
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.model.principal import Principal
from agentsup.store.database import Database, Reader, Tx

__all__ = ["Following", "live_fact"]

_log = logging.getLogger(__name__)
PAUSE_S = 5.0
"""After edits: so often at most a card is edited, which a group's limit leaves room for."""
_GATHER_S = 0.3
"""After a look that found nothing: what comes together is looked at together."""
FOLLOWED_MS = 86_400_000
"""A card that was sent longer ago stays as it is until somebody presses it."""
_LATEST = 1000
"""Parts of the outbox among which cards are looked for."""
_AT_ONCE = 5
"""Cards of one look: a stop that ends many tasks must not take all of a chat's room."""
_TRIES = 20
_CLOSE_S = 1.0

_Place = tuple[str, int | None]
"""A message: its conversation, and Telegram's id of it."""
_Keyboard = Sequence[Sequence[dict[str, str]]]


def live_fact(reply_live: str, principal: Principal, language: str) -> dict[str, Any]:
    """What is kept with a card: the command that shows it, and for whom it is run."""
    if not reply_live:
        return {}
    return {"live": {"command": reply_live, "by": principal.to_json(), "language": language}}


@dataclass(frozen=True, slots=True)
class _Card:
    outbox_id: int
    conversation: str
    message_id: int
    live: Mapping[str, Any]

    @property
    def task_id(self) -> str:
        """What its command shows."""
        return str(self.live["command"]).rpartition(" ")[2]


class Following:
    """The cards of one agent's bot."""

    def __init__(
        self,
        *,
        agent_id: str,
        database: Database,
        commands: Commands,
        clock: Clock,
        entropy: Entropy,
        spec: Callable[[], AgentSpec],
        sender: Sender,
    ) -> None:
        self._agent_id = agent_id
        self._database = database
        self._commands = commands
        self._clock = clock
        self._entropy = entropy
        self._spec = spec
        self._sender = sender
        self._busy: Counter[_Place] = Counter()
        self._editing: dict[_Place, asyncio.Task[bool]] = {}
        self._tasks = TaskOwner("telegram cards")
        self._said: dict[int, str] = {}
        """What each card says, by its part of the outbox, as far as this life has edited it."""
        self._missed: dict[str, int] = {}
        """Tasks whose change could not be shown yet, most often because of a press, with how often."""
        self._later: tuple[int, ...] = ()
        """Cards for which the last look had no room, by their parts of the outbox."""
        self._keyboards: dict[int, tuple[object, _Keyboard]] = {}
        """What hangs below each card, and what it stands for: the same stays the same."""
        self._wake = asyncio.Event()

    # -- presses -----------------------------------------------------------------------------------

    @contextmanager
    def left_alone(self, press: Press) -> Iterator[None]:
        """Edit nothing at that message, and send no edit of it that waits its turn: a press decides
        what stands there."""
        at = (press.conversation, press.message_id)
        self._busy[at] += 1
        if at in self._editing:
            self._editing[at].cancel()
        try:
            yield
        finally:
            self._busy[at] -= 1
            self._busy += Counter()  # what is nought goes
            if self._missed:
                self._wake.set()

    async def shows(self, press: Press, reply: CommandReply | None, principal: Principal) -> None:
        """A press has put ``reply``, or something that changes no more, into its message."""
        fact = live_fact(reply.live, principal, press.language) if reply is not None else {}

        def step(tx: Tx) -> int | None:
            row = tx.one(
                "SELECT outbox_id, body FROM outbox WHERE channel = ? AND agent_id = ?"
                " AND conversation = ? AND platform_ids = ? AND outbox_id > ?",
                (
                    CHANNEL,
                    self._agent_id,
                    press.conversation,
                    json.dumps([str(press.message_id)]),
                    _since(tx),
                ),
            )
            if row is None:
                return None
            body = json.loads(row["body"])
            if body.get("live") != fact.get("live"):
                body.pop("live", None)
                _keep_tx(tx, row["outbox_id"], {**body, **fact})
            return int(row["outbox_id"])

        outbox_id = await self._database.write(step, name="telegram.card")
        if outbox_id is not None:
            self._forget(outbox_id)

    # -- following ---------------------------------------------------------------------------------

    async def run(self, draining: asyncio.Event) -> None:
        """Until ``draining``; at first every card is looked at, as it may have changed meanwhile."""
        after, is_edited = None, False
        unlisten = self._database.listen("events", self._wake.set)
        try:
            while not draining.is_set():
                self._wake.clear()
                try:
                    after, is_edited = await self._look(after)
                except (StoreUnavailable, Overloaded) as error:
                    _log.info("cards are not followed now: %s", error)
                is_left = bool(self._missed or self._later)
                if is_left:
                    self._wake.set()
                await self._rest(draining, PAUSE_S if is_edited or is_left else _GATHER_S)
        finally:
            unlisten()
            await self._tasks.close(_CLOSE_S)

    async def _rest(self, draining: asyncio.Event, pause_s: float) -> None:
        """The pause between two looks, and on until there is something to see."""
        try:
            async with asyncio.timeout(pause_s):
                await draining.wait()
        except TimeoutError:
            await self._wake.wait()

    async def _look(self, after: int | None) -> tuple[int, bool]:
        """Edit the cards of what has changed after that event (None: all), some now and the others
        with the next look. Returns the latest event and whether something was edited."""

        missed = frozenset(self._missed)

        def read(reader: Reader) -> tuple[int, list[_Card]]:
            last = int(reader.scalar("SELECT seq FROM sqlite_sequence WHERE name = 'events'") or 0)
            return last, self._changed(reader, after, missed)

        last, cards = await self._database.read(read, name="telegram.cards")
        for task_id in missed - {card.task_id for card in cards}:
            self._missed.pop(task_id, None)
        waited = {outbox_id: place for place, outbox_id in enumerate(self._later)}
        cards.sort(key=lambda card: waited.get(card.outbox_id, len(waited)))
        self._later = tuple(card.outbox_id for card in cards[_AT_ONCE:])
        is_edited = False
        for card in cards[:_AT_ONCE]:
            is_edited |= await self._refresh(card)
        return last, is_edited

    def _changed(self, reader: Reader, after: int | None, missed: frozenset[str]) -> list[_Card]:
        tasks: set[str] | None = None
        if after is not None:
            rows = reader.all(
                "SELECT DISTINCT data ->> '$.task_id' FROM events"
                " WHERE seq > ? AND type >= 'task.' AND type < 'task/'",
                (after,),
            )
            tasks = {*missed, *(str(row[0]) for row in rows)}
            if not tasks and not self._later:
                return []
        found = reader.all(
            "SELECT outbox_id, conversation, platform_ids, body ->> '$.live' AS live FROM outbox"
            " WHERE outbox_id > ? AND channel = ? AND agent_id = ? AND kind = 'notice'"
            " AND state = 'delivered' AND created_at > ? AND body ->> '$.live' IS NOT NULL"
            " ORDER BY outbox_id DESC",
            (_since(reader), CHANNEL, self._agent_id, self._clock.now_ms() - FOLLOWED_MS),
        )
        cards = []
        for row in found:
            ids, live = json.loads(row["platform_ids"]), json.loads(row["live"])
            if len(ids) != 1:
                continue
            card = _Card(row["outbox_id"], row["conversation"], int(ids[0]), live)
            is_left = card.outbox_id in self._later
            if tasks is None or is_left or card.task_id in tasks:
                cards.append(card)
        return cards

    async def _refresh(self, card: _Card) -> bool:
        """Show how things are, if that is something else; whether it was edited."""
        context = CommandContext(
            agent_id=self._agent_id,
            agent_name=self._spec().name,
            channel=CHANNEL,
            conversation=card.conversation,
            principal=Principal.from_json(dict(card.live["by"])),
            language=str(card.live["language"]),
            has_buttons=True,
            is_pressed=True,
            is_shared=not parse(card.conversation).is_private,
        )
        reply = await self._commands.run(card.live["command"], context)
        if not reply.ok or not reply.live:
            await self._let_go(card)
            return False
        if self._said.get(card.outbox_id) == reply.text:
            self._missed.pop(card.task_id, None)
            return False
        keyboard = await self._keyboard(card, reply)
        at = (card.conversation, card.message_id)
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
            await self._let_go(card)
        return False

    async def _keyboard(self, card: _Card, reply: CommandReply) -> _Keyboard:
        known = self._keyboards.get(card.outbox_id)
        if known is not None and known[0] == reply.buttons:
            return known[1]
        made = await self._database.write(
            lambda tx: buttons.mint_tx(
                tx,
                reply.buttons,
                agent_id=self._agent_id,
                conversation=card.conversation,
                origin=card.live["command"],
                at=self._clock.now_ms(),
                entropy=self._entropy,
                channel=CHANNEL,
            ),
            name="telegram.mint",
        )
        self._keyboards[card.outbox_id] = (reply.buttons, made)
        return made

    async def _edit(self, card: _Card, text: str, keyboard: _Keyboard) -> bool:
        """Show it; False if it may be tried again. It takes no room that answers need."""
        fields: dict[str, Any] = {"link_preview_options": {"is_disabled": True}}
        if keyboard:
            fields["reply_markup"] = inline_keyboard(keyboard)
        try:
            await self._sender.send(
                parse(card.conversation).chat_id,
                "editMessageText",
                priority=SendPriority.EDIT,
                droppable=True,
                message_id=card.message_id,
                text=text,
                **fields,
            )
        except NotModified:
            pass
        except (Dropped, FloodWait, NotSent, FateUnknown):
            return False
        except TelegramError as error:
            _log.info("a card is followed no more: %s", error)
            await self._let_go(card)
            return True
        self._said[card.outbox_id] = text
        return True

    async def _let_go(self, card: _Card) -> None:
        """Follow it no more: there is nothing to show, or nowhere."""

        def step(tx: Tx) -> None:
            tx.execute(
                "UPDATE outbox SET body = json_remove(body, '$.live') WHERE outbox_id = ?",
                (card.outbox_id,),
            )

        self._forget(card.outbox_id)
        self._missed.pop(card.task_id, None)
        await self._database.write(step, name="telegram.card")

    def _forget(self, outbox_id: int) -> None:
        """What stands in that message is to be found out anew."""
        self._said.pop(outbox_id, None)
        self._keyboards.pop(outbox_id, None)


def _since(reader: Reader | Tx) -> int:
    last = reader.scalar("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'")
    return int(last or 0) - _LATEST


def _keep_tx(tx: Tx, outbox_id: int, body: Mapping[str, Any]) -> None:
    told = json.dumps(body, ensure_ascii=False)
    tx.execute("UPDATE outbox SET body = ? WHERE outbox_id = ?", (told, outbox_id))
