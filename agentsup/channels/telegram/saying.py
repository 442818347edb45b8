"""From a Telegram message to the agent's mailbox: texts, files, albums, edits and commands.

How an update ended is written in the transaction of its effect, so a crash in between repeats the
update and not the effect; a command, which the mailbox can't recognise, is marked before it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from agentsup.catalogue import words
from agentsup.channels.desk import is_over
from agentsup.channels.inbox import InboxReply
from agentsup.channels.refusals import Refusal, Refusals
from agentsup.channels.stop_marks import is_marked
from agentsup.channels.telegram import compose, files, stops, updates
from agentsup.channels.telegram.desk import SayDeps, notice_tx, write_patiently
from agentsup.channels.telegram.editing import Editing
from agentsup.channels.telegram.event import Event, EventKind
from agentsup.channels.telegram.following import live_fact
from agentsup.channels.telegram.lanes import Item, Lane
from agentsup.channels.telegram.updates import CHANNEL, Row
from agentsup.channels.telegram.waiting import Waiting
from agentsup.channels.waiting import ahead_of
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import AgentsupError, NotReady, Overloaded, StoreUnavailable
from agentsup.model.message import Accepted, Part
from agentsup.model.principal import Principal
from agentsup.store.database import Reader, Tx

__all__ = ["Saying"]

_ALBUM_MAX = 20
_DOWNLOADS = 8
"""At once for a bot: half of the calls it may have under way, so that answers go on."""


class _Dropped(Exception):
    """A stop was quicker than the message."""


class Saying:
    """Handles messages that were let through. Used by the lanes of one bot."""

    def __init__(
        self, deps: SayDeps, waiting: Waiting, would_answer: Callable[[Event], bool]
    ) -> None:
        """``would_answer`` tells of a text that nobody has read yet whether it is for the agent."""
        self._deps = deps
        self._would_answer = would_answer
        self._waiting = waiting
        self._editing = Editing(deps)
        self._refusals: Refusals[Row] = Refusals(deps.clock, self._tell_refused)
        self._downloads = asyncio.Semaphore(_DOWNLOADS)
        self._tasks = TaskOwner(f"telegram saying of {deps.agent_name}")
        self._fetching: dict[int, asyncio.Task[tuple[tuple[Part, ...], list[str]]]] = {}
        """By row: the download of its files."""
        self._dropped: set[int] = set()
        """Rows still in memory that a stop has dropped."""

    async def handle(self, item: Item, event: Event, principal: Principal, lane: Lane) -> None:
        """Say it to the agent, or answer why not. Raises ``StoreUnavailable`` at the end."""
        rows = [each.row for each in (item, *lane.taken)]
        if any(row.row_id in self._dropped for row in rows) or await self._deps.database.read(
            lambda reader: updates.is_skipped(reader, rows, why=stops.ELSEWHERE),
            name="telegram.dropped",
        ):
            await self._stopped(rows, event)
            return
        if event.kind is EventKind.EDITED and await self._editing.edit(item.row, event, principal):
            return
        if not event.attachments and self._deps.commands.is_command(event.text):
            await self._command(item, event, principal)
            return
        if await self._deps.database.read(
            lambda reader: self._is_marked(reader, rows, event), name="telegram.is_marked"
        ):
            await self._stopped(rows, event)
            return
        rest = [each.event for each in lane.taken if each.event is not None]
        is_plain = not event.attachments and not event.album
        if is_plain and await self._answers(item, event, principal):
            return
        await self._say(rows, [event, *rest], principal, lane)

    async def rest_of_album(self, event: Event, lane: Lane) -> Event:
        """Take along the pictures sent together with this one: messages of their own, one right
        after the other. What one of them is addressed to, the whole is."""

        def belongs(other: Item) -> bool:
            return other.event is not None and other.event.album == event.album

        while len(lane.taken) < _ALBUM_MAX:
            if await lane.next_like(belongs, self._deps.album_s) is None:
                break
        is_meant = any(each.event is not None and each.event.addressed for each in lane.taken)
        return replace(event, addressed=event.addressed or is_meant)

    async def close(self) -> None:
        """What nobody was told yet is left to the next life."""
        await self._refusals.close()
        await self._tasks.close(1.0)

    # -- texts and files ---------------------------------------------------------------------------

    async def _answers(self, item: Item, event: Event, principal: Principal) -> bool:
        """Whether the text was the answer of an open question."""
        deps, conversation = self._deps, event.place.conversation
        if event.forwarded_from:
            return False  # what somebody else said is nobody's answer here
        if event.kind is EventKind.EDITED and event.quoted is None:
            return False  # an edit corrects what was said, perhaps before anything was asked
        quoted = event.quoted
        word = await deps.answers.on_text(
            conversation,
            event.text,
            quoted.message_id if quoted else None,
            principal,
            item.row.external_id(deps.bot_id),
            event.language,
            quoted=quoted.text if quoted else "",
            is_private=event.place.is_private,
        )
        if word is None:
            return False
        await self._close([item.row], conversation, word)
        return True

    async def _say(
        self, rows: Sequence[Row], events: list[Event], principal: Principal, lane: Lane
    ) -> None:
        deps, event = self._deps, events[0]
        conversation = event.place.conversation
        has_files = any(each.attachments for each in events)
        if has_files and not await self._is_welcome(rows, events, principal):
            return
        try:
            parts, problems = await self._fetch_unless_stopped(rows, events, lane)
        except _Dropped:
            await self._stopped(rows, event)
            return
        text = compose.said(events, deps.me.username)
        if (
            event.kind is EventKind.EDITED
            and (await self._editing.before(event, rows[0])).message_id
        ):
            text = compose.edited(text)
        if not text.strip() and not parts:
            await self._close(rows, conversation, "\n".join(problems))
            return
        ahead = 0

        def also(tx: Tx, accepted: Accepted) -> None:
            nonlocal ahead
            if updates.is_skipped(tx, rows) or self._is_marked(tx, rows, event):
                raise _Dropped
            updates.done_tx(tx, rows, message_id=accepted.message_id)
            if problems:
                notice_tx(tx, deps, conversation, "\n".join(problems))
            if not accepted.duplicate:
                ahead = ahead_of(tx, deps.agent_id, accepted)

        try:
            reply = await self._to_inbox(rows, text, events, principal, files=parts, also=also)
        except _Dropped:
            reply = None
            await self._stopped(rows, event)
        if reply is None or reply.message is None or reply.message.duplicate:
            await files.discard(parts, deps.workspace, deps.files)
            return
        message_id = reply.message.message_id
        deps.accepted(message_id, conversation, event.message_id or 0)
        if ahead:
            self._waiting.watch(message_id, conversation)

    async def _is_welcome(
        self, rows: Sequence[Row], events: Sequence[Event], principal: Principal
    ) -> bool:
        """Whether it would be taken now: what is refused anyway leaves no file behind."""
        deps, event = self._deps, events[0]
        if await deps.database.read(
            lambda reader: updates.is_skipped(reader, rows), name="telegram.is_skipped"
        ):
            await self._stopped(rows, event)
            return False
        try:
            await deps.inbox.check(deps.agent_name, principal)
        except (StoreUnavailable, NotReady):
            return True  # the inbox waits
        except Overloaded as error:
            self._refuse(rows, events, error.message)
            return False
        except AgentsupError as error:
            await self._close(rows, event.place.conversation, error.message)
            return False
        return True

    async def _fetch_unless_stopped(
        self, rows: Sequence[Row], events: Sequence[Event], lane: Lane
    ) -> tuple[tuple[Part, ...], list[str]]:
        """Fetch what belongs to a message; a stop that drops it ends this. Raises ``_Dropped``."""
        if not any(each.attachments for each in events):
            return (), []
        name = f"fetch:{self._deps.agent_name}/{rows[0].row_id}"
        fetching = self._tasks.spawn(self._fetch(events, lane), name=name)
        self._fetching |= {row.row_id: fetching for row in rows}
        try:
            await asyncio.wait({fetching})
        finally:
            fetching.cancel()
            for row in rows:
                del self._fetching[row.row_id]
        if fetching.cancelled() and any(row.row_id in self._dropped for row in rows):
            raise _Dropped
        return fetching.result()

    async def _fetch(
        self, events: Sequence[Event], lane: Lane
    ) -> tuple[tuple[Part, ...], list[str]]:
        parts: list[Part] = []
        problems: list[str] = []
        deps = self._deps
        try:
            async with lane.away(), self._downloads:
                for attachment in (each for event in events for each in event.attachments):
                    got = await files.fetch(
                        deps.client,
                        attachment,
                        deps.workspace,
                        files=deps.files,
                        owner=f"telegram-{deps.agent_id}",
                        clock=deps.clock,
                        entropy=deps.entropy,
                        max_bytes=deps.max_file_bytes,
                        say=words(events[0].language),
                    )
                    if got.part is not None:
                        parts.append(got.part)
                    else:
                        problems.append(got.problem)
        except asyncio.CancelledError:
            await files.discard(parts, deps.workspace, deps.files)
            raise
        return tuple(parts), problems

    async def _to_inbox(
        self,
        rows: Sequence[Row],
        text: str,
        events: Sequence[Event],
        principal: Principal,
        *,
        files: tuple[Part, ...] = (),
        also: Callable[[Tx, Accepted], None] | None = None,
    ) -> InboxReply | None:
        """Hand it over; a refusal is told to the person, and None returned."""
        deps, event = self._deps, events[0]
        conversation = event.place.conversation
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
                    is_shared=not event.place.is_private,
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
                self._refuse(rows, events, error.message)
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
        dropped = await self._begin(row, event, principal)
        reply = await self._to_inbox([row], event.text, [event], principal)
        if reply is None:
            return
        told = reply.text
        if dropped and reply.ok:
            say = words(event.language)
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
                    **live_fact(reply.live, principal, event.language),
                )
            updates.done_tx(tx, [row])

        await write_patiently(deps, step, "telegram.replied")

    async def _begin(self, row: Row, event: Event, principal: Principal) -> int:
        """Mark that the command runs; if it is a stop, also how many texts of this conversation
        it drops that nobody has read yet, and that would have been answered."""
        deps, conversation = self._deps, event.place.conversation
        scope = stops.scope_of(
            event.text,
            agent_name=deps.agent_name,
            bot_id=deps.bot_id,
            conversation=conversation,
            principal=principal,
            offered=deps.commands.offered(deps.agent_id),
        )
        dropped: tuple[tuple[Row, Event], ...] = ()

        def step(tx: Tx) -> None:
            nonlocal dropped
            updates.begin_tx(tx, row)
            if scope is not None:
                dropped = stops.drop_tx(
                    tx,
                    scope,
                    row,
                    me=deps.me,
                    agent_id=deps.agent_id,
                    conversation=conversation,
                    is_command=deps.commands.is_command,
                )

        await write_patiently(deps, step, "telegram.begin")
        self._dropped |= {each.row_id for each, _ in dropped}
        for each, _ in dropped:
            if (fetching := self._fetching.get(each.row_id)) is not None:
                fetching.cancel()
        return sum(self._would_answer(each) for _, each in dropped)

    def _is_marked(self, reader: Reader, rows: Sequence[Row], event: Event) -> bool:
        return is_marked(
            reader,
            CHANNEL,
            [row.row_id for row in rows],
            agent_id=self._deps.agent_id,
            conversation=event.place.conversation,
        )

    async def _stopped(self, rows: Sequence[Row], event: Event) -> None:
        """A stop has dropped it; if that came from another chat, its people hear of it here."""
        deps = self._deps
        self._dropped -= {row.row_id for row in rows}

        def step(tx: Tx) -> None:
            is_elsewhere = updates.is_skipped(tx, rows, why=stops.ELSEWHERE)
            if is_elsewhere or not updates.is_skipped(tx, rows):
                say = words(event.language)
                notice_tx(tx, deps, event.place.conversation, say.count("stopped.unread", 1))
            updates.skip_tx(tx, rows, stops.HERE)

        await write_patiently(deps, step, "telegram.stopped")

    # -- ends --------------------------------------------------------------------------------------

    async def _close(self, rows: Sequence[Row], conversation: str, word: str) -> None:
        """They are done, with a word to the person if there is one."""

        def step(tx: Tx) -> None:
            if word:
                notice_tx(tx, self._deps, conversation, word)
            updates.done_tx(tx, rows)

        await write_patiently(self._deps, step, "telegram.done")

    def _refuse(self, rows: Sequence[Row], events: Sequence[Event], why: str) -> None:
        """The queue is full; the person reads it in one word about all that was refused."""
        event = events[0]
        self._refusals.add(
            event.place.conversation,
            rows,
            compose.named(event),
            why=why,
            language=event.language,
        )

    async def _tell_refused(self, refusal: Refusal[Row]) -> None:
        def step(tx: Tx) -> None:
            left = [row for row in refusal.rows if not updates.is_skipped(tx, [row])]
            texts = [refusal.texts[row.row_id] for row in left if row.row_id in refusal.texts]
            if texts:
                text = compose.refused_notice(texts, refusal.why, words(refusal.language))
                notice_tx(tx, self._deps, refusal.conversation, text)
            updates.done_tx(tx, left)

        await write_patiently(self._deps, step, "telegram.refused")
