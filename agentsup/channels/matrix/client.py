"""One account's calls to its homeserver: raw JSON in and out, typed errors, no call repeated.

The requests go over the one HTTP session of all bots. The access token travels in a header only,
never in an address.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlencode

from agentsup.channels.core.errors import NotAllowed, NotSent, OutcomeUnknown, TokenRefused
from agentsup.channels.core.files.inbox_files import Write
from agentsup.channels.core.files.upload import UploadFile
from agentsup.channels.core.receiving.raw import Json, maybe_of, maybe_text
from agentsup.channels.core.sending.http import CallSlots, HttpAnswer, HttpPool, HttpRequest
from agentsup.channels.matrix.errors import error_of
from agentsup.kit.compute import compute
from agentsup.kit.outbound.limits import AnswerLimits

_CALL_SLOTS = 16
"""Most parallel calls of one account, without syncs."""
_CHUNK_BYTES = 64 * 1024
_DOWNLOAD_S = 120.0
_UPLOAD_S = 120.0
_SERVER = "the homeserver"
_API: Final = "/_matrix/client/v3"
_MEDIA: Final = "/_matrix/client/v1/media"
_UPLOADS: Final = "/_matrix/media/v3/upload"
_JSON: Final = "application/json"
_ANSWER: Final = AnswerLimits(
    body_bytes=16 * 1024 * 1024, values=200_000, idle_s=None, total_s=None
)
_IN_THREAD_BYTES = 128 * 1024
"""JSON longer than this would block the event loop while it is parsed."""
_HALVES = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
"""Matches where a lone surrogate may be, as an escape or in bytes."""


@dataclass(frozen=True, slots=True)
class MatrixSession:
    """The bot's session at the homeserver. Its ``repr`` does not show the token."""

    user_id: str
    device_id: str
    access_token: str

    def __repr__(self) -> str:
        return f"Session({self.user_id!r}, {self.device_id!r}, '***')"


class MatrixClient:
    """Calls of one account. ``homeserver`` is the URL of its server."""

    def __init__(self, homeserver: str, *, http: HttpPool) -> None:
        self._root = homeserver.rstrip("/")
        self._http = http
        self._slots = CallSlots(
            _CALL_SLOTS, "too many calls of this account wait for the homeserver"
        )
        self._session: MatrixSession | None = None
        self._is_closed = False

    @property
    def user_id(self) -> str:
        """Our Matrix user id; empty before ``use``."""
        return self._session.user_id if self._session is not None else ""

    def use(self, session: MatrixSession) -> None:
        """Make all further calls in this session."""
        self._session = session

    async def close(self) -> None:
        """Refuse further calls; the shared HTTP session stays open."""
        self._is_closed = True

    # -- signing in --------------------------------------------------------------------------------

    async def login(
        self, user_id: str, password: str, *, device_id: str = "", device_name: str = "agentsup"
    ) -> MatrixSession:
        """Sign in with a password, as the device ``device_id`` if it is given.

        Does not ``use`` the session. Raises ``TokenRefused`` when name or password are wrong.
        """
        content = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": user_id},
            "password": password,
            "initial_device_display_name": device_name,
        }
        if device_id:
            content["device_id"] = device_id
        try:
            answer = await self._json("POST", "login", content=content, token="")
        except NotAllowed as error:
            raise TokenRefused(
                f"the homeserver does not accept the password of {user_id} ({error.message})"
            ) from None
        return MatrixSession(
            _text(answer, "user_id"), _text(answer, "device_id"), _text(answer, "access_token")
        )

    async def whoami(self, access_token: str) -> MatrixSession:
        """Return the session that a token belongs to. Raises ``TokenRefused``."""
        answer = await self._json("GET", "account", "whoami", token=access_token)
        return MatrixSession(
            _text(answer, "user_id"), maybe_text(answer, "device_id"), access_token
        )

    # -- receiving ---------------------------------------------------------------------------------

    async def sync(
        self, since: str | None, *, filter_: Json, wait_s: float, timeout_s: float
    ) -> dict[str, Any]:
        """Return the events after ``since``; wait for some up to ``wait_s``, ``timeout_s`` in all.

        Does not count against the limit of parallel calls.
        """
        query = {"since": since, "timeout": int(wait_s * 1000), "filter": _compact(filter_)}
        return await self._json("GET", "sync", query=query, timeout_s=timeout_s, is_placed=True)

    async def messages(
        self, room_id: str, *, start: str | None, end: str | None, limit: int, filter_: Json
    ) -> dict[str, Any]:
        """Return events of a room before ``start`` (None: now), newest first, back to ``end``."""
        query = {"limit": limit, "from": start, "to": end, "dir": "b", "filter": _compact(filter_)}
        return await self._json("GET", "rooms", room_id, "messages", query=query)

    async def event(self, room_id: str, event_id: str) -> dict[str, Any]:
        """Return one event. Raises ``RequestRefused`` (or ``ChatGone``) if the bot can't see it."""
        return await self._json("GET", "rooms", room_id, "event", event_id)

    async def state(self, room_id: str, event_type: str) -> dict[str, Any] | None:
        """The content of one state event, or None where there is none."""
        return await self._json_or_none("GET", "rooms", room_id, "state", event_type)

    async def members(self, room_id: str) -> Json:
        """Return the members of a room: user ids with ``display_name`` and ``avatar_url``."""
        answer = await self._json("GET", "rooms", room_id, "joined_members")
        return maybe_of(answer, "joined")

    async def display_name(self, user_id: str) -> str:
        """Return the display name of a user, or empty."""
        answer = await self._json_or_none("GET", "profile", user_id, "displayname")
        return maybe_text(answer, "displayname")

    async def join(self, room_id: str) -> None:
        """Accept an invitation, or enter an open room."""
        await self._json("POST", "join", room_id, content={}, timeout_s=60.0)

    async def leave(self, room_id: str) -> None:
        """Leave a room, or reject an invitation."""
        await self._json("POST", "rooms", room_id, "leave", content={})

    # -- sending -----------------------------------------------------------------------------------

    async def send(
        self,
        room_id: str,
        event_type: str,
        content: Json,
        *,
        txn_id: str,
        timeout_s: float = 20.0,
    ) -> str:
        """Send an event and return its id. With the same ``txn_id`` again (on the same device, for
        about a day) the server does nothing and answers with the same id.

        Raises a ``PlatformError``; after ``OutcomeUnknown`` try again with the same ``txn_id``.
        """
        path = ("rooms", room_id, "send", event_type, txn_id)
        answer = await self._json("PUT", *path, content=content, timeout_s=timeout_s)
        return _text(answer, "event_id")

    async def redact(self, room_id: str, event_id: str, *, txn_id: str) -> str:
        """Redact an event (a reaction too); return the id of the redaction."""
        path = ("rooms", room_id, "redact", event_id, txn_id)
        return _text(await self._json("PUT", *path, content={}), "event_id")

    async def typing(self, room_id: str, is_on: bool, timeout_ms: int = 30_000) -> None:
        """Show the bot as typing, or no longer."""
        content = {"typing": True, "timeout": timeout_ms} if is_on else {"typing": False}
        path = ("rooms", room_id, "typing", self.user_id)
        await self._json("PUT", *path, content=content, timeout_s=10.0)

    async def read_marker(self, room_id: str, event_id: str, thread_id: str | None = None) -> None:
        """Show that everything up to this event was read, in the thread if one is named."""
        path: tuple[str, ...] = ("read_markers",)
        content = {"m.fully_read": event_id, "m.read": event_id}
        if thread_id is not None:
            path, content = ("receipt", "m.read", event_id), {"thread_id": thread_id}
        await self._json("POST", "rooms", room_id, *path, content=content, timeout_s=10.0)

    async def upload(self, file: UploadFile, content_type: str) -> str:
        """Upload a file and return its ``mxc://`` address.

        Raises a ``PlatformError`` (``EventTooLarge`` over the server's limit); ``OSError`` for a file
        that can't be read, before anything was sent.
        """
        path = f"{_UPLOADS}?{urlencode({'filename': file.name})}"
        async with self._slots.one():
            with await file.opened() as handle:
                media = content_type or "application/octet-stream"
                request = self._request("POST", path, _UPLOAD_S, data=handle, media=media)
                answer = await self._call(request)
        return _text(await _read(answer), "content_uri")

    async def download(self, mxc: str, write: Write, max_bytes: int) -> int:
        """Fetch a file by its ``mxc://`` address into ``write`` and return its size in bytes.

        Raises a ``PlatformError``; ``TooLarge`` over ``max_bytes``; ``OSError`` if it can't be
        written; ``ValueError`` for another address. Then at most a part of it was written.
        """
        scheme, _, rest = mxc.partition("://")
        server, _, media_id = rest.partition("/")
        if scheme != "mxc" or not server or not media_id or "/" in media_id:
            raise ValueError("the file has no usable mxc:// address")
        # The authenticated endpoint; current servers refuse the open one.
        path = f"{_MEDIA}/download/{quote(server, safe='')}/{quote(media_id, safe='')}"
        fetching = self._http.open(self._request("GET", path, _DOWNLOAD_S))
        async with self._slots.one(), fetching as response:
            if response.status != 200:
                body = await response.beginning(_CHUNK_BYTES)
                raise error_of(response.status, body, retry_after=response.retry_after)
            return await response.save(write, max_bytes)

    # -- one call ----------------------------------------------------------------------------------

    async def _json_or_none(self, method: str, *path: str) -> dict[str, Any] | None:
        try:
            return await self._json(method, *path)
        except NotAllowed as error:
            if error.number == 404:
                return None
            raise

    async def _json(
        self,
        method: str,
        *path: str,
        query: Mapping[str, Any] | None = None,
        content: Json | None = None,
        timeout_s: float = 20.0,
        token: str | None = None,
        is_placed: bool = False,
    ) -> dict[str, Any]:
        """Make a request and return its answer. ``path`` are the segments below the API's root, of
        ``query`` what is None is left out, ``content`` is the body."""
        address = "/".join([_API, *(quote(segment, safe="") for segment in path)])
        given = {name: value for name, value in (query or {}).items() if value is not None}
        if given:
            address = f"{address}?{urlencode(given)}"
        data = None if content is None else _compact(content).encode()
        request = self._request(method, address, timeout_s, data=data, token=token)
        async with nullcontext() if is_placed else self._slots.one():
            answer = await self._call(request)
        return await _read(answer)

    async def _call(self, request: HttpRequest) -> HttpAnswer:
        if self._is_closed:
            raise NotSent("this account's connection is closed")
        return await self._http.request(request, limits=_ANSWER)

    def _request(
        self,
        method: str,
        path: str,
        timeout_s: float,
        *,
        data: Any = None,
        media: str = _JSON,
        token: str | None = None,
    ) -> HttpRequest:
        """Return a request with the session's token, or with ``token``; empty: without one."""
        if token is None:
            token = self._session.access_token if self._session is not None else ""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if data is not None:
            headers["Content-Type"] = media
        return HttpRequest(method, self._root + path, _SERVER, timeout_s, data, headers)


def _compact(content: Json) -> str:
    return json.dumps(content, separators=(",", ":"))


async def _read(answer: HttpAnswer) -> dict[str, Any]:
    if not 200 <= answer.status <= 299:
        raise error_of(answer.status, answer.body, retry_after=answer.retry_after)
    try:
        if len(answer.body) > _IN_THREAD_BYTES:
            found = await compute(partial(_document, answer.body), key="matrix")
        else:
            found = _document(answer.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise OutcomeUnknown("the homeserver's answer makes no sense")
    return found


def _document(body: bytes) -> Any:
    """Parse JSON so that every text in it can be stored and sent again.

    A lone surrogate, which JSON can hold and UTF-8 can't, becomes the replacement character; NaN
    and infinity become None. Raises ``ValueError`` and ``RecursionError``.
    """
    found = json.loads(body, parse_constant=lambda name: None)
    if _HALVES.search(body) is None:
        return found
    written = json.dumps(found, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
    return json.loads(written.decode("utf-16-le", "replace"))


def _text(answer: Json, name: str) -> str:
    value = answer.get(name)
    if not isinstance(value, str) or not value:
        raise OutcomeUnknown(f"the homeserver's answer has no {name}")
    return value
