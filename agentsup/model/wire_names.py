"""Names of tools for models and programs that only take letters, digits, ``_`` and ``-``.

A name of these characters stays as it is. ``mcp:github/create_issue`` becomes
``mcp__github__create_issue``. A name with other characters, or one that is too long, ends in a
digest of itself. The wire name depends on the name alone, so it is the same in every turn, and no
two names share one. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

MAX_CHARS = 48
"""With the prefix that coding agents put before it, a name stays within 64 characters."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_DIGESTED = re.compile(r".*_[0-9a-f]{12}", re.ASCII)
_OTHER = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)
_MCP, _WIRE = "mcp:", "mcp__"
_DIGEST_CHARS = 12


def wire_name(name: str) -> str:
    """The wire name of a tool."""
    if name.startswith(_MCP):
        server, slash, tool = name.removeprefix(_MCP).partition("/")
        # The server ends at the first double underscore, so its own name must not contain or touch
        # one.
        if slash and tool and server and "__" not in server and server.strip("_") == server:
            form = f"{_WIRE}{server}__{tool}"
            if _fits(form):
                return form
    elif _fits(name) and not name.startswith(_WIRE):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARS]
    readable = _OTHER.sub("_", name.replace(_MCP, _WIRE).replace("/", "__"))
    return f"{readable[: MAX_CHARS - _DIGEST_CHARS - 1]}_{digest}"


def by_wire_name(names: Iterable[str]) -> dict[str, str]:
    """The names by their wire names."""
    return {wire_name(name): name for name in names}


def _fits(form: str) -> bool:
    is_plain = len(form) <= MAX_CHARS and _PLAIN.fullmatch(form) is not None
    return is_plain and _DIGESTED.fullmatch(form) is None
