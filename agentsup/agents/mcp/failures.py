"""Failures of a tool server, as types."""

from __future__ import annotations

from agentsup.model.errors import SERVER_TIMED_OUT, AgentsupError


class ServerUnavailable(AgentsupError):
    """The server can't be used now. Nothing of the call was done."""

    code = "mcp_unavailable"
    status = 503


class SessionGone(ServerUnavailable):
    """The server no longer knows the session, or it was not reached. A new session may do."""


class NotSignedIn(ServerUnavailable):
    """The server requires a sign-in (401), or refuses the given one (403)."""

    code = "mcp_not_signed_in"


class CallRefused(AgentsupError):
    """The server refused the call, or says that it failed. The message is the server's text."""

    code = "mcp_refused"
    status = 502


class ErrorAnswered(CallRefused):
    """The server answered with an error of the protocol, and not with a result. It may have lost
    the session without saying so by a status."""


class CallTimedOut(AgentsupError):
    """There was no answer in time. The outcome of the call is unknown."""

    code = SERVER_TIMED_OUT
    status = 504


class CallLost(AgentsupError):
    """The connection ended before the answer. The outcome of the call is unknown."""

    code = "mcp_lost"
    status = 502


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error in the library's nested groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
