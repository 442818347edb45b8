"""From a Matrix event to the agent's mailbox: texts, files, edits, redactions and commands.

How an event ended is written in the transaction of its effect, so a crash in between repeats the
event and not the effect; a command, which the mailbox can't recognise, is marked before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from agentsup.catalogue import words
from agentsup.channels import lanes
from agentsup.channels.inbox import Inbox, InboxReply
from agentsup.channels.matrix import files, kept
from agentsup.channels.matrix.event import Event, EventKind, Malformed, Me, read
from agentsup.channels.matrix.kept import CHANNEL, Owner, Row
from agentsup.channels.matrix.sync import is_over
from agentsup.channels.telegram import compose
from agentsup.channels.telegram.buttons import mint_tx
from agentsup.channels.telegram.waiting import ahead_of
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox import outbox
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.control import Button, Commands
from agentsup.model.errors import AgentsupError, NotReady, Overloaded, StoreUnavailable
from agentsup.model.message import Accepted, Part
from agentsup.model.principal import PersonRole, Principal
from agentsup.store.database import Database, Tx

__all__ = [
    "Item",
    "Lane",
    "SayDeps",
    "Saying",
    "TypedAnswers",
    "Watching",
    "notice_tx",
    "write_patiently",
]

_QUOTE_CHARS = 300


@dataclass(frozen=True, slots=True)
class Item:
    """A kept event as read; without one it made no sense, and ``fault`` says why."""

    row: Row
    event: Event | None
    fault: str = ""


Lane = lanes.Lane[Item]


class TypedAnswers(Protocol):
    """Where a text may turn out to be the answer of an open question."""

    async def on_text(
        self,
        conversation: str,
        text: str,
        reply_to: str | None,
        principal: Principal,
        press_id: str,
        language: str = "",
    ) -> str | None: ...


class Watching(Protocol):
    """Who tells that a message waits behind others."""

    def watch(self, message_id: str, conversation: str) -> None: ...


@dataclass(frozen=True, slots=True)
class SayDeps:
    """What is needed to say something to one agent."""

    agent_id: str
    agent_name: str
    owner: Owner
    me: Me
    database: Database
    mailbox: Mailbox
    inbox: Inbox
    commands: Commands
    clock: Clock
    entropy: Entropy
    client: files.FileClient
    workspace: Path
    answers: TypedAnswers
    accepted: Callable[[str, str, str], None]
    """Told of each new message: its id, the conversation, the event that it came with."""
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
            channel=CHANNEL,
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
            if is_over(error):
                raise
            await deps.clock.sleep(1.0)
        else:
            return


def said(event: Event) -> str:
    """The text that the agent reads. What somebody else wrote and is replied to is quoted, as the
    agent may not have seen it."""
    text, quoted = event.text, event.quoted
    if quoted is not None and not quoted.is_ours and quoted.text.strip():
        line = " ".join(quoted.text.split())
        short = line if len(line) <= _QUOTE_CHARS else line[: _QUOTE_CHARS - 1].rstrip() + "…"
        text = f"[in reply to {quoted.who or 'somebody'}: {short}]\n{text}"
    return "\n".join(block for block in (text, *event.notes) if block.strip())


class Saying:
    """Handles messages that were let through. Used by the lanes of one bot."""

    def __init__(self, deps: SayDeps, waiting: Watching) -> None:
        self._deps = deps
        self._waiting = waiting

    async def handle(self, item: Item, event: Event, principal: Principal, lane: Lane) -> None:
        """Say it to the agent, or answer why not. Raises ``StoreUnavailable`` at the end."""
        if event.kind is EventKind.EDITED and await self._edit(item, event, principal):
            return
        if not event.attachments:
            if self._deps.commands.is_command(event.text):
                await self._command(item, event, principal)
                return
            if await self._answers(item, event, principal):
                return
        await self._say(item, event, principal, lane)

    async def take_back(self, item: Item, event: Event, principal: Principal) -> None:
        """A redaction: the message is not to be answered, if its turn has not begun."""
        deps, row = self._deps, item.row
        before = await self._became(event)
        if before is not None and self._is_theirs(before.raw, event, principal):
            state = await deps.database.read(
                lambda reader: reader.scalar(
                    "SELECT state FROM messages WHERE message_id = ?", (before.message_id,)
                ),
                name="matrix.redacted",
            )
            if state == "queued":
                try:
                    await deps.mailbox.cancel(before.message_id, principal)
                except (StoreUnavailable, Overloaded):
                    raise
                except AgentsupError:
                    pass  # its turn has begun or ended meanwhile, and goes its way
        await write_patiently(deps, lambda tx: kept.done_tx(tx, [row]), "matrix.done")

    def _is_theirs(self, raw: str, event: Event, principal: Principal) -> bool:
        return kept.load(raw).get("sender") == event.sender or principal.role >= PersonRole.OPERATOR

    # -- texts and files ---------------------------------------------------------------------------

    async def _answers(self, item: Item, event: Event, principal: Principal) -> bool:
        """Whether the text was the answer of an open question."""
        conversation = event.place.conversation
        word = await self._deps.answers.on_text(
            conversation,
            event.text,
            event.reply_to or None,
            principal,
            item.row.external_id,
            principal.language,
        )
        if word is None:
            return False
        await self._close(item.row, conversation, word)
        return True

    async def _say(self, item: Item, event: Event, principal: Principal, lane: Lane) -> None:
        deps, row = self._deps, item.row
        conversation = event.place.conversation
        parts, problems = await self._fetch(event, principal, lane)
        text = said(event)
        if event.kind is EventKind.EDITED and await self._became(event) is not None:
            text = compose.edited(text)
        if not text.strip() and not parts:
            await self._close(row, conversation, "\n".join(problems))
            return
        ahead = 0

        def also(tx: Tx, accepted: Accepted) -> None:
            nonlocal ahead
            kept.done_tx(tx, [row], message_id=accepted.message_id)
            if problems:
                notice_tx(tx, deps, conversation, "\n".join(problems))
            if not accepted.duplicate:
                ahead = ahead_of(tx, deps.agent_id, accepted)

        reply = await self._to_inbox(row, text, event, principal, files=parts, also=also)
        if reply is None or reply.message is None or reply.message.duplicate:
            return
        message_id = reply.message.message_id
        deps.accepted(message_id, conversation, event.event_id)
        if ahead:
            self._waiting.watch(message_id, conversation)

    async def _fetch(
        self, event: Event, principal: Principal, lane: Lane
    ) -> tuple[tuple[Part, ...], list[str]]:
        parts: list[Part] = []
        problems: list[str] = []
        deps = self._deps
        lane.is_slow = True
        try:
            for attachment in event.attachments:
                got = await files.fetch(
                    deps.client,
                    attachment,
                    deps.workspace,
                    clock=deps.clock,
                    max_bytes=deps.max_file_bytes,
                    say=words(principal.language),
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
        row: Row,
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
                    external_id=row.external_id,
                    files=files,
                    language=principal.language,
                    has_buttons=True,
                    also=also,
                )
            except (StoreUnavailable, NotReady) as error:
                if is_over(error):
                    raise
                await deps.clock.sleep(1.0)
            except Overloaded as error:
                if error.facts.get("queue") == "store.write":
                    await deps.clock.sleep(1.0)
                    continue
                await self._close(row, conversation, error.message)
                return None
            except AgentsupError as error:
                await self._close(row, conversation, error.message)
                return None

    # -- commands ----------------------------------------------------------------------------------

    async def _command(self, item: Item, event: Event, principal: Principal) -> None:
        deps, row, conversation = self._deps, item.row, event.place.conversation
        if row.begun:
            say = words(principal.language)
            text = say("message.restarted", command=event.text.split()[0])
            await self._close(row, conversation, text)
            return
        await write_patiently(deps, partial(kept.begin_tx, row=row), "matrix.begin")
        reply = await self._to_inbox(row, event.text, event, principal)
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
            kept.done_tx(tx, [row])

        await write_patiently(deps, step, "matrix.replied")

    # -- edits -------------------------------------------------------------------------------------

    async def _edit(self, item: Item, event: Event, principal: Principal) -> bool:
        """Whether the edit is dealt with: it changed a waiting message, or nothing at all."""
        deps, row = self._deps, item.row
        before = await self._became(event)
        if before is None:
            return False
        if kept.load(before.raw).get("sender") != event.sender:
            # Homeservers pass on any edit; only one's own words can be edited.
            await self._skip(row, "an edit of another's message")
            return True
        if self._text_before(before.raw) == event.text:
            await self._skip(row, "no other text")
            return True
        if deps.commands.is_command(event.text):
            return False

        def step(tx: Tx) -> bool:
            if not deps.mailbox.edit_tx(tx, before.message_id, said(event)):
                return False
            kept.done_tx(tx, [row], message_id=before.message_id)
            return True

        try:
            return await deps.database.write(step, name="matrix.edit")
        except (StoreUnavailable, Overloaded):
            return False  # the inbox waits for the store
        except AgentsupError as error:
            await self._close(row, event.place.conversation, error.message)
            return True

    async def _became(self, event: Event) -> kept.Became | None:
        deps = self._deps
        return await deps.database.read(
            lambda reader: kept.became(reader, deps.owner, event.room_id, event.target_id),
            name="matrix.became",
        )

    def _text_before(self, raw: str) -> str | None:
        try:
            return read(kept.load(raw), "", self._deps.me).text
        except Malformed:
            return None

    # -- ends --------------------------------------------------------------------------------------

    async def _skip(self, row: Row, why: str) -> None:
        await write_patiently(self._deps, lambda tx: kept.skip_tx(tx, [row], why), "matrix.skip")

    async def _close(self, row: Row, conversation: str, word: str) -> None:
        """It is done, with a word to the person if there is one."""

        def step(tx: Tx) -> None:
            if word:
                notice_tx(tx, self._deps, conversation, word)
            kept.done_tx(tx, [row])

        await write_patiently(self._deps, step, "matrix.done")
