"""Edits: what a person corrects before it is read takes the old text's place."""

from __future__ import annotations

from agentsup.channels.telegram import compose, updates
from agentsup.channels.telegram.desk import SayDeps, notice_tx, write_patiently
from agentsup.channels.telegram.event import Event, Malformed, read
from agentsup.channels.telegram.updates import Row
from agentsup.model.errors import AgentsupError, Overloaded, StoreUnavailable
from agentsup.model.principal import Principal
from agentsup.store.database import Tx

__all__ = ["Editing"]


class Editing:
    """Handles edits that were let through."""

    def __init__(self, deps: SayDeps) -> None:
        self._deps = deps

    async def edit(self, row: Row, event: Event, principal: Principal) -> bool:
        """Whether the edit is dealt with: it changed a waiting message, or nothing at all.

        Raises ``StoreUnavailable`` and ``Overloaded``; what it did is not known to be lost then,
        and it may be repeated.
        """
        deps = self._deps
        before = await self.before(event, row)
        if before.raw and self._text_of(before.raw) == event.text:
            # The platform also tells what no person changed; a command is not run again for it.
            await write_patiently(
                deps, lambda tx: updates.skip_tx(tx, [row], "no other text"), "telegram.skip"
            )
            return True
        message_id = before.message_id
        if not message_id or deps.commands.is_command(event.text):
            return False

        def step(tx: Tx) -> bool:
            if updates.is_skipped(tx, [row]):
                return True
            message = tx.one(
                "SELECT principal ->> '$.subject' AS subject FROM messages WHERE message_id = ?",
                (message_id,),
            )
            # What anonymous or other people changed is not what this person said.
            if message is None or message["subject"] != principal.subject:
                return False
            events = self._corrected(tx, event, message_id)
            if not deps.mailbox.edit_tx(tx, message_id, compose.said(events, deps.me.username)):
                return False
            updates.done_tx(tx, [row], message_id=message_id)
            return True

        try:
            return await deps.database.write(step, name="telegram.edit")
        except (StoreUnavailable, Overloaded):
            raise
        except AgentsupError as error:
            why = error.message

            def refuse(tx: Tx) -> None:
                notice_tx(tx, deps, event.place.conversation, why)
                updates.done_tx(tx, [row])

            await write_patiently(deps, refuse, "telegram.done")
            return True

    def _corrected(self, tx: Tx, event: Event, message_id: str) -> list[Event]:
        """What the message is made of from now on: an album is more than the picture edited."""
        if not event.album or event.chat_id is None or event.message_id is None:
            return [event]
        found = updates.pieces(tx, self._deps.bot_id, event.chat_id, event.message_id, message_id)
        events = {each: read(updates.load(raw), self._deps.me) for each, raw in found.items()}
        events[event.message_id] = event
        return [events[each] for each in sorted(events)]

    def _text_of(self, raw: str) -> str | None:
        try:
            return read(updates.load(raw), self._deps.me).text
        except Malformed:
            return None

    async def before(self, event: Event, row: Row) -> updates.Before:
        """What came of the message before that row."""
        deps, chat_id, platform_id = self._deps, event.chat_id, event.message_id
        if chat_id is None or platform_id is None:
            return updates.Before()
        return await deps.database.read(
            lambda reader: updates.before(reader, deps.bot_id, chat_id, platform_id, row),
            name="telegram.before",
        )
