"""From a Matrix event to the agent's mailbox: texts, files, edits, redactions and commands.

How an event ended is written in the transaction of its effect, so a crash in between repeats the
event and not the effect; a command, which the mailbox can't recognise, is marked before it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from agentsup.catalogue import words
from agentsup.channels import compose
from agentsup.channels.desk import is_over
from agentsup.channels.inbox import InboxReply
from agentsup.channels.matrix import files, kept, stops
from agentsup.channels.matrix.desk import (
    Item,
    Lane,
    SayDeps,
    Watching,
    notice_tx,
    said,
    shown,
    write_patiently,
)
from agentsup.channels.matrix.editing import Editing
from agentsup.channels.matrix.event import Event, EventKind
from agentsup.channels.matrix.kept import CHANNEL, Row
from agentsup.channels.refusals import Refusal, Refusals
from agentsup.channels.stop_marks import is_marked
from agentsup.channels.waiting import ahead_of
from agentsup.model.errors import AgentsupError, NotReady, Overloaded, StoreUnavailable
from agentsup.model.message import Accepted, Part
from agentsup.model.principal import Principal
from agentsup.store.database import Reader, Tx

__all__ = ["Saying"]

_DOWNLOADS: Final = 4
"""Of one bot at a time."""


class _Dropped(Exception):
    """A stop was quicker than the message."""


class Saying:
    """Handles messages that were let through. Used by the lanes of one bot."""

    def __init__(
        self, deps: SayDeps, waiting: Watching, would_answer: Callable[[Event], bool]
    ) -> None:
        """``would_answer`` tells of a text that nobody has read yet whether it is for the agent."""
        self._deps = deps
        self._would_answer = would_answer
        self._waiting = waiting
        self._editing = Editing(deps)
        self._downloads = asyncio.Semaphore(_DOWNLOADS)
        self._refusals: Refusals[Row] = Refusals(deps.clock, self._tell_refused)
        self._dropped: set[int] = set()
        """Rows still in memory that a stop has dropped."""

    async def handle(self, item: Item, event: Event, principal: Principal, lane: Lane) -> None:
        """Say it to the agent, or answer why not. Raises ``StoreUnavailable`` at the end."""
        row = item.row
        if row.row_id in self._dropped or await self._deps.database.read(
            lambda reader: kept.is_skipped(reader, row, why=stops.ELSEWHERE), name="matrix.dropped"
        ):
            await self._stopped(row, event, principal)
            return
        if event.kind is EventKind.EDITED and await self._editing.edit(item, event, principal):
            return
        if not event.attachments and self._deps.commands.is_command(event.text):
            await self._command(item, event, principal)
            return
        if await self._deps.database.read(
            lambda reader: self._is_marked(reader, item.row, event), name="matrix.is_marked"
        ):
            await self._stopped(item.row, event, principal)
            return
        if not event.attachments and await self._answers(item, event, principal):
            return
        await self._say(item, event, principal, lane)

    async def take_back(self, item: Item, event: Event, principal: Principal) -> None:
        """A redaction: the message is not to be answered, if its turn has not begun."""
        await self._editing.take_back(item, event, principal)

    async def close(self) -> None:
        """What nobody was told yet is left to the next life."""
        await self._refusals.close()

    # -- texts and files ---------------------------------------------------------------------------

    async def _answers(self, item: Item, event: Event, principal: Principal) -> bool:
        """Whether the text was the answer of an open question."""
        if event.is_doubtful or (event.kind is EventKind.EDITED and not event.reply_to):
            return False  # an edit corrects what was said, perhaps before anything was asked
        conversation, quoted = event.place.conversation, event.quoted
        word = await self._deps.answers.on_text(
            conversation,
            event.text,
            event.reply_to or None,
            principal,
            item.row.external_id,
            principal.language,
            quoted=quoted.text if quoted is not None and quoted.is_ours else "",
            is_private=event.is_private,
        )
        if word is None:
            return False
        await self._close(item.row, conversation, word)
        return True

    async def _say(self, item: Item, event: Event, principal: Principal, lane: Lane) -> None:
        deps, row = self._deps, item.row
        conversation = event.place.conversation
        if event.attachments and not await self._is_welcome(row, event, principal):
            return
        parts, problems = await self._fetch(event, principal, lane)
        text = said(event)
        if event.kind is EventKind.EDITED:
            before = await self._editing.before(event, but=row.row_id)
            if before is not None and before.message_id:
                text = compose.edited(text)
        if not text.strip() and not parts:
            await self._close(row, conversation, "\n".join(problems))
            return
        ahead = 0

        def also(tx: Tx, accepted: Accepted) -> None:
            nonlocal ahead
            if kept.is_skipped(tx, row) or self._is_marked(tx, row, event):
                raise _Dropped
            kept.done_tx(tx, [row], message_id=accepted.message_id)
            if problems:
                notice_tx(tx, deps, conversation, "\n".join(problems))
            if not accepted.duplicate:
                ahead = ahead_of(tx, deps.agent_id, accepted)

        try:
            reply = await self._to_inbox(row, text, event, principal, files=parts, also=also)
        except _Dropped:
            reply = None
            await self._stopped(row, event, principal)
        if reply is None or reply.message is None or reply.message.duplicate:
            await files.discard(parts, deps.workspace, deps.files)
            return
        message_id = reply.message.message_id
        deps.accepted(message_id, conversation, event.event_id)
        if ahead:
            self._waiting.watch(message_id, conversation)

    async def _is_welcome(self, row: Row, event: Event, principal: Principal) -> bool:
        """Whether it would be taken now: what is refused anyway leaves no file behind."""
        deps = self._deps
        try:
            await deps.inbox.check(deps.agent_name, principal)
        except (StoreUnavailable, NotReady):
            return True  # the inbox waits
        except Overloaded as error:
            self._refuse(row, event, principal, error.message)
            return False
        except AgentsupError as error:
            await self._close(row, event.place.conversation, error.message)
            return False
        return True

    async def _fetch(
        self, event: Event, principal: Principal, lane: Lane
    ) -> tuple[tuple[Part, ...], list[str]]:
        parts: list[Part] = []
        problems: list[str] = []
        deps = self._deps
        async with lane.away(), self._downloads:
            for attachment in event.attachments:
                got = await files.fetch(
                    deps.client,
                    attachment,
                    deps.workspace,
                    files=deps.files,
                    owner=f"matrix-{deps.agent_id}",
                    clock=deps.clock,
                    entropy=deps.entropy,
                    max_bytes=deps.max_file_bytes,
                    say=words(principal.language),
                )
                if got.part is not None:
                    parts.append(got.part)
                else:
                    problems.append(got.problem)
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
                    is_shared=not event.is_private,
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
                self._refuse(row, event, principal, error.message)
                return None
            except AgentsupError as error:
                await self._close(row, conversation, error.message)
                return None

    # -- commands ----------------------------------------------------------------------------------

    async def _command(self, item: Item, event: Event, principal: Principal) -> None:
        deps, row, conversation = self._deps, item.row, event.place.conversation
        say = words(principal.language)
        if row.begun or event.is_doubtful:
            key = "message.restarted" if row.begun else "matrix.doubtful"
            text = say(key, command=event.text.split()[0])
            await self._close(row, conversation, text)
            return
        dropped = await self._begin(row, event, principal)
        reply = await self._to_inbox(row, event.text, event, principal)
        if reply is None:
            return
        told = reply.text
        if dropped and reply.ok:
            told = f"{told}\n{say.count('stopped.unread', dropped)}".lstrip()

        def step(tx: Tx) -> None:
            if told:
                notice_tx(
                    tx,
                    deps,
                    conversation,
                    told,
                    buttons=reply.buttons,
                    origin=event.text,
                )
            kept.done_tx(tx, [row])

        await write_patiently(deps, step, "matrix.replied")

    async def _begin(self, row: Row, event: Event, principal: Principal) -> int:
        """Mark that the command runs; if it is a stop, also how many texts of this conversation
        it drops that nobody has read yet, and that would have been answered."""
        deps, conversation = self._deps, event.place.conversation
        scope = stops.scope_of(
            event.text,
            agent_name=deps.agent_name,
            bot_id=deps.agent_id,
            conversation=conversation,
            principal=principal,
            offered=deps.commands.offered(deps.agent_id),
        )
        dropped: tuple[tuple[Row, Event], ...] = ()

        def step(tx: Tx) -> None:
            nonlocal dropped
            kept.begin_tx(tx, row)
            if scope is not None:
                dropped = stops.drop_tx(
                    tx,
                    scope,
                    row,
                    me=deps.me,
                    conversation=conversation,
                    is_command=deps.commands.is_command,
                )

        await write_patiently(deps, step, "matrix.begin")
        self._dropped |= {each.row_id for each, _ in dropped}
        return sum(self._would_answer(each) for _, each in dropped)

    def _is_marked(self, reader: Reader, row: Row, event: Event) -> bool:
        return is_marked(
            reader,
            CHANNEL,
            [row.row_id],
            agent_id=self._deps.agent_id,
            conversation=event.place.conversation,
        )

    async def _stopped(self, row: Row, event: Event, principal: Principal) -> None:
        """A stop has dropped it; if that came from another room, its people hear of it here."""
        deps = self._deps
        self._dropped.discard(row.row_id)

        def step(tx: Tx) -> None:
            is_elsewhere = kept.is_skipped(tx, row, why=stops.ELSEWHERE)
            if is_elsewhere or not kept.is_skipped(tx, row):
                say = words(principal.language)
                notice_tx(tx, deps, event.place.conversation, say.count("stopped.unread", 1))
            kept.skip_tx(tx, [row], stops.HERE)

        await write_patiently(deps, step, "matrix.stopped")

    # -- ends --------------------------------------------------------------------------------------

    async def _close(self, row: Row, conversation: str, word: str) -> None:
        """It is done, with a word to the person if there is one."""

        def step(tx: Tx) -> None:
            if word:
                notice_tx(tx, self._deps, conversation, word)
            kept.done_tx(tx, [row])

        await write_patiently(self._deps, step, "matrix.done")

    def _refuse(self, row: Row, event: Event, principal: Principal, why: str) -> None:
        """The queue is full; the person reads it in one word about all that was refused."""
        self._refusals.add(
            event.place.conversation,
            [row],
            shown(event),
            why=why,
            language=principal.language,
        )

    async def _tell_refused(self, refusal: Refusal[Row]) -> None:
        def step(tx: Tx) -> None:
            left = [row for row in refusal.rows if not kept.is_skipped(tx, row)]
            texts = [refusal.texts[row.row_id] for row in left if row.row_id in refusal.texts]
            if texts:
                text = compose.refused_notice(texts, refusal.why, words(refusal.language))
                notice_tx(tx, self._deps, refusal.conversation, text)
            kept.done_tx(tx, left)

        await write_patiently(self._deps, step, "matrix.refused")
