"""An agent's answer for any channel: blocks of text, code and tables.

Engines write Markdown; ``channels.text`` turns it into these values, and each channel renders them
within its ``Capabilities``. Everything here is a frozen value; positions are code points of the
text they belong to.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

# -- text ------------------------------------------------------------------------------------------


class Style(StrEnum):
    """The style of a range of text. ``PRE`` is code of several lines within laid-out text."""

    BOLD = "bold"
    ITALIC = "italic"
    STRIKE = "strike"
    CODE = "code"
    LINK = "link"
    SPOILER = "spoiler"
    QUOTE = "quote"
    PRE = "pre"


@dataclass(frozen=True, slots=True)
class TextSpan:
    """``text[start:end]`` has this style. ``arg``: the URL of a link, the language of code."""

    start: int
    end: int
    style: Style
    arg: str = ""


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Paragraphs, a list, a quote, or (``heading`` 1 to 6) a heading."""

    text: str
    spans: tuple[TextSpan, ...] = ()
    heading: int = 0


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """Lines to show unchanged. ``language`` is the author's name for it, or empty."""

    text: str
    language: str = ""


class Align(StrEnum):
    LEFT = "left"
    CENTER = "center"
    RIGHT = "right"


@dataclass(frozen=True, slots=True)
class Table:
    """A table. Rows may be shorter or longer than the header; ``align`` is per column, left if
    missing."""

    header: tuple[TextBlock, ...]
    rows: tuple[tuple[TextBlock, ...], ...]
    align: tuple[Align, ...] = ()


# -- the answer ------------------------------------------------------------------------------------

Block: TypeAlias = TextBlock | CodeBlock | Table


@dataclass(frozen=True, slots=True)
class AnswerBlocks:
    """Blocks in reading order."""

    blocks: tuple[Block, ...] = ()


# -- capabilities of a channel ---------------------------------------------------------------------


class TextUnit(StrEnum):
    """The unit in which a platform counts text: UTF-16 code units or bytes of UTF-8."""

    UTF16 = "utf16"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The limits of a channel. Those of text are in its ``TextUnit``."""

    text_limit: int
    caption_limit: int
    max_file_bytes: int
