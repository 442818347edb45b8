"""What can become of a call to the Bot API. The type decides what happens next.

The division that matters most: a request that surely had no effect (`NotSent`, every refusal) may
be made again; one whose fate is unknown (`FateUnknown`) never is by itself, unless it is harmless
when repeated.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from agentsup.model.errors import AgentsupError

__all__ = [
    "ChatGone",
    "ChatMigrated",
    "Dropped",
    "FateUnknown",
    "FloodWait",
    "MarkupRefused",
    "NotModified",
    "NotSent",
    "PollConflict",
    "Refused",
    "TelegramError",
    "TokenRefused",
    "error_of",
]

_DEFAULT_WAIT_S = 5.0


class TelegramError(AgentsupError):
    """Root of what a call to the Bot API may raise."""

    code: ClassVar[str] = "telegram"
    status: ClassVar[int] = 502


class FloodWait(TelegramError):
    """429: nothing was done; not before ``retry_after_s`` again. Also raised by our own limits."""

    code = "telegram_flood"
    status = 429

    def __init__(self, retry_after_s: float, message: str = "Telegram asks for a pause") -> None:
        super().__init__(f"{message} of {retry_after_s:.1f} s", retry_after_s=retry_after_s)
        self.retry_after_s = retry_after_s


class TokenRefused(TelegramError):
    """401 or 404 of the token itself: no call will succeed until it is changed."""

    code = "telegram_token_refused"


class PollConflict(TelegramError):
    """409: another program polls with the same token, or a webhook is set."""

    code = "telegram_conflict"


class ChatGone(TelegramError):
    """The chat can't be written to: blocked, kicked, deactivated, not found."""

    code = "telegram_chat_gone"


class ChatMigrated(TelegramError):
    """The group became a supergroup with another id. Nothing was done."""

    code = "telegram_chat_migrated"

    def __init__(self, new_chat_id: int) -> None:
        super().__init__(f"the group has become {new_chat_id}", new_chat_id=new_chat_id)
        self.new_chat_id = new_chat_id


class Refused(TelegramError):
    """Another refusal (4xx); nothing was done. ``error_code`` and ``description`` as answered."""

    code = "telegram_refused"

    def __init__(self, error_code: int, description: str) -> None:
        super().__init__(f"{error_code}: {description}", error_code=error_code)
        self.error_code = error_code
        self.description = description


class MarkupRefused(Refused):
    """The text's formatting was not accepted; as plain text it may be."""

    code = "telegram_markup_refused"


class NotModified(Refused):
    """An edit that would change nothing: what was wanted is already there."""

    code = "telegram_not_modified"


class NotSent(TelegramError):
    """The request surely did not reach the server."""

    code = "telegram_not_sent"
    status = 503


class FateUnknown(TelegramError):
    """The request may or may not have had its effect: 5xx, cut, no answer in time, no sense."""

    code = "telegram_fate_unknown"


class Dropped(TelegramError):
    """Something droppable (typing, a draft, an edit of a stream) gave way; it was never sent."""

    code = "telegram_dropped"


def error_of(status: int, body: bytes, *, retry_after: str = "") -> TelegramError:
    """The error that an answer other than success stands for.

    ``status`` is the HTTP status, ``body`` the whole answer, ``retry_after`` the header of that
    name. An answer of the Bot API is a JSON object with ``ok`` false; anything else came from
    something in between and says little about the fate of the request.
    """
    answer = _refusal(body)
    if status == 429:
        return FloodWait(_wait_s(answer, retry_after))
    if answer is None:
        return FateUnknown(f"HTTP {status} without an answer of the Bot API", http_status=status)
    # In an answer with another status its own code is the one that counts.
    code = answer.get("error_code")
    code = code if isinstance(code, int) else status
    description = str(answer.get("description") or "")
    parameters = _parameters(answer)
    if code == 429:
        return FloodWait(_wait_s(answer, retry_after))
    if code >= 500 or code < 400:
        return FateUnknown(f"{code}: {description}", http_status=status)
    new_chat_id = parameters.get("migrate_to_chat_id")
    if isinstance(new_chat_id, int):
        return ChatMigrated(new_chat_id)
    return _refused(code, description)


def _refused(code: int, description: str) -> TelegramError:
    text = description.lower()
    if code == 401 or (code == 404 and text in {"not found", ""}):
        return TokenRefused(
            f"Telegram does not accept the bot's token ({code}: {description}). Ask @BotFather for "
            "a valid one and put it into the agent's entry."
        )
    if code == 409:
        return PollConflict(f"{code}: {description}")
    if code == 403 or (code == 400 and any(known in text for known in _GONE)):
        return ChatGone(f"{code}: {description}")
    if code == 400 and "message is not modified" in text:
        return NotModified(code, description)
    if code == 400 and any(known in text for known in _MARKUP):
        return MarkupRefused(code, description)
    return Refused(code, description)


_GONE = ("chat not found", "peer_id_invalid", "user_is_blocked", "user is deactivated")
_MARKUP = (
    "can't parse entities",
    "can't parse messageentity",
    "can't parse message entit",
    "entity_bounds_invalid",
    "entities_too_long",
    "entity_url_invalid",
    "unsupported parse_mode",
)


def _refusal(body: bytes) -> dict[str, Any] | None:
    """The answer of the Bot API, if it is one and a refusal."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(answer, dict) and answer.get("ok") is False:
        return answer
    return None


def _parameters(answer: dict[str, Any]) -> dict[str, Any]:
    found = answer.get("parameters")
    return found if isinstance(found, dict) else {}


def _wait_s(answer: dict[str, Any] | None, header: str) -> float:
    given: Any = _parameters(answer).get("retry_after") if answer is not None else None
    for text in (given, header):
        try:
            seconds = float(text)
        except (TypeError, ValueError):
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    return _DEFAULT_WAIT_S
