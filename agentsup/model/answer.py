"""What an agent says, in a form no channel owns: blocks of text, code, tables, files and buttons.

Engines write Markdown; ``channels.answer`` turns it into these values, and each channel renders
them with what it declares in its ``Capabilities``. Everything here is a frozen value; positions
are code points of the text they belong to.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from agentsup.model.errors import BadRequest

# -- text ------------------------------------------------------------------------------------------


class Style(StrEnum):
    """How a stretch of text looks. ``PRE`` is code of several lines within laid-out text."""

    BOLD = "bold"
    ITALIC = "italic"
    STRIKE = "strike"
    CODE = "code"
    LINK = "link"
    SPOILER = "spoiler"
    QUOTE = "quote"
    PRE = "pre"


@dataclass(frozen=True, slots=True)
class Span:
    """``text[start:end]`` has this style. ``arg``: the URL of a link, the language of code."""

    start: int
    end: int
    style: Style
    arg: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """Paragraphs, a list, a quote, or (``heading`` 1 to 6) a heading."""

    text: str
    spans: tuple[Span, ...] = ()
    heading: int = 0


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to be shown as they are. ``language`` as its author named it, or empty."""

    text: str
    language: str = ""


class Align(StrEnum):
    LEFT = "left"
    CENTER = "center"
    RIGHT = "right"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows may be shorter or longer than the header; ``align`` per column, left where missing."""

    header: tuple[Text, ...]
    rows: tuple[tuple[Text, ...], ...]
    align: tuple[Align, ...] = ()


# -- what is not text ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file to hand over; ``path`` is where the agent has it."""

    path: str
    name: str = ""

    @property
    def label(self) -> str:
        """The name people see."""
        return self.name or self.path.rstrip("/").rpartition("/")[2] or self.path


@dataclass(frozen=True, slots=True)
class Button:
    """Sends ``data`` back when pressed, or opens ``url``: exactly one of the two.

    Raises ``ValueError`` for neither, both, or a label with nothing to read in it.
    """

    label: str
    data: str = ""
    url: str = ""

    def __post_init__(self) -> None:
        if not self.label.strip():
            raise ValueError("a button needs a label")
        if bool(self.data) == bool(self.url):
            raise ValueError(f"the button {self.label!r} needs either data or a url")


@dataclass(frozen=True, slots=True)
class Buttons:
    """Rows of buttons under a message."""

    rows: tuple[tuple[Button, ...], ...]

    def to_json(self) -> list[list[dict[str, str]]]:
        """For the body of an outbox part."""
        return [
            [
                {"label": button.label, **({"url": button.url} if button.url else {})}
                | ({"data": button.data} if button.data else {})
                for button in row
            ]
            for row in self.rows
        ]

    @classmethod
    def from_json(cls, value: object) -> Buttons:
        """The reverse of ``to_json``. Raises ``BadRequest`` that names the place."""
        if not isinstance(value, list):
            raise BadRequest("buttons must be a list of rows", field="buttons")
        return cls(tuple(_row(row, f"buttons[{at}]") for at, row in enumerate(value)))


def _row(value: object, field: str) -> tuple[Button, ...]:
    if not isinstance(value, list):
        raise BadRequest(f"{field} must be a list of buttons", field=field)
    return tuple(_button(one, f"{field}[{at}]") for at, one in enumerate(value))


def _button(value: object, field: str) -> Button:
    known = {"label", "data", "url"}
    if (
        not isinstance(value, dict)
        or not known.issuperset(value)
        or not all(isinstance(text, str) for text in value.values())
    ):
        raise BadRequest(f"{field} must have a label and either data or url, as text", field=field)
    try:
        return Button(value.get("label", ""), value.get("data", ""), value.get("url", ""))
    except ValueError as error:
        raise BadRequest(f"{field}: {error}", field=field) from error


class StatusKind(StrEnum):
    WORKING = "working"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Status:
    """How the work stands; a channel may show it as a reaction, as typing or as a line of text."""

    kind: StatusKind
    text: str = ""


# -- the whole -------------------------------------------------------------------------------------

Block: TypeAlias = Text | Code | Table | FileRef | Buttons | Status


@dataclass(frozen=True, slots=True)
class Answer:
    """Blocks in reading order."""

    blocks: tuple[Block, ...] = ()

    @property
    def files(self) -> tuple[FileRef, ...]:
        return tuple(block for block in self.blocks if isinstance(block, FileRef))

    @property
    def buttons(self) -> Buttons:
        """All rows of buttons; no rows if there are none."""
        found = (block for block in self.blocks if isinstance(block, Buttons))
        return Buttons(tuple(row for block in found for row in block.rows))


# -- what a channel can do -------------------------------------------------------------------------


class TextUnit(StrEnum):
    """What a platform counts: UTF-16 code units or bytes of UTF-8."""

    UTF16 = "utf16"
    BYTES = "bytes"


class Markup(StrEnum):
    """How a channel takes styles: as ranges beside the text, as HTML, or not at all."""

    ENTITIES = "entities"
    HTML = "html"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a channel declares. Limits of text are in ``text_unit``; 0 files bytes = no files."""

    text_limit: int
    text_unit: TextUnit
    caption_limit: int
    markup: Markup
    edits: bool
    min_edit_interval_ms: int
    buttons: bool
    drafts: bool
    reactions: bool
    threads: bool
    typing: bool
    files: bool
    max_file_bytes: int
