"""What people are shown of a tool server."""

from __future__ import annotations

from typing import Any

from agentsup.config import McpServer


def idle(server: McpServer, state: str, since_at: int | None) -> dict[str, Any]:
    """The document of a server that is not opened."""
    return {
        "name": server.name,
        "type": server.kind,
        "target": server.shown,
        "state": state,
        "since": since_at,
        "tools": [],
        "error": "",
        "next_retry_at": None,
        "restarts": 0,
        "notes": [],
    }
