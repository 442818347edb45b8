"""From a received message to the agent's mailbox: texts, files, edits and commands.

The state of a row is written in the transaction of its effect. After a crash the row is handled
again, and the ledger keeps its effect from happening twice. The mailbox does not recognise a
repeated command, so the row of a command is marked before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic

from agentsup.catalogue import words
from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving import texts
from agentsup.channels.core.receiving.downloads import Downloads, MessageDropped
from agentsup.channels.core.receiving.gate import scope_of
from agentsup.channels.core.receiving.inbox import ChatOrigin, InboxReply
from agentsup.channels.core.receiving.messages import (
    EventT,
    Lane,
    PlatformMessages,
    ReceiveDependencies,
    ReceivedItem,
    end_rows,
    shown,
    write_patiently,
)
from agentsup.channels.core.receiving.refusals import QueueRefusal, QueueRefusals
from agentsup.channels.core.receiving.rows import EarlierVersions, ReceivedRow, SkipReason
from agentsup.channels.core.receiving.stop_marks import drop_tx, is_marked
from agentsup.channels.core.receiving.texts import Attachment
from agentsup.mailbox.messages import find_message
from agentsup.mailbox.queue import open_before
from agentsup.model.errors import AgentsupError, NotReady, Overloaded, StoreUnavailable
from agentsup.model.message import Accepted, Part
from agentsup.model.principal import Principal
from agentsup.store import Reader, Tx, is_over

_STORE_PAUSE_S = 1.0


class MessageHandler(Generic[EventT]):
    """Handles messages that were let through. Used by the lanes of one bot."""

    def __init__(
        self,
        deps: ReceiveDependencies,
        platform: PlatformMessages[EventT],
        watch: Callable[[str, str], None],
    ) -> None:
        """``watch`` notes that a message of a conversation waits behind others."""
        self._deps = deps
        self._platform = platform
        self._watch = watch
        self._refusals = QueueRefusals(deps.clock, self._notify_refused)
        self._downloads = Downloads(deps, platform)
        self._dropped: set[int] = set()
        """Rows still in memory that a stop has dropped."""

    async def handle(
        self, item: ReceivedItem[EventT], event: EventT, principal: Principal, lane: Lane[EventT]
    ) -> None:
        """Pass the message to the agent, or tell the person why not.

        With what the lane has taken it is one message, such as an album. Waits while the store is
        not available; raises ``StoreUnavailable`` once it is closed.
        """
        rows = [each.row for each in (item, *lane.taken)]
        if any(row.row_id in self._dropped for row in rows) or await self._deps.database.read(
            stored.is_skipped, rows, SkipReason.STOPPED_ELSEWHERE, name=self._named("dropped")
        ):
            await self._stopped(rows, event, principal)
            return
        if event.is_edit and await self._edit(item.row, event, principal):
            return
        if not event.attachments and self._deps.commands.is_command(event.text):
            await self._command(item.row, event, principal)
            return
        if await self._deps.database.read(
            self._is_marked, rows, event, name=self._named("is_marked")
        ):
            await self._stopped(rows, event, principal)
            return
        is_plain = not event.attachments and len(rows) == 1
        if is_plain and await self._answers(item.row, event, principal):
            return
        rest = [each.event for each in lane.taken if each.event is not None]
        await self._say(rows, [event, *rest], principal, lane)

    async def close(self) -> None:
        """End downloads and pending refusals; the next life of the bot handles their rows."""
        await self._refusals.close()
        await self._downloads.close()

    def _named(self, transaction: str) -> str:
        return f"{self._deps.channel}.{transaction}"

    # -- texts and files ---------------------------------------------------------------------------

    async def _answers(self, row: ReceivedRow, event: EventT, principal: Principal) -> bool:
        """Whether the text was the answer to an open question; then it is handled."""
        word = await self._platform.answer(row, event, principal)
        if word is None:
            return False
        await self._close([row], event.address.conversation, word)
        return True

    async def _say(
        self,
        rows: Sequence[ReceivedRow],
        events: Sequence[EventT],
        principal: Principal,
        lane: Lane[EventT],
    ) -> None:
        deps, event = self._deps, events[0]
        conversation = event.address.conversation
        if _files_of(events) and not await self._is_welcome(rows, event, principal):
            return
        try:
            parts, problems = await self._fetch_unless_stopped(rows, events, principal, lane)
        except MessageDropped:
            await self._stopped(rows, event, principal)
            return
        problems += self._platform.problems(events, words(principal.language))
        text = self._platform.said(events)
        if event.is_edit:
            text = await self._marked(rows[0], text)
        if not text.strip() and not parts:
            await self._close(rows, conversation, "\n".join(problems))
            return
        if problems:
            text = "\n".join(filter(None, (text, *map(texts.problem_note, problems))))
        ahead = 0

        def also(tx: Tx, accepted: Accepted) -> None:
            nonlocal ahead
            if stored.is_skipped(tx, rows) or self._is_marked(tx, rows, event):
                raise MessageDropped
            stored.done_tx(tx, rows, message_id=accepted.message_id)
            if problems:
                deps.notices.add_tx(tx, conversation, "\n".join(problems))
            if not accepted.duplicate:
                ahead = open_before(tx, deps.agent_id, accepted.session_id, accepted.message_id)

        try:
            reply = await self._to_inbox(rows, text, event, principal, files=parts, also=also)
        except MessageDropped:
            reply = None
            await self._stopped(rows, event, principal)
        if reply is None or reply.message is None or reply.message.duplicate:
            await self._downloads.discard(parts)
            return
        message_id = reply.message.message_id
        deps.accepted(message_id, conversation, event.platform_id)
        if ahead:
            self._watch(message_id, conversation)

    async def _is_welcome(
        self, rows: Sequence[ReceivedRow], event: EventT, principal: Principal
    ) -> bool:
        """Whether the mailbox would accept the message now; if not, no file is fetched for it."""
        deps = self._deps
        if await deps.database.read(stored.is_skipped, rows, name=self._named("is_skipped")):
            await self._stopped(rows, event, principal)
            return False
        try:
            await deps.inbox.check(deps.agent_name, principal)
        except (StoreUnavailable, NotReady):
            return True  # ``_to_inbox`` waits for it
        except Overloaded as error:
            self._refuse(rows, event, principal, error.message)
            return False
        except AgentsupError as error:
            await self._close(rows, event.address.conversation, error.message)
            return False
        return True

    async def _fetch_unless_stopped(
        self,
        rows: Sequence[ReceivedRow],
        events: Sequence[EventT],
        principal: Principal,
        lane: Lane[EventT],
    ) -> tuple[tuple[Part, ...], list[str]]:
        """Fetch the files of a message. Raises ``MessageDropped`` if a stop drops the message."""
        sent = _files_of(events)
        if not sent:
            return (), []

        def is_dropped(reader: Reader) -> bool:
            return stored.is_skipped(reader, rows) or self._is_marked(reader, rows, events[0])

        fetching = self._downloads.all_of(sent, words(principal.language), lane.away())
        return await self._downloads.run(fetching, rows[0].row_id, is_dropped)

    async def _to_inbox(
        self,
        rows: Sequence[ReceivedRow],
        text: str,
        event: EventT,
        principal: Principal,
        *,
        files: tuple[Part, ...] = (),
        also: Callable[[Tx, Accepted], None] | None = None,
    ) -> InboxReply | None:
        """Pass the text to the inbox; on a refusal notify the person and return None."""
        deps, conversation = self._deps, event.address.conversation
        where = ChatOrigin(
            deps.channel, conversation, has_buttons=True, is_shared=not event.is_private
        )
        while True:
            try:
                return await deps.inbox.say(
                    agent_name=deps.agent_name,
                    where=where,
                    text=text,
                    principal=principal,
                    external_id=self._platform.ledger_id(rows[0]),
                    files=files,
                    also=also,
                )
            except (StoreUnavailable, NotReady) as error:
                if is_over(error):
                    raise
                await deps.clock.sleep(_STORE_PAUSE_S)
            except Overloaded as error:
                if error.facts.get("queue") == "store.write":
                    await deps.clock.sleep(_STORE_PAUSE_S)
                    continue
                self._refuse(rows, event, principal, error.message)
                return None
            except AgentsupError as error:
                await self._close(rows, conversation, error.message)
                return None

    # -- edits -------------------------------------------------------------------------------------

    async def _edit(self, row: ReceivedRow, event: EventT, principal: Principal) -> bool:
        """Handle an edit: of a message that is still queued it replaces the text.

        False if it must be handled as a new message. Raises ``StoreUnavailable`` and ``Overloaded``;
        then the change may or may not be stored, and the call may be repeated: the old text must not
        be run beside the new one.
        """
        deps, platform = self._deps, self._platform
        before = await self._before(row)
        if before.raw and not platform.may_edit(before.raw, event):
            await end_rows(deps, [row], "skip", skip=SkipReason.EDIT_OF_ANOTHER)
            return True
        if before.raw and platform.text_of(row, before.raw) == event.text:
            # Platforms also report edits without a new text; a command is not run again then.
            await end_rows(deps, [row], "skip", skip=SkipReason.UNCHANGED_EDIT)
            return True
        message_id = before.message_id
        if not message_id or deps.commands.is_command(event.text):
            return False

        def step(tx: Tx) -> bool:
            if stored.is_skipped(tx, [row]):
                return True
            message = find_message(tx, message_id)
            # An edit by an anonymous or another person does not change this person's words.
            if message is None or message.principal.subject != principal.subject:
                return False
            events = platform.corrected(tx, row, event, message_id)
            if not deps.mailbox.queue.edit_tx(tx, message_id, platform.said(events)):
                return False
            stored.done_tx(tx, [row], message_id=message_id)
            return True

        try:
            return await deps.database.write(step, name=self._named("edit"))
        except (StoreUnavailable, Overloaded):
            raise
        except AgentsupError as error:
            notices = {event.address.conversation: error.message}
            await end_rows(deps, [row], "done", notices=notices)
            return True

    async def _marked(self, row: ReceivedRow, text: str) -> str:
        """Return the text of an edit, which says so if the agent has got the message before."""
        return texts.edited(text) if (await self._before(row)).message_id else text

    async def _before(self, row: ReceivedRow) -> EarlierVersions:
        return await self._deps.database.read(stored.earlier, row, name=self._named("before"))

    # -- commands ----------------------------------------------------------------------------------

    async def _command(self, row: ReceivedRow, event: EventT, principal: Principal) -> None:
        deps, conversation = self._deps, event.address.conversation
        say = words(principal.language)
        why_not = "message.restarted" if row.begun else self._platform.doubt(event)
        if why_not:
            text = say(why_not, command=event.text.split()[0])
            await self._close([row], conversation, text)
            return
        dropped = await self._begin(row, event, principal)
        reply = await self._to_inbox([row], event.text, event, principal)
        if reply is None:
            return
        text = reply.text
        if dropped and reply.ok:
            text = f"{text}\n{say.count('stopped.unread', dropped)}".lstrip()

        def step(tx: Tx) -> None:
            if text:
                facts = dict(self._platform.reply_facts(reply, principal))
                if reply.buttons:
                    facts["buttons"] = deps.notices.mint_tx(
                        tx, conversation, reply.buttons, event.text
                    )
                deps.notices.add_tx(tx, conversation, text, **facts)
            stored.done_tx(tx, [row])

        await write_patiently(deps, step, self._named("replied"))

    async def _begin(self, row: ReceivedRow, event: EventT, principal: Principal) -> int:
        """Mark the command as begun; a stop also drops unread texts. Return how many of this
        conversation would have been answered."""
        deps, conversation = self._deps, event.address.conversation
        scope = scope_of(
            event.text,
            agent_name=deps.agent_name,
            bot_id=row.owner.bot_id,
            conversation=conversation,
            principal=principal,
            offered=deps.commands.offered(deps.agent_id),
        )
        dropped: tuple[tuple[ReceivedRow, EventT], ...] = ()

        def step(tx: Tx) -> None:
            nonlocal dropped
            stored.begin_tx(tx, row)
            if scope is not None:
                dropped = drop_tx(
                    tx,
                    scope,
                    row,
                    agent_id=deps.agent_id,
                    conversation=conversation,
                    unread=self._platform.unread,
                    is_command=deps.commands.is_command,
                )

        await write_patiently(deps, step, self._named("begin"))
        self._dropped |= {each.row_id for each, _ in dropped}
        return sum(self._platform.would_answer(each) for _, each in dropped)

    def _is_marked(self, reader: Reader, rows: Sequence[ReceivedRow], event: EventT) -> bool:
        return is_marked(
            reader, rows, agent_id=self._deps.agent_id, conversation=event.address.conversation
        )

    async def _stopped(
        self, rows: Sequence[ReceivedRow], event: EventT, principal: Principal
    ) -> None:
        """Mark rows that a stop has dropped; if it was given in another chat, notify this one."""
        self._dropped -= {row.row_id for row in rows}

        def step(tx: Tx) -> None:
            is_elsewhere = stored.is_skipped(tx, rows, SkipReason.STOPPED_ELSEWHERE)
            if is_elsewhere or not stored.is_skipped(tx, rows):
                text = words(principal.language).count("stopped.unread", 1)
                self._deps.notices.add_tx(tx, event.address.conversation, text)
            stored.skip_tx(tx, rows, SkipReason.STOPPED_HERE)

        await write_patiently(self._deps, step, self._named("stopped"))

    # -- ends --------------------------------------------------------------------------------------

    async def _close(self, rows: Sequence[ReceivedRow], conversation: str, word: str) -> None:
        await end_rows(self._deps, rows, "done", notices={conversation: word})

    def _refuse(
        self, rows: Sequence[ReceivedRow], event: EventT, principal: Principal, why: str
    ) -> None:
        """Note that the queue was full; one notice tells the person of all refused texts."""
        self._refusals.add(
            event.address.conversation, rows, shown(event), why=why, language=principal.language
        )

    async def _notify_refused(self, refusal: QueueRefusal) -> None:
        def step(tx: Tx) -> None:
            left = [row for row in refusal.rows if not stored.is_skipped(tx, [row])]
            named = [refusal.texts[row.row_id] for row in left if row.row_id in refusal.texts]
            if named:
                text = texts.refused_notice(named, refusal.why, words(refusal.language))
                self._deps.notices.add_tx(tx, refusal.conversation, text)
            stored.done_tx(tx, left)

        await write_patiently(self._deps, step, self._named("refused"))


def _files_of(events: Sequence[EventT]) -> list[Attachment]:
    """Return the files of a message, and those of what it replies to, each once."""
    own = [each for event in events for each in event.attachments]
    quoted = [each for event in events for each in event.quoted_attachments]
    return list({each.file_id: each for each in [*own, *quoted]}.values())
