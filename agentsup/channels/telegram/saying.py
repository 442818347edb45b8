"""From a Telegram message to the agent's mailbox: texts, files, albums, edits and commands.

How an update ended is written in the transaction of its effect, so a crash in between repeats the
update and not the effect; a command, which the mailbox can't recognise, is marked before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from agentsup.catalogue import words
from agentsup.channels.inbox import Inbox, InboxReply
from agentsup.channels.telegram import compose, files, updates
from agentsup.channels.telegram.buttons import mint_tx
from agentsup.channels.telegram.event import Event, EventKind, Malformed, Me, read
from agentsup.channels.telegram.lanes import Item, Lane
from agentsup.channels.telegram.updates import CHANNEL, Row
from agentsup.channels.telegram.waiting import Waiting, ahead_of
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox import outbox
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.control import Button, Commands
from agentsup.model.errors import AgentsupError, NotReady, Overloaded, StoreUnavailable
from agentsup.model.message import Accepted, Part
from agentsup.model.principal import Principal
from agentsup.store.database import Database, Tx

__all__ = ["SayDeps", "Saying", "TypedAnswers", "notice_tx", "write_patiently"]

_ALBUM_MAX = 20


class TypedAnswers(Protocol):
    """Where a text may turn out to be the answer of an open question."""

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
    ) -> str | None: ...


@dataclass(frozen=True, slots=True)
class SayDeps:
    """What is needed to say something to one agent."""

    agent_id: str
    agent_name: str
    bot_id: str
    me: Me
    database: Database
    mailbox: Mailbox
    inbox: Inbox
    commands: Commands
    clock: Clock
    entropy: Entropy
    client: files.FileClient
    workspace: Any
    answers: TypedAnswers
    accepted: Callable[[str, str, int], None]
    """Told of each new message: its id, the conversation, Telegram's id of it."""
    album_s: float
    max_file_bytes: int


def notice_tx(
    tx: Tx,
    deps: SayDeps,
    conversation: str,
    text: str,
    *,
    buttons: Sequence[Sequence[Button]] = (),
    origin: str = "",
    **facts: Any,
) -> None:
    """Put plain text for people into the outbox, with buttons if there are any."""
    at = deps.clock.now_ms()
    body: dict[str, Any] = {"text": text, "plain": True, **facts}
    if buttons:
        body["buttons"] = mint_tx(
            tx,
            buttons,
            agent_id=deps.agent_id,
            conversation=conversation,
            origin=origin,
            at=at,
            entropy=deps.entropy,
        )
    outbox.add_tx(
        tx,
        agent_id=deps.agent_id,
        channel=CHANNEL,
        conversation=conversation,
        kind="notice",
        body=body,
        at=at,
    )


async def write_patiently(deps: SayDeps, fn: Callable[[Tx], object], name: str) -> None:
    """Write, and wait while the store can't; raises ``StoreUnavailable`` once it is closed."""
    while True:
        try:
            await deps.database.write(fn, name=name)
        except (StoreUnavailable, Overloaded) as error:
            if updates.is_over(error):
                raise
            await deps.clock.sleep(1.0)
        else:
            return


class Saying:
    """Handles messages that were let through. Used by the lanes of one bot."""

    def __init__(self, deps: SayDeps, waiting: Waiting) -> None:
        self._deps = deps
        self._waiting = waiting

    async def handle(self, item: Item, event: Event, principal: Principal, lane: Lane) -> None:
        """Say it to the agent, or answer why not. Raises ``StoreUnavailable`` at the end."""
        if event.kind is EventKind.EDITED and await self._edit(item, event, principal):
            return
        if not event.attachments and self._deps.commands.is_command(event.text):
            await self._command(item, event, principal)
            return
        items, events = [item], [event]
        if event.album:
            await self._rest_of_album(items, events, lane)
        elif not event.attachments and await self._answers(item, event, principal):
            return
        await self._say(items, events, principal, lane)

    # -- texts and files ---------------------------------------------------------------------------

    async def _answers(self, item: Item, event: Event, principal: Principal) -> bool:
        """Whether the text was the answer of an open question."""
        deps, conversation = self._deps, event.place.conversation
        if event.forwarded_from:
            return False  # what somebody else said is nobody's answer here
        quoted = event.quoted
        word = await deps.answers.on_text(
            conversation,
            event.text,
            quoted.message_id if quoted else None,
            principal,
            item.row.external_id(deps.bot_id),
            event.language,
            quoted=quoted.text if quoted else "",
        )
        if word is None:
            return False
        await self._close([item.row], conversation, word)
        return True

    async def _rest_of_album(self, items: list[Item], events: list[Event], lane: Lane) -> None:
        """Pictures sent together come as messages of their own, one right after the other."""
        album = events[0].album

        def belongs(other: Item) -> bool:
            return other.event is not None and other.event.album == album

        while len(items) < _ALBUM_MAX:
            other = await lane.next_like(belongs, self._deps.album_s)
            if other is None or other.event is None:
                return
            items.append(other)
            events.append(other.event)

    async def _say(
        self, items: list[Item], events: list[Event], principal: Principal, lane: Lane
    ) -> None:
        deps, event = self._deps, events[0]
        conversation = event.place.conversation
        rows = [item.row for item in items]
        parts, problems = await self._fetch(events, lane)
        text = compose.said(events, deps.me.username)
        if event.kind is EventKind.EDITED and await self._was_seen(event):
            text = compose.edited(text)
        if not text.strip() and not parts:
            await self._close(rows, conversation, "\n".join(problems))
            return
        ahead = 0

        def also(tx: Tx, accepted: Accepted) -> None:
            nonlocal ahead
            updates.done_tx(tx, rows, message_id=accepted.message_id)
            if problems:
                notice_tx(tx, deps, conversation, "\n".join(problems))
            if not accepted.duplicate:
                ahead = ahead_of(tx, deps.agent_id, accepted)

        reply = await self._to_inbox(rows, text, event, principal, files=parts, also=also)
        if reply is None or reply.message is None or reply.message.duplicate:
            return
        message_id = reply.message.message_id
        deps.accepted(message_id, conversation, event.message_id or 0)
        if ahead:
            self._waiting.watch(message_id, conversation)

    async def _fetch(
        self, events: Sequence[Event], lane: Lane
    ) -> tuple[tuple[Part, ...], list[str]]:
        parts: list[Part] = []
        problems: list[str] = []
        deps = self._deps
        lane.is_slow = True
        try:
            for attachment in (each for event in events for each in event.attachments):
                got = await files.fetch(
                    deps.client,
                    attachment,
                    deps.workspace,
                    clock=deps.clock,
                    max_bytes=deps.max_file_bytes,
                    say=words(events[0].language),
                )
                if got.part is not None:
                    parts.append(got.part)
                else:
                    problems.append(got.problem)
        finally:
            lane.is_slow = False
        return tuple(parts), problems

    async def _to_inbox(
        self,
        rows: Sequence[Row],
        text: str,
        event: Event,
        principal: Principal,
        *,
        files: tuple[Part, ...] = (),
        also: Callable[[Tx, Accepted], None] | None = None,
    ) -> InboxReply | None:
        """Hand it over; a refusal is told to the person, and None returned."""
        deps, conversation = self._deps, event.place.conversation
        while True:
            try:
                return await deps.inbox.say(
                    agent_name=deps.agent_name,
                    channel=CHANNEL,
                    conversation=conversation,
                    text=text,
                    principal=principal,
                    external_id=rows[0].external_id(deps.bot_id),
                    files=files,
                    language=event.language,
                    has_buttons=True,
                    also=also,
                )
            except (StoreUnavailable, NotReady) as error:
                if updates.is_over(error):
                    raise
                await deps.clock.sleep(1.0)
            except Overloaded as error:
                if error.facts.get("queue") == "store.write":
                    await deps.clock.sleep(1.0)
                    continue
                await self._close(rows, conversation, error.message)
                return None
            except AgentsupError as error:
                await self._close(rows, conversation, error.message)
                return None

    # -- commands ----------------------------------------------------------------------------------

    async def _command(self, item: Item, event: Event, principal: Principal) -> None:
        deps, row, conversation = self._deps, item.row, event.place.conversation
        if row.begun:
            text = words(event.language)("message.restarted", command=event.text.split()[0])
            await self._close([row], conversation, text)
            return
        await write_patiently(deps, partial(updates.begin_tx, row=row), "telegram.begin")
        reply = await self._to_inbox([row], event.text, event, principal)
        if reply is None:
            return

        def step(tx: Tx) -> None:
            if reply.text:
                notice_tx(
                    tx,
                    deps,
                    conversation,
                    reply.text,
                    buttons=reply.buttons,
                    origin=event.text,
                )
            updates.done_tx(tx, [row])

        await write_patiently(deps, step, "telegram.replied")

    # -- edits -------------------------------------------------------------------------------------

    async def _edit(self, item: Item, event: Event, principal: Principal) -> bool:
        """Whether the edit is dealt with: it changed a waiting message, or nothing at all."""
        deps, row = self._deps, item.row
        chat_id, platform_id = event.chat_id, event.message_id
        if chat_id is None or platform_id is None:
            return False
        before = await deps.database.read(
            lambda reader: updates.became(reader, deps.bot_id, chat_id, platform_id),
            name="telegram.became",
        )
        if before is None:
            return False
        if self._text_before(before.raw) == event.text:
            await write_patiently(
                deps, lambda tx: updates.skip_tx(tx, [row], "no other text"), "telegram.skip"
            )
            return True
        if deps.commands.is_command(event.text):
            return False
        text = compose.said([event], deps.me.username)

        def step(tx: Tx) -> bool:
            message = tx.one(
                "SELECT principal ->> '$.subject' AS subject FROM messages WHERE message_id = ?",
                (before.message_id,),
            )
            # What anonymous or other people changed is not what this person said.
            if message is None or message["subject"] != principal.subject:
                return False
            if not deps.mailbox.edit_tx(tx, before.message_id, text):
                return False
            updates.done_tx(tx, [row], message_id=before.message_id)
            return True

        try:
            return await deps.database.write(step, name="telegram.edit")
        except (StoreUnavailable, Overloaded):
            return False  # the inbox waits for the store
        except AgentsupError as error:
            await self._close([row], event.place.conversation, error.message)
            return True

    def _text_before(self, raw: str) -> str | None:
        try:
            return read(updates.load(raw), self._deps.me).text
        except Malformed:
            return None

    async def _was_seen(self, event: Event) -> bool:
        deps, chat_id, platform_id = self._deps, event.chat_id, event.message_id
        if chat_id is None or platform_id is None:
            return False
        return await deps.database.read(
            lambda reader: updates.was_seen(reader, deps.bot_id, chat_id, platform_id),
            name="telegram.was_seen",
        )

    # -- ends --------------------------------------------------------------------------------------

    async def _close(self, rows: Sequence[Row], conversation: str, word: str) -> None:
        """They are done, with a word to the person if there is one."""

        def step(tx: Tx) -> None:
            if word:
                notice_tx(tx, self._deps, conversation, word)
            updates.done_tx(tx, rows)

        await write_patiently(self._deps, step, "telegram.done")
