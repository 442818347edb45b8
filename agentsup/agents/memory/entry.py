"""A memory entry: its fields, who may recall it, and its limits. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from agentsup.kit.text import normal_form
from agentsup.model.errors import BadRequest

E = TypeVar("E", bound=StrEnum)

MAX_KEY_CHARS = 200
MAX_CONTENT_CHARS = 4000
MAX_TAGS = 16
MAX_TAG_CHARS = 64
_LONGEST_RAW = 4
"""A text longer than this many times its limit is refused before it is normalised.

Normal form makes no text shorter than a quarter of its length, white space excepted.
"""
DEFAULT_CONFIDENCE = 0.5
_SEEN = re.compile(r"(mem_[0-9A-Za-z_-]{1,64})@([0-9]{1,15})")


class MemoryScope(StrEnum):
    """The work in which an entry may be recalled. For every scope but the first, an operator must
    share the entry."""

    INSTANCE = "instance"
    """Work of this agent for the person for whom it saved the entry."""
    AGENT = "agent"
    """All work of this agent."""
    TYPE = "type"
    """Work of agents in the role that the agent had when it saved the entry."""
    GLOBAL = "global"
    """Work of every agent."""


class MemoryKind(StrEnum):
    """The kind of knowledge that an entry has."""

    PATTERN = "pattern"
    PREFERENCE = "preference"
    FACT = "fact"
    SKILL = "skill"


@dataclass(frozen=True, slots=True)
class MemoryOwner:
    """The agent that saves or recalls, and the person for whom it works (``Principal.person``).

    ``role`` is empty if the agent has none. ``max_entries`` is how many entries it may have.
    """

    agent_id: str
    role: str = ""
    max_entries: int = 2000
    person: str = ""


@dataclass(frozen=True, slots=True)
class MemoryDraft:
    """A checked entry that is about to be saved."""

    key: str
    content: str
    kind: MemoryKind
    scope: MemoryScope
    confidence: float
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShownEntry:
    """One entry as it was shown to somebody. Each save gives it a later ``updated_at``."""

    memory_id: str
    updated_at: int

    @classmethod
    def parsed(cls, text: str) -> ShownEntry | None:
        """The value of a text that ``str()`` gave; None for any other text."""
        found = _SEEN.fullmatch(text)
        return cls(found[1], int(found[2])) if found else None

    def __str__(self) -> str:
        return f"{self.memory_id}@{self.updated_at}"


@dataclass(frozen=True, slots=True)
class PersonKey:
    """All entries that one person has under a key, in every scope or in one."""

    person: str
    key: str
    scope: MemoryScope | None = None


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """One entry as it is stored.

    Times are wall milliseconds. ``touched_at`` is the last save, pinning, sharing or recall.
    """

    seq: int
    memory_id: str
    agent_id: str
    scope: MemoryScope
    kind: MemoryKind
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
    """The person at the root of the work in which the entry was saved."""
    shared_by: str = ""
    """The operator who shared the entry, or empty."""

    @property
    def seen(self) -> ShownEntry:
        """The reference to the entry in its current version."""
        return ShownEntry(self.memory_id, self.updated_at)

    @property
    def waits(self) -> bool:
        """Whether its scope is wider than instance and no operator has shared it yet."""
        return self.scope is not MemoryScope.INSTANCE and not self.shared_by


def draft(
    key: str,
    content: str,
    *,
    kind: str = MemoryKind.FACT.value,
    scope: str = MemoryScope.INSTANCE.value,
    confidence: float = DEFAULT_CONFIDENCE,
    tags: Iterable[str] = (),
) -> MemoryDraft:
    """Check an entry before it is saved. A confidence outside 0 to 1 counts as the default.

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
    return MemoryDraft(clean_key(key), text, kind_of(kind), scope_of(scope), sure, clean_tags(tags))


def clean_key(key: str) -> str:
    """The key in its stored form: normal form, single spaces. Raises ``BadRequest``."""
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
    """The tags in normal form and lower case, each once.

    Raises ``BadRequest`` for too many or too long ones.
    """
    found = tuple(dict.fromkeys(tag for each in tags if (tag := _tag(each))))
    if len(found) > MAX_TAGS or any(len(tag) > MAX_TAG_CHARS for tag in found):
        raise BadRequest(
            f"a memory has at most {MAX_TAGS} tags of {MAX_TAG_CHARS} characters", field="tags"
        )
    return found


def kind_of(text: str) -> MemoryKind:
    """The kind with this value. Raises ``BadRequest``, which names all kinds."""
    return _member(MemoryKind, text, "kind", f"there is no kind {text!r} of memory")


def scope_of(text: str) -> MemoryScope:
    """The scope with this value. Raises ``BadRequest``, which names all scopes."""
    return _member(MemoryScope, text, "scope", f"there is no scope {text!r}")


def _member(values: type[E], text: str, field: str, problem: str) -> E:
    try:
        return values(text)
    except ValueError:
        raise BadRequest(f"{problem}; there are {', '.join(values)}", field=field) from None
