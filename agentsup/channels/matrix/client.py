"""One account's calls to its homeserver: raw JSON in and out, typed errors, no call repeated.

matrix-nio builds the requests; they go over the one HTTP session of all bots. The access token
travels in a header only, never in an address.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from agentsup.channels.http import HttpAnswer, HttpPool, Unanswered, Unsent
from agentsup.channels.matrix import library
from agentsup.channels.matrix.errors import (
    FateUnknown,
    NotAllowed,
    NotSent,
    TokenRefused,
    error_of,
)
from agentsup.channels.received import Write
from agentsup.channels.upload import UploadFile

__all__ = ["MatrixClient", "Session", "UploadFile"]

Json = Mapping[str, Any]

_PLACES = 16
"""Calls of one account under way; syncs not counted."""
_PLACE_WAIT_S = 10.0
_CHUNK_BYTES = 64 * 1024
_DOWNLOAD_S = 120.0
_UPLOAD_S = 120.0
_MEDIA = "/_matrix/client/v1/media"
_ANSWER_BYTES, _ANSWER_VALUES = 16 * 1024 * 1024, 200_000
_IN_THREAD_BYTES = 128 * 1024
"""JSON longer than this would hold up the loop while it is read."""
_HALVES = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
"""Where half of a character may stand: a surrogate, as an escape or in bytes."""


@dataclass(frozen=True, slots=True)
class Session:
    """Who we are at the homeserver. Its ``repr`` does not show the token."""

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
        self._places = asyncio.Semaphore(_PLACES)
        self._library: library.Library | None = None
        self._session: Session | None = None
        self._is_closed = False

    @property
    def user_id(self) -> str:
        """Our Matrix user id; empty before ``use``."""
        return self._session.user_id if self._session is not None else ""

    @property
    def device_id(self) -> str:
        """The device whose transaction ids the server remembers; empty before ``use``."""
        return self._session.device_id if self._session is not None else ""

    def use(self, session: Session) -> None:
        """Make all further calls in this session."""
        self._session = session

    async def close(self) -> None:
        """No more calls; the shared HTTP session stays open."""
        self._is_closed = True

    # -- signing in --------------------------------------------------------------------------------

    async def login(
        self, user_id: str, password: str, *, device_id: str = "", device_name: str = "agentsup"
    ) -> Session:
        """Sign in with a password; ``device_id`` is taken up again if it is given.

        Does not ``use`` the session. Raises ``TokenRefused`` when name or password are wrong.
        """
        api = (await self._loaded()).api
        method, path, body = api.login(
            user_id, password=password, device_name=device_name, device_id=device_id
        )
        try:
            answer = await self._json(method, path, body, token="")
        except NotAllowed as error:
            raise TokenRefused(
                f"the homeserver does not accept the password of {user_id} ({error.message})"
            ) from None
        return Session(
            _text(answer, "user_id"), _text(answer, "device_id"), _text(answer, "access_token")
        )

    async def whoami(self, access_token: str) -> Session:
        """Whose token it is. Raises ``TokenRefused``."""
        method, path = (await self._loaded()).api.whoami("")
        answer = await self._json(method, path, token=access_token)
        device_id = answer.get("device_id")
        return Session(
            _text(answer, "user_id"), device_id if isinstance(device_id, str) else "", access_token
        )

    # -- receiving ---------------------------------------------------------------------------------

    async def sync(
        self, since: str | None, *, filter_: Json, wait_s: float, timeout_s: float
    ) -> dict[str, Any]:
        """What happened after ``since``; waits up to ``wait_s`` for it, and ``timeout_s`` in all.

        Does not take one of the places for other calls.
        """
        method, path = (await self._loaded()).api.sync(
            "", since=since, timeout=int(wait_s * 1000), filter=dict(filter_)
        )
        return await self._json(method, path, timeout_s=timeout_s, is_placed=True)

    async def messages(
        self, room_id: str, *, start: str | None, end: str | None, limit: int, filter_: Json
    ) -> dict[str, Any]:
        """Events of a room before ``start`` (None: now), newest first, down to ``end``."""
        method, path = (await self._loaded()).api.room_messages(
            "", room_id, start=start, end=end, limit=limit, message_filter=dict(filter_)
        )
        return await self._json(method, path)

    async def event(self, room_id: str, event_id: str) -> dict[str, Any]:
        """One event. Raises ``Refused`` (a ``RoomGone`` too) if there is none for us."""
        method, path = (await self._loaded()).api.room_get_event("", room_id, event_id)
        return await self._json(method, path)

    async def state(
        self, room_id: str, event_type: str, state_key: str = ""
    ) -> dict[str, Any] | None:
        """The content of one state event, or None where there is none."""
        method, path = (await self._loaded()).api.room_get_state_event(
            "", room_id, event_type, state_key
        )
        return await self._json_or_none(method, path)

    async def members(self, room_id: str) -> dict[str, Any]:
        """Who is in a room: user ids with ``display_name`` and ``avatar_url``."""
        method, path = (await self._loaded()).api.joined_members("", room_id)
        joined = (await self._json(method, path)).get("joined")
        return joined if isinstance(joined, dict) else {}

    async def display_name(self, user_id: str) -> str:
        """The name that a user goes by, or empty."""
        method, path = (await self._loaded()).api.profile_get_displayname(user_id)
        name = (await self._json_or_none(method, path) or {}).get("displayname")
        return name if isinstance(name, str) else ""

    async def join(self, room_id: str) -> None:
        """Accept an invitation, or enter an open room."""
        method, path = (await self._loaded()).api.join("", room_id)
        await self._json(method, path, "{}", timeout_s=60.0)

    async def leave(self, room_id: str) -> None:
        """Leave a room, or reject an invitation."""
        method, path = (await self._loaded()).api.room_leave("", room_id)
        await self._json(method, path, "{}")

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

        Raises a ``MatrixError``; ``FateUnknown`` may be tried again with the same ``txn_id``.
        """
        method, path, body = (await self._loaded()).api.room_send(
            "", room_id, event_type, dict(content), txn_id
        )
        return _text(await self._json(method, path, body, timeout_s=timeout_s), "event_id")

    async def redact(self, room_id: str, event_id: str, *, txn_id: str, reason: str = "") -> str:
        """Take back an event (a reaction too); the id of the redaction."""
        method, path, body = (await self._loaded()).api.room_redact(
            "", room_id, event_id, txn_id, reason=reason or None
        )
        return _text(await self._json(method, path, body), "event_id")

    async def typing(self, room_id: str, is_on: bool, timeout_ms: int = 30_000) -> None:
        """Show, or no longer, that we are typing."""
        method, path, body = (await self._loaded()).api.room_typing(
            "", room_id, self.user_id, typing_state=is_on, timeout=timeout_ms
        )
        await self._json(method, path, body, timeout_s=10.0)

    async def read_marker(self, room_id: str, event_id: str, thread_id: str | None = None) -> None:
        """Show that everything up to this event was read, in the thread if one is named."""
        api = (await self._loaded()).api
        if thread_id is None:
            method, path, body = api.room_read_markers("", room_id, event_id, read_event=event_id)
        else:
            method, path, body = api.update_receipt_marker(
                "", room_id, event_id, thread_id=thread_id
            )
        await self._json(method, path, body, timeout_s=10.0)

    async def upload(self, file: UploadFile, content_type: str) -> str:
        """Upload a file and return its ``mxc://`` address.

        Raises a ``MatrixError`` (``TooLong`` over the server's limit); ``OSError`` for a file that
        can't be read, before anything was sent.
        """
        method, path = (await self._loaded()).api.upload("", filename=file.name)
        async with self._place():
            with await file.opened() as handle:
                answer = await self._call(
                    method,
                    path,
                    handle,
                    content_type=content_type or "application/octet-stream",
                    timeout_s=_UPLOAD_S,
                )
        return _text(await _read(answer), "content_uri")

    async def download(self, mxc: str, write: Write, max_bytes: int) -> int:
        """Fetch a file by its ``mxc://`` address into ``to`` and return its size in bytes.

        Raises a ``MatrixError``; ``TooLarge`` over ``max_bytes``; ``OSError`` if it can't be
        written; ``ValueError`` for another address. Then ``to`` holds a piece at most.
        """
        scheme, _, rest = mxc.partition("://")
        server, _, media_id = rest.partition("/")
        if scheme != "mxc" or not server or not media_id or "/" in media_id:
            raise ValueError("the file has no usable mxc:// address")
        # The authenticated way; the open one is closed on today's servers.
        path = f"{_MEDIA}/download/{quote(server, safe='')}/{quote(media_id, safe='')}"
        headers = self._headers(None)
        async with (
            self._place(),
            _translated(),
            self._http.open(
                "GET", self._root + path, headers=headers, timeout_s=_DOWNLOAD_S
            ) as response,
        ):
            if response.status != 200:
                body = await response.beginning(_CHUNK_BYTES)
                raise error_of(response.status, body, retry_after=response.retry_after)
            return await response.save(write, max_bytes)

    # -- one call ----------------------------------------------------------------------------------

    async def _json_or_none(self, method: str, path: str) -> dict[str, Any] | None:
        try:
            return await self._json(method, path)
        except NotAllowed as error:
            if error.http_status == 404:
                return None
            raise

    async def _json(
        self,
        method: str,
        path: str,
        body: str | None = None,
        *,
        timeout_s: float = 20.0,
        token: str | None = None,
        is_placed: bool = False,
    ) -> dict[str, Any]:
        if is_placed:
            return await _read(await self._call(method, path, body, timeout_s=timeout_s))
        async with self._place():
            answer = await self._call(method, path, body, timeout_s=timeout_s, token=token)
        return await _read(answer)

    async def _call(
        self,
        method: str,
        path: str,
        data: Any = None,
        *,
        timeout_s: float,
        token: str | None = None,
        content_type: str = "application/json",
    ) -> HttpAnswer:
        if self._is_closed:
            raise NotSent("this account's connection is closed")
        headers = self._headers(token)
        if data is not None:
            headers["Content-Type"] = content_type
        if isinstance(data, str):
            data = data.encode()
        async with _translated():
            return await self._http.request(
                method,
                self._root + _without_token(path),
                data=data,
                headers=headers,
                timeout_s=timeout_s,
                max_bytes=_ANSWER_BYTES,
                max_values=_ANSWER_VALUES,
            )

    def _headers(self, token: str | None) -> dict[str, str]:
        if token is None:
            token = self._session.access_token if self._session is not None else ""
        return {"Authorization": f"Bearer {token}"} if token else {}

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(_PLACE_WAIT_S):
                await self._places.acquire()
        except TimeoutError:
            raise NotSent("too many calls of this account wait for the homeserver") from None
        try:
            yield
        finally:
            self._places.release()

    async def _loaded(self) -> library.Library:
        if self._library is None:
            self._library = await library.load()
        return self._library


def _without_token(path: str) -> str:
    """The library would put the token into the address, where logs of servers keep it."""
    path, mark, query = path.partition("?")
    kept = [(key, value) for key, value in parse_qsl(query) if key != "access_token"]
    return f"{path}{mark}{urlencode(kept)}" if kept else path


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    try:
        yield
    except Unsent as error:
        raise NotSent(f"the homeserver can't be reached: {error.message}") from None
    except Unanswered as error:
        raise FateUnknown(f"no answer from the homeserver: {error.message}") from None


async def _read(answer: HttpAnswer) -> dict[str, Any]:
    if not 200 <= answer.status <= 299:
        raise error_of(answer.status, answer.body, retry_after=answer.retry_after)
    try:
        if len(answer.body) > _IN_THREAD_BYTES:
            found = await asyncio.to_thread(_document, answer.body)
        else:
            found = _document(answer.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise FateUnknown("the homeserver's answer makes no sense")
    return found


def _document(body: bytes) -> Any:
    """JSON as everything behind this door may rely on it: text that can be stored and sent again.

    Half a character, which JSON can hold and text can't, becomes the sign for something unreadable;
    what is no number becomes nothing. Raises ``ValueError`` and ``RecursionError``.
    """
    found = json.loads(body, parse_constant=lambda name: None)
    if _HALVES.search(body) is None:
        return found
    written = json.dumps(found, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
    return json.loads(written.decode("utf-16-le", "replace"))


def _text(answer: Json, name: str) -> str:
    value = answer.get(name)
    if not isinstance(value, str) or not value:
        raise FateUnknown(f"the homeserver's answer has no {name}")
    return value
