"""Reads a rich message, which comes as blocks without a plain text, as Markdown. Pure.

Of a block or a text of an unknown type everything is read that known types have: texts, blocks,
items. If there is nothing of the kind, a note stands in its place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentsup.channels.core.receiving.raw import Json, is_int, maybe_list, maybe_of, maybe_text
from agentsup.channels.telegram.entities import link, person_url, time_note

MEDIA = {
    "photo": "photo",
    "video": "video",
    "audio": "audio",
    "animation": "animation",
    "voice_note": "voice",
    "document": "document",
}
"""Types of blocks that hold a file, and what a message calls such a file."""
_DEPTH_MAX = 40
_WRAPS = {"strikethrough": ("~~", "~~"), "code": ("`", "`")} | {
    "superscript": ("^{", "}"),
    "subscript": ("_{", "}"),
}
_EMPTY = re.compile(r"[\s\u200b\u200c\u200d\u2060\ufeff]*\Z")


@dataclass(slots=True)
class RichText:
    """The text of a rich message. ``media`` has its files, each with the name of its kind."""

    text: str = ""
    media: list[tuple[str, object]] = field(default_factory=list)
    user_ids: set[int] = field(default_factory=set)
    """The people who are mentioned by name."""
    unknown: str = ""
    """The type of a part that could not be read, or empty."""


def read_rich(message: Json) -> RichText:
    """Read the field ``rich_message`` of a message."""
    reader = _Reader()
    text = "\n\n".join(reader.blocks(maybe_list(message, "blocks"), 0))
    if not maybe_list(message, "blocks"):
        reader.found.unknown = reader.found.unknown or "rich_message"
    # A command in a heading or a list is a command all the same.
    plain = "".join(reader.plain).strip()
    is_command = plain.startswith(("/", "!")) and "\n" not in text.strip()
    is_unread = bool(reader.found.unknown) and _EMPTY.match(plain) is not None
    reader.found.text = "" if is_unread else plain if is_command else text
    return reader.found


class _Reader:
    """Reads one message, and collects what is not text."""

    def __init__(self) -> None:
        self.found = RichText()
        self.plain: list[str] = []

    # -- blocks ------------------------------------------------------------------------------------

    def blocks(self, blocks: Sequence[object], depth: int) -> list[str]:
        """Return the texts of blocks, without those that have none."""
        texts = [self._block(each, depth + 1) for each in blocks]
        return [text for text in texts if not _EMPTY.match(text)]

    def _block(self, block: object, depth: int) -> str:
        if not isinstance(block, Mapping) or depth > _DEPTH_MAX:
            return self._unreadable("block")
        kind = maybe_text(block, "type")
        if kind in MEDIA and kind in block:
            self.found.media.append((MEDIA[kind], block[kind]))
            return self._caption(block, depth)
        match kind:
            case "heading":
                size = block.get("size")
                level = min(6, max(1, size)) if is_int(size) else 1
                return f"{'#' * level} {self._text(block, depth)}"
            case "pre":
                language = maybe_text(block, "language")
                return f"```{language}\n{self._text(block, depth, is_code=True)}\n```"
            case "divider":
                return "---"
            case "anchor":
                return ""
            case "mathematical_expression":
                return f"$$\n{self._inline(maybe_text(block, 'expression'), depth)}\n$$"
            case "list":
                items = [self._item(each, depth) for each in maybe_list(block, "items")]
                return "\n".join(items)
            case "blockquote" | "pullquote":
                return self._quote(block, depth)
            case "table":
                return self._table(block, depth)
            case "map":
                location = maybe_of(block, "location")
                spot = f"{location.get('latitude')}, {location.get('longitude')}"
                return (
                    f"[place: {self._inline(spot, depth)}] {self._caption(block, depth)}".rstrip()
                )
        return self._any(block, kind or "block", depth)

    def _any(self, block: Json, kind: str, depth: int) -> str:
        """Return all that a block has of what is known."""
        parts = [self._inline(block[n], depth) for n in ("summary", "text") if n in block]
        parts += self.blocks(maybe_list(block, "blocks"), depth)
        parts += [self._item(each, depth) for each in maybe_list(block, "items")]
        parts.append(self._caption(block, depth))
        text = "\n\n".join(part for part in parts if part.strip())
        is_known = any(name in block for name in ("text", "summary", "blocks", "items"))
        return text if text or is_known else self._unreadable(kind)

    def _item(self, item: object, depth: int) -> str:
        if not isinstance(item, Mapping):
            return self._unreadable("item")
        label = maybe_text(item, "label").strip()
        mark = label if any(each.isalnum() for each in label) else "-"
        if item.get("has_checkbox"):
            mark += " [x]" if item.get("is_checked") else " [ ]"
        text = "\n".join(self.blocks(maybe_list(item, "blocks"), depth))
        if not text and "text" in item:
            text = self._text(item, depth)
        return f"{mark} " + text.replace("\n", "\n  ")

    def _quote(self, block: Json, depth: int) -> str:
        parts = self.blocks(maybe_list(block, "blocks"), depth)
        parts += [self._inline(block["text"], depth)] if "text" in block else []
        text = "\n\n".join(parts)
        if "credit" in block:
            text = f"{text}\n— {self._inline(block['credit'], depth)}"
        return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))

    def _table(self, block: Json, depth: int) -> str:
        rows = []
        for row in maybe_list(block, "cells"):
            cells: list[str] = []
            for cell in row if isinstance(row, list) else []:
                text = self._text(cell, depth) if isinstance(cell, Mapping) else ""
                cells.append(" ".join(text.split()).replace("|", "\\|"))
                span = cell.get("colspan") if isinstance(cell, Mapping) else 1
                cells += [""] * (min(span, 20) - 1 if is_int(span) else 0)
            rows.append(f"| {' | '.join(cells)} |")
            if len(rows) == 1:
                rows.append("|" + " --- |" * len(cells))
        caption = self._caption(block, depth)
        return "\n".join([*([caption, ""] if caption else []), *rows])

    def _caption(self, block: Json, depth: int) -> str:
        caption = block.get("caption")
        if not isinstance(caption, Mapping) or "type" in caption:
            return "" if caption is None else self._inline(caption, depth)
        parts = [self._inline(caption[n], depth) for n in ("text", "credit") if n in caption]
        return " — ".join(filter(None, parts))

    def _unreadable(self, kind: str) -> str:
        self.found.unknown = self.found.unknown or kind
        return f"[a part of the kind “{kind[:40]}”, which can't be read here]"

    # -- texts -------------------------------------------------------------------------------------

    def _text(self, block: Json, depth: int, *, is_code: bool = False) -> str:
        return self._inline(block.get("text", ""), depth, is_code=is_code)

    def _inline(self, text: object, depth: int, *, is_code: bool = False) -> str:
        """Return a text, which is a string, a list of texts, or an object around one."""
        if isinstance(text, str):
            self.plain.append(text)
            return text
        if depth > _DEPTH_MAX:
            return self._unreadable("text")
        if isinstance(text, list):
            return "".join(self._inline(each, depth + 1, is_code=is_code) for each in text)
        if not isinstance(text, Mapping):
            return ""
        kind = maybe_text(text, "type")
        if kind == "custom_emoji":
            return self._inline(maybe_text(text, "alternative_text"), depth)
        if kind == "mathematical_expression":
            return f"${self._inline(maybe_text(text, 'expression'), depth)}$"
        if "text" not in text:
            return "" if kind == "anchor" else self._unreadable(kind or "text")
        inner = self._inline(text["text"], depth + 1, is_code=is_code)
        before, after = ("", "") if is_code else self._around(text, kind, inner)
        return f"{before}{inner}{after}"

    def _around(self, text: Json, kind: str, inner: str) -> tuple[str, str]:
        if kind == "url":
            return link(inner, maybe_text(text, "url"))
        if kind == "text_mention":
            user = maybe_of(text, "user")
            if is_int(user_id := user.get("id")):
                self.found.user_ids.add(user_id)
            return link(inner, person_url(user))
        if kind == "date_time":
            return "", time_note(text.get("unix_time"))
        if kind == "reference":
            return "", f" [{maybe_text(text, 'name')}]"
        return _WRAPS.get(kind, ("", ""))
