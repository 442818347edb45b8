"""MatrixPerson: one person with a Matrix client, over raw HTTP.

It knows nothing of our own objects and uses no Matrix library, so what a test proves with it is
what a person would see. Requests are repeated with the same transaction id while the server is
away, as a person's client does.

    async with MatrixPerson(synapse.url, "@ann:localhost", "secret") as ann:
        room = await ann.room(invite=["@bot:localhost"])
        said = await ann.say(room, "hello")
        answer = await ann.wait_text(room, "Hello", after=said)
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import aiohttp

from tests.support.bound import BOUND_S
from tests.support.matrix_view import RoomView, Seen, fold

Json = dict[str, Any]
_POLL_MS: Final = 5_000
_PATIENCE_S: Final = 30.0
_AGAIN_S: Final = 0.2
_CLIENT: Final = "/_matrix/client/v3"
_SYNC_FILTER: Final = json.dumps(
    {"room": {"timeline": {"limit": 5_000}, "state": {"lazy_load_members": False}}}
)


class MatrixRefused(Exception):
    """The server refused a request; the text has its status and document."""

    def __init__(self, status: int, document: Json) -> None:
        """``document`` is what the server said."""
        super().__init__(f"{status} {document}")
        self.status = status
        self.document = document

    @property
    def errcode(self) -> str:
        """The server's error code, such as M_FORBIDDEN."""
        return str(self.document.get("errcode", ""))


class MatrixPerson:
    """One account, one device, and what it has seen so far."""

    def __init__(self, url: str, user_id: str, password: str) -> None:
        """``url`` is the homeserver's."""
        self.url = url
        self.user_id = user_id
        self._password = password
        self._http: aiohttp.ClientSession | None = None
        self._token = ""
        self._since = ""
        self._syncing = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._rooms: dict[str, RoomView] = {}
        self.device_id = ""

    async def __aenter__(self) -> Self:
        """Log in and look at everything once."""
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        try:
            await self.log_in()
            await self.sync(timeout_ms=0)
        except BaseException:
            await self._http.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()

    # -- raw ---------------------------------------------------------------------------------------

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        patience_s: float = _PATIENCE_S,
        query: Mapping[str, str | int] | None = None,
    ) -> Json:
        """A request to the server; its document. ``path`` begins with /_matrix.

        Repeated while the server can't be reached or is ill. Raises ``MatrixRefused``.
        """
        raw = await self._fetch(
            method, path, patience_s, json=body, data=data, headers=headers, params=query
        )
        found: Json = json.loads(raw)
        return found

    async def _fetch(
        self, method: str, path: str, patience_s: float = _PATIENCE_S, **sent: Any
    ) -> bytes:
        assert self._http is not None, "open the person with `async with`"
        own = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        sent["headers"] = own | dict(sent.get("headers") or {})
        limit = aiohttp.ClientTimeout(total=_PATIENCE_S)
        async with asyncio.timeout(patience_s):
            while True:
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with self._http.request(
                        method, f"{self.url}{path}", timeout=limit, **sent
                    ) as answer:
                        raw = await answer.read()
                        if answer.status == 200:
                            return raw
                        if answer.status < 500 and answer.status != 429:
                            raise MatrixRefused(answer.status, _document(raw))
                await asyncio.sleep(_AGAIN_S)

    async def log_in(self) -> None:
        """A session of its own (also a new one, where the old was taken away)."""
        self._token = ""
        document = await self.call(
            "POST",
            f"{_CLIENT}/login",
            {
                "type": "m.login.password",
                "identifier": {"type": "m.id.user", "user": self.user_id},
                "password": self._password,
            },
        )
        self._token, self.device_id = document["access_token"], document["device_id"]

    async def put(
        self, room: str, kind: str, content: Mapping[str, Any], *, txn_id: str = ""
    ) -> str:
        """Send any event; its id."""
        txn_id = txn_id or f"person-{next(self._numbers)}"
        path = f"{_CLIENT}/rooms/{quote(room)}/send/{quote(kind)}/{quote(txn_id)}"
        return str((await self.call("PUT", path, content))["event_id"])

    async def put_state(
        self, room: str, kind: str, content: Mapping[str, Any], key: str = ""
    ) -> str:
        """Set a piece of a room's state; the event's id."""
        path = f"{_CLIENT}/rooms/{quote(room)}/state/{quote(kind)}/{quote(key)}"
        return str((await self.call("PUT", path, content))["event_id"])

    # -- places and people -------------------------------------------------------------------------

    async def room(
        self,
        *,
        invite: Sequence[str] = (),
        name: str = "",
        direct: bool = False,
        encrypted: bool = False,
    ) -> str:
        """Make a private room; its id."""
        state: list[Json] = []
        if encrypted:
            content = {"algorithm": "m.megolm.v1.aes-sha2"}
            state.append({"type": "m.room.encryption", "state_key": "", "content": content})
        body: Json = {
            "preset": "trusted_private_chat" if direct else "private_chat",
            "is_direct": direct,
            "invite": list(invite),
            "initial_state": state,
        }
        if name:
            body["name"] = name
        return str((await self.call("POST", f"{_CLIENT}/createRoom", body))["room_id"])

    async def invite(self, room: str, user_id: str) -> None:
        """Invite someone."""
        await self._act(room, "invite", user_id=user_id)

    async def join(self, room: str) -> None:
        """Accept an invitation."""
        await self._act(room, "join")

    async def leave(self, room: str) -> None:
        """Leave, or decline an invitation."""
        await self._act(room, "leave")

    async def kick(self, room: str, user_id: str, reason: str = "") -> None:
        """Put someone out."""
        await self._act(room, "kick", user_id=user_id, reason=reason)

    async def ban(self, room: str, user_id: str) -> None:
        """Put someone out for good."""
        await self._act(room, "ban", user_id=user_id)

    async def _act(self, room: str, what: str, **body: str) -> None:
        await self.call("POST", f"{_CLIENT}/rooms/{quote(room)}/{what}", body)

    async def members(self, room: str) -> dict[str, str]:
        """user id → join | invite | leave | ban."""
        found = await self.call("GET", f"{_CLIENT}/rooms/{quote(room)}/members")
        return {one["state_key"]: one["content"]["membership"] for one in found["chunk"]}

    async def wait_member(
        self, room: str, user_id: str, membership: str = "join", timeout_s: float = BOUND_S
    ) -> None:
        """Until someone is in that relation to the room."""
        await self.wait_for(
            room, lambda view: view.members.get(user_id) == membership or None, timeout_s
        )

    # -- what a person does ------------------------------------------------------------------------

    async def say(
        self,
        room: str,
        text: str,
        *,
        thread: str = "",
        reply_to: str = "",
        html: str = "",
        mention: Sequence[str] = (),
    ) -> str:
        """Write a text, into a thread or as a reply if wanted; the event's id."""
        content: Json = {"msgtype": "m.text", "body": text, **_relation(thread, reply_to)}
        if html:
            content |= {"format": "org.matrix.custom.html", "formatted_body": html}
        if mention:
            content["m.mentions"] = {"user_ids": list(mention)}
        return await self.put(room, "m.room.message", content)

    async def edit(self, room: str, event_id: str, text: str) -> str:
        """Replace an own text; the edit's event id."""
        new = {"msgtype": "m.text", "body": text}
        content: Json = {
            "msgtype": "m.text",
            "body": f"* {text}",
            "m.new_content": new,
            "m.relates_to": {"rel_type": "m.replace", "event_id": event_id},
        }
        return await self.put(room, "m.room.message", content)

    async def react(self, room: str, event_id: str, key: str) -> str:
        """React to an event; the reaction's event id."""
        relates = {"rel_type": "m.annotation", "event_id": event_id, "key": key}
        return await self.put(room, "m.reaction", {"m.relates_to": relates})

    async def redact(self, room: str, event_id: str) -> None:
        """Delete an event for everyone."""
        txn_id = f"person-{next(self._numbers)}"
        path = f"{_CLIENT}/rooms/{quote(room)}/redact/{quote(event_id)}/{txn_id}"
        await self.call("PUT", path, {})

    async def upload(self, data: bytes, name: str, mime: str = "application/octet-stream") -> str:
        """Put bytes into the media store; the mxc address."""
        found = await self.call(
            "POST",
            "/_matrix/media/v3/upload",
            data=data,
            headers={"Content-Type": mime},
            query={"filename": name},
        )
        return str(found["content_uri"])

    async def send_file(
        self,
        room: str,
        data: bytes,
        *,
        name: str = "file.bin",
        text: str = "",
        mime: str = "application/octet-stream",
        kind: str = "m.file",
        thread: str = "",
    ) -> str:
        """Send a file (m.file, m.image, m.audio, m.video), with a text if wanted; the event's id."""
        content: Json = {
            "msgtype": kind,
            "body": text or name,
            "filename": name,
            "url": await self.upload(data, name, mime),
            "info": {"mimetype": mime, "size": len(data)},
            **_relation(thread, ""),
        }
        return await self.put(room, "m.room.message", content)

    async def download(self, mxc: str) -> bytes:
        """The bytes of a media address."""
        server, _, media_id = mxc.removeprefix("mxc://").partition("/")
        path = f"/_matrix/client/v1/media/download/{quote(server)}/{quote(media_id)}"
        return await self._fetch("GET", path)

    # -- what a person sees ------------------------------------------------------------------------

    def view(self, room: str) -> RoomView:
        """The room as far as it was seen."""
        return self._rooms.setdefault(room, RoomView(room))

    def texts(self, room: str, *, by: str = "", after: str = "", thread: str = "") -> list[str]:
        """Texts of others (or of ``by``) as they stand now, in order; deleted ones are gone."""
        return [one.text for one in self.messages(room, by=by, after=after, thread=thread)]

    def messages(self, room: str, *, by: str = "", after: str = "", thread: str = "") -> list[Seen]:
        """Messages of others (or of ``by``), in order, later than event ``after``."""
        return [
            one
            for one in self.view(room).after(after)
            if (one.sender == by if by else one.sender != self.user_id)
            and one.thread == thread
            and not one.is_redacted
        ]

    async def sync(self, timeout_ms: int = _POLL_MS, patience_s: float = _PATIENCE_S) -> None:
        """One look at what is new; held by the server up to ``timeout_ms`` if nothing is."""
        async with self._syncing:
            query: dict[str, str | int] = {"timeout": timeout_ms, "filter": _SYNC_FILTER}
            if self._since:
                query["since"] = self._since
            document = await self.call("GET", f"{_CLIENT}/sync", patience_s=patience_s, query=query)
            for room, part in fold(document):
                self.view(room).take(part)
            self._since = document["next_batch"]

    async def wait_for(
        self, room: str, predicate: Callable[[RoomView], Any], timeout_s: float = BOUND_S
    ) -> Any:
        """What ``predicate(view of the room)`` returns once that is true.

        Raises ``TimeoutError`` that shows the room.
        """
        view = self.view(room)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not (found := predicate(view)):
                    await self.sync(patience_s=timeout_s)
                return found
        lines = json.dumps([one.line() for one in view.messages][-30:], ensure_ascii=False)
        raise TimeoutError(f"what was awaited in {room} did not come within {timeout_s} s: {lines}")

    async def wait_message(
        self,
        room: str,
        fits: Callable[[Seen], bool],
        timeout_s: float = BOUND_S,
        *,
        by: str = "",
        after: str = "",
        thread: str = "",
    ) -> Seen:
        """The first message of another (or of ``by``), later than event ``after``, that fits."""

        def look(view: RoomView) -> Seen | None:
            found = self.messages(room, by=by, after=after, thread=thread)
            return next((one for one in found if fits(one)), None)

        seen: Seen = await self.wait_for(room, look, timeout_s)
        return seen

    async def wait_text(
        self,
        room: str,
        part: str,
        timeout_s: float = BOUND_S,
        *,
        by: str = "",
        after: str = "",
        thread: str = "",
    ) -> Seen:
        """The first message of another whose present text contains ``part``."""
        return await self.wait_message(
            room, lambda one: part in one.text, timeout_s, by=by, after=after, thread=thread
        )

    async def wait_seen(
        self,
        room: str,
        event_id: str,
        fits: Callable[[Seen], bool] = lambda _: True,
        timeout_s: float = BOUND_S,
    ) -> Seen:
        """One message, of anybody, once it is there and fits (an edit, a reaction, a deletion)."""

        def look(view: RoomView) -> Seen | None:
            found = view.get(event_id)
            return found if found is not None and fits(found) else None

        seen: Seen = await self.wait_for(room, look, timeout_s)
        return seen

    async def invitations(self, timeout_s: float = BOUND_S) -> list[str]:
        """Rooms one is invited to, once there is one."""
        async with asyncio.timeout(timeout_s):
            while not (found := [view.room for view in self._rooms.values() if view.is_invitation]):
                await self.sync()
            return found


def _relation(thread: str, reply_to: str) -> Json:
    if not thread:
        reply = {"m.in_reply_to": {"event_id": reply_to}}
        return {"m.relates_to": reply} if reply_to else {}
    return {
        "m.relates_to": {
            "rel_type": "m.thread",
            "event_id": thread,
            "is_falling_back": not reply_to,
            "m.in_reply_to": {"event_id": reply_to or thread},
        }
    }


def _document(raw: bytes) -> Json:
    try:
        found = json.loads(raw)
    except ValueError:
        return {"error": raw[:500].decode(errors="replace")}
    return found if isinstance(found, dict) else {"error": found}
