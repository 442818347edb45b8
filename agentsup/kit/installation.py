"""Finds out whether packages were replaced since the process started. Reads files, so it blocks.

A process goes on with what it has loaded. What it loads later comes from the new packages and may
not fit, so that turns fail in odd ways until a restart.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Mapping
from typing import Final

_PACKAGES: Final = (
    "agentsup",
    "pydantic-ai-slim",
    "pydantic",
    "openai",
    "anthropic",
    "mcp",
    "agent-client-protocol",
)
_at_start: dict[str, str] = {}


def remember() -> None:
    """Take note of what is installed, when the process starts."""
    _at_start.clear()
    _at_start.update(_installed())


def change() -> str:
    """Return what has changed since ``remember``, as a sentence; empty if nothing has."""
    if not _at_start:
        return ""
    importlib.invalidate_caches()
    now = _installed()
    found = [
        f"{name} {_at_start[name] or 'missing'} → {now[name] or 'missing'}"
        for name in _PACKAGES
        if now[name] != _at_start[name]
    ]
    if not found:
        return ""
    return f"the installation changed since the daemon started ({', '.join(found)})"


def is_partial(changed: str) -> bool:
    """Whether a package is missing in what ``change`` returned: an installer may be at work."""
    return "→ missing" in changed


def _installed() -> Mapping[str, str]:
    return {name: _version(name) for name in _PACKAGES}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
