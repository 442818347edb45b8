"""From a part of the outbox to the events that are sent for it, always the same ones.

Which pieces a part has must not depend on anything but the part and the settings: after a crash the
delivery goes on at a piece's number, and a piece that goes again must be the one that went.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Any

from agentsup.catalogue import Words, words
from agentsup.channels import cards
from agentsup.channels.answer.long import as_file
from agentsup.channels.attachment import attached, unreadable
from agentsup.channels.matrix.choices import Choice, choices_of, listed
from agentsup.channels.matrix.place import Place
from agentsup.channels.matrix.render import (
    CAPABILITIES,
    ON_LOOP_MAX_CHARS,
    Piece,
    render,
    render_plain,
)
from agentsup.channels.upload import UploadFile
from agentsup.kit.pool import BoundedPool
from agentsup.model.channel import OutboxPart

__all__ = [
    "MARK",
    "MESSAGE",
    "REPLACES",
    "MatrixSettings",
    "Outgoing",
    "could_not_send",
    "edit_of",
    "new_of",
    "pieces_of",
    "reply_of",
    "txn_of",
]

MESSAGE = "m.room.message"
REPLACES = "replaces"
"""In a part's body: the event, ours, in whose place its beginning is put while that is there."""
MARK = "!"
"""Clients keep a command that begins with a slash for themselves."""
_FALLBACK_CHARS = 200
_CHANGING = frozenset({"cancel", "in_place"})
"""What may be taken out of a part's body, or put in, while it is under way."""
_KINDS = {"image": "m.image", "audio": "m.audio", "video": "m.video"}


@dataclass(frozen=True, slots=True)
class MatrixSettings:
    """What may change while the bot runs."""

    workspace: Path
    """Files are sent from here only."""
    files: BoundedPool = field(
        default_factory=lambda: BoundedPool("files"), compare=False, kw_only=True
    )
    """Where work on the workspace is done."""
    long_as_file_pieces: int = 0
    """An answer of more than so many screens goes as a file with a summary; 0: never."""
    timezone: tzinfo | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One event: a text, or a file. ``choices`` stand below the text already."""

    piece: Piece
    file: UploadFile | None = None
    mime: str = ""
    is_notice: bool = False
    choices: tuple[Choice, ...] = ()
    above: str = ""
    """The body without the choices; kept where there are some."""
    is_needed: bool = False
    """What stands below it is said of it: nothing may take its place."""

    @property
    def size(self) -> int:
        """Bytes of the file, when it was looked at."""
        assert self.file is not None
        return len(self.file.data) if self.file.path is None else self.file.size

    def content(self, *, mxc: str = "", size: int = 0) -> dict[str, Any]:
        """The content of a new ``m.room.message``; a file has been uploaded to ``mxc``."""
        # Without this, words of an answer could ring for everybody they seem to name.
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


def new_of(content: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """The content as it is sent to ``place``; in a thread also for clients that know none."""
    if place.thread_id is None:
        return dict(content)
    relation = {
        "rel_type": "m.thread",
        "event_id": place.thread_id,
        "is_falling_back": True,
        "m.in_reply_to": {"event_id": place.thread_id},
    }
    return {**content, "m.relates_to": relation}


def reply_of(content: Mapping[str, Any], event_id: str) -> dict[str, Any]:
    """The content as an answer to that event."""
    return {**content, "m.relates_to": {"m.in_reply_to": {"event_id": event_id}}}


def edit_of(content: Mapping[str, Any], event_id: str) -> dict[str, Any]:
    """The content of an event that puts ``content`` in the place of an earlier one's.

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
    """The transaction id of the piece at ``part.progress``.

    It is the same after a restart, and another for every other part, also where a store was
    restored from a backup and counts its parts anew.
    """
    body = {key: value for key, value in part.body.items() if key not in _CHANGING}
    told = json.dumps([part.agent_id, part.message_id, part.kind, body], sort_keys=True)
    digest = hashlib.blake2s(told.encode("utf-8", "replace"), digest_size=6).hexdigest()
    return f"ag-{part.outbox_id}-{part.progress}-{digest}"


async def pieces_of(part: OutboxPart, settings: MatrixSettings) -> tuple[Outgoing, ...]:
    """What is sent for a part, at least one piece; long texts are rendered in a thread."""
    kind, body = part.kind, part.body
    language = str(body.get("language") or "")
    say = words(language)
    text = cards.text_of(kind, body, timezone=settings.timezone, language=language, mark=MARK)
    if "repeat_of" in body:
        text = f"{say('part.repeat')}\n\n{text}"
    if len(text) > ON_LOOP_MAX_CHARS or "path" in body:
        found = await _in_pool(part, text, settings, say)
    else:
        found = _pieces(part, text, settings, say)
    choices = choices_of(kind, body, language=language)
    if choices:
        found[-1:] = _with_choices(found[-1], choices, language)
    # People are not rung for notices; what they are asked is none.
    is_notice = kind == "notice" and not any(each.data for each in choices)
    return tuple(replace(one, is_notice=is_notice) for one in found)


def _with_choices(last: Outgoing, choices: tuple[Choice, ...], language: str) -> list[Outgoing]:
    below = listed(choices, language=language)
    if last.file is not None:
        return [last, Outgoing(below, choices=choices)]
    piece = last.piece.followed_by(below)
    return [replace(last, piece=piece, choices=choices, above=last.piece.body)]


def could_not_send(file: UploadFile, why: str, say: Words) -> Outgoing:
    """What is sent in place of a file."""
    return Outgoing(Piece(say("file.not_sent", name=file.name, why=why)))


async def _in_pool(
    part: OutboxPart, text: str, settings: MatrixSettings, say: Words
) -> list[Outgoing]:
    """``_pieces``; a workspace that does not answer costs the part its file, not its words."""
    if not part.body.get("path"):
        return await asyncio.to_thread(_pieces, part, text, settings, say)
    step = partial(_pieces, part, text, settings, say)
    try:
        return await settings.files.run(step, key=settings.workspace.parent.name)
    except OSError as error:
        name = str(part.body.get("name") or Path(str(part.body["path"])).name)
        lost = could_not_send(UploadFile(None, name), unreadable(error, say), say)
        return [*(Outgoing(piece) for piece in render(text)), lost]


def _pieces(part: OutboxPart, text: str, settings: MatrixSettings, say: Words) -> list[Outgoing]:
    body = part.body
    if body.get("path"):
        return _with_file(body, text, settings, say)
    if part.kind == "answer" and not body.get("plain"):
        long = as_file(text, settings.long_as_file_pieces)
        if long is not None:
            upload = UploadFile(None, long.name, long.data)
            return [Outgoing(Piece(long.summary)), _sent(upload)]
    file = cards.attached_text(body)
    found = render_plain(text) if cards.is_plain(part.kind, body) else render(text)
    texts = [Outgoing(piece) for piece in found or (Piece(say("part.empty")),)]
    return texts if file is None else [replace(_sent(file), is_needed=True), *texts]


def _with_file(
    body: Mapping[str, Any], text: str, settings: MatrixSettings, say: Words
) -> list[Outgoing]:
    """The text and below it the file: not every client shows a text that belongs to a file."""
    file, why = attached(
        str(body["path"]),
        str(body.get("name") or ""),
        settings.workspace,
        max_bytes=CAPABILITIES.max_file_bytes,
        say=say,
        files=settings.files,
    )
    texts = [Outgoing(piece) for piece in render(text)]
    return [*texts, could_not_send(file, why, say) if why else _sent(file)]


def _sent(file: UploadFile) -> Outgoing:
    """A file by itself, with its type, as far as its name tells it."""
    mime = mimetypes.guess_type(file.name, strict=False)[0] or "application/octet-stream"
    return Outgoing(Piece(""), file, mime)
