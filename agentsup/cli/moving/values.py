"""Values from files of others, as what they should be; anything else counts as not given. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import yaml

from agentsup.cli.moving.foreign_home import ChatLine, ForeignMemory, ForeignSkill, safe_name

MOST_LINES: Final = 1_000
"""The messages of one chat that come: the latest."""
MOST_LINE_CHARS: Final = 20_000
MOST_MEMORIES: Final = 500
"""The memories of one agent that come."""
_MOST_MEMORY_CHARS: Final = 3_900
_TELEGRAM_ID: Final = re.compile(r"(?:telegram:|tg:|group:)*(-?[1-9][0-9]{0,18})(?:\|\S*)?")
"""Some write the name of the person behind the number."""
_TELEGRAM_CHAT: Final = re.compile(
    r"(?:telegram:|tg:|group:|direct:|dm:)*(-?[1-9][0-9]{0,18})(?:(?::topic)?[:/]([1-9][0-9]{0,18}))?"
)
_MATRIX_USER: Final = re.compile(r"@[^:\s]+:\S+")
_MATRIX_ROOM: Final = re.compile(r"![^\s/]+")
_ASSIGNMENT: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_HEAD: Final = re.compile(r"---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|$)", re.DOTALL)
_SECTION: Final = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")


class _PlainLoader(yaml.SafeLoader):
    """Plain values only: an alias could make a small file grow without end."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text, without tags and aliases. Raises ``yaml.YAMLError``, ``ValueError``
    and ``RecursionError``."""
    return yaml.load(text, _PlainLoader)  # noqa: S506 - a safe loader that refuses aliases, too


def text_of(value: object, most: int = 4_000_000) -> str:
    """A text of at most ``most`` characters that can be written as UTF-8; else empty."""
    if not isinstance(value, str):
        return ""
    text = value.replace("\0", "")[:most]
    if _SURROGATE.search(text):
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def mapping(value: object) -> Mapping[str, Any]:
    """An object; else an empty one."""
    return {k: v for k, v in value.items() if isinstance(k, str)} if isinstance(value, dict) else {}


def objects(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list; other elements are left out."""
    return (
        [mapping(each) for each in value if isinstance(each, dict)]
        if isinstance(value, list)
        else []
    )


def texts(value: object) -> list[str]:
    """The texts of a list, or of one text with commas; numbers count as texts."""
    if isinstance(value, str):
        value = value.split(",")
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, list):
        return []
    found = (
        str(e) if isinstance(e, int) and not isinstance(e, bool) else text_of(e) for e in value
    )
    return [each.strip() for each in found if each.strip()]


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 2**63 else None


def look(value: object, *path: str) -> Any:
    """The value at a path of keys; None if there is none."""
    for key in path:
        value = mapping(value).get(key)
    return value


def parsed(text: object) -> Mapping[str, Any]:
    """The object that a JSON text holds; else an empty one."""
    try:
        return mapping(json.loads(text_of(text)))
    except (ValueError, RecursionError):
        return {}


def telegram_ids(value: object) -> tuple[list[int], list[str]]:
    """The platform ids in an allow-list, and what is none: user names, ``*``."""
    ids: dict[int, None] = {}
    others: list[str] = []
    for each in texts(value):
        found = _TELEGRAM_ID.fullmatch(each)
        if found and abs(int(found[1])) < 2**63:
            ids[int(found[1])] = None
        else:
            others.append(each)
    return list(ids), others


def matrix_users(value: object) -> tuple[list[str], list[str]]:
    """The Matrix users in an allow-list, and what is none."""
    known = list(dict.fromkeys(texts(value)))
    return [e for e in known if _MATRIX_USER.fullmatch(e)], [
        e for e in known if not _MATRIX_USER.fullmatch(e)
    ]


def chat_of(channel: str, target: str, topic: str = "") -> tuple[str, str]:
    """Channel and conversation here for a chat there; two empty texts if we have no such channel."""
    if channel == "telegram" and (found := _TELEGRAM_CHAT.fullmatch(target)):
        topic = found[2] or (topic if topic.isdecimal() and topic.strip("0") else "")
        return channel, f"{found[1]}/{topic}" if topic else found[1]
    if channel == "matrix" and _MATRIX_ROOM.fullmatch(target):
        return channel, target
    return "", ""


def variables(text: str) -> dict[str, str]:
    """The assignments of a .env file; nothing in them is replaced or run."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _ASSIGNMENT.fullmatch(line.strip())
        if match is None:
            continue
        value = match[2].strip()
        if value[:1] in ("'", '"') and len(value) > 1 and value.endswith(value[0]):
            value = value[1:-1]
        else:
            value = value.partition(" #")[0].strip()
        if value:
            found[match[1]] = value
    return found


def time_ms(value: object) -> int:
    """A time as wall ms: ISO 8601, or seconds or ms since 1970; 0 for anything else."""
    if isinstance(value, str):
        try:
            when = datetime.fromisoformat(value)
            return max(
                0, int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
            )
        except (ValueError, OverflowError, OSError):
            return 0
    found = number(value)
    if found is None or found < 0:
        return 0
    return int(found if found > 1e11 else found * 1000)


def content_text(content: object) -> str:
    """The text of a message: a text, or the text parts of a list of parts."""
    if isinstance(content, str):
        return text_of(content)
    parts = [text_of(each.get("text")) for each in objects(content) if each.get("type") == "text"]
    return "\n".join(part for part in parts if part)


def chat_lines(messages: Iterable[tuple[object, object, object]]) -> tuple[ChatLine, ...]:
    """The latest messages of people and the agent, from role, content and time of each."""
    found: list[ChatLine] = []
    last = 0
    for role, content, at in messages:
        text = content_text(content).strip()
        if role in ("user", "assistant") and text:
            last = max(last, time_ms(at))
            found.append(ChatLine(str(role), text[:MOST_LINE_CHARS], last))
    return tuple(found[-MOST_LINES:])


def skill_of(folder: str, text: str) -> ForeignSkill | None:
    """The skill in a SKILL.md; None if it says nothing."""
    head: Mapping[str, Any] = {}
    body = text
    if found := _HEAD.match(text):
        body = text[found.end() :]
        try:
            head = mapping(parse_yaml(found[1])) if len(found[1]) < 20_000 else {}
        except (yaml.YAMLError, ValueError, RecursionError):
            head = {}
    if not body.strip():
        return None
    name = safe_name(text_of(head.get("name"), 100) or folder, "skill")
    about = " ".join(text_of(head.get("description"), 2_000).split())
    return ForeignSkill(name, about[:300], body.strip())


def memories_of(text: str, source: str, tag: str) -> list[ForeignMemory]:
    """A text as memories: its sections; a longer one in pieces of whole paragraphs.

    ``source`` names the file in the keys.
    """
    found: list[ForeignMemory] = []
    taken: set[str] = set()
    starts = [0, *(match.start() for match in _SECTION.finditer(text)), len(text)]
    for start, end in pairwise(starts):
        section = text[start:end].strip()
        title = _SECTION.match(section)
        body = section[title.end() :].strip() if title else section
        if not body:
            continue
        label = " ".join(f"{source} {title[1] if title else ''}".split())[:150]
        for at, piece in enumerate(_pieces(section)):
            key = label if at == 0 else f"{label} ({at + 1})"
            found.append(ForeignMemory(_unused(key, taken), piece, (tag,)))
            if len(found) == MOST_MEMORIES:
                return found
    return found


def _unused(key: str, taken: set[str]) -> str:
    found, number = key, 1
    while found in taken:
        number += 1
        found = f"{key} #{number}"
    taken.add(found)
    return found


def _pieces(text: str) -> list[str]:
    pieces = [""]
    for paragraph in text.split("\n\n"):
        for at in range(0, max(1, len(paragraph)), _MOST_MEMORY_CHARS):
            part = paragraph[at : at + _MOST_MEMORY_CHARS]
            if pieces[-1] and len(pieces[-1]) + len(part) + 2 > _MOST_MEMORY_CHARS:
                pieces.append("")
            pieces[-1] = f"{pieces[-1]}\n\n{part}" if pieces[-1] else part
    return [piece.strip() for piece in pieces if piece.strip()]
