"""How agents are named: which names are safe, and what people write to mean an agent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from agentsup.model.errors import ConfigError

RESERVED_NAMES = frozenset({"all", "broadcast", "operator", "system"})

BUILTIN_ROLES = (
    "librarian",
    "chronicler",
    "automator",
    "navigator",
    "vault",
    "ontologist",
    "operator",
    "planner",
)
"""The roles that are shipped, in the order in which tools are given to them."""

_MAX_NAME = 64
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


def name_problem(name: str) -> str | None:
    """Why `name` can't be an agent's name, or None where it can.

    A name becomes a directory, a word of chat commands and a part of URLs, so it is a safe path
    segment: ASCII letters, digits, `.`, `_`, `-`, starting with a letter or digit.
    """
    if not name:
        return "a name can't be empty"
    if len(name) > _MAX_NAME:
        return f"a name has at most {_MAX_NAME} characters"
    if not _SAFE_NAME.fullmatch(name) or ".." in name or name.endswith("."):
        return (
            "a name is a safe path segment: letters, digits, '.', '_' and '-', "
            "starting with a letter or digit, without '..' and without a '.' at its end"
        )
    if name.casefold() in RESERVED_NAMES:
        return f"{name!r} is reserved: it addresses something else than one agent"
    return None


@dataclass(frozen=True, slots=True)
class AgentRef:
    """What people write to name an agent: `name`, or `name@node` for one on another node."""

    name: str
    node: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `name` or `name@node`. Raises `ConfigError` where either part is not a safe name."""
        name, at, node = text.strip().partition("@")
        for part in (name, node) if at else (name,):
            if problem := name_problem(part):
                raise ConfigError(f"{text!r} does not name an agent: {problem}")
        return cls(name, node if at else None)

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.name}@{self.node}" if self.node else self.name
