"""Why an agent refused a request, as types that decide what happens next: pure."""

from __future__ import annotations

from typing import Any

from agentsup.engines.failures import (
    AuthFailed,
    OutputUnreadable,
    RateLimited,
    RequestRejected,
    ServerFailed,
)
from agentsup.model.errors import EngineFailed

AUTH_REQUIRED = -32000
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603
NOT_FOUND = -32002
_TOO_MANY = 429
_MAX_CHARS = 800


class AgentRefused(Exception):
    """The agent answered a request with an error."""

    def __init__(self, code: int, message: str, data: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def failure_of(refused: AgentRefused, *, title: str, sign_in: str, has_acted: bool) -> EngineFailed:
    """The failure for a refusal. Where the agent has called tools (``has_acted``), the turn is not
    tried again by itself: it might do something twice."""
    said = said_by(refused)
    if refused.code == AUTH_REQUIRED:
        return AuthFailed(f"{title} is not signed in: {sign_in} ({said})")
    if _status(refused) == _TOO_MANY:
        return RateLimited(f"{title}: the provider wants fewer requests ({said})")
    if refused.code == INTERNAL_ERROR and not has_acted:
        return ServerFailed(f"{title} failed: {said}")
    if refused.code == METHOD_NOT_FOUND:
        return OutputUnreadable(f"{title} does not know a request it needs to: {said}")
    return RequestRejected(f"{title} failed: {said}")


def _status(refused: AgentRefused) -> int | None:
    """The provider's HTTP status, where the agent hands it on."""
    data = refused.data if isinstance(refused.data, dict) else {}
    found = [refused.code, *(data.get(name) for name in ("status", "code", "httpStatus"))]
    return next((each for each in found if each == _TOO_MANY), None)


def said_by(refused: AgentRefused) -> str:
    """What the agent says of its refusal, in one line."""
    data = refused.data if isinstance(refused.data, dict) else {"details": refused.data}
    told = (data.get(name) for name in ("details", "message", "error", "errorName"))
    more = next((each for each in told if isinstance(each, str) and each), "")
    text = f"{refused.message}: {more}" if more and more not in refused.message else refused.message
    return text[:_MAX_CHARS]
