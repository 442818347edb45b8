"""Kinds of received files, by their first bytes and not by their names, and the model's notes.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from agentsup.agents.pipeline.marking import marked
from agentsup.catalogue import words
from agentsup.model.engine import Picture
from agentsup.model.message import Message, Part

HEAD_BYTES = 64 * 1024
MAX_FILE_BYTES = 24 * 1024 * 1024
"""Longer files are not read for the model; it gets their path."""
MOST_FILES = 10
"""As many as an album has."""
MOST_PICTURE_BYTES = 4 * 1024 * 1024
"""All pictures of one message together, as they are sent to the model."""
MOST_CHARS = 60_000
"""All texts of one message's files together."""
LIMITS: Mapping[str, int] = {
    "side": 1568,
    "most_side": 2048,
    "picture_bytes": 1024 * 1024,
    "chars": MOST_CHARS,
    "pages": 50,
}
"""A picture has ``side`` pixels on its longer side; a JPEG may keep up to ``most_side``, since its
decoder halves it for less than scaling costs. Models scale larger ones down themselves."""

_PICTURES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".heic", ".heif", ".bmp", ".tiff"})
_DOCUMENTS = {".pdf": "pdf", ".docx": "office", ".odt": "office"}
_STARTS = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"%PDF-", "pdf"),
    (b"OggS", "audio"),
    (b"ID3", "audio"),
    (b"\xff\xfb", "audio"),
    (b"\xff\xf3", "audio"),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A message's files as a model sees them. ``problems`` are sentences for the person."""

    pictures: tuple[Picture, ...] = ()
    text: str = ""
    problems: tuple[str, ...] = ()


NOTHING = Seen()


class Unreadable(Exception):
    """The file can't be read; ``reason`` is one of the texts ``media.*``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def kind_of(name: str, head: bytes) -> str:
    """JPEG, PNG, GIF or WEBP, ``pdf``, ``office``, ``audio``, ``text``; else empty: its path is all
    that is told. ``broken`` is what has the name of a picture or a document and is none."""
    ending = PurePosixPath(name).suffix.lower()
    found = next((kind for start, kind in _STARTS if head.startswith(start)), "")
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        found = "WEBP"
    if (head.startswith(b"RIFF") and head[8:12] == b"WAVE") or head[4:11] == b"ftypM4A":
        found = "audio"
    if found:
        return found
    if _DOCUMENTS.get(ending) == "office" and head.startswith(b"PK\x03\x04"):
        return "office"
    if ending in _PICTURES or ending in _DOCUMENTS:
        return "broken"
    return "text" if is_text(head) else ""


def is_text(head: bytes) -> bool:
    """Whether it is UTF-8 without control characters; the last character may be cut."""
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:
            return False
        text = head[: error.start].decode()
    return bool(text) and not any(ord(each) < 32 and each not in "\t\n\r\f" for each in text)


def about(part: Part) -> str:
    """The path of a file in its workspace, in one line."""
    return " ".join(part.path.split())


def headline(path: str, found: Mapping[str, object]) -> str:
    """The line above a document's text."""
    pages = f", pages 1-{found['pages']} of {found['of']}" if "of" in found else ""
    more = ", cut: the file has more" if found.get("cut") else ""
    return f"Content of {path}{pages}{more}:"


def transcript(message: Message, part: Part, text: str) -> str:
    """The note for the model with the text of a recording. A voice message is the person's own
    words; another recording may be anybody's."""
    if PurePosixPath(part.name).name.casefold().startswith("voice"):
        return f"[voice message {about(part)}, as it was heard:]\n{text}"
    said = f"Recording {about(part)}, as it was heard:\n{text}"
    return marked(said, name=about(part), call_id=message.message_id)


def problem_text(message: Message, part: Part, reason: str) -> str:
    """The sentence for the person, in their language."""
    name = " ".join((part.name or part.path).split())[:80]
    return words(message.principal.language)(f"media.{reason}", name=name)
