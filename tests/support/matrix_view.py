"""What a person's Matrix client makes of a room's events: edits applied, deletions gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(slots=True)
class Seen:
    """One message as it stands now, and how it came to that."""

    event_id: str
    sender: str
    kind: str
    """m.text, m.notice, m.file, …"""
    content: Json
    """As it stands now, without the relation of an edit."""
    thread: str
    """The event the thread hangs on, or empty."""
    reply_to: str
    """The event it answers (not the fallback of a thread), or empty."""
    history: list[str] = field(default_factory=list)
    """Its texts, first to last."""
    reactions: dict[str, set[str]] = field(default_factory=dict)
    """key → user ids."""
    is_redacted: bool = False

    @property
    def text(self) -> str:
        """The plain text, of a file its caption or name."""
        return str(self.content.get("body", ""))

    @property
    def html(self) -> str:
        """The formatted text, or empty."""
        return str(self.content.get("formatted_body", ""))

    def line(self) -> str:
        """For failures."""
        gone = " (deleted)" if self.is_redacted else ""
        edits = f" (edit {len(self.history) - 1})" if len(self.history) > 1 else ""
        thread = f" in {self.thread[:8]}" if self.thread else ""
        reactions = " ".join(self.reactions)
        return f"{self.sender}{thread}{edits}{gone} {self.kind}: {self.text[:200]} {reactions}"


class RoomView:
    """One room: its messages in order, members, state, who is writing, read receipts."""

    def __init__(self, room: str) -> None:
        """``room`` is its id."""
        self.room = room
        self.messages: list[Seen] = []
        self.events: list[Json] = []
        """All timeline events as they came."""
        self.members: dict[str, str] = {}
        self.state: dict[tuple[str, str], Json] = {}
        self.writing: set[str] = set()
        self.typed: set[str] = set()
        """Whoever has been seen writing."""
        self.read: dict[str, str] = {}
        """user id → the event read last."""
        self.read_in: dict[tuple[str, str], str] = {}
        """user id and thread root → the event of that thread read last."""
        self.is_invitation = False
        self._by_id: dict[str, Seen] = {}
        self._reactions: dict[str, tuple[str, str, str]] = {}

    def get(self, event_id: str) -> Seen | None:
        """A message by its id."""
        return self._by_id.get(event_id)

    def after(self, event_id: str) -> Iterator[Seen]:
        """Messages later than the event; all, if it is empty."""
        later = not event_id
        order = {event["event_id"]: place for place, event in enumerate(self.events)}
        begin = order.get(event_id, -1)
        for one in self.messages:
            if later or order[one.event_id] > begin >= 0:
                yield one

    def take(self, part: Json) -> None:
        """Add what one sync told about the room."""
        self.is_invitation = "invite_state" in part
        for event in part.get("state", {}).get("events", ()):
            self._state(event)
        for event in part.get("timeline", {}).get("events", ()):
            self.events.append(event)
            if "state_key" in event:
                self._state(event)
            else:
                self._timeline(event)
        for event in part.get("ephemeral", {}).get("events", ()):
            self._ephemeral(event)

    def _state(self, event: Json) -> None:
        self.state[event["type"], event["state_key"]] = event["content"]
        if event["type"] == "m.room.member":
            self.members[event["state_key"]] = event["content"].get("membership", "")

    def _ephemeral(self, event: Json) -> None:
        if event["type"] == "m.typing":
            self.writing = set(event["content"]["user_ids"])
            self.typed |= self.writing
        elif event["type"] == "m.receipt":
            for event_id, kinds in event["content"].items():
                for user_id, receipt in kinds.get("m.read", {}).items():
                    thread = str(receipt.get("thread_id") or "")
                    self.read[user_id] = self.read_in[user_id, thread] = event_id

    def _timeline(self, event: Json) -> None:
        content = event.get("content", {})
        relation = content.get("m.relates_to", {})
        kind = relation.get("rel_type", "")
        if event["type"] == "m.room.redaction":
            self._redact(str(event.get("redacts") or content.get("redacts", "")))
        elif event["type"] == "m.reaction":
            target, key = str(relation.get("event_id", "")), str(relation.get("key", ""))
            self._reactions[event["event_id"]] = (target, key, event["sender"])
            if seen := self._by_id.get(target):
                seen.reactions.setdefault(key, set()).add(event["sender"])
        elif event["type"] == "m.room.message" and kind == "m.replace":
            seen = self._by_id.get(str(relation.get("event_id", "")))
            new = content.get("m.new_content")
            if seen is not None and seen.sender == event["sender"] and new:
                seen.content, seen.kind = new, str(new.get("msgtype", ""))
                seen.history.append(seen.text)
        elif event["type"] == "m.room.message" and content:
            reply = relation.get("m.in_reply_to", {}).get("event_id", "")
            seen = Seen(
                event_id=event["event_id"],
                sender=event["sender"],
                kind=str(content.get("msgtype", "")),
                content=content,
                thread=str(relation.get("event_id", "")) if kind == "m.thread" else "",
                reply_to="" if relation.get("is_falling_back") else str(reply),
                history=[str(content.get("body", ""))],
            )
            self.messages.append(seen)
            self._by_id[seen.event_id] = seen

    def _redact(self, event_id: str) -> None:
        if seen := self._by_id.get(event_id):
            seen.is_redacted = True
        if event_id in self._reactions:
            target, key, sender = self._reactions.pop(event_id)
            if seen := self._by_id.get(target):
                seen.reactions.get(key, set()).discard(sender)
                if not seen.reactions.get(key):
                    seen.reactions.pop(key, None)


def fold(document: Json) -> Iterator[tuple[str, Json]]:
    """The rooms of one sync answer, however one stands to them."""
    for parts in document.get("rooms", {}).values():
        yield from parts.items()
