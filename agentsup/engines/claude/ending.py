"""From Claude's ``result`` to the end of the segment: the answer, or why there is none. Pure.

A failed call of the model's provider ends as ``subtype: success`` with ``is_error``. So only
``is_error``, ``api_error_status`` and the ``error`` word of the last answer count for it.
"""

from __future__ import annotations

import re
from typing import Any

from agentsup.engines import failures
from agentsup.model.errors import EngineFailed

_SIGN_IN = (
    'sign in with the CLI itself (`claude`, then /login, with engine_options.home = "user"), or '
    'set ANTHROPIC_API_KEY as "env:NAME" in engine_options.env'
)
_MISSING_SESSION = "No conversation found"
_TAKEN_SESSION = "already in use"
_UNKNOWN_OPTION = "unknown option"
_MAX_CHARS = 500
_SIGNED_OUT = re.compile(
    r"login|failed to authenticate|(?:oauth|authentication)\b.{0,40}\b(?:expired|revoked|invalid)"
    r"|invalid (?:api key|authentication)",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"credit balance is too low", re.IGNORECASE)


def provider_failure(
    status: int | None, word: str, said: str, retry_after_s: float | None
) -> EngineFailed:
    """The failure for an HTTP ``status`` and Claude's own ``word`` for it."""
    said = said[:_MAX_CHARS]
    if word in {"authentication_failed", "oauth_org_not_allowed"} or status in {401, 403}:
        return failures.AuthFailed(f"claude is not signed in: {said}; {_SIGN_IN}")
    if word == "billing_error" or status == 402:
        return failures.ProviderQuotaExceeded(f"the account of claude has no credit left: {said}")
    if word == "rate_limit" or status == 429:
        return failures.ProviderRateLimited(
            f"claude is over its rate limit: {said}", retry_after_s=retry_after_s
        )
    if status == 404 or word == "model_not_found":
        return failures.ModelNotFound(f"claude does not know the model: {said}")
    if "prompt is too long" in said.lower():
        return failures.ContextOverflow(f"the conversation is too long for claude: {said}")
    if status in {408, 504}:
        return failures.ProviderTimedOut(f"claude's provider did not answer in time: {said}")
    if word in {"server_error", "overloaded"} or (status is not None and status >= 500):
        return failures.ServerFailed(
            f"claude's provider failed or is overloaded: {said}", retry_after_s=retry_after_s
        )
    if word == "invalid_request" or status is not None:
        return failures.RequestRejected(f"claude's provider refused the request: {said}")
    return failures.ConnectionFailed(f"claude could not reach its provider: {said}")


def result_failure(
    result: dict[str, Any], word: str, retry_after_s: float | None, state: bytes | None = None
) -> EngineFailed | None:
    """Return why a ``result`` is no answer, or None. ``state``: with it the turn can continue."""
    subtype = str(result.get("subtype") or "")
    said = said_by(result)
    if subtype == "error_max_turns":
        return failures.TurnLimitReached(
            "claude used up the steps of this turn (max_steps)", state=state
        )
    if subtype == "error_max_budget_usd":
        return failures.LimitReached("claude used up the money of this turn (budget.per_turn_usd)")
    status = result.get("api_error_status")
    status = status if isinstance(status, int) else None
    if not result.get("is_error"):
        return None
    if status is not None or word:
        return provider_failure(status, word, said, retry_after_s)
    known = "billing_error" if _NO_CREDIT.search(said) else ""
    known = "authentication_failed" if _SIGNED_OUT.search(said) else known
    if known or "API Error" in said:
        return provider_failure(None, known, said, retry_after_s)
    return failures.Permanent(f"claude could not finish: {said or subtype}")


def is_other_session(text: str, *, exists: bool) -> bool:
    """Whether an error text says that a session is missing that ``exists``, or else the reverse."""
    return (_MISSING_SESSION if exists else _TAKEN_SESSION) in text


def too_old(stderr: str) -> EngineFailed | None:
    """Return the failure of a version that does not know one of our flags, or None."""
    if _UNKNOWN_OPTION not in stderr:
        return None
    return failures.VersionTooOld(
        f"this version of claude is too old ({stderr[:200]}): update it with "
        "npm install -g @anthropic-ai/claude-code@latest"
    )


def said_by(result: dict[str, Any]) -> str:
    """Return everything that a result says."""
    errors = result.get("errors")
    if isinstance(errors, list) and errors:
        return "; ".join(str(each) for each in errors)
    return str(result.get("result") or result.get("error") or "")
