"""Assigns each tool to a role. Pure: the same roles and tools always give the same result."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from agentsup.agents.pipeline.ceiling import matches
from agentsup.agents.roles.role import ESSENTIAL, Role, order_of, prefix_pattern

UNMATCHED = ""
_WORDS = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class AssignedTools:
    """One tool, its role (empty: none), and the reason (``prefix fs_``)."""

    tool: str
    role: str
    why: str


def partition(roles: Iterable[Role], tools: Iterable[str]) -> tuple[AssignedTools, ...]:
    """Assign each tool to the first role that matches it, of those whose ceiling allows it.

    A role matches by a prefix of the tool's name, else by a keyword, else by a capability that is a
    word of the name. The essential tools belong to every role and are not in the result.
    """
    ordered = sorted(roles, key=order_of)
    return tuple(_assign(name, ordered) for name in sorted(set(tools)) if name not in ESSENTIAL)


def _assign(tool: str, ordered: list[Role]) -> AssignedTools:
    able = [role for role in ordered if role.allows(tool)]
    own = tool.rpartition("/")[2] if tool.startswith("mcp:") else tool
    for role in able:
        for prefix in role.prefixes:
            if matches(own, (prefix_pattern(prefix),)) or matches(tool, (prefix_pattern(prefix),)):
                return AssignedTools(tool, role.name, f"prefix {prefix}")
    words = set(_WORDS.split(tool.casefold())) - {"mcp"}
    for kind in ("keyword", "capability"):
        for role in able:
            for sign in role.keywords if kind == "keyword" else role.capabilities:
                if sign.casefold() in words:
                    return AssignedTools(tool, role.name, f"{kind} {sign}")
    return AssignedTools(tool, UNMATCHED, "")
