"""Requests of short commands to the daemon: the standard library's client and JSON, nothing more."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from agentsup.cli.connect.failure import CommandFailed, DaemonUnreachable
from agentsup.cli.connect.locate import MISDIRECTED, Address, DaemonLocation

_MOST_BYTES = 64 * 1024 * 1024
REQUEST_S = 30.0
"""Seconds that a request may take unless a command waits for an answer."""


class ConnectionLost(CommandFailed):
    """The connection ended after the request was sent: its outcome is unknown."""


class DaemonRefused(CommandFailed):
    """The daemon answered with a problem document. ``code`` is stable, ``status`` that of HTTP."""

    def __init__(self, text: str, *, status: int, code: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A status and the JSON document that came with it."""

    status: int
    document: Any


@dataclass(frozen=True, slots=True)
class DaemonClient:
    """Sends requests to one daemon."""

    location: DaemonLocation
    address: Address

    @classmethod
    def to(cls, location: DaemonLocation) -> DaemonClient:
        """A client of the daemon at ``location``. Raises ``CommandFailed`` if none is known."""
        return cls(location, location.address())

    def get(
        self, path: str, query: Mapping[str, Any] | None = None, *, timeout_s: float = REQUEST_S
    ) -> Any:
        """The document at ``path``. Raises ``CommandFailed``."""
        given = {k: v for k, v in (query or {}).items() if v is not None}
        whole = f"{path}?{urlencode(given, errors='replace')}" if given else path
        return self._good("GET", whole, None, timeout_s)

    def post(
        self, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float = REQUEST_S
    ) -> Any:
        """The answer to ``body`` sent to ``path``. Raises ``CommandFailed``."""
        return self._good("POST", path, dict(body or {}), timeout_s)

    def _good(self, method: str, path: str, body: Any, timeout_s: float) -> Any:
        answer = self.ask(method, path, body, timeout_s=timeout_s)
        if answer.status < 400:
            return answer.document
        raise refusal(answer, self.location)

    def ask(
        self, method: str, path: str, body: Any = None, *, timeout_s: float = REQUEST_S
    ) -> HttpReply:
        """Send one request; returns the reply, whatever its status.

        Raises ``DaemonUnreachable`` if no daemon took it, or another one than that which wrote its
        address into the home; ``ConnectionLost`` if the outcome is unknown.
        """
        parts = urlsplit(self.address.url)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        headers = {**self.address.headers, "Accept": "application/json"}
        data = None
        if body is not None:
            data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
            headers["Content-Type"] = "application/json"
        connection = kind(parts.hostname or "127.0.0.1", parts.port, timeout=timeout_s)
        try:
            try:
                connection.connect()
            except OSError:
                raise DaemonUnreachable(self.location.not_running()) from None
            try:
                connection.request(method, parts.path + path, data, headers)
                response = connection.getresponse()
                answer = HttpReply(response.status, _document(response.read(_MOST_BYTES)))
            except TimeoutError:
                raise ConnectionLost(
                    f"the daemon at {self.address.url} did not answer within {timeout_s:g} s"
                ) from None
            except (OSError, http.client.HTTPException):
                raise ConnectionLost(
                    f"the connection to the daemon at {self.address.url} was lost before it "
                    "answered; it may have been stopped"
                ) from None
        finally:
            connection.close()
        if answer.status == MISDIRECTED:
            raise DaemonUnreachable(self.location.not_running())
        return answer


def listed_now(location: DaemonLocation, path: str, key: str, *, timeout_s: float) -> list[Any]:
    """The list ``key`` of the document at ``path``; empty if no daemon answers in time."""
    try:
        return list(DaemonClient.to(location).get(path, timeout_s=timeout_s)[key])
    except (CommandFailed, KeyError, TypeError):
        return []


def segment(text: str) -> str:
    """A name or id as a part of a path."""
    return quote(text, safe="", errors="replace")


def refusal(answer: HttpReply, location: DaemonLocation) -> DaemonRefused:
    """The problem document of a reply as an exception with one sentence."""
    document = answer.document if isinstance(answer.document, dict) else {}
    code = str(document.get("code", ""))
    detail = str(document.get("detail") or f"the daemon answered with status {answer.status}")
    hint = document.get("hint")
    if answer.status == 401:
        detail = "the daemon does not know this token"
        hint = (
            "check AGENTSUP_TOKEN"
            if location.url
            else "another daemon may answer on that port; see `agentsup doctor`"
        )
    if isinstance(hint, str) and hint and hint not in detail:
        detail = f"{detail} ({hint})"
    return DaemonRefused(detail, status=answer.status, code=code)


def _document(data: bytes) -> Any:
    try:
        return json.loads(data) if data else {}
    except ValueError:
        return {"detail": data[:200].decode("utf-8", "replace")}
