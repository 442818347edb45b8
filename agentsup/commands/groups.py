"""Groups of commands, as ``/help`` shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

COMMON: Final = ("new", "stop", "status", "task", "agents", "help")
"""The commands that a beginner needs, explained first."""

GROUPS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "help.talk": ("answer", "skip", "say", "question", "cancel", "again"),
        "help.chats": ("start", "new", "sessions", "session", "memory", "role", "route"),
        "help.tasks": ("task", "tasks", "remind", "stop", "interrupt", "stop_all"),
        "help.agents": (
            *("agents", "agent_start", "agent_stop", "agent_restart", "agent_diff"),
            *("model", "effort", "set", "mcp", "approvals", "pair", "hooks"),
        ),
        "help.trouble": ("help", "status", "cost", "failed", "trace", "restart"),
    }
)
"""Every command by what people want. A group is named by its heading's key in the catalogue."""
