"""The connection of a chat: reconnects, resumes after the last event seen, sends nothing twice."""

from __future__ import annotations

import asyncio
import json
import shlex
import stat
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp

from agentsup.cli.chat.conversation import ChatState, HelloRefused, ShownItem
from agentsup.cli.connect.failure import CommandFailed, DaemonUnreachable, failing_as
from agentsup.cli.connect.locate import MISDIRECTED, Address, DaemonLocation
from agentsup.kit.clock import Clock
from agentsup.kit.outbound.aiohttp_client import Session, new_session, whole
from agentsup.kit.outbound.limits import MIB, AnswerLimits, LimitExceeded
from agentsup.kit.tasks import TaskOwner

COMMAND: Final = "/file"


def is_file(text: str) -> bool:
    """Whether a text is the command that sends a file."""
    return text.split(maxsplit=1)[:1] == [COMMAND]


def named_file(given: str) -> tuple[Path, str]:
    """The file and the text of ``/file PATH [TEXT]``. Further lines belong to the text.

    A path with spaces needs no quotes if the line has no text. Raises ``CommandFailed``.
    """
    line, _, below = given.strip().removeprefix(COMMAND).strip().partition("\n")
    if not line.strip():
        raise CommandFailed(f"say which: {COMMAND} PATH [TEXT]")
    whole_line = Path(line.strip()).expanduser()
    if whole_line.exists():
        return _readable(whole_line), below.strip()
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    text = line.split(maxsplit=1)[1] if len(words) > 1 else ""
    if len(words) > 1 and line.lstrip()[0] in "\"'":
        text = line.lstrip()[1:].partition(line.lstrip()[0])[2].strip()
    return _readable(Path(words[0]).expanduser()), "\n".join(filter(None, (text, below.strip())))


def _readable(path: Path) -> Path:
    with failing_as(f"{path} can't be read"):
        mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise CommandFailed(f"{path} is no file")
    return path


FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 1.0
CONNECT_S: Final = 10.0
HEARTBEAT_S: Final = 15.0
MAX_FRAME: Final = 16 * MIB
_ANSWER: Final = AnswerLimits(body_bytes=16 * MIB, total_s=CONNECT_S)
_UPLOAD: Final = AnswerLimits(body_bytes=MIB, idle_s=60.0, total_s=600.0)
_AWAY: Final = (aiohttp.ClientError, LimitExceeded, OSError, TimeoutError, ValueError)
"""The errors of a request that no daemon answers properly."""
_TRY_AGAIN: Final = frozenset({401, 404, 429, 502, 503})
"""Statuses that a daemon may answer with while it starts."""


class ChatConnection:
    """Carries the frames of one conversation. ``show`` gets things to show, ``tell`` that the
    connection was lost or made again."""

    def __init__(
        self,
        location: DaemonLocation,
        conversation: ChatState,
        *,
        clock: Clock,
        show: Callable[[ShownItem], None],
        tell: Callable[[str], None],
        give_up_s: float | None = None,
    ) -> None:
        """``give_up_s``: for how many seconds it tries to reconnect; None: for ever."""
        self._location = location
        self._conversation = conversation
        self._clock = clock
        self._show = show
        self._tell = tell
        self._give_up_s = give_up_s
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._sending = asyncio.Lock()
        self.changed = asyncio.Event()
        """Set whenever a frame came or the connection changed."""

    async def run_until(self, end: Coroutine[Any, Any, None]) -> None:
        """Keep the conversation connected until ``end`` has ended. Raises what one of the two has
        raised by then."""
        owner = TaskOwner("chat", on_error=lambda task, error: None)
        tasks = [owner.spawn(self.run(), name="run:chat"), owner.spawn(end, name="end:chat")]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            await owner.close(2.0)

    async def run(self) -> None:
        """Keep the conversation connected until cancelled. Raises ``CommandFailed``."""
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
                    raise CommandFailed(
                        f"the daemon did not come back within {self._give_up_s:g} s"
                    )
                await self._clock.sleep(pause_s)
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    async def say(self, text: str, *, quiet: bool = False) -> None:
        """Send a text now, or as soon as there is a connection again."""
        await self._send(self._conversation.say(text, quiet=quiet))

    async def say_file(self, given: str) -> None:
        """Upload the file of ``/file PATH [TEXT]`` and send it with the text. What is wrong is told."""
        try:
            path, text = named_file(given)
            file = await self._upload(path)
        except CommandFailed as failure:
            self._tell(f"not sent: {failure}")
            return
        await self._send(self._conversation.say(text, files=[file]))

    async def _upload(self, path: Path) -> dict[str, str]:
        """Put a file into the agent's inbox; returns it as a message names it. Raises
        ``CommandFailed``."""
        address = self._location.address()
        try:
            with path.open("rb") as source:
                async with (
                    new_session(_UPLOAD, headers=address.headers) as http,
                    http.post(
                        f"{address.url}/web/uploads",
                        params={"agent": self._conversation.agent, "name": path.name},
                        headers={"Content-Type": "application/octet-stream"},
                        data=source,
                        allow_redirects=False,
                    ) as response,
                ):
                    found = json.loads(await whole(response, _UPLOAD) or b"{}")
        except (aiohttp.ClientError, LimitExceeded, TimeoutError, ValueError):
            raise CommandFailed("the daemon can't be reached; try again in a moment") from None
        except OSError as error:
            raise CommandFailed(f"{path} can't be read: {error.strerror or error}") from None
        if response.status != HTTPStatus.CREATED:
            raise CommandFailed(str(found.get("detail", f"the daemon answered {response.status}")))
        return {"path": str(found["path"]), "name": path.name}

    async def check_awaited(self) -> None:
        """Fetch the states of awaited messages, and drop those that ended without an answer."""
        try:
            address = self._location.address()
            async with self._http(address) as http:
                for message_id in list(self._conversation.awaited):
                    result = await self._get(http, address, f"/interagent/results/{message_id}")
                    if result.get("state") in {"cancelled", "dead"}:
                        self._conversation.has_ended(message_id)
        except (CommandFailed, *_AWAY):
            return  # the daemon is away; its events tell when it is back
        finally:
            self.changed.set()

    # -- inside ------------------------------------------------------------------------------------

    async def _one_connection(self, http: Session, *, is_first: bool) -> CommandFailed | None:
        """Serve one connection to its end; returns the failure if none was made."""
        try:
            address = self._location.address()
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
                return DaemonUnreachable(self._location.not_running())
            raise CommandFailed(_handshake(error)) from None
        except _AWAY:
            return DaemonUnreachable(self._location.not_running())
        except CommandFailed as failure:
            return failure

    async def _serve(
        self, socket: aiohttp.ClientWebSocketResponse, address: Address, *, is_first: bool
    ) -> CommandFailed | None:
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
                    raise CommandFailed(str(refused)) from None
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
            pass  # the same as a close: ``run`` connects again
        finally:
            self._socket = None
            self.changed.set()
        return None if is_welcome else DaemonUnreachable(self._location.not_running())

    async def _resend(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Send the pending texts in their order; texts that are typed meanwhile come after them."""
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
        """Drop questions of the history that were answered long ago."""
        if not self._conversation.questions:
            return
        try:
            async with self._http(address) as http:
                found = await self._get(http, address, "/questions?state=open&limit=500")
        except _AWAY:
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
