"""The errors of a homeserver: a table from its codes to the types of ``core.errors``.

A request with an unknown outcome may be made again if it carries a transaction id: the server
shows it once.
"""

from __future__ import annotations

from typing import Final

from agentsup.channels.core.errors import (
    ChatGone,
    NotAllowed,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    RequestRefused,
    TokenRefused,
)
from agentsup.channels.core.receiving.raw import Json, object_in

_DEFAULT_WAIT_S = 5.0
_MAX_WAIT_S = 3600.0
_SHOWN_CHARS = 300


class Encrypted(RequestRefused):
    """The room is encrypted. Raised by the bot itself, which can only send clear text."""

    code = "matrix_encrypted"

    def __init__(self, room_id: str) -> None:
        super().__init__(0, f"the room {room_id} is encrypted, nothing is sent there", "encrypted")


class EventTooLarge(RequestRefused):
    """The event or file is larger than the server takes."""

    code = "matrix_too_long"


class SessionNotStored(PlatformError):
    """The session can't be stored on disk, so it is not used. A restart would lose it, and with it
    the device whose transaction ids the homeserver knows."""

    code = "matrix_session_not_kept"
    status = 503


_REFUSALS: Final[tuple[tuple[int, str, str, type[RequestRefused]], ...]] = (
    (0, "M_TOO_LARGE", "", EventTooLarge),
    (0, "M_FORBIDDEN", "not in room", ChatGone),
    (0, "M_FORBIDDEN", "", NotAllowed),
    (403, "", "not in room", ChatGone),
    (403, "", "", NotAllowed),
    (404, "M_NOT_FOUND", "", ChatGone),
    (404, "M_UNKNOWN", "", ChatGone),
)
"""HTTP status, errcode, a part of the description in lower case, and the type; 0 and empty stand
for any. The first line that fits counts."""


def error_of(status: int, body: bytes, *, retry_after: str = "") -> PlatformError:
    """Return the error for an answer other than success.

    ``status`` is the HTTP status, ``body`` the answer, ``retry_after`` the header of that name. A
    homeserver answers with a JSON object that has an ``errcode``; anything else came from a proxy.
    """
    answer = object_in(body)
    errcode = str(answer.get("errcode") or "")
    description = " ".join(str(answer.get("error") or "").split())[:_SHOWN_CHARS]
    if status == 429 or errcode == "M_LIMIT_EXCEEDED":
        return RateLimited(_wait_s(answer, retry_after), "the homeserver asks for a pause")
    if status == 413:
        # Also from a proxy before the homeserver, whose answer is HTML or empty.
        return EventTooLarge(status, description or "it is larger than the server takes", errcode)
    if not errcode or status >= 500 or status < 400:
        if not errcode and 300 <= status < 500:
            hint = "no homeserver answers there; matrix.homeserver is the address of its API"
            return OutcomeUnknown(f"HTTP {status}, {hint}", http_status=status)
        return OutcomeUnknown(f"HTTP {status} {errcode}".rstrip(), http_status=status)
    if errcode in ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED"):
        return TokenRefused(
            f"the homeserver does not accept the access token ({errcode}: {description})",
            soft=errcode == "M_UNKNOWN_TOKEN",
        )
    return _kind_of(status, errcode, description.lower())(status, description, errcode)


def _kind_of(status: int, errcode: str, text: str) -> type[RequestRefused]:
    for number, name, part, kind in _REFUSALS:
        if number in (0, status) and name in ("", errcode) and part in text:
            return kind
    return RequestRefused


def _wait_s(answer: Json, retry_after: str) -> float:
    given = answer.get("retry_after_ms")
    if isinstance(given, int | float) and not isinstance(given, bool) and given > 0:
        return float(min(given / 1000, _MAX_WAIT_S))
    try:
        wait_s = float(retry_after)
    except ValueError:
        return _DEFAULT_WAIT_S
    return min(wait_s, _MAX_WAIT_S) if wait_s > 0 else _DEFAULT_WAIT_S
