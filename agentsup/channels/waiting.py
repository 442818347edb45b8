"""A message that waits behind others is told so, once it has waited a while; and when it no longer
does, the note about it says so and loses its button.

Which notes still have a button is on record in the outbox, so a crash in between leaves none that
offers what can't be done any more.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from agentsup.catalogue import Words, words
from agentsup.channels import buttons, desk
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.mailbox import outbox
from agentsup.mailbox.notices import preview
from agentsup.mailbox.place import held_by
from agentsup.model.control import Button
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.model.message import Accepted
from agentsup.model.question import OF_AGENTS, Question
from agentsup.store.database import Database, Reader, Tx

__all__ = ["Notes", "Waiting", "ahead_of", "buttonless_tx"]

_log = logging.getLogger(__name__)
_AHEAD = (
    "SELECT COUNT(*) FROM messages WHERE agent_id = ? AND session_id = ?"
    " AND state IN ('queued', 'leased', 'parked') AND message_id < ?"
)
_KEPT_MS: Final = 14 * 86_400_000
"""A note older than this is not looked for after a restart; it may stay as it is."""
_LOOK_GAP_S: Final = 0.3
_LOOK_AGAIN_S: Final = 10.0
_TRY_AGAIN_S: Final = 2.0
_QUESTION_CHARS: Final = 200


def ahead_of(reader: Reader, agent_id: str, accepted: Accepted) -> int:
    """Open messages of the same session that were there before it; their ids sort by time."""
    return int(reader.scalar(_AHEAD, (agent_id, accepted.session_id, accepted.message_id)))


def buttonless_tx(tx: Tx, message_id: str) -> None:
    """The notes about that message show no button any more; harmless when repeated."""
    tx.execute(
        "UPDATE outbox SET body = json_remove(body, '$.cancel')"
        " WHERE message_id = ? AND kind = 'notice' AND body ->> '$.cancel' = ?",
        (message_id, message_id),
    )


@dataclass(frozen=True, slots=True)
class _Note:
    """A note with a button, as it stands on record. ``platform_id``: where it is shown, if known."""

    outbox_id: int
    message_id: str
    is_pending: bool
    platform_id: str | None
    language: str
    ended: str = ""
    """The key of what it says from now on; empty while the message waits."""


class Notes(Protocol):
    """What a platform does for notes."""

    async def end_note(self, conversation: str, platform_id: str, text: str) -> bool:
        """Let a note say ``text`` and offer nothing any more; False, after a while, if it could not
        be reached. May be repeated."""


class Waiting:
    """Watches messages of one bot that have others before them.

    One note at a time per conversation. That a message waits is status, not an answer: a crash
    before the note may forget it.
    """

    def __init__(
        self,
        *,
        agent_id: str,
        channel: str,
        database: Database,
        notes: Notes,
        clock: Clock,
        entropy: Entropy,
        after_s: float,
    ) -> None:
        """``after_s``: how long a message has to wait before people are told."""
        self._agent_id = agent_id
        self._database = database
        self._channel = channel
        self._notes = notes
        self._clock = clock
        self._entropy = entropy
        self._after_s = after_s
        self._owner = TaskOwner(f"{channel} waiting")
        self._noted: set[str] = set()

    async def run(self, draining: asyncio.Event) -> None:
        """Take up the notes that an earlier life left; one per bot's life."""
        while not draining.is_set():
            try:
                left = await self._database.read(self._left, name="channel.waiting_left")
            except (StoreUnavailable, Overloaded):
                await self._clock.sleep(_TRY_AGAIN_S)
                continue
            for message_id, conversation in left:
                self._spawn(message_id, conversation, self._end(message_id, conversation))
            return

    def watch(self, message_id: str, conversation: str) -> None:
        """Look after it, unless the conversation has a note already. Never blocks."""
        if conversation not in self._noted:
            self._spawn(message_id, conversation, self._serve(message_id, conversation))

    def _spawn(self, message_id: str, conversation: str, life: Any) -> None:
        self._noted.add(conversation)

        async def serve() -> None:
            try:
                await life
            except (StoreUnavailable, Overloaded) as error:
                _log.info("a note about %s is left to the next life: %s", message_id, error)
            finally:
                self._noted.discard(conversation)

        try:
            self._owner.spawn(serve(), name=f"waiting:{conversation}")
        except OwnerClosed:
            life.close()

    async def _serve(self, message_id: str, conversation: str) -> None:
        await self._clock.sleep(self._after_s)
        is_noted = await self._database.write(
            lambda tx: self._note_tx(tx, message_id, conversation), name="channel.waiting"
        )
        if is_noted:
            await self._end(message_id, conversation)

    def _note_tx(self, tx: Tx, message_id: str, conversation: str) -> bool:
        row = tx.one("SELECT session_id, state FROM messages WHERE message_id = ?", (message_id,))
        if row is None or row["state"] != "queued":
            return False
        ahead = int(tx.scalar(_AHEAD, (self._agent_id, row["session_id"], message_id)))
        if not ahead:
            return False
        say = words(outbox.language_of(tx, message_id))
        asked = held_by(tx, self._agent_id, row["session_id"])
        text = say.count("message.waits", ahead) if asked is None else _of_question(asked, say)
        at = self._clock.now_ms()
        body: dict[str, Any] = {"text": text, "plain": True, "cancel": message_id}
        if asked is not None and asked.kind in OF_AGENTS:
            body["buttons"] = buttons.mint_tx(
                tx,
                _ways(asked, say),
                agent_id=self._agent_id,
                conversation=conversation,
                origin="",
                at=at,
                entropy=self._entropy,
                channel=self._channel,
            )
        outbox.add_tx(
            tx,
            agent_id=self._agent_id,
            channel=self._channel,
            conversation=conversation,
            kind="notice",
            body=body,
            at=at,
            message_id=message_id,
            session_id=row["session_id"],
        )
        return True

    async def close(self) -> None:
        """Forget what is watched; the next life goes on with it."""
        await self._owner.close(1.0)

    # -- the end of a note -------------------------------------------------------------------------

    def _left(self, reader: Reader) -> list[tuple[str, str]]:
        since = self._clock.now_ms() - _KEPT_MS
        found = reader.all(
            "SELECT message_id, conversation FROM outbox WHERE ended_at > :since AND channel = :c"
            " AND agent_id = :a AND kind = 'notice' AND body ->> '$.cancel' IS NOT NULL"
            " UNION SELECT message_id, conversation FROM outbox WHERE state = 'pending'"
            " AND channel = :c AND agent_id = :a AND kind = 'notice'"
            " AND body ->> '$.cancel' IS NOT NULL",
            {"since": since, "c": self._channel, "a": self._agent_id},
        )
        return [(row[0], row[1]) for row in found]

    async def _end(self, message_id: str, conversation: str) -> None:
        """Wait until the message waits no longer, then let its notes say so, whatever the store
        does meanwhile. Raises ``StoreUnavailable`` once that is closed."""
        changed = asyncio.Event()
        unlisten = self._listen(changed.set)
        try:
            while True:
                changed.clear()
                try:
                    notes = await self._database.read(
                        lambda reader: _notes(reader, message_id), name="channel.waiting_note"
                    )
                    if not notes:
                        return
                    is_over = all(note.ended for note in notes)
                    if is_over and await self._end_all(notes, conversation):
                        return
                except (StoreUnavailable, Overloaded) as error:
                    if desk.is_over(error):
                        raise
                    await self._clock.sleep(_TRY_AGAIN_S)
                    continue
                await self._clock.sleep(_LOOK_GAP_S)  # much else makes events
                if is_over:
                    continue
                try:
                    async with asyncio.timeout(_LOOK_AGAIN_S):
                        await changed.wait()
                except TimeoutError:
                    continue
        finally:
            unlisten()

    def _listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        stops = [
            self._database.listen(topic, wake)
            for topic in ("events", outbox.topic_of(self._channel))
        ]

        def unlisten() -> None:
            for stop in stops:
                stop()

        return unlisten

    async def _end_all(self, notes: list[_Note], conversation: str) -> bool:
        """Whether all of it is done; else something is still on its way to the person."""
        is_done = True
        for note in notes:
            if note.is_pending:
                is_done &= await self._database.write(
                    lambda tx, note=note: self._drop_tx(tx, note),  # type: ignore[misc]  # bound now
                    name="channel.waiting_over",
                )
            elif note.platform_id is not None:
                text = words(note.language)(note.ended)
                is_done &= await self._notes.end_note(conversation, note.platform_id, text)
        if is_done:
            await self._database.write(
                lambda tx: buttonless_tx(tx, notes[0].message_id), name="channel.waiting_over"
            )
        return is_done

    def _drop_tx(self, tx: Tx, note: _Note) -> bool:
        """Nobody needs to be told any more; False if it is being sent at this moment."""
        return bool(
            tx.execute(
                "UPDATE outbox SET state = 'dropped', ended_at = ?, detail = 'it waits no longer'"
                " WHERE outbox_id = ? AND state = 'pending' AND begun_boot = '' AND begun_at = 0",
                (self._clock.now_ms(), note.outbox_id),
            ).rowcount
        )


def _of_question(asked: Question, say: Words) -> str:
    """That a message waits for a person, for which question, and the ways out."""
    key = "message.waits_options" if asked.options else "message.waits_text"
    if asked.kind not in OF_AGENTS:
        key = "message.waits_approval"
    question = preview(asked.text, _QUESTION_CHARS)
    return say(key, question=question, id=asked.question_id)


def _ways(asked: Question, say: Words) -> list[list[Button]]:
    """Its options once more, and to go on without an answer."""
    options = [
        [Button(option, f"/answer {asked.question_id} {number}", once=True)]
        for number, option in enumerate(asked.options, start=1)
    ]
    skip = Button(say("button.skip"), f"/skip {asked.question_id}", once=True)
    return [*options, [skip]]


def _notes(reader: Reader, message_id: str) -> list[_Note]:
    """The notes about a message that have a button."""
    rows = reader.all(
        "SELECT outbox_id, state, body, platform_ids FROM outbox WHERE message_id = ?"
        " AND kind = 'notice' AND body ->> '$.cancel' = ?",
        (message_id, message_id),
    )
    message = reader.one(
        "SELECT state, started_at FROM messages WHERE message_id = ?", (message_id,)
    )
    if message is None or message["started_at"] is not None:
        ended = "message.begun"
    else:
        ended = "" if message["state"] == "queued" else "message.not_begun"
    notes = []
    for row in rows:
        ids = json.loads(row["platform_ids"])
        language = str(json.loads(row["body"]).get("language", ""))
        notes.append(
            _Note(
                row["outbox_id"],
                message_id,
                row["state"] == "pending",
                str(ids[-1]) if ids else None,
                language,
                ended,
            )
        )
    return notes
