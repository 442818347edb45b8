"""Makes the events that are sent for a part of the outbox, always the same ones.

The pieces of a part must depend on nothing but the part and the settings: after a crash the
delivery continues at a piece's number, and a piece that is sent again must be the same.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentsup.catalogue import LocalizedTexts
from agentsup.channels.core.files.upload import UploadFile
from agentsup.channels.core.sending.deliver import DeliverySettings
from agentsup.channels.core.sending.pieces import PieceMaker, not_sent
from agentsup.channels.matrix.address import RoomAddress
from agentsup.channels.matrix.choices import ListedChoice, choices_of, listed
from agentsup.channels.matrix.render import (
    CAPABILITIES,
    Piece,
    render,
    render_plain,
)
from agentsup.model.channel import OutboxPart

MESSAGE = "m.room.message"
REPLACES = "replaces"
"""In a part's body: the bot's event whose content its first piece replaces, if it still exists."""
MARK = "!"
"""The first character of commands: clients handle those with a slash themselves."""
_FALLBACK_CHARS = 200
_CHANGING = frozenset({"cancel", "in_place"})
"""Members of a part's body that may be removed or added during its delivery."""
_KINDS = {"image": "m.image", "audio": "m.audio", "video": "m.video"}


@dataclass(frozen=True, slots=True)
class OutgoingEvent:
    """One event: a text, or a file. ``choices`` stand below the text already."""

    piece: Piece
    file: UploadFile | None = None
    mime: str = ""
    is_notice: bool = False
    choices: tuple[ListedChoice, ...] = ()
    above: str = ""
    """The body without the choices, if there are any."""
    is_needed: bool = False
    """Whether the text below is about this file, so that nothing may be sent in its place."""

    @property
    def size(self) -> int:
        """Bytes of the file, when it was looked at."""
        assert self.file is not None
        return len(self.file.data) if self.file.path is None else self.file.size

    def content(self, *, mxc: str = "", size: int = 0) -> dict[str, Any]:
        """The content of a new ``m.room.message``; a file has been uploaded to ``mxc``."""
        # Without this, words of an answer could notify everybody they seem to name.
        content: dict[str, Any] = {"m.mentions": {}}
        if self.file is None:
            kind = "m.notice" if self.is_notice else "m.text"
            return content | {"msgtype": kind, **self.piece.fields()}
        return content | {
            "msgtype": _KINDS.get(self.mime.partition("/")[0], "m.file"),
            "body": self.file.name,
            "filename": self.file.name,
            "url": mxc,
            "info": {"mimetype": self.mime, "size": size},
        }


def content_of(piece: Piece) -> dict[str, Any]:
    """Return a piece as the content of a message that mentions nobody."""
    return {"msgtype": "m.text", "m.mentions": {}, **piece.fields()}


def new_of(content: Mapping[str, Any], address: RoomAddress) -> dict[str, Any]:
    """Return the content as sent to ``address``; in a thread with a fallback for older clients."""
    if address.thread_id is None:
        return dict(content)
    relation = {
        "rel_type": "m.thread",
        "event_id": address.thread_id,
        "is_falling_back": True,
        "m.in_reply_to": {"event_id": address.thread_id},
    }
    return {**content, "m.relates_to": relation}


def reply_of(content: Mapping[str, Any], event_id: str) -> dict[str, Any]:
    """Return the content as a reply to that event."""
    return {**content, "m.relates_to": {"m.in_reply_to": {"event_id": event_id}}}


def edit_of(content: Mapping[str, Any], event_id: str) -> dict[str, Any]:
    """Return the content of an event that replaces the content of an earlier one.

    Clients that know no edits show the beginning of it as a message.
    """
    fallback = str(content.get("body", ""))
    if len(fallback) > _FALLBACK_CHARS:
        fallback = fallback[: _FALLBACK_CHARS - 1] + "…"
    return {
        "msgtype": content["msgtype"],
        "body": f"* {fallback}",
        "m.mentions": {},
        "m.new_content": dict(content),
        "m.relates_to": {"rel_type": "m.replace", "event_id": event_id},
    }


def txn_of(part: OutboxPart) -> str:
    """Return the transaction id of the piece at ``part.progress``.

    It is the same after a restart and differs for every other part, also if a store was restored
    from a backup and gives the same numbers to new parts.
    """
    body = {key: value for key, value in part.body.items() if key not in _CHANGING}
    identity = json.dumps([part.agent_id, part.message_id, part.kind, body], sort_keys=True)
    digest = hashlib.blake2s(identity.encode("utf-8", "replace"), digest_size=6).hexdigest()
    return f"ag-{part.outbox_id}-{part.progress}-{digest}"


def short(text: str) -> str:
    """Return a short digest of a text, for transaction ids."""
    return hashlib.blake2s(text.encode(), digest_size=9).hexdigest()


class _EventMaker(PieceMaker[OutgoingEvent]):
    """A text and a file are separate events: not every client shows the caption of a file."""

    max_file_bytes = CAPABILITIES.max_file_bytes
    mark = MARK

    def texts(self, text: str, *, is_plain: bool = False) -> list[OutgoingEvent]:
        return [*map(OutgoingEvent, render_plain(text) if is_plain else render(text))]

    def note(self, text: str) -> OutgoingEvent:
        return OutgoingEvent(Piece(text))

    def file(self, file: UploadFile, *, is_needed: bool = False) -> OutgoingEvent:
        mime = mimetypes.guess_type(file.name, strict=False)[0] or "application/octet-stream"
        return OutgoingEvent(Piece(""), file, mime, is_needed=is_needed)


async def pieces_of(part: OutboxPart, settings: DeliverySettings) -> tuple[OutgoingEvent, ...]:
    """Return the pieces of a part, at least one; long texts are rendered in a thread."""
    maker = _EventMaker(part, settings)
    found = await maker.made()
    choices = choices_of(part.kind, part.body, language=maker.language)
    if choices:
        found[-1:] = _with_choices(found[-1], choices, maker.language)
    # Clients do not notify people of notices, so a question is not sent as one.
    is_notice = part.kind == "notice" and not any(each.data for each in choices)
    return tuple(replace(one, is_notice=is_notice) for one in found)


def _with_choices(
    last: OutgoingEvent, choices: tuple[ListedChoice, ...], language: str
) -> list[OutgoingEvent]:
    below = listed(choices, language=language)
    if last.file is not None:
        return [last, OutgoingEvent(below, choices=choices)]
    piece = last.piece.followed_by(below)
    return [replace(last, piece=piece, choices=choices, above=last.piece.body)]


def could_not_send(file: UploadFile, why: str, say: LocalizedTexts) -> OutgoingEvent:
    """Return the piece that is sent in place of a file."""
    return OutgoingEvent(Piece(not_sent(file, why, say)))
