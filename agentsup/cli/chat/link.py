"""The connection of a chat: made anew when it breaks, resumed where it was, nothing sent twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

import aiohttp

from agentsup.cli.chat.conversation import Conversation, HelloRefused, Shown
from agentsup.cli.failure import Failed, Unreachable
from agentsup.cli.locate import MISDIRECTED, Address, Place
from agentsup.kit.clock import Clock
from agentsup.kit.outbound.aiohttp_client import Session, new_session, whole
from agentsup.kit.outbound.limits import MIB, AnswerLimits, LimitExceeded

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 1.0
CONNECT_S: Final = 10.0
HEARTBEAT_S: Final = 15.0
MAX_FRAME: Final = 16 * MIB
_ANSWER: Final = AnswerLimits(body_bytes=16 * MIB, total_s=CONNECT_S)
_TRY_AGAIN: Final = frozenset({401, 404, 429, 502, 503})
"""Statuses that a daemon which is just coming back may answer with."""


class Link:
    """Carries frames of one conversation. `show` gets what there is to show, `tell` its trouble."""

    def __init__(
        self,
        place: Place,
        conversation: Conversation,
        *,
        clock: Clock,
        show: Callable[[Shown], None],
        tell: Callable[[str], None],
        give_up_s: float | None = None,
    ) -> None:
        """`give_up_s`: how long a lost daemon is looked for; None looks for ever."""
        self._place = place
        self._conversation = conversation
        self._clock = clock
        self._show = show
        self._tell = tell
        self._give_up_s = give_up_s
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._sending = asyncio.Lock()
        self.changed = asyncio.Event()
        """Set whenever a frame came or the connection changed."""

    async def run(self) -> None:
        """Keep the conversation connected until cancelled. Raises `Failed`."""
        is_first, lost_at, pause_s = True, 0.0, FIRST_PAUSE_S
        endless = AnswerLimits(connect_s=CONNECT_S, idle_s=None, total_s=None)
        async with new_session(endless) as http:
            while True:
                failure = await self._one_connection(http, is_first=is_first)
                if failure is None:  # it was connected, and was lost
                    is_first, pause_s, lost_at = False, FIRST_PAUSE_S, self._clock.monotonic()
                    self._tell("reconnecting…")
                    continue
                if is_first:
                    raise failure
                waited_s = self._clock.monotonic() - lost_at
                if self._give_up_s is not None and waited_s > self._give_up_s:
                    raise Failed(f"the daemon did not come back within {self._give_up_s:g} s")
                await self._clock.sleep(pause_s)
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    async def say(self, text: str, *, quiet: bool = False) -> None:
        """Send a text now, or as soon as there is a connection again."""
        await self._send(self._conversation.say(text, quiet=quiet))

    async def check_awaited(self) -> None:
        """Ask what became of awaited messages, and forget those that ended without an answer."""
        try:
            address = self._place.address()
            async with self._http(address) as http:
                for message_id in list(self._conversation.awaited):
                    result = await self._get(http, address, f"/interagent/results/{message_id}")
                    if result.get("state") in {"cancelled", "dead"}:
                        self._conversation.has_ended(message_id)
        except (Failed, aiohttp.ClientError, LimitExceeded, OSError, TimeoutError, ValueError):
            return  # the daemon is away; what it says when it is back counts
        finally:
            self.changed.set()

    # -- inside ------------------------------------------------------------------------------------

    async def _one_connection(self, http: Session, *, is_first: bool) -> Failed | None:
        """Serve one connection to its end; returns why there was none."""
        try:
            address = self._place.address()
            async with http.ws_connect(
                address.url + "/ws",
                headers=address.headers,
                heartbeat=HEARTBEAT_S,
                max_msg_size=MAX_FRAME,
            ) as socket:
                return await self._serve(socket, address, is_first=is_first)
        except aiohttp.WSServerHandshakeError as error:
            is_another = error.status == MISDIRECTED
            if is_another or (error.status in _TRY_AGAIN and not is_first):
                return Unreachable(self._place.not_running())
            raise Failed(_handshake(error)) from None
        except (aiohttp.ClientError, LimitExceeded, OSError, TimeoutError, ValueError):
            return Unreachable(self._place.not_running())
        except Failed as failure:
            return failure

    async def _serve(
        self, socket: aiohttp.ClientWebSocketResponse, address: Address, *, is_first: bool
    ) -> Failed | None:
        await socket.send_json(self._conversation.hello())
        is_welcome = False
        try:
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.TEXT:
                    break
                frame = json.loads(message.data)
                try:
                    shown = self._conversation.take(frame)
                except HelloRefused as refused:
                    raise Failed(str(refused)) from None
                if frame.get("type") == "welcome":
                    is_welcome = True
                    if not is_first:
                        self._tell("connected again")
                    await self._drop_closed_questions(address)
                for one in shown:
                    self._show(one)
                if is_welcome and self._socket is None:
                    await self._resend(socket)
                self.changed.set()
        except (ConnectionError, aiohttp.ClientError):
            pass  # the same as a close: the connection is made anew
        finally:
            self._socket = None
            self.changed.set()
        return None if is_welcome else Unreachable(self._place.not_running())

    async def _resend(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """First what was pending, in its order; texts typed meanwhile come after."""
        async with self._sending:
            for frame in self._conversation.unsent():
                await socket.send_json(frame)
            self._socket = socket

    async def _send(self, frame: dict[str, Any]) -> None:
        async with self._sending:
            socket = self._socket
            if socket is None or frame["id"] not in self._conversation.pending:
                return  # it is pending, and sent once there is a connection
            try:
                await socket.send_json(frame)
            except (ConnectionError, aiohttp.ClientError):
                self._socket = None

    async def _drop_closed_questions(self, address: Address) -> None:
        """Questions seen in the history may have been answered long ago."""
        if not self._conversation.questions:
            return
        try:
            async with self._http(address) as http:
                found = await self._get(http, address, "/questions?state=open&limit=500")
        except (aiohttp.ClientError, LimitExceeded, OSError, TimeoutError, ValueError):
            return
        listed = found.get("questions")
        if isinstance(listed, list):
            self._conversation.closed_elsewhere(frozenset(str(one["id"]) for one in listed))

    def _http(self, address: Address) -> Session:
        return new_session(_ANSWER, headers=address.headers)

    async def _get(self, http: Session, address: Address, path: str) -> dict[str, Any]:
        async with http.get(address.url + path) as response:
            found = json.loads(await whole(response, _ANSWER) or b"{}")
            return found if isinstance(found, dict) else {}


def _handshake(error: aiohttp.WSServerHandshakeError) -> str:
    if error.status == 401:
        return "the daemon does not know this token; see `agentsup doctor`"
    if error.status == 403:
        return "the daemon does not let this token chat"
    return f"the daemon answered the chat with status {error.status}; see `agentsup logs`"
