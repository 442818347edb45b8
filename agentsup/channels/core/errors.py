"""The errors of a call to a chat platform. The type decides what happens next.

A request that certainly had no effect (``NotSent``, every refusal) may be repeated. A request with
unknown outcome (``OutcomeUnknown``) is never repeated by itself, unless a repeat is harmless (P2).
Each platform's ``errors`` module maps its answers to these types and adds the few of its own.
"""

from __future__ import annotations

from typing import ClassVar, Final

from agentsup.model.errors import AgentsupError


class PlatformError(AgentsupError):
    """The base class of what a call to a platform may raise."""

    code: ClassVar[str] = "platform"
    status: ClassVar[int] = 502


class RateLimited(PlatformError):
    """Nothing was done; repeat after ``retry_after_s``. Also raised by our own rate limits."""

    code = "platform_rate_limited"
    status = 429

    def __init__(
        self, retry_after_s: float, message: str = "the platform asks for a pause"
    ) -> None:
        super().__init__(f"{message} of {retry_after_s:.1f} s", retry_after_s=retry_after_s)
        self.retry_after_s = retry_after_s


class TokenRefused(PlatformError):
    """The token, password or account is not accepted: no call succeeds until that is changed.

    ``soft``: only the session has ended, and signing in again helps.
    """

    code = "platform_token_refused"

    def __init__(self, message: str, *, soft: bool = False) -> None:
        super().__init__(message)
        self.soft = soft


class RequestRefused(PlatformError):
    """Another refusal (4xx); nothing was done."""

    code = "platform_refused"

    def __init__(self, number: int, description: str, name: str = "") -> None:
        """``number`` and ``name`` are the platform's codes of the refusal (0 and empty: our own);
        ``description`` is its text."""
        super().__init__(f"{name or number}: {description}", number=number)
        self.number = number
        self.name = name
        self.description = description


class NotAllowed(RequestRefused):
    """The bot may not do that in this chat."""

    code = "platform_not_allowed"


class ChatGone(NotAllowed):
    """The chat cannot be written to: the bot is not in it, is blocked, or it does not exist."""

    code = "platform_chat_gone"


class NotSent(PlatformError):
    """The request has certainly not reached the server."""

    code = "platform_not_sent"
    status = 503


class OutcomeUnknown(PlatformError):
    """The request may have had its effect: 5xx, a cut connection, a timeout, a malformed answer."""

    code = "platform_outcome_unknown"


class LowPriorityDropped(PlatformError):
    """A low-priority call (typing, a draft, an edit of a stream) was dropped and not sent."""

    code = "platform_dropped"


TRANSIENT: Final = (RateLimited, LowPriorityDropped, NotSent, OutcomeUnknown)
"""After these the same call may succeed later; without a key, only calls that do no harm when they
are repeated may be made again after ``OutcomeUnknown``."""
