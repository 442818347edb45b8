"""Names of agents: which ones are safe, and how people refer to an agent."""

from __future__ import annotations

import re

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
"""The roles that are shipped, in the order in which tools are assigned to them."""

_MAX_NAME = 64
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


def name_problem(name: str) -> str | None:
    """Why ``name`` can't be an agent's name, or None if it can.

    A name becomes a directory, a word of chat commands and a part of URLs, so it is a safe path
    segment: ASCII letters, digits, ``.``, ``_``, ``-``, starting with a letter or digit.
    """
    if not name:
        return "a name can't be empty"
    if len(name) > _MAX_NAME:
        return f"a name has at most {_MAX_NAME} characters"
    if not _SAFE_NAME.fullmatch(name) or ".." in name or name.endswith("."):
        return (
            "a name may have letters (a to z), digits, '.', '_' and '-'; it starts with a letter or "
            "digit, has no '..' and no '.' at its end"
        )
    if name.casefold() in RESERVED_NAMES:
        return f"{name!r} is reserved: it addresses something else than one agent"
    return None
