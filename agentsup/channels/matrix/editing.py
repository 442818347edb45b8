"""Edits and redactions: what was written is changed, corrected or taken back."""

from __future__ import annotations

from agentsup.channels.matrix import kept
from agentsup.channels.matrix.desk import Item, SayDeps, notice_tx, said, write_patiently
from agentsup.channels.matrix.event import Event, Malformed, read
from agentsup.channels.matrix.kept import Row
from agentsup.model.errors import AgentsupError, Overloaded, StoreUnavailable
from agentsup.model.principal import PersonRole, Principal
from agentsup.store.database import Tx

__all__ = ["Editing"]


class Editing:
    """Handles what refers to an earlier event of one bot."""

    def __init__(self, deps: SayDeps) -> None:
        self._deps = deps

    async def edit(self, item: Item, event: Event, principal: Principal) -> bool:
        """Whether the edit is dealt with: it changed a waiting message, or nothing at all."""
        deps, row = self._deps, item.row
        before = await self.before(event, but=row.row_id)
        if before is None:
            return False
        if kept.load(before.raw).get("sender") != event.sender:
            # Homeservers pass on any edit; only one's own words can be edited.
            await self._skip(row, "an edit of another's message")
            return True
        if self._text_before(before.raw) == event.text:
            await self._skip(row, "no other text")
            return True
        if not before.message_id or deps.commands.is_command(event.text):
            return False

        def step(tx: Tx) -> bool:
            if not deps.mailbox.edit_tx(tx, before.message_id, said(event)):
                return False
            kept.done_tx(tx, [row], message_id=before.message_id)
            return True

        try:
            return await deps.database.write(step, name="matrix.edit")
        except (StoreUnavailable, Overloaded):
            raise  # tried again: the old words must not run beside the new ones
        except AgentsupError as error:
            await self._refuse(row, event.place.conversation, error.message)
            return True

    async def before(self, event: Event, *, but: int = 0) -> kept.Became | None:
        """What the event became that this one refers to; ``but`` is the row of this one."""
        deps = self._deps
        return await deps.database.read(
            lambda reader: kept.became(reader, deps.owner, event.room_id, event.target_id, but=but),
            name="matrix.became",
        )

    def _text_before(self, raw: str) -> str | None:
        try:
            return read(kept.load(raw), "", self._deps.me).text
        except Malformed:
            return None

    async def take_back(self, item: Item, event: Event, principal: Principal) -> None:
        """A redaction: the message is not to be answered, if its turn has not begun."""
        deps, row = self._deps, item.row

        def step(tx: Tx) -> None:
            before = kept.became(tx, deps.owner, event.room_id, event.target_id)
            if before is not None and self._is_theirs(before.raw, event, principal):
                state = tx.scalar(
                    "SELECT state FROM messages WHERE message_id = ?", (before.message_id,)
                )
                if state == "queued":  # else its turn has begun or ended, and goes its way
                    deps.mailbox.cancel_tx(tx, before.message_id, principal)
            kept.done_tx(tx, [row])

        await write_patiently(deps, step, "matrix.taken_back")

    def _is_theirs(self, raw: str, event: Event, principal: Principal) -> bool:
        return kept.load(raw).get("sender") == event.sender or principal.role >= PersonRole.OPERATOR

    async def _skip(self, row: Row, why: str) -> None:
        await write_patiently(self._deps, lambda tx: kept.skip_tx(tx, [row], why), "matrix.skip")

    async def _refuse(self, row: Row, conversation: str, why: str) -> None:
        def step(tx: Tx) -> None:
            notice_tx(tx, self._deps, conversation, why)
            kept.done_tx(tx, [row])

        await write_patiently(self._deps, step, "matrix.done")
