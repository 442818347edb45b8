"""A role as a value: its instruction, its signs, and its ceiling. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agentsup.agents.pipeline.ceiling import matches
from agentsup.model.name import BUILTIN_ROLES
from agentsup.model.tool import Tool

NONE = "none"
"""What is written for no role at all."""

ESSENTIAL = (
    "ask_agent",
    "ask_agent_async",
    "ask_person",
    "delegate_task",
    "list_agents",
    "read_shared_memory",
    "result_read",
    "task_create",
    "task_status",
)
"""Tools inside every role's ceiling; the agent's own ``tools`` may still leave them out."""


class Source(StrEnum):
    """Where a role comes from."""

    BUILTIN = "builtin"
    USER = "user"


class Status(StrEnum):
    """Whether a role may be taken; a draft and a disabled one are only listed."""

    ACTIVE = "active"
    DISABLED = "disabled"
    DRAFT = "draft"


@dataclass(frozen=True, slots=True)
class Rule:
    """Tells roles apart: where ``any`` of its words stands in a text, together with all of
    ``also`` and none of ``unless``, the role gets ``points``. ``<url>`` stands for an address."""

    any: tuple[str, ...]
    also: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    points: int = 5


@dataclass(frozen=True, slots=True)
class Role:
    """One AGENT.md. ``max_tools`` None: whatever its prefixes say."""

    name: str
    instruction: str
    description: str = ""
    status: Status = Status.ACTIVE
    source: Source = Source.USER
    prefixes: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    accepts: str = ""
    returns: str = ""
    cannot_do: tuple[str, ...] = ()
    example_requests: tuple[str, ...] = ()
    disambiguation: tuple[Rule, ...] = ()
    always_include: bool = False
    session_isolation: bool = False
    max_tools: tuple[str, ...] | None = None
    priority: int = 50
    path: str = ""

    @property
    def ceiling(self) -> tuple[str, ...]:
        """Patterns over names of tools: the most that an agent in this role may use."""
        if self.max_tools is not None:
            return tuple(pattern_of(each) for each in self.max_tools)
        return tuple(prefix_pattern(each) for each in self.prefixes)

    def allows(self, tool: str) -> bool:
        """Whether the tool is inside the ceiling, the essential ones among them."""
        return tool in ESSENTIAL or matches(tool, self.ceiling)

    def is_served(self, tools: Iterable[Tool]) -> bool:
        """Whether there is anything for it to work with: one that names no tools only thinks, and
        needs none. A shipped role needs tools of its own, named by its prefixes."""
        if self.always_include or not self.ceiling:
            return True
        own = tuple(map(prefix_pattern, self.prefixes)) if self.source is Source.BUILTIN else ()
        return any(
            matches(tool.name, self.ceiling) and (not own or matches(_bare(tool.name), own))
            for tool in tools
            if tool.name not in ESSENTIAL
        )

    def to_json(self) -> dict[str, Any]:
        """The role as the API shows it."""
        return {
            "name": self.name,
            "source": self.source.value,
            "status": self.status.value,
            "description": self.description,
            "ceiling": list(self.ceiling),
            "path": self.path,
        }


def _bare(tool: str) -> str:
    """A tool's name without its server's."""
    return tool.rpartition("/")[2] if tool.startswith("mcp:") else tool


def pattern_of(text: str) -> str:
    """A pattern with its stars at the end written as one."""
    return re.sub(r"\*+$", "*", text.strip())


def prefix_pattern(text: str) -> str:
    """A prefix as a pattern: ``fs_`` and ``fs_*`` are the same."""
    return text.strip().rstrip("*") + "*"


def order_of(role: Role) -> tuple[int, int, str]:
    """Where a role stands: the shipped ones in their order, then people's by priority and name."""
    if role.source is Source.BUILTIN:
        return 0, BUILTIN_ROLES.index(role.name), role.name
    return 1, role.priority, role.name
