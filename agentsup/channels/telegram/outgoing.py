"""From a part of the outbox to the pieces that are sent for it, always the same ones, and its buttons.

A piece is one call of the Bot API. The pieces of a part depend only on the part and the settings,
because after a crash the delivery goes on at the number of a piece.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentsup.catalogue import words
from agentsup.channels.core.files.upload import UploadFile
from agentsup.channels.core.sending.cards import AGAIN, CANCEL, QUESTION, offered
from agentsup.channels.core.sending.deliver import DeliverySettings
from agentsup.channels.core.sending.pieces import PieceMaker
from agentsup.channels.telegram.render import CAPABILITIES, NO_PREVIEW, Piece, render, render_answer
from agentsup.mailbox.delivery import preview
from agentsup.model.answer import AnswerBlocks, TextBlock
from agentsup.model.channel import OutboxPart

MAX_LABEL_CHARS = 60
_NARROW_CHARS = 12
"""Options up to this length share a row."""
_PER_ROW = 3
_PLACEHOLDER_MAX = 64
_PHOTOS = frozenset({".jpg", ".jpeg", ".png", ".webp"})
_PHOTO_MAX_BYTES = 10 * 1024 * 1024


def reply_markup(
    kind: str, body: Mapping[str, Any], *, is_private: bool, language: str = ""
) -> dict[str, Any] | None:
    """Return the ``reply_markup`` of a part, or None. It belongs to the part's last message."""
    say = words(language)
    rows = [list(row) for row in body.get("buttons") or ()]
    question_id = str(body.get("question_id") or "")
    if kind == "question" and question_id:
        rows += _option_rows(question_id, offered(body), is_approval="choices" in body)
        if not rows:
            placeholder = say("question.placeholder")[:_PLACEHOLDER_MAX]
            # In a group, ``force_reply`` would open a reply for everybody.
            return (
                {"force_reply": True, "input_field_placeholder": placeholder}
                if is_private
                else None
            )
    if "again" in body:
        label = say("button.again")
        rows.append([{"label": label, "data": f"{AGAIN}{body['again']}"}])
    if body.get("cancel"):
        label = say("button.cancel")
        rows.append([{"label": label, "data": f"{CANCEL}{body['cancel']}"}])
    if rows or not is_private:
        return inline_keyboard(rows) if rows else None
    if wanted := body.get("create_bot"):
        key = {"text": _label(wanted["label"]), "request_managed_bot": wanted["request"]}
        return {"keyboard": [[key]], "resize_keyboard": True, "one_time_keyboard": True}
    return {"remove_keyboard": True} if body.get("ends_keyboard") else None


def inline_keyboard(rows: Sequence[Sequence[Mapping[str, str]]]) -> dict[str, Any]:
    """Return rows of ``{"label", "data" | "url"}`` in the form of the Bot API."""
    return {
        "inline_keyboard": [
            [
                {
                    "text": _label(button["label"]),
                    **(
                        {"url": button["url"]}
                        if "url" in button
                        else {"callback_data": button["data"]}
                    ),
                }
                for button in row
            ]
            for row in rows
        ]
    }


def _option_rows(
    question_id: str, options: Sequence[tuple[str, str]], *, is_approval: bool
) -> list[list[dict[str, str]]]:
    buttons = [
        {"label": label, "data": f"{QUESTION}{question_id}:{meaning}"} for label, meaning in options
    ]
    denial = [buttons.pop()] if is_approval else []
    wide = any(len(label) > _NARROW_CHARS for label, _ in options)
    width = 1 if wide else _PER_ROW
    rows = [buttons[i : i + width] for i in range(0, len(buttons), width)]
    # The denial has a row of its own, after the options that allow the call.
    return [*rows, denial] if denial else rows


def _label(text: str) -> str:
    line = preview(text, MAX_LABEL_CHARS)
    if not any(c.isprintable() and not c.isspace() for c in line):
        line = "·"  # the platform refuses a button without a visible label
    return line


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
    markup = reply_markup(part.kind, part.body, is_private=is_private, language=maker.language)
    return (*found[:-1], replace(found[-1], markup=markup))
