"""What can go wrong with a tool server, as types."""

from __future__ import annotations

from agentsup.model.errors import SERVER_TIMED_OUT, AgentsupError


class ServerUnavailable(AgentsupError):
    """The server can't be used now. Nothing of the call was done."""

    code = "mcp_unavailable"
    status = 503


class CallRefused(AgentsupError):
    """The server refused the call, or says that it failed. The message is the server's text."""

    code = "mcp_refused"
    status = 502


class CallTimedOut(AgentsupError):
    """There was no answer in time. The outcome of the call is unknown."""

    code = SERVER_TIMED_OUT
    status = 504


class CallLost(AgentsupError):
    """The connection ended before the answer. The outcome of the call is unknown."""

    code = "mcp_lost"
    status = 502
