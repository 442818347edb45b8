"""Documents about a tool server, as people see them."""

from __future__ import annotations

from typing import Any

from agentsup.agents.mcp.listed import clean
from agentsup.config import McpServer

_ERROR_LINE_CHARS = 600


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


def error_line(text: str) -> str:
    """An error in one line, without its middle if it is long."""
    line, half = " ".join(clean(text).split()), _ERROR_LINE_CHARS // 2
    return line if len(line) <= 2 * half else f"{line[:half]} … {line[-half:]}"
