"""The connection comes back by itself; a text said into a dying connection arrives once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agentsup.cli.chat.conversation import ChatState, ShownItem, ShownKind
from agentsup.cli.chat.link import ChatConnection
from agentsup.cli.connect.failure import CommandFailed, DaemonUnreachable
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.kit.clock import SystemClock
from agentsup.kit.tasks import TaskOwner
from tests.support.bound import BOUND_S

Script = Callable[["Daemon", web.WebSocketResponse, int], Awaitable[None]]


class Daemon:
    """Serves ``/ws`` by a script that gets the number of the connection; keeps what it was sent."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.frames: list[list[dict[str, Any]]] = []
        self.boot_id = "boot_1"

    async def next(self, socket: web.WebSocketResponse) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(await socket.receive_str())
        self.frames[-1].append(frame)
        return frame

    async def welcome(self, socket: web.WebSocketResponse, seq: int) -> dict[str, Any]:
        hello = await self.next(socket)
        frame = {"type": "welcome", "agent": "main", "agent_state": "running", "seq": seq}
        await socket.send_json({**frame, "reset": False, "history": [], "live": []})
        return hello

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != "Bearer t0ken":
            return web.Response(status=401)
        if request.headers.get("X-Agentsup-Boot") != self.boot_id:
            return web.Response(status=421)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.frames.append([])
        await self.script(self, socket, len(self.frames))
        await socket.close()
        return socket

    @asynccontextmanager
    async def running(self, home: Path) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get("/ws", self.serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        (home / "daemon.json").write_text(json.dumps({"pid": 1, "url": url, "boot_id": "boot_1"}))
        (home / "api.token").write_text("t0ken")
        try:
            yield
        finally:
            await runner.cleanup()


class Client:
    def __init__(self, home: Path, **more: Any) -> None:
        numbers = iter(range(100))
        self.talk = ChatState("main", "local", lambda: f"say_{next(numbers)}")
        self.shown: list[ShownItem] = []
        self.told: list[str] = []
        self.link = ChatConnection(
            DaemonLocation.of(str(home), {}),
            self.talk,
            clock=SystemClock(),
            show=self.shown.append,
            tell=self.told.append,
            **more,
        )
        self.tasks = TaskOwner("test")

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not condition():
                self.link.changed.clear()
                await self.link.changed.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.tasks.spawn(self.link.run(), name="link:test")
        try:
            yield
        finally:
            await self.tasks.close(5)


async def test_a_daemon_that_has_the_port_of_the_one_meant_hears_nothing(tmp_path: Path) -> None:
    async def script(daemon: Daemon, socket: web.WebSocketResponse, number: int) -> None:
        await daemon.welcome(socket, seq=1)

    daemon = Daemon(script)
    daemon.boot_id = "boot_of_another"
    async with daemon.running(tmp_path):
        with pytest.raises(DaemonUnreachable, match="no daemon runs"):
            await Client(tmp_path).link.run()
    assert daemon.frames == []


async def test_a_text_that_was_not_confirmed_is_said_again_under_the_same_id(
    tmp_path: Path,
) -> None:
    async def script(daemon: Daemon, socket: web.WebSocketResponse, number: int) -> None:
        await daemon.welcome(socket, seq=5 if number == 1 else 7)
        said = await daemon.next(socket)
        if number == 1:
            return  # dies with the text taken and not confirmed
        frame = {"type": "accepted", "id": said["id"], "message_id": "m1", "position": 0}
        await socket.send_json(frame)
        body = {"seq": 8, "type": "chat.out", "message_id": "m1"}
        event = {**body, "data": {"kind": "answer", "text": "here"}}
        await socket.send_json({"type": "event", "seq": 8, "event": event})
        await socket.receive()

    daemon, client = Daemon(script), Client(tmp_path)
    async with daemon.running(tmp_path), client.running():
        await client.until(lambda: client.talk.seq is not None)
        await client.link.say("hello")
        await client.until(lambda: any(one.kind is ShownKind.ANSWER for one in client.shown))
    first, second = daemon.frames
    assert first[1] == second[1] == {"type": "say", "id": "say_0", "text": "hello"}
    assert second[0]["after"] == 5
    assert client.told == ["reconnecting…", "connected again"]
    assert [one.text for one in client.shown if one.kind is ShownKind.ANSWER] == ["here"]


async def test_what_is_typed_while_the_daemon_is_away_is_said_in_order_when_it_is_back(
    tmp_path: Path,
) -> None:
    async def brief(daemon: Daemon, socket: web.WebSocketResponse, number: int) -> None:
        await daemon.welcome(socket, seq=1)

    got: list[str] = []

    async def patient(daemon: Daemon, socket: web.WebSocketResponse, number: int) -> None:
        await daemon.welcome(socket, seq=1)
        while len(got) < 3:
            said = await daemon.next(socket)
            got.append(said["text"])
            await socket.send_json({"type": "reply", "id": said["id"], "text": "", "ok": True})
        await socket.receive()

    client = Client(tmp_path)
    first = Daemon(brief)
    async with first.running(tmp_path):
        running = client.running()
        await running.__aenter__()
        await client.until(lambda: "reconnecting…" in client.told)
    for text in ("one", "two", "three"):
        await client.link.say(text)
    async with Daemon(patient).running(tmp_path):
        await client.until(lambda: not client.talk.pending)
        await running.__aexit__(None, None, None)
    assert got == ["one", "two", "three"]


async def test_no_daemon_at_first_is_told_at_once(tmp_path: Path) -> None:
    client = Client(tmp_path)
    with pytest.raises(DaemonUnreachable, match="no daemon runs"):
        await client.link.run()


async def test_a_refused_token_is_told(tmp_path: Path) -> None:
    async def never(daemon: Daemon, socket: web.WebSocketResponse, number: int) -> None:
        raise AssertionError

    client = Client(tmp_path)
    async with Daemon(never).running(tmp_path):
        (tmp_path / "api.token").write_text("other")
        with pytest.raises(CommandFailed, match="does not know this token"):
            await client.link.run()


async def test_a_refused_conversation_is_told(tmp_path: Path) -> None:
    async def refuse(daemon: Daemon, socket: web.WebSocketResponse, number: int) -> None:
        await daemon.next(socket)
        problem = {"code": "not_found", "detail": "there is no agent called 'main'"}
        await socket.send_json({"type": "error", "id": "", "problem": problem})

    client = Client(tmp_path)
    async with Daemon(refuse).running(tmp_path):
        with pytest.raises(CommandFailed, match="there is no agent called 'main'"):
            await client.link.run()


async def test_a_pipe_gives_up_in_the_end(tmp_path: Path) -> None:
    async def brief(daemon: Daemon, socket: web.WebSocketResponse, number: int) -> None:
        await daemon.welcome(socket, seq=1)
        (tmp_path / "daemon.json").unlink()

    client = Client(tmp_path, give_up_s=0.05)
    async with Daemon(brief).running(tmp_path):
        with pytest.raises(CommandFailed, match="did not come back"):
            await client.link.run()
