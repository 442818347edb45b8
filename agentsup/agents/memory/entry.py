"""What is remembered: one entry, who may recall it, and the bounds it must keep. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agentsup.kit.normal_form import normal_form
from agentsup.model.errors import BadRequest

MAX_KEY_CHARS = 200
MAX_CONTENT_CHARS = 4000
MAX_TAGS = 16
MAX_TAG_CHARS = 64
_LONGEST_RAW = 4
"""Times as long as allowed: no text is shorter than a quarter of its length in normal form, but
for white space, of which nobody needs that much."""
DEFAULT_CONFIDENCE = 0.5
_SEEN = re.compile(r"(mem_[0-9A-Za-z_-]{1,64})@([0-9]{1,15})")


class Scope(StrEnum):
    """Whose work may recall an entry. All but the first take effect once an operator shares it."""

    INSTANCE = "instance"
    """That of the person for whom the agent saved it, and of this agent only."""
    AGENT = "agent"
    """Everybody's, with this agent."""
    TYPE = "type"
    """Agents that have the role its agent had when it saved it."""
    GLOBAL = "global"
    """Every agent."""


class Kind(StrEnum):
    """What sort of thing it is."""

    PATTERN = "pattern"
    PREFERENCE = "preference"
    FACT = "fact"
    SKILL = "skill"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who remembers, and in whose work (``Principal.person``). ``role`` is empty without one;
    ``max_entries`` is how much the agent may keep."""

    agent_id: str
    role: str = ""
    max_entries: int = 2000
    person: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A checked entry, about to be saved."""

    key: str
    content: str
    kind: Kind
    scope: Scope
    confidence: float
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """One entry as somebody was shown it: each saving gives it a later ``updated_at``."""

    memory_id: str
    updated_at: int

    @classmethod
    def parsed(cls, text: str) -> Seen | None:
        """From what ``str()`` gives; None for any other text."""
        found = _SEEN.fullmatch(text)
        return cls(found[1], int(found[2])) if found else None

    def __str__(self) -> str:
        return f"{self.memory_id}@{self.updated_at}"


@dataclass(frozen=True, slots=True)
class Own:
    """All that one person has under a key, in every scope or in one."""

    person: str
    key: str
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as it is kept. Times are wall milliseconds; ``touched_at`` is the last saving,
    pinning or recall."""

    seq: int
    memory_id: str
    agent_id: str
    scope: Scope
    kind: Kind
    key: str
    content: str
    tags: tuple[str, ...]
    confidence: float
    use_count: int
    pinned: bool
    role: str
    created_at: int
    updated_at: int
    touched_at: int
    person: str = ""
    """At the root of the work in which it was saved."""
    shared_by: str = ""
    """The operator who let it be recalled as widely as its scope says, or empty."""

    @property
    def seen(self) -> Seen:
        """What names it as it is now."""
        return Seen(self.memory_id, self.updated_at)

    @property
    def waits(self) -> bool:
        """Whether it is meant for more than its person, and no operator has shared it."""
        return self.scope is not Scope.INSTANCE and not self.shared_by

    @classmethod
    def of(cls, row: Any) -> Entry:
        """From a row of ``memories``."""
        return cls(
            seq=row["seq"],
            memory_id=row["memory_id"],
            agent_id=row["agent_id"],
            scope=Scope(row["scope"]),
            kind=Kind(row["kind"]),
            key=row["key"],
            content=row["content"],
            tags=tuple(json.loads(row["tags"])),
            confidence=row["confidence"],
            use_count=row["use_count"],
            pinned=bool(row["pinned"]),
            role=row["role"],
            created_at=row["created_at"],
            updated_at=row["updated_at"],
            touched_at=row["touched_at"],
            person=row["person"],
            shared_by=row["shared_by"],
        )


def draft(
    key: str,
    content: str,
    *,
    kind: str = Kind.FACT.value,
    scope: str = Scope.INSTANCE.value,
    confidence: float = DEFAULT_CONFIDENCE,
    tags: Iterable[str] = (),
) -> Draft:
    """Check what is to be saved. A confidence outside 0 to 1 counts as the default.

    Raises ``BadRequest`` naming the field.
    """
    text = content.replace("\0", "").strip()
    if len(text) <= _LONGEST_RAW * MAX_CONTENT_CHARS:
        text = normal_form(text)
    if not text:
        raise BadRequest("a memory needs content", field="content")
    if len(text) > MAX_CONTENT_CHARS:
        raise BadRequest(
            f"the content has {len(text)} characters; a memory has at most {MAX_CONTENT_CHARS}. "
            "Save what matters of it, or save it in parts under several keys",
            field="content",
        )
    sure = confidence if math.isfinite(confidence) and 0 <= confidence <= 1 else DEFAULT_CONFIDENCE
    return Draft(clean_key(key), text, kind_of(kind), scope_of(scope), sure, clean_tags(tags))


def clean_key(key: str) -> str:
    """A key as it is kept: composed characters, single spaces. Raises ``BadRequest``."""
    is_short = len(key) <= _LONGEST_RAW * MAX_KEY_CHARS
    found = " ".join(normal_form(key).replace("\0", "").split()) if is_short else key
    if not found:
        raise BadRequest("a memory needs a key", field="key")
    if len(found) > MAX_KEY_CHARS:
        raise BadRequest(f"a key has at most {MAX_KEY_CHARS} characters", field="key")
    return found


def _tag(text: str) -> str:
    if len(text) > _LONGEST_RAW * MAX_TAG_CHARS:
        return text  # refused for its length, whatever its form
    return " ".join(normal_form(text).casefold().split())


def clean_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Tags in one form, each once. Raises ``BadRequest`` for too many or too long ones."""
    found = tuple(dict.fromkeys(tag for each in tags if (tag := _tag(each))))
    if len(found) > MAX_TAGS or any(len(tag) > MAX_TAG_CHARS for tag in found):
        raise BadRequest(
            f"a memory has at most {MAX_TAGS} tags of {MAX_TAG_CHARS} characters", field="tags"
        )
    return found


def kind_of(text: str) -> Kind:
    """The kind called so. Raises ``BadRequest`` with those there are."""
    try:
        return Kind(text)
    except ValueError:
        raise BadRequest(
            f"there is no kind {text!r} of memory; there are {', '.join(Kind)}", field="kind"
        ) from None


def scope_of(text: str) -> Scope:
    """The scope called so. Raises ``BadRequest`` with those there are."""
    try:
        return Scope(text)
    except ValueError:
        raise BadRequest(
            f"there is no scope {text!r}; there are {', '.join(Scope)}", field="scope"
        ) from None
