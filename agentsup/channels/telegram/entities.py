"""Reads the entities of a text: what they cover, and what they say beside the plain text. Pure.

Offsets count UTF-16 units. An entity that is malformed is left out, the text stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from agentsup.channels.core.receiving.raw import Json, is_int, maybe_of, maybe_text

_URL_CHARS = 2048


@dataclass(frozen=True, slots=True)
class EntityMark:
    """An entity with the text that it covers. ``end`` and ``offset`` in UTF-16 units."""

    kind: str
    offset: int
    end: int
    text: str
    raw: Json


def marks_of(text: str, entities: Sequence[object]) -> list[EntityMark]:
    """Return the entities of ``text`` that lie in it."""
    units = text.encode("utf-16-le", "surrogatepass")
    found = []
    for each in entities:
        if not isinstance(each, dict):
            continue
        offset, length = each.get("offset"), each.get("length")
        if not is_int(offset) or not is_int(length) or offset < 0 or length <= 0:
            continue
        end = min(offset + length, len(units) // 2)
        covered = units[2 * offset : 2 * end].decode("utf-16-le", "replace")
        if covered:
            found.append(EntityMark(maybe_text(each, "type"), offset, end, covered, each))
    return found


def written_out(text: str, marks: Sequence[EntityMark]) -> str:
    """Return the text as Markdown, with what only its entities say.

    These are addresses behind words, people named without a user name, times, the language of
    code, quotations and struck out words. Bold and the like are left out.
    """
    inserts: list[tuple[int, int, int, str]] = []
    """Position, closing before opening, inner before outer, and the text."""
    units = text.encode("utf-16-le", "surrogatepass")
    for mark in marks:
        before, after = _around(mark)
        if before and mark.kind == "pre":  # a fence stands on a line of its own
            before = before if _is_line_end(units, mark.offset - 1) else f"\n{before}"
            after = after if _is_line_end(units, mark.end) else f"{after}\n"
        if before:
            inserts.append((mark.offset, 1, -mark.end, before))
        if after:
            inserts.append((mark.end, 0, -mark.offset, after))
        if mark.kind in ("blockquote", "expandable_blockquote"):
            at = mark.offset
            for line in mark.text.split("\n"):
                inserts.append((at, 1, -(1 << 40), "> "))
                at += units_of(line) + 1
    if not inserts:
        return text
    out, at = [], 0
    for position, _, _, added in sorted(inserts, key=lambda each: each[:3]):
        out += [units[2 * at : 2 * position], added.encode("utf-16-le", "surrogatepass")]
        at = position
    out.append(units[2 * at :])
    return b"".join(out).decode("utf-16-le", "replace")


def _is_line_end(units: bytes, at: int) -> bool:
    """Whether a line ends at that unit, or the text does."""
    return at < 0 or units[2 * at : 2 * at + 2] in (b"", "\n".encode("utf-16-le"))


def units_of(text: str) -> int:
    """Return the length of ``text`` in UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _around(mark: EntityMark) -> tuple[str, str]:
    """Return what is written before and after the text of an entity."""
    raw = mark.raw
    match mark.kind:
        case "text_link":
            return link(mark.text, maybe_text(raw, "url"))
        case "text_mention":
            return link(mark.text, person_url(maybe_of(raw, "user")))
        case "strikethrough":
            return "~~", "~~"
        case "date_time":
            return "", time_note(raw.get("unix_time"))
        case "pre" if raw.get("language") or "\n" in mark.text:
            fence = "````" if "```" in mark.text else "```"
            return f"{fence}{maybe_text(raw, 'language')}\n", f"\n{fence}"
    return "", ""


def link(shown: str, url: str) -> tuple[str, str]:
    """Return what is written around words that lead to ``url``; nothing if they show it."""
    url = "".join(url.split())[:_URL_CHARS]
    bare = url.rstrip("/").partition("://")[2] or url
    if not url or shown.strip().rstrip("/") in (url.rstrip("/"), bare):
        return "", ""
    return "[", f"]({url})"


def person_url(user: Json) -> str:
    """Return the address of a person who is mentioned by name; empty if there is no id."""
    user_id = user.get("id")
    return f"tg://user?id={user_id}" if is_int(user_id) else ""


def time_note(unix_time: object) -> str:
    """Return the time that words stand for, to be written after them."""
    if not is_int(unix_time) or not 0 <= unix_time < 1 << 37:
        return ""
    return f" ({datetime.fromtimestamp(unix_time, UTC):%Y-%m-%d %H:%M} UTC)"
