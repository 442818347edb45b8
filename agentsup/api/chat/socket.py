"""``/ws``: a conversation with an agent, for console and web. The protocol is in docs/http-api.md.

Durable events have sequence numbers, so a client that reconnects misses none and gets none twice.
Text of running turns is ephemeral: it comes as deltas or, if the reader was slow, as a snapshot.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from aiohttp import hdrs, web
from pydantic import ValidationError

from agentsup.api.chat.texts import HELLO, LATER, Hello, Ping, TextIntake
from agentsup.api.documents.messages import EventDocument, shown
from agentsup.api.http import privacy
from agentsup.api.http.access import CHAT_PROTOCOL, Access
from agentsup.api.http.problems import bad_body, encode, problem
from agentsup.api.http.route import Call, get
from agentsup.api.web.chats import begun_in, current_session, greeting
from agentsup.catalogue import words
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner, time_limit
from agentsup.kit.text import as_sentence
from agentsup.mailbox.mail import DirectoryEntry
from agentsup.model.errors import (
    AgentsupError,
    BadRequest,
    Forbidden,
    Gone,
    NotFound,
    Overloaded,
    Unauthorised,
)
from agentsup.model.event import Event, EventType
from agentsup.model.principal import Principal
from agentsup.observe import LiveFeed
from agentsup.store import Subscription

HISTORY: Final = 50
PAGE: Final = 200
MISSED: Final = 500
"""Events of a conversation that a page catches up with; after more, it gets the history again."""
SHOWN: Final = (
    EventType.CHAT_IN,
    EventType.CHAT_EDITED,
    EventType.CHAT_OUT,
    EventType.QUESTION_ASKED,
    EventType.QUESTION_CLOSED,
)
CLOSE_PROTOCOL: Final = 4400
"""The first frame was no valid hello, or the conversation can't be, or stay, open."""
CLOSE_SIGNED_OUT: Final = 4401
"""The browser's session ended."""
CLOSE_SLOW: Final = 4408
"""The client took nothing for too long; it may come back with the last ``seq`` it saw."""
CLOSE_FULL: Final = 4429
"""This person has too many sockets open; an error frame says so."""
CLOSE_FAILED: Final = 1011
"""The daemon could not go on serving this socket; an error frame says why."""
_CODES: Final[Mapping[type[AgentsupError], int]] = {
    Unauthorised: CLOSE_SIGNED_OUT,
    Forbidden: CLOSE_PROTOCOL,
}
_SAID_WAITS: Final = ("provider", "rate_limit", "busy")
"""Kinds of failures with words of their own for people who may not read the engine's."""
_END_S: Final = 1.0
_log = get_logger(__name__)


@get("/ws", {101: "websocket"}, access=Access.LOOK, refusals=(429,))
async def chat(call: Call) -> web.StreamResponse:
    """Chat with an agent over a WebSocket (protocol in docs/http-api.md)."""
    limits = call.deps.limits
    _check_offer(call)
    socket = web.WebSocketResponse(
        heartbeat=limits.ping_s,
        max_msg_size=limits.body_bytes,
        timeout=_END_S,
        compress=False,
        protocols=(CHAT_PROTOCOL,),
    )
    if not socket.can_prepare(call.request).ok:
        raise BadRequest("/ws is a WebSocket; connect with one")
    with contextlib.ExitStack() as admission:
        try:
            admission.enter_context(call.admit("sockets"))
        except Overloaded as error:
            if call.session is None:
                raise
            # A page can't read the answer to a refused handshake.
            await socket.prepare(call.request)
            await ChatSocket(call, socket).refuse(error, CLOSE_FULL)
            return socket
        await socket.prepare(call.request)
        with contextlib.suppress(ConnectionError):
            await ChatSocket(call, socket).run()
    return socket


def _check_offer(call: Call) -> None:
    """Refuse subprotocols without ours: aiohttp would log them, and one may be a secret."""
    offered = call.request.headers.get(hdrs.SEC_WEBSOCKET_PROTOCOL)
    if offered is None or CHAT_PROTOCOL in (each.strip() for each in offered.split(",")):
        return
    raise BadRequest(f"/ws has the subprotocol {CHAT_PROTOCOL!r}; offer it first, or none")


class ChatSocket:
    """One client in one conversation."""

    def __init__(self, call: Call, socket: web.WebSocketResponse) -> None:
        """Serve ``socket``, which is open."""
        self._call = call
        self._deps = call.deps
        self._limits = call.deps.limits
        self._socket = socket
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue(self._limits.outgoing_frames)
        self._tasks = TaskOwner("ws", on_error=_note_failure)

    async def run(self) -> None:
        """Greet, then serve until the client leaves, stalls, or the listener closes."""
        with self._call.api.connections.ended_by(self._say_bye):
            try:
                hello = await self._hello()
                privacy.check_enter(self._call.by, hello.channel, hello.conversation)
                entry = self._deps.directory.lookup(hello.agent)
                feed = self._deps.live.subscribe(entry.agent_id, hello.key)
            except AgentsupError as error:
                await self.refuse(error, CLOSE_PROTOCOL)
                return
            with feed, self._deps.events.subscribe() as subscription:
                await self._serve(hello, entry, feed, subscription)

    async def _hello(self) -> Hello:
        try:
            async with asyncio.timeout(self._limits.hello_s):
                message = await self._socket.receive()
        except TimeoutError:
            raise BadRequest(
                f"no hello came within {self._limits.hello_s:g} seconds", field="type"
            ) from None
        if message.type is not web.WSMsgType.TEXT:
            raise BadRequest("the first frame must be a JSON text frame of type hello")
        try:
            return HELLO.validate_json(message.data)
        except ValidationError as error:
            raise bad_body(error, where="frame") from None

    async def _serve(
        self, hello: Hello, entry: DirectoryEntry, feed: LiveFeed, subscription: Subscription
    ) -> None:
        try:
            seen = await self._welcome(hello, entry, feed)
        except AgentsupError as error:
            await self.refuse(error, CLOSE_FAILED)
            return
        parts = {
            "read": self._read(hello, entry),
            "write": self._write(hello),
            "events": self._send_events(hello, entry, seen, subscription),
            "live": self._send_live(feed),
            "session": self._watch_session(hello),
        }
        running = {
            self._tasks.spawn(part, name=f"ws-{kind}:{entry.name}") for kind, part in parts.items()
        }
        try:
            ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._tasks.close(_END_S)
        if self._socket.closed:
            return
        failures = [task.exception() for task in ended if not task.cancelled()]
        if any(isinstance(failure, TimeoutError) for failure in failures):
            await self._end(CLOSE_SLOW, b"too slow")
            return
        known = [failure for failure in failures if isinstance(failure, AgentsupError)]
        broken = AgentsupError(
            "the connection ended unexpectedly; come back with the last seq seen"
        )
        why = next(iter(known), broken)
        await self.refuse(why, _CODES.get(type(why), CLOSE_FAILED))

    async def _welcome(self, hello: Hello, entry: DirectoryEntry, feed: LiveFeed) -> int:
        """Greet; returns the sequence number after which events follow."""
        newest = await self._deps.events.last_seq()
        # A number above the newest comes from another store: start again, and report a reset.
        is_reset = hello.after is not None and (
            hello.after > newest or await self._is_far_behind(hello, entry, hello.after)
        )
        more = False
        if hello.after is None or is_reset:
            where = (hello.channel, hello.conversation)
            is_in_it = hello.session == await current_session(self._call, entry, *where)
            session = hello.session if is_in_it else ""
            found = await self._deps.inbox.history(
                entry.name,
                *where,
                HISTORY + 1,
                session_id=session,
                beside=await begun_in(self._call, session),
            )
            more = len(found) > HISTORY
            last = [event for event in found[-HISTORY:] if event.seq <= newest]
            history, seen = await self._documents(hello, last), newest
        else:
            history, seen = [], hello.after
        await self._send_soon(
            {
                "type": "welcome",
                "agent": entry.name,
                "agent_id": entry.agent_id,
                "agent_state": entry.status,
                "seq": seen,
                "reset": is_reset,
                "history": history,
                "more": more,
                "live": (await feed.next())["turns"],  # the first frame of a feed has them
                "warnings": await self._warnings(entry),
                **(await self._greeting(hello, entry)),
            }
        )
        return seen

    async def _documents(self, hello: Hello, events: Sequence[Event]) -> list[EventDocument]:
        if hello.channel != privacy.CHANNEL:
            return [EventDocument.from_value(event) for event in events]
        return await shown(events, self._call.deps.web.blocks, self._call.language)

    async def _is_far_behind(self, hello: Hello, entry: DirectoryEntry, after: int) -> bool:
        """Whether a page missed so many events that it gets the history again."""
        if hello.channel != privacy.CHANNEL:
            return False
        missed = await self._deps.events.page(
            after,
            agent_id=entry.agent_id,
            conversation=hello.key,
            types=SHOWN,
            limit=MISSED + 1,
        )
        return len(missed.events) > MISSED

    async def _warnings(self, entry: DirectoryEntry) -> list[str]:
        """The agent's warnings that this person may read; none while the agent is removed."""
        with contextlib.suppress(NotFound, Gone):
            view = await self._deps.control.agent(entry.name)
            said = view.seen_by(self._call.by).warnings
            return [*map(words(self._call.by.language).translated, said)]
        return []

    async def _greeting(self, hello: Hello, entry: DirectoryEntry) -> Mapping[str, Any]:
        if hello.channel != privacy.CHANNEL:
            return {}
        return await greeting(self._call, entry, hello.conversation)

    async def _watch_session(self, hello: Hello) -> None:
        """Raise ``Unauthorised`` when the session or token has ended, ``Forbidden`` when the person
        may no longer use this conversation."""
        changed = asyncio.Event()
        with self._call.rights_changed(changed.set):
            while True:
                changed.clear()
                self._still_here(hello)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._limits.heartbeat_s):
                        await changed.wait()

    def _still_here(self, hello: Hello) -> Principal:
        """The client's principal with current rights. Raises ``Unauthorised`` or ``Forbidden``."""
        by = self._call.still_by()
        privacy.check_enter(by, hello.channel, hello.conversation)
        return by

    # -- to the client ---------------------------------------------------------------------------

    async def _send_soon(self, frame: Mapping[str, Any]) -> None:
        """Queue a frame; waits while the queue is full, so that a slow client slows its feed."""
        await self._outgoing.put(encode(frame))

    async def _write(self, hello: Hello) -> None:
        """Send the queued frames. Rights are checked again before each frame, as they may have
        changed since it was queued."""
        while True:
            frame = await self._outgoing.get()
            self._still_here(hello)
            async with asyncio.timeout(self._limits.stall_s):
                await self._socket.send_str(frame.decode())

    async def _send_events(
        self, hello: Hello, entry: DirectoryEntry, seen: int, subscription: Subscription
    ) -> None:
        while True:
            page = await self._deps.events.page(
                seen,
                agent_id=entry.agent_id,
                conversation=hello.key,
                types=SHOWN,
                limit=PAGE,
            )
            for document in await self._documents(hello, page.events):
                await self._send_soon({"type": "event", "seq": document.seq, "event": document})
            seen = page.next_seq
            if len(page.events) < PAGE:
                await subscription.wait()

    async def _send_live(self, feed: LiveFeed) -> None:
        while True:
            frame = await feed.next()
            if frame["type"] == "live":
                frame = {"type": "snapshot", "turns": frame["turns"]}
            elif frame["type"] == "retry":
                text = self._retry_text(**frame)
                frame = {"type": "retry", "message_id": frame["message_id"], "text": text}
            await self._send_soon(frame)

    def _retry_text(self, *, why: str, kind: str, attempt: int, most: int, **_: str) -> str:
        """Why an attempt has failed, for operators in the engine's words, and which one follows."""
        say = words(self._call.language)
        if not self._call.by.is_operator:
            why = say(f"wait.{kind if kind in _SAID_WAITS else 'transient'}")
        return f"{as_sentence(why)} {say('wait.again', attempt=attempt, most=most)}"

    # -- from the client -------------------------------------------------------------------------

    async def _read(self, hello: Hello, entry: DirectoryEntry) -> None:
        saying = TextIntake(
            self._call,
            hello,
            entry,
            send=self._send_soon,
            tell=self._tell,
            still_here=partial(self._still_here, hello),
            is_closed=lambda: self._socket.closed,
        )
        while True:
            message = await self._socket.receive()
            if message.type is not web.WSMsgType.TEXT:
                if message.type is web.WSMsgType.BINARY:
                    await self._tell(BadRequest("frames must be JSON text"), "")
                    continue
                return  # closed, or broken
            try:
                frame = LATER.validate_json(message.data)
            except ValidationError as error:
                await self._tell(bad_body(error, where="frame"), "")
                continue
            if isinstance(frame, Ping):
                await self._send_soon({"type": "pong"})
            else:
                await saying.take(frame)

    async def _tell(self, error: AgentsupError, say_id: str) -> None:
        document = problem(error, path="/ws", request_id="")
        await self._send_soon({"type": "error", "id": say_id, "problem": document})

    # -- ending ----------------------------------------------------------------------------------

    async def refuse(self, error: AgentsupError, code: int) -> None:
        """Send the error, then close."""
        document = problem(error, path="/ws", request_id="")
        frame = encode({"type": "error", "id": "", "problem": document})
        with contextlib.suppress(TimeoutError):
            async with time_limit(_END_S):
                await self._socket.send_str(frame.decode())
        await self._end(code, error.code.encode())

    async def _say_bye(self) -> None:
        """Tell the client that the listener closes, then close."""
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with time_limit(_END_S):
                await self._socket.send_str('{"type":"bye","reason":"draining"}')
        await self._end(1001, b"draining")

    async def _end(self, code: int, reason: bytes) -> None:
        """Close with ``code``; a client that does not answer in time is cut off."""
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with time_limit(_END_S):
                await self._socket.close(code=code, message=reason, drain=False)
                return
        self._call.cut()


def _note_failure(task: asyncio.Task[Any], error: BaseException) -> None:
    """Log a defect. A client that left, stalls or is refused is none."""
    if not isinstance(error, (ConnectionError, TimeoutError, AgentsupError)):
        _log.error(f"{task.get_name()} failed", exc_info=error)
