"""Turns an agent's refusal of a request into a failure, whose type decides what happens. Pure."""

from __future__ import annotations

from typing import Any

from agentsup.engines.clean import as_dict
from agentsup.engines.failures import (
    AuthFailed,
    OutputUnreadable,
    ProviderRateLimited,
    RequestRejected,
    ServerFailed,
)
from agentsup.engines.programs.presets import Preset
from agentsup.model.errors import EngineFailed

AUTH_REQUIRED = -32000
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603
_TOO_MANY = 429
_MAX_CHARS = 800


class AgentRefused(Exception):
    """The agent answered a request with an error."""

    def __init__(self, code: int, message: str, data: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def failure_of(refused: AgentRefused, preset: Preset, *, has_acted: bool) -> EngineFailed:
    """Return the failure for a refusal by the agent of ``preset``.

    If the agent has called tools (``has_acted``), an internal error is permanent: a retry of the
    turn might do something twice.
    """
    said, title = said_by(refused), preset.title
    if refused.code == AUTH_REQUIRED:
        return AuthFailed(f"{title} is not signed in: {preset.sign_in} ({said})")
    if _is_too_many(refused):
        return ProviderRateLimited(f"{title}: the provider wants fewer requests ({said})")
    if refused.code == INTERNAL_ERROR and not has_acted:
        return ServerFailed(f"{title} failed: {said}")
    if refused.code == METHOD_NOT_FOUND:
        return OutputUnreadable(f"{title} does not know a request it needs to: {said}")
    return RequestRejected(f"{title} failed: {said}")


def _is_too_many(refused: AgentRefused) -> bool:
    """Whether the agent passes the provider's status 429 on."""
    data = as_dict(refused.data)
    return _TOO_MANY in (refused.code, *map(data.get, ("status", "code", "httpStatus")))


def said_by(refused: AgentRefused) -> str:
    """Return what the agent says about its refusal."""
    data = refused.data if isinstance(refused.data, dict) else {"details": refused.data}
    texts = (
        data.get(name) for name in ("details", "message", "error", "errorName", "codexErrorInfo")
    )
    more = next((each for each in texts if isinstance(each, str) and each), "")
    text = f"{refused.message}: {more}" if more and more not in refused.message else refused.message
    return text[:_MAX_CHARS]
