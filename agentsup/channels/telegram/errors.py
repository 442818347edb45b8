"""The errors of the Bot API: a table from its codes and texts to the types of ``core.errors``."""

from __future__ import annotations

from typing import Any, Final

from agentsup.channels.core.errors import (
    ChatGone,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    RequestRefused,
    TokenRefused,
)
from agentsup.channels.core.receiving.raw import Json, maybe_of, object_in

_DEFAULT_WAIT_S = 5.0


class PollConflict(PlatformError):
    """409: another program polls with the same token, or a webhook is set."""

    code = "telegram_conflict"


class ChatMigrated(PlatformError):
    """The group became a supergroup with another id. Nothing was done."""

    code = "telegram_chat_migrated"

    def __init__(self, new_chat_id: int) -> None:
        super().__init__(f"the group has become {new_chat_id}", new_chat_id=new_chat_id)
        self.new_chat_id = new_chat_id


class MarkupRefused(RequestRefused):
    """The text's formatting was not accepted; try again as plain text."""

    code = "telegram_markup_refused"


class NotModified(RequestRefused):
    """The edit would change nothing: the message already has that content."""

    code = "telegram_not_modified"


_NEWER: Final = frozenset({"sendMessageDraft", "setMessageReaction"})
"""Optional methods that old servers do not have."""
_REFUSALS: Final[tuple[tuple[int, tuple[str, ...], type[RequestRefused]], ...]] = (
    (403, ("",), ChatGone),
    (
        400,
        ("chat not found", "peer_id_invalid", "user_is_blocked", "user is deactivated"),
        ChatGone,
    ),
    (400, ("message is not modified",), NotModified),
    (
        400,
        (
            "can't parse entities",
            "can't parse messageentity",
            "can't parse message entit",
            "entity_bounds_invalid",
            "entities_too_long",
            "entity_url_invalid",
            "unsupported parse_mode",
        ),
        MarkupRefused,
    ),
)
"""Code, parts of the description in lower case of which one must occur, and the type."""


def error_of(status: int, body: bytes, *, retry_after: str = "", method: str = "") -> PlatformError:
    """Return the error for an answer other than success.

    ``status`` is the HTTP status, ``body`` the whole answer, ``retry_after`` the header of that
    name, ``method`` what was called, if that is known. A refusal of the Bot API is a JSON object
    with ``ok`` false; any other body came from a proxy or the like and leaves the outcome unknown.
    """
    answer = object_in(body)
    is_refusal = answer.get("ok") is False
    # The code in the answer takes precedence over the HTTP status.
    code = answer.get("error_code") if is_refusal else None
    code = code if isinstance(code, int) else status
    if 429 in (status, code):
        return RateLimited(_wait_s(answer, retry_after), "Telegram asks for a pause")
    if not is_refusal:
        return OutcomeUnknown(f"HTTP {status} without an answer of the Bot API", http_status=status)
    description = str(answer.get("description") or "")
    if code >= 500 or code < 400:
        return OutcomeUnknown(f"{code}: {description}", http_status=status)
    new_chat_id = maybe_of(answer, "parameters").get("migrate_to_chat_id")
    if isinstance(new_chat_id, int):
        return ChatMigrated(new_chat_id)
    return _refused(code, description, method)


def _refused(code: int, description: str, method: str) -> PlatformError:
    text = description.lower()
    # An old server of one's own says the same of a method that it does not know.
    is_unknown = code == 404 and text in {"not found", ""}
    if code == 401 or (is_unknown and method not in _NEWER):
        return TokenRefused(
            f"Telegram does not accept the bot's token ({code}: {description}). Ask @BotFather for "
            "a valid one and put it into the agent's entry."
        )
    if code == 409:
        return PollConflict(f"{code}: {description}")
    for known, parts, kind in _REFUSALS:
        if code == known and any(part in text for part in parts):
            return kind(code, description)
    return RequestRefused(code, description)


def _wait_s(answer: Json, header: str) -> float:
    given: Any = maybe_of(answer, "parameters").get("retry_after")
    for text in (given, header):
        try:
            seconds = float(text)
        except (TypeError, ValueError):
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    return _DEFAULT_WAIT_S
