"""What can become of a call to a homeserver. The type decides what happens next.

A request that surely had no effect (`NotSent`, every refusal) may be made again. One whose fate is
unknown (`FateUnknown`) may too where it carries a transaction id: the server shows it once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from agentsup.model.errors import AgentsupError

__all__ = [
    "Dropped",
    "Encrypted",
    "FateUnknown",
    "MatrixError",
    "NotAllowed",
    "NotSent",
    "RateLimited",
    "Refused",
    "RoomGone",
    "TokenRefused",
    "TooLong",
    "Unkept",
    "error_of",
]

_DEFAULT_WAIT_S = 5.0
_MAX_WAIT_S = 3600.0
_SHOWN_CHARS = 300


class MatrixError(AgentsupError):
    """Root of what a call to a homeserver may raise."""

    code: ClassVar[str] = "matrix"
    status: ClassVar[int] = 502


class RateLimited(MatrixError):
    """429: nothing was done; not before ``retry_after_s`` again."""

    code = "matrix_rate_limited"
    status = 429

    def __init__(
        self, retry_after_s: float, message: str = "the homeserver asks for a pause"
    ) -> None:
        super().__init__(f"{message} of {retry_after_s:.1f} s", retry_after_s=retry_after_s)
        self.retry_after_s = retry_after_s


class TokenRefused(MatrixError):
    """The access token, or the password, or the account is not accepted: nothing will succeed
    until that is changed. ``soft``: only the session has ended, signing in again helps."""

    code = "matrix_token_refused"

    def __init__(self, message: str, *, soft: bool = False) -> None:
        super().__init__(message)
        self.soft = soft


class Refused(MatrixError):
    """Another refusal (4xx); nothing was done. ``errcode`` and ``description`` as answered."""

    code = "matrix_refused"

    def __init__(self, http_status: int, errcode: str, description: str) -> None:
        super().__init__(f"{errcode or http_status}: {description}", http_status=http_status)
        self.http_status = http_status
        self.errcode = errcode
        self.description = description


class NotAllowed(Refused):
    """403: not in this room, or too little power in it."""

    code = "matrix_not_allowed"


class RoomGone(NotAllowed):
    """We are not in the room, or it does not exist."""

    code = "matrix_room_gone"


class Encrypted(Refused):
    """The room is encrypted; ours, as nothing is sent there in clear."""

    code = "matrix_encrypted"

    def __init__(self, room_id: str) -> None:
        super().__init__(0, "encrypted", f"the room {room_id} is encrypted, nothing is sent there")


class TooLong(Refused):
    """The event or file is larger than the server takes."""

    code = "matrix_too_long"


class NotSent(MatrixError):
    """The request surely did not reach the server."""

    code = "matrix_not_sent"
    status = 503


class FateUnknown(MatrixError):
    """The request may or may not have had its effect: 5xx, cut, no answer in time, no sense."""

    code = "matrix_fate_unknown"


class Unkept(MatrixError):
    """The session can't be kept on the disk, so it is not begun: a restart would lose it, and with
    it the device by which the homeserver knows what was sent."""

    code = "matrix_session_not_kept"
    status = 503


class Dropped(MatrixError):
    """Something droppable (typing, a reaction, an edit of a stream) gave way; never sent."""

    code = "matrix_dropped"


def error_of(status: int, body: bytes, *, retry_after: str = "") -> MatrixError:
    """The error that an answer other than success stands for.

    ``status`` is the HTTP status, ``body`` the answer, ``retry_after`` the header of that name. A
    homeserver answers with a JSON object that has an ``errcode``; anything else came from something
    in between.
    """
    answer = _answer(body)
    errcode = str(answer.get("errcode") or "")
    description = " ".join(str(answer.get("error") or "").split())[:_SHOWN_CHARS]
    if status == 429 or errcode == "M_LIMIT_EXCEEDED":
        return RateLimited(_wait_s(answer, retry_after))
    if status == 413:
        # Also from whatever stands before the homeserver, which says it in HTML or not at all.
        return TooLong(status, errcode, description or "it is larger than the server takes")
    if not errcode or status >= 500 or status < 400:
        if not errcode and 300 <= status < 500:
            hint = "no homeserver answers there; matrix.homeserver is the address of its API"
            return FateUnknown(f"HTTP {status}, {hint}", http_status=status)
        return FateUnknown(f"HTTP {status} {errcode}".rstrip(), http_status=status)
    if errcode in ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED"):
        return TokenRefused(
            f"the homeserver does not accept the access token ({errcode}: {description})",
            soft=errcode == "M_UNKNOWN_TOKEN",
        )
    if errcode == "M_TOO_LARGE":
        return TooLong(status, errcode, description)
    if errcode == "M_FORBIDDEN" or status == 403:
        kind = RoomGone if "not in room" in description.lower() else NotAllowed
        return kind(status, errcode, description)
    if status == 404 and errcode in ("M_NOT_FOUND", "M_UNKNOWN"):
        return RoomGone(status, errcode, description)
    return Refused(status, errcode, description)


def _answer(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}


def _wait_s(answer: Mapping[str, Any], retry_after: str) -> float:
    told = answer.get("retry_after_ms")
    if isinstance(told, int | float) and not isinstance(told, bool) and told > 0:
        return float(min(told / 1000, _MAX_WAIT_S))
    try:
        wait_s = float(retry_after)
    except ValueError:
        return _DEFAULT_WAIT_S
    return min(wait_s, _MAX_WAIT_S) if wait_s > 0 else _DEFAULT_WAIT_S
