"""The home of another product, in our terms. Frozen values, no effects."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agentsup.model.agent import MAIN
from agentsup.model.name import name_problem
from agentsup.model.task import NewSchedule

MOST_PROMPT_CHARS: Final = 24_000
"""The longest persona: each turn pays for it."""
MOST_NOTES_CHARS: Final = 200_000
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that does not come, or comes in another form, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class ForeignMemory:
    """One remembered text."""

    key: str
    content: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A file for the agent's workspace: where it is in the other home, and its path here."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class ForeignSkill:
    """A skill: its name here, what it says it is for, and its text without the head."""

    name: str
    about: str
    text: str


@dataclass(frozen=True, slots=True)
class ForeignSchedule:
    """Work that the other product started by itself. ``channel`` is empty if no chat of ours gets
    the result."""

    agent: str
    key: str
    name: str
    prompt: str
    schedule: NewSchedule
    is_paused: bool = False
    channel: str = ""
    conversation: str = ""

    @property
    def task_id(self) -> str:
        """The id of the task: the same in each run of the import; it sorts before later ones."""
        return "task_00moved" + _digest(f"{self.agent}\0{self.key}")


@dataclass(frozen=True, slots=True)
class ChatLine:
    """One message of a chat. ``role`` is ``user`` or ``assistant``, ``at`` wall ms."""

    role: str
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class ForeignChat:
    """A chat, oldest message first. Without ``channel`` it becomes a file for reading."""

    agent: str
    key: str
    lines: tuple[ChatLine, ...]
    title: str = ""
    channel: str = ""
    conversation: str = ""


@dataclass(frozen=True, slots=True)
class ForeignAgent:
    """One agent. ``fields`` are those of an entry of agents.json, with secrets by reference."""

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    notes: str = ""
    """For its MEMORY.md."""
    memories: tuple[ForeignMemory, ...] = ()
    files: tuple[ForeignFile, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    """Files of its workspace that are made by the import, by path."""


@dataclass(frozen=True, slots=True)
class ForeignHome:
    """All that was found in one home."""

    product: str
    agents: tuple[ForeignAgent, ...]
    schedules: tuple[ForeignSchedule, ...] = ()
    chats: tuple[ForeignChat, ...] = ()
    skills: tuple[ForeignSkill, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Keys and tokens by the name of their file in ``secrets``."""
    shared: str = ""
    """The memory that all agents shared there."""
    remarks: tuple[Remark, ...] = ()


def safe_name(text: str, fallback: str = "agent") -> str:
    """``text`` as a name of an agent or a file: letters, digits, ``-`` and ``_``."""
    name = _UNSAFE.sub("-", text).strip("-_")[:48] or fallback
    return name if not name_problem(name) else f"{fallback}-{_digest(text)[:6]}"


def names_for(wanted: Sequence[str], main: str) -> dict[str, str]:
    """A name here for each id there; ``main`` becomes the main agent. Each name is given once."""
    names: dict[str, str] = {}
    taken = {MAIN}
    for each in wanted:
        name = MAIN if each == main else safe_name(each)
        if each != main and name.casefold() in taken:
            name = f"{name[:40]}-{_digest(each)[:6]}"
        taken.add(name.casefold())
        names[each] = name
    return names


def joined_text(*parts: str, most: int) -> str:
    """The parts that say something, with a blank line between them, cut to ``most`` characters."""
    return "\n\n".join(part.strip() for part in parts if part.strip())[:most].strip()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
