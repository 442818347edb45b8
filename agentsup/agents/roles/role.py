"""A role as a value: its instruction, the words by which it is found, and its ceiling. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from agentsup.agents.pipeline.ceiling import matches
from agentsup.model.name import BUILTIN_ROLES
from agentsup.model.tool import Tool

MAX_CHARS = 100_000
"""The longest file of a role that is read."""
NONE = "none"
"""The value that people write for no role at all."""

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
"""Tools that every role's ceiling allows. An agent's own ``tools`` may still exclude them."""


class RoleSource(StrEnum):
    """The source of a role."""

    BUILTIN = "builtin"
    USER = "user"


class RoleStatus(StrEnum):
    """Whether an agent can be in a role. A draft and a disabled role are only listed."""

    ACTIVE = "active"
    DISABLED = "disabled"
    DRAFT = "draft"


@dataclass(frozen=True, slots=True)
class MatchRule:
    """A rule that tells roles apart by the words of a text.

    The role gets ``points`` if the text has at least one word of ``any``, all of ``also`` and none
    of ``unless``. ``<url>`` matches any web address.
    """

    any: tuple[str, ...]
    also: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    points: int = 5


@dataclass(frozen=True, slots=True)
class Role:
    """One AGENT.md. With ``max_tools`` None its ceiling follows from ``prefixes``."""

    name: str
    instruction: str
    description: str = ""
    status: RoleStatus = RoleStatus.ACTIVE
    source: RoleSource = RoleSource.USER
    prefixes: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    accepts: str = ""
    returns: str = ""
    cannot_do: tuple[str, ...] = ()
    example_requests: tuple[str, ...] = ()
    disambiguation: tuple[MatchRule, ...] = ()
    always_include: bool = False
    session_isolation: bool = False
    max_tools: tuple[str, ...] | None = None
    priority: int = 50
    path: str = ""

    @property
    def ceiling(self) -> tuple[str, ...]:
        """The patterns of tool names that an agent in this role may use at most."""
        return _ceiling(self.max_tools, self.prefixes)

    def allows(self, tool: str) -> bool:
        """Whether the tool is essential or within the ceiling."""
        return tool in ESSENTIAL or matches(tool, self.ceiling)

    def is_served(self, tools: Iterable[Tool]) -> bool:
        """Whether the role has a tool to work with.

        A role that names no tools needs none. A shipped role needs a tool that its prefixes name.
        """
        ceiling = self.ceiling
        if self.always_include or not ceiling:
            return True
        own = tuple(map(prefix_pattern, self.prefixes)) if self.source is RoleSource.BUILTIN else ()
        return any(
            matches(tool.name, ceiling) and (not own or matches(_bare(tool.name), own))
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
    """A tool's name without the name of its tool server."""
    return tool.rpartition("/")[2] if tool.startswith("mcp:") else tool


@lru_cache(maxsize=1024)  # asked of each role for each tool in each turn
def _ceiling(max_tools: tuple[str, ...] | None, prefixes: tuple[str, ...]) -> tuple[str, ...]:
    if max_tools is not None:
        return tuple(pattern_of(each) for each in max_tools)
    return tuple(prefix_pattern(each) for each in prefixes)


def pattern_of(text: str) -> str:
    """The pattern with its stars at the end reduced to one."""
    return re.sub(r"\*+$", "*", text.strip())


def prefix_pattern(text: str) -> str:
    """A prefix as a pattern: ``fs_`` and ``fs_*`` are the same."""
    return text.strip().rstrip("*") + "*"


def order_of(role: Role) -> tuple[int, int, str]:
    """The sort key of roles: shipped ones in their order, then people's by priority and name."""
    if role.source is RoleSource.BUILTIN:
        return 0, BUILTIN_ROLES.index(role.name), role.name
    return 1, role.priority, role.name
