"""From a part of the outbox to the pieces that are sent for it, always the same ones.

A piece is one call of the Bot API. The pieces of a part depend only on the part and the settings,
because after a crash the delivery goes on at the number of a piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentsup.channels.core.files.upload import UploadFile
from agentsup.channels.core.sending.pieces import PieceMaker
from agentsup.channels.core.sending.settings import DeliverySettings
from agentsup.channels.telegram import keyboard
from agentsup.channels.telegram.render import CAPABILITIES, NO_PREVIEW, Piece, render, render_answer
from agentsup.model.answer import AnswerBlocks, TextBlock
from agentsup.model.channel import OutboxPart

_PHOTOS = frozenset({".jpg", ".jpeg", ".png", ".webp"})
_PHOTO_MAX_BYTES = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class OutgoingCall:
    """One call: a text, or a file with the text as its caption."""

    piece: Piece
    file: UploadFile | None = None
    is_photo: bool = False
    markup: Mapping[str, Any] | None = None
    is_needed: bool = False
    """The text below refers to the file, so no text may replace it."""

    @property
    def method(self) -> str:
        """The method that sends it as a new message."""
        if self.file is None:
            return "sendMessage"
        return "sendPhoto" if self.is_photo else "sendDocument"

    @property
    def files(self) -> dict[str, UploadFile] | None:
        """The files to upload, by field."""
        if self.file is None:
            return None
        return {"photo" if self.is_photo else "document": self.file}

    def fields(self) -> dict[str, Any]:
        """The fields of the call, without the chat."""
        fields: dict[str, Any] = {"reply_markup": self.markup} if self.markup else {}
        if self.file is None:
            # Previews of links under each piece would separate the pieces of a long answer.
            fields |= {**self.piece.fields(), **NO_PREVIEW}
        elif self.piece.text:
            fields |= self.piece.caption_fields()
        return fields


class _CallMaker(PieceMaker[OutgoingCall]):
    """A text that fits is the caption of its file."""

    max_file_bytes = CAPABILITIES.max_file_bytes

    def texts(self, text: str, *, is_plain: bool = False) -> list[OutgoingCall]:
        if is_plain:
            # A text without spans is only split; its content does not change.
            split = render_answer(AnswerBlocks((TextBlock(text),)))
            return [OutgoingCall(Piece(one.text)) for one in split]
        return [*map(OutgoingCall, render(text))]

    def note(self, text: str) -> OutgoingCall:
        return OutgoingCall(Piece(text))

    def file(self, file: UploadFile, *, is_needed: bool = False) -> OutgoingCall:
        ending = "" if file.path is None else file.path.suffix.lower()
        is_photo = ending in _PHOTOS and file.size <= _PHOTO_MAX_BYTES
        return OutgoingCall(Piece(""), file, is_photo, is_needed=is_needed)

    def with_text(self, file: UploadFile) -> list[OutgoingCall]:
        captions = render(self.text, limit=CAPABILITIES.caption_limit)
        if len(captions) > 1:
            return super().with_text(file)
        return [replace(self.file(file), piece=each) for each in captions or (Piece(""),)]

    def summarized(self, summary: str, file: UploadFile) -> list[OutgoingCall]:
        return [replace(self.file(file), piece=Piece(summary))]


async def pieces_of(
    part: OutboxPart, settings: DeliverySettings, *, is_private: bool
) -> tuple[OutgoingCall, ...]:
    """Return the pieces of a part, at least one; long texts are rendered in a thread."""
    maker = _CallMaker(part, settings)
    found = await maker.made()
    markup = keyboard.markup(part.kind, part.body, is_private=is_private, language=maker.language)
    return (*found[:-1], replace(found[-1], markup=markup))
