"""The access log: defects as WARNING, refusals as INFO, the rest as DEBUG.

Query strings and headers are never logged: they may hold secrets. Whoever may ask can be refused as
often as it likes, so a caller's refusals take one line a minute.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from aiohttp import web

from agentsup.api.http.access import loggable
from agentsup.kit.log import get_logger

_log = get_logger("agentsup.api.http.access")
_METHOD_CHARS = 20
_PAUSE_S = 60.0
_MOST_CALLERS = 256


@dataclass(slots=True)
class _Caller:
    logged_at: float
    more: int = 0
    """Refusals since its last line."""


class Refusals:
    """Decides which refusals have a line: the first of a caller, then one a minute."""

    def __init__(self) -> None:
        self._callers: dict[str, _Caller] = {}

    def line_of(self, caller: str, now: float) -> str | None:
        """The addition to the line of a refusal of ``caller`` at ``now``, monotonic seconds; None:
        it has no line."""
        known = self._callers.pop(caller, None)
        if known is not None and now < known.logged_at + _PAUSE_S:
            known.more += 1
            self._callers[caller] = known
            return None
        while len(self._callers) >= _MOST_CALLERS:
            del self._callers[next(iter(self._callers))]
        self._callers[caller] = _Caller(now)
        more = known.more if known is not None else 0
        return f"; {more} more of {caller} were refused since its last line" if more else ""


class AccessLog:
    """Writes a line for each request that is worth one."""

    def __init__(self) -> None:
        self._refusals = Refusals()

    def note(
        self,
        request: web.Request,
        response: web.StreamResponse,
        request_id: str,
        elapsed_ms: float,
        now: float,
    ) -> None:
        """Write the line of a request that was answered at ``now``, monotonic seconds."""
        status = response.status
        level = (
            logging.WARNING if status >= 500 else logging.INFO if status >= 400 else logging.DEBUG
        )
        if not _log.is_enabled(level):
            return
        more: str | None = ""
        if level == logging.INFO:
            more = self._refusals.line_of(request.remote or "", now)
        if more is None:
            return
        path, method = loggable(request.path), request.method[:_METHOD_CHARS]
        text = f"{method} {path} -> {status} in {elapsed_ms:.1f} ms ({request_id})"
        _log.log(level, text + more)
