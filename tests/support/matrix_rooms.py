"""A homeserver as a client sees it, in memory: events once per transaction id, edits, redactions.

For tests of what is sent and shown, where each call can be made to fail before or after its effect.
The real one is ``tests.support.synapse``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentsup.channels.core.errors import ChatGone, RequestRefused
from agentsup.channels.core.files import UploadFile
from agentsup.channels.matrix.errors import error_of
from agentsup.kit.clock import Clock
from tests.support.bound import BOUND_S

BOT, ANN = "@bot:localhost", "@ann:localhost"
Trouble = Exception | Callable[[], Awaitable[object]]


@dataclass
class RoomEvent:
    """One event. ``content`` is as it was sent; ``shown`` follows its edits."""

    event_id: str
    room_id: str
    kind: str
    content: dict[str, Any]
    txn_id: str = ""
    at: float = 0.0
    shown: dict[str, Any] = field(default_factory=dict)
    edits: int = 0
    is_redacted: bool = False

    @property
    def relation(self) -> dict[str, Any]:
        found = self.content.get("m.relates_to")
        return found if isinstance(found, dict) else {}


class Rooms:
    """Implements what the channel uses of ``MatrixClient``.

    ``before`` and ``after`` hold trouble by call (``send``, ``edit``, ``reaction``, ``redact``,
    ``typing``, ``upload``, ``event``, ``state``), each used once, in order.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.events: dict[str, RoomEvent] = {}
        self.by_txn: dict[tuple[str, str], str] = {}
        self.calls: list[tuple[float, str, dict[str, Any]]] = []
        self.before: dict[str, list[Trouble]] = {}
        self.after: dict[str, list[Trouble]] = {}
        self.room_states: dict[tuple[str, str], dict[str, Any]] = {}
        self.gone: set[str] = set()
        self.max_bytes = 0
        """The largest request that gets through; 0: any."""
        self.people: dict[str, set[str]] = {}
        """Who is in a room besides the bot; Ann where nothing is said."""
        self.files: dict[str, bytes] = {}
        self._writing_until: dict[str, float] = {}
        self.changed = asyncio.Event()

    # -- what people see ---------------------------------------------------------------------------

    def messages(self, room_id: str | None = None) -> list[RoomEvent]:
        """Messages as they are shown now, oldest first; edits and redacted ones are none."""
        return [
            event
            for event in self.events.values()
            if event.kind == "m.room.message"
            and not event.is_redacted
            and event.relation.get("rel_type") != "m.replace"
            and room_id in {None, event.room_id}
        ]

    def texts(self, room_id: str | None = None) -> list[str]:
        return [str(event.shown.get("body")) for event in self.messages(room_id)]

    def reactions(self, event_id: str) -> list[str]:
        """What stands under an event, in order."""
        return [
            str(event.relation["key"])
            for event in self.events.values()
            if event.kind == "m.reaction"
            and not event.is_redacted
            and event.relation.get("event_id") == event_id
        ]

    @property
    def writing(self) -> dict[str, bool]:
        """Whether the bot is seen typing, by room."""
        now = self.clock.monotonic()
        return {room_id: until > now for room_id, until in self._writing_until.items()}

    def times(self, call: str) -> list[float]:
        return [at for at, name, _ in self.calls if name == call]

    # -- the client --------------------------------------------------------------------------------

    user_id = BOT

    async def send(
        self,
        room_id: str,
        event_type: str,
        content: Mapping[str, Any],
        *,
        txn_id: str,
        timeout_s: float = BOUND_S,
    ) -> str:
        relation = content.get("m.relates_to") or {}
        is_edit = relation.get("rel_type") == "m.replace"
        call = "edit" if is_edit else "reaction" if event_type == "m.reaction" else "send"
        facts = {"room_id": room_id, "txn_id": txn_id, "content": dict(content)}
        async with _Call(self, call, facts):
            if room_id in self.gone:
                raise ChatGone(403, f"{BOT} not in room {room_id}", "M_FORBIDDEN")
            if 0 < self.max_bytes < len(json.dumps(content, ensure_ascii=False).encode()):
                raise error_of(413, b"<html>")
            known = self.by_txn.get((room_id, txn_id))
            if known is not None:
                return known
            if call == "reaction" and relation["key"] in self.reactions(relation["event_id"]):
                raise RequestRefused(
                    400, "Can't send same reaction twice", "M_DUPLICATE_ANNOTATION"
                )
            event_id = f"$e{len(self.events) + 1}"
            event = RoomEvent(
                event_id, room_id, event_type, dict(content), txn_id, self.clock.monotonic()
            )
            event.shown = event.content
            self.events[event_id] = event
            self.by_txn[room_id, txn_id] = event_id
            target = self.events.get(str(relation.get("event_id", "")))
            if is_edit and target is not None:
                target.shown = dict(content["m.new_content"])
                target.edits += 1
            return event_id

    async def redact(self, room_id: str, event_id: str, *, txn_id: str, reason: str = "") -> str:
        async with _Call(self, "redact", {"room_id": room_id, "event_id": event_id}):
            self.events[event_id].is_redacted = True
            return f"$r{event_id}"

    async def typing(self, room_id: str, is_on: bool, timeout_ms: int = 30_000) -> None:
        async with _Call(self, "typing", {"room_id": room_id, "is_on": is_on}):
            until = self.clock.monotonic() + timeout_ms / 1000
            self._writing_until[room_id] = until if is_on else 0.0

    async def upload(self, file: UploadFile, content_type: str) -> str:
        async with _Call(self, "upload", {"name": file.name, "type": content_type}):
            with await file.opened() as handle:
                data = handle.read()
            mxc = f"mxc://localhost/{len(self.files) + 1}"
            self.files[mxc] = data
            return mxc

    async def event(self, room_id: str, event_id: str) -> dict[str, Any]:
        async with _Call(self, "event", {"room_id": room_id, "event_id": event_id}):
            event = self.events.get(event_id)
            if event is None:
                raise ChatGone(404, "Event not found.", "M_NOT_FOUND")
            unsigned: dict[str, Any] = {"redacted_because": {}} if event.is_redacted else {}
            return {"event_id": event_id, "content": event.content, "unsigned": unsigned}

    async def members(self, room_id: str) -> dict[str, Any]:
        async with _Call(self, "members", {"room_id": room_id}):
            if room_id in self.gone:
                raise ChatGone(403, f"{BOT} not in room {room_id}", "M_FORBIDDEN")
            return {each: {} for each in {BOT, *self.people.get(room_id, {ANN})}}

    async def state(
        self, room_id: str, event_type: str, state_key: str = ""
    ) -> dict[str, Any] | None:
        async with _Call(self, "state", {"room_id": room_id, "type": event_type}):
            return self.room_states.get((room_id, event_type))


class _Call:
    """One call: on record, with the trouble that is due before and after its effect."""

    def __init__(self, rooms: Rooms, call: str, facts: dict[str, Any]) -> None:
        self._rooms, self._call, self._facts = rooms, call, facts

    async def __aenter__(self) -> None:
        self._rooms.calls.append((self._rooms.clock.monotonic(), self._call, self._facts))
        await self._suffer(self._rooms.before)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._rooms.changed.set()
            await self._suffer(self._rooms.after)

    async def _suffer(self, trouble: dict[str, list[Trouble]]) -> None:
        waiting = trouble.get(self._call)
        if waiting:
            first = waiting.pop(0)
            if isinstance(first, Exception):
                raise first
            await first()
