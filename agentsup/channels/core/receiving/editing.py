"""Edits by people: an edit of a message that is still queued replaces its text."""

from __future__ import annotations

from typing import Generic

from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving import texts
from agentsup.channels.core.receiving.context import end_rows
from agentsup.channels.core.receiving.messages import EventT, PlatformMessages, ReceiveDependencies
from agentsup.channels.core.receiving.rows import EarlierVersions, ReceivedRow, SkipReason
from agentsup.mailbox.messages import find_message
from agentsup.model.errors import AgentsupError, Overloaded, StoreUnavailable
from agentsup.model.principal import Principal
from agentsup.store import Tx


class Editing(Generic[EventT]):
    """Handles the edits that one bot receives from admitted people."""

    def __init__(self, deps: ReceiveDependencies, platform: PlatformMessages[EventT]) -> None:
        self._deps = deps
        self._platform = platform

    async def edit(self, row: ReceivedRow, event: EventT, principal: Principal) -> bool:
        """Handle an edit; False if it must be handled as a new message.

        True if it changed a queued message or needs no action. Raises ``StoreUnavailable`` and
        ``Overloaded``; then the change may or may not be stored, and the call may be repeated: the
        old text must not be run beside the new one.
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
            if not deps.mailbox.edit_tx(tx, message_id, platform.said(events)):
                return False
            stored.done_tx(tx, [row], message_id=message_id)
            return True

        try:
            return await deps.database.write(step, name=f"{deps.channel}.edit")
        except (StoreUnavailable, Overloaded):
            raise
        except AgentsupError as error:
            notices = {event.address.conversation: error.message}
            await end_rows(deps, [row], "done", notices=notices)
            return True

    async def marked(self, row: ReceivedRow, text: str) -> str:
        """Return the text of an edit, which says so if the agent has got the message before."""
        return texts.edited(text) if (await self._before(row)).message_id else text

    async def _before(self, row: ReceivedRow) -> EarlierVersions:
        return await self._deps.database.read(
            stored.earlier, row, name=f"{self._deps.channel}.before"
        )
