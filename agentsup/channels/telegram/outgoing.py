"""From a part of the outbox to the pieces that are sent for it, always the same ones.

A piece is one call of the Bot API. Which pieces a part has must not depend on anything but the
part and the settings: after a crash the delivery goes on at a piece's number.
"""

from __future__ import annotations

import asyncio
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
from agentsup.channels.telegram import keyboard
from agentsup.channels.telegram.render import (
    CAPABILITIES,
    ON_LOOP_MAX_CHARS,
    Piece,
    plain,
    render,
    render_answer,
)
from agentsup.channels.upload import UploadFile
from agentsup.kit.pool import BoundedPool
from agentsup.model.answer import Answer, Text
from agentsup.model.channel import OutboxPart

__all__ = ["Outgoing", "TelegramSettings", "could_not_send", "pieces_of"]

_PHOTOS = frozenset({".jpg", ".jpeg", ".png", ".webp"})
_PHOTO_MAX_BYTES = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TelegramSettings:
    """What may change while the bot runs."""

    workspace: Path
    """Files are sent from here only."""
    files: BoundedPool = field(
        default_factory=lambda: BoundedPool("files"), compare=False, kw_only=True
    )
    """Where work on the workspace is done."""
    long_as_file_pieces: int = 0
    """An answer of more pieces goes as a file with a summary; 0: never."""
    silent_notices: bool = False
    timezone: tzinfo | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One call: a text, or a file with the text as its caption."""

    piece: Piece
    file: UploadFile | None = None
    is_photo: bool = False
    markup: Mapping[str, Any] | None = None
    is_silent: bool = False
    is_needed: bool = False
    """What stands below it is said of it: nothing may take its place."""

    @property
    def method(self) -> str:
        """The method that sends it as a new message."""
        if self.file is None:
            return "sendMessage"
        return "sendPhoto" if self.is_photo else "sendDocument"

    @property
    def files(self) -> dict[str, UploadFile] | None:
        """What is uploaded with it."""
        if self.file is None:
            return None
        return {"photo" if self.is_photo else "document": self.file}

    def fields(self, *, as_edit: bool = False) -> dict[str, Any]:
        """The fields of the call, without the chat."""
        fields: dict[str, Any] = {"reply_markup": self.markup} if self.markup else {}
        if self.file is None:
            # A page's preview under each piece would tear a long answer apart.
            fields |= {**self.piece.fields(), "link_preview_options": {"is_disabled": True}}
        elif self.piece.text:
            fields |= self.piece.caption_fields()
        if self.is_silent and not as_edit:
            fields["disable_notification"] = True
        return fields


async def pieces_of(
    part: OutboxPart, settings: TelegramSettings, *, is_private: bool
) -> tuple[Outgoing, ...]:
    """What is sent for a part, at least one piece; long texts are rendered in a thread."""
    kind, body = part.kind, part.body
    language = str(body.get("language") or "")
    say = words(language)
    text = cards.text_of(kind, body, timezone=settings.timezone, language=language)
    if "repeat_of" in body:
        text = f"{say('part.repeat')}\n\n{text}"
    if len(text) > ON_LOOP_MAX_CHARS or "path" in body:
        found = await _in_pool(part, text, settings, say)
    else:
        found = _pieces(part, text, settings, say)
    markup = keyboard.markup(kind, body, is_private=is_private, language=language)
    is_silent = kind == "notice" and settings.silent_notices
    last = len(found) - 1
    return tuple(
        replace(one, markup=markup if number == last else None, is_silent=is_silent)
        for number, one in enumerate(found)
    )


def could_not_send(
    file: UploadFile, why: str, *, markup: Mapping[str, Any] | None, say: Words
) -> Outgoing:
    """What is sent in place of a file."""
    return Outgoing(Piece(say("file.not_sent", name=file.name, why=why)), markup=markup)


async def _in_pool(
    part: OutboxPart, text: str, settings: TelegramSettings, say: Words
) -> list[Outgoing]:
    """``_pieces``; a workspace that does not answer costs the part its file, not its words."""
    if not part.body.get("path"):
        return await asyncio.to_thread(_pieces, part, text, settings, say)
    step = partial(_pieces, part, text, settings, say)
    try:
        return await settings.files.run(step, key=settings.workspace.parent.name)
    except OSError as error:
        name = str(part.body.get("name") or Path(str(part.body["path"])).name)
        lost = could_not_send(UploadFile(None, name), unreadable(error, say), markup=None, say=say)
        return [*map(Outgoing, _texts(text, is_plain=False)), lost]


def _pieces(part: OutboxPart, text: str, settings: TelegramSettings, say: Words) -> list[Outgoing]:
    body = part.body
    if body.get("path"):
        name = str(body.get("name") or "")
        return _with_file(str(body["path"]), name, text, settings, say)
    if part.kind == "answer" and not body.get("plain"):
        long = as_file(text, settings.long_as_file_pieces)
        if long is not None:
            upload = UploadFile(None, long.name, long.data)
            return [Outgoing(Piece(long.summary), upload)]
    file = cards.attached_text(body)
    pieces = _texts(text, is_plain=cards.is_plain(part.kind, body))
    found = [Outgoing(piece) for piece in pieces or (Piece(say("part.empty")),)]
    return found if file is None else [Outgoing(Piece(""), file, is_needed=True), *found]


def _texts(text: str, *, is_plain: bool, limit: int = CAPABILITIES.text_limit) -> tuple[Piece, ...]:
    if is_plain:
        # A text without spans comes out as it went in, in pieces of the right size.
        return tuple(Piece(plain(one)) for one in render_answer(Answer((Text(text),)), limit=limit))
    return render(text, limit=limit)


def _with_file(
    path_text: str, name: str, text: str, settings: TelegramSettings, say: Words
) -> list[Outgoing]:
    found, why = attached(
        path_text,
        name,
        settings.workspace,
        max_bytes=CAPABILITIES.max_file_bytes,
        say=say,
        files=settings.files,
    )
    caption = _texts(text, is_plain=False, limit=CAPABILITIES.caption_limit) if text else ()
    if why:
        return [
            *map(Outgoing, _texts(text, is_plain=False)),
            could_not_send(found, why, markup=None, say=say),
        ]
    is_photo = _is_photo(found)
    if len(caption) <= 1:
        return [Outgoing(caption[0] if caption else Piece(""), found, is_photo)]
    texts = _texts(text, is_plain=False)
    return [*map(Outgoing, texts), Outgoing(Piece(""), found, is_photo)]


def _is_photo(file: UploadFile) -> bool:
    path = file.path
    return path is not None and path.suffix.lower() in _PHOTOS and file.size <= _PHOTO_MAX_BYTES
