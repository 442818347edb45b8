"""What can go wrong with a tool server, as types."""

from __future__ import annotations

from agentsup.model.errors import AgentsupError


class ServerAway(AgentsupError):
    """The server can't be used now; nothing of the call was done."""

    code = "mcp_unavailable"
    status = 503


class CallRefused(AgentsupError):
    """The server did not take the call, or says that it failed; the words are its own."""

    code = "mcp_refused"
    status = 502


class CallTimedOut(AgentsupError):
    """No answer in time; whether it happened is not known."""

    code = "mcp_timeout"
    status = 504


class CallLost(AgentsupError):
    """The connection ended before the answer; whether it happened is not known."""

    code = "mcp_lost"
    status = 502
