"""The chat socket: greeting, texts counted once, commands past every queue, resume, bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType

from agentsup.api.chat.socket import ChatSocket
from agentsup.api.http import ApiLimits
from agentsup.model.errors import StoreUnavailable
from tests.component.api.conftest import LIMITS, OPERATOR_TOKEN, ApiFixture


@dataclass
class Client:
    """One end of a socket."""

    socket: aiohttp.ClientWebSocketResponse

    async def send(self, kind: str, **members: Any) -> None:
        await self.socket.send_json({"type": kind, **members})

    async def next(self, *kinds: str) -> dict[str, Any]:
        """The next frame of one of ``kinds`` (any, if none is named)."""
        while True:
            message = await self.socket.receive()
            assert message.type is WSMsgType.TEXT, (message, self.socket.close_code)
            frame: dict[str, Any] = message.json()
            if not kinds or frame["type"] in kinds:
                return frame

    async def closed(self) -> int | None:
        """Wait for the end; the code it was closed with."""
        while (await self.socket.receive()).type is WSMsgType.TEXT:
            pass
        return self.socket.close_code


@asynccontextmanager
async def connect(rig: ApiFixture, token: str | None = OPERATOR_TOKEN) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with rig.client.ws_connect(f"{rig.url}/ws", headers=headers) as socket:
        yield Client(socket)


@asynccontextmanager
async def chat(
    rig: ApiFixture, agent: str = "main", **hello: Any
) -> AsyncIterator[tuple[Client, dict[str, Any]]]:
    async with connect(rig) as client:
        await client.send("hello", agent=agent, **hello)
        yield client, await client.next("welcome")


async def test_a_socket_needs_the_operators_token(rig: ApiFixture) -> None:
    for token, wanted in ((None, 401), ("wrong", 401), (rig.agent_tokens["main"], 403)):
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            async with connect(rig, token):
                pass
        assert caught.value.status == wanted
    status, document, _ = await rig.call("GET", "/ws")
    assert (status, document["code"]) == (400, "bad_request")
    status, _, _ = await rig.call("GET", f"/ws?token={OPERATOR_TOKEN}", token=None)
    assert status == 401


async def test_welcome_shows_the_latest_history_and_what_runs(rig: ApiFixture) -> None:
    seqs = [await rig.tell("main", str(n)) for n in range(60)]
    await rig.tell("main", "elsewhere", "console:desk")
    rig.live.begin("agt_main", "console:local", "m1")
    rig.live.delta("m1", "so far")
    async with chat(rig, "MAIN") as (_, welcome):
        assert [event["seq"] for event in welcome["history"]] == seqs[-50:]
        assert welcome["agent"] == "main"
        assert [(t["message_id"], t["text"]) for t in welcome["live"]] == [("m1", "so far")]
        assert welcome["seq"] == seqs[-1] + 1
        assert welcome["reset"] is False


async def test_a_text_is_accepted_shown_and_counted_once(rig: ApiFixture) -> None:
    async with chat(rig) as (client, _):
        await client.send("say", id="c1", text="hello")
        accepted = await client.next("accepted")
        assert (accepted["id"], accepted["duplicate"]) == ("c1", False)
    async with chat(rig, after=0) as (client, _):
        await client.send("say", id="c1", text="hello")
        again = await client.next("accepted")
        assert (again["message_id"], again["duplicate"]) == (accepted["message_id"], True)
    messages = await rig.mailbox.messages.list()
    assert [message.text for message in messages] == ["hello"]
    assert messages[0].principal.label == "operator"
    assert messages[0].deliver_to.channel == "console"


async def test_a_text_that_is_corrected_while_it_waits_is_shown_so(rig: ApiFixture) -> None:
    async with chat(rig) as (client, _):
        await client.send("say", id="c1", text="the blue one")
        message_id = (await client.next("accepted"))["message_id"]
        assert await rig.database.write(
            lambda tx: rig.mailbox.queue.edit_tx(tx, message_id, "the red one")
        )
        events = [(await client.next("event"))["event"] for _ in range(2)]
    assert [(e["type"], e["data"]["text"]) for e in events] == [
        ("chat.in", "the blue one"),
        ("chat.edited", "the red one"),
    ]
    assert events[1]["message_id"] == message_id
    async with chat(rig) as (_, welcome):
        assert [e["type"] for e in welcome["history"]] == ["chat.in", "chat.edited"]


async def test_a_client_that_comes_back_gets_what_it_missed(rig: ApiFixture) -> None:
    async with chat(rig) as (client, welcome):
        first = await rig.tell("main", "one")
        event = await client.next("event")
        assert (event["seq"], event["event"]["data"]) == (first, {"text": "one"})
    missed = [await rig.tell("main", str(n)) for n in range(250)]
    async with chat(rig, after=first) as (client, welcome):
        assert (welcome["history"], welcome["seq"]) == ([], first)
        assert [(await client.next("event"))["seq"] for _ in missed] == missed
        later = await rig.tell("main", "later")
        assert (await client.next("event"))["seq"] == later
    async with chat(rig, after=later + 1000) as (client, welcome):
        assert welcome["reset"] is True
        assert len(welcome["history"]) == 50


async def test_what_is_said_while_greeting_is_shown_once(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_seq = rig.deps.events.last_seq

    async def racing() -> int:
        seq = await last_seq()
        await rig.tell("main", "just between")
        return seq

    monkeypatch.setattr(rig.deps.events, "last_seq", racing)
    async with chat(rig) as (client, welcome):
        assert welcome["history"] == []
        assert (await client.next("event"))["event"]["data"] == {"text": "just between"}


async def test_a_conversation_is_its_own(rig: ApiFixture) -> None:
    async with chat(rig, conversation="desk") as (desk, _), chat(rig) as (local, _):
        await rig.tell("Scout", "other agent")
        seq = await rig.tell("main", "for the desk", "console:desk")
        own = await rig.tell("main", "for local")
        assert (await desk.next("event"))["seq"] == seq
        assert (await local.next("event"))["seq"] == own


async def test_a_command_passes_every_text_and_survives_its_client(rig: ApiFixture) -> None:
    async with chat(rig) as (client, _):
        await client.send("say", id="c1", text="/hold")
        await client.send("say", id="c2", text="/stop")
        reply = await client.next("reply")
        assert (reply["id"], reply["text"], reply["ok"]) == ("c2", "ran /stop for operator", True)
        await client.send("say", id="c3", text="/wrong")
        assert (await client.next("reply"))["ok"] is False
        await client.send("say", id="c4", text="a text")
        assert (await client.next("accepted"))["id"] == "c4"
    rig.commands.let_go.set()
    while "/hold" not in rig.commands.ran:
        await rig.call("GET", "/healthz")


class Gate:
    """Holds the first text on its way into the mailbox until it is opened."""

    def __init__(self, rig: ApiFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = asyncio.Event()
        self.reached = asyncio.Event()
        accept = rig.mailbox.queue.accept

        async def held(new: Any, **more: Any) -> Any:
            if not self.reached.is_set():
                self.reached.set()
                await self.open.wait()
            return await accept(new, **more)

        monkeypatch.setattr(rig.mailbox.queue, "accept", held)


@pytest.mark.parametrize("stop", ["/stop", "!Stop it", "/stop_all"])
async def test_what_was_typed_before_a_stop_is_not_accepted_after_it(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    gate = Gate(rig, monkeypatch)
    async with chat(rig) as (client, _):
        await client.send("say", id="c1", text="go on")
        await client.send("say", id="c2", text="and on")
        await gate.reached.wait()
        rig.commands.is_command = lambda text: text.startswith(("/", "!"))  # type: ignore[method-assign]
        await client.send("say", id="c3", text=stop)
        assert (await client.next("reply"))["id"] == "c3"
        await client.send("say", id="c4", text="something else")
        gate.open.set()
        refused = [await client.next("error") for _ in range(2)]
        assert [(each["id"], each["problem"]["code"]) for each in refused] == [
            ("c1", "stopped"),
            ("c2", "stopped"),
        ]
        assert (await client.next("accepted"))["id"] == "c4"
    assert [message.text for message in await rig.mailbox.messages.list()] == ["something else"]


async def test_a_stop_leaves_texts_of_another_conversation_or_agent(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(rig, monkeypatch)
    async with (
        chat(rig) as (here, _),
        chat(rig, conversation="desk") as (desk, _),
        chat(rig, agent="Scout") as (scout, _),
    ):
        await desk.send("say", id="d1", text="at the desk")
        await gate.reached.wait()
        await here.send("say", id="h1", text="/stop")
        await here.next("reply")
        await scout.send("say", id="s1", text="/stop_all")
        await scout.next("reply")
        gate.open.set()
        assert (await desk.next("accepted", "error"))["type"] == "accepted"


async def test_a_stop_that_is_said_again_or_not_permitted_drops_nothing(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chat(rig) as (client, _):
        await client.send("say", id="c1", text="/stop")
        await client.next("reply")
        gate = Gate(rig, monkeypatch)
        await client.send("say", id="c2", text="after it")
        await gate.reached.wait()
        for stop_id, text in (("c1", "/stop"), ("c3", "/interrupt"), ("c4", "stop")):
            await client.send("say", id=stop_id, text=text)
        await client.next("reply")
        gate.open.set()
        assert [(await client.next("accepted"))["id"] for _ in range(2)] == ["c2", "c4"]


async def test_what_is_typed_after_a_stop_waits_until_it_has_ended(rig: ApiFixture) -> None:
    rig.commands.held.add("/stop")
    async with chat(rig) as (client, _), chat(rig, conversation="desk") as (desk, _):
        await client.send("say", id="c1", text="/stop")
        await client.send("say", id="c2", text="after it")
        await client.send("ping")
        await client.next("pong")
        await desk.send("say", id="d1", text="elsewhere")
        await desk.next("accepted")
        assert [message.text for message in await rig.mailbox.messages.list()] == ["elsewhere"]
        rig.commands.let_go.set()
        first, second = await client.next("reply", "accepted"), await client.next("accepted")
        assert (first["id"], second["id"]) == ("c1", "c2")


async def test_a_stop_is_taken_however_many_texts_wait(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(rig, monkeypatch)
    limit = rig.deps.limits.says_in_flight
    async with chat(rig) as (client, _):
        for number in range(limit + 1):
            await client.send("say", id=f"t{number}", text="go on")
        assert (await client.next("error"))["problem"]["queue"] == "ws.says"
        await client.send("say", id="s", text="/stop")
        assert (await client.next("reply", "error"))["type"] == "reply"
        gate.open.set()
        for _ in range(limit):
            assert (await client.next("error"))["problem"]["code"] == "stopped"


async def test_what_is_remembered_of_commands_is_small(rig: ApiFixture) -> None:
    """The latest ids with their results, and not what was typed."""
    from agentsup.api.server.listener import API

    rest = "x" * 100_000
    async with chat(rig) as (client, _):
        for text in (f"/one {rest}", f"/two {rest}"):
            await client.send("say", id="same", text=text)
            assert (await client.next("reply", "error"))["type"] == "reply"
    assert [ran[:5] for ran in rig.commands.ran] == ["/one ", "/two "], "another text is another"
    known = rig.server._app[API].connections.commands._known
    assert len(known) == 2
    assert sum(len(repr(key)) for key in known) < 1000


async def test_a_command_said_again_runs_once(rig: ApiFixture) -> None:
    async with chat(rig) as (client, _):
        await client.send("say", id="c1", text="/hold")
        await client.send("ping")
        await client.next("pong")
    async with chat(rig) as (client, _):
        await client.send("say", id="c1", text="/hold")
        rig.commands.let_go.set()
        assert (await client.next("reply"))["id"] == "c1"
        await client.send("say", id="c1", text="/hold")
        assert (await client.next("reply"))["text"] == "ran /hold for operator"
        await client.send("say", id="c2", text="/hold")
        await client.next("reply")
    assert rig.commands.ran == ["/hold", "/hold"]


async def test_texts_keep_their_order(rig: ApiFixture) -> None:
    async with chat(rig) as (client, _):
        for number in range(5):
            await client.send("say", id=f"c{number}", text=str(number))
        for number in range(5):
            assert (await client.next("accepted"))["id"] == f"c{number}"
    assert [m.text for m in await rig.mailbox.messages.list()] == ["4", "3", "2", "1", "0"]


async def test_a_refused_text_is_told_by_its_id(rig: ApiFixture) -> None:
    async with chat(rig) as (client, _):
        await client.send("say", id="c0", text="   ")
        error = await client.next("error")
        assert (error["id"], error["problem"]["field"]) == ("c0", "text")
        for number in range(1, 7):
            await client.send("say", id=f"c{number}", text="x")
        error = await client.next("error")
        assert (error["id"], error["problem"]["code"]) == ("c6", "overloaded")
        rig.control.is_draining = True
        await client.send("say", id="c7", text="x")
        error = await client.next("error")
        assert (error["id"], error["problem"]["status"]) == ("c7", 503)
        await client.send("say", id="c8", text="/status")
        assert (await client.next("reply"))["id"] == "c8"


@pytest.mark.parametrize(
    "frame, field",
    [
        ("{", "frame"),
        ("[]", "frame"),
        ('{"type":"shout"}', "frame"),
        ('{"type":"say","id":"c"}', "say"),
        ('{"type":"say","id":5,"text":"x"}', "say"),
    ],
)
async def test_a_wrong_frame_is_told_and_the_socket_goes_on(
    rig: ApiFixture, frame: str, field: str
) -> None:
    async with chat(rig) as (client, _):
        await client.socket.send_str(frame)
        problem = (await client.next("error"))["problem"]
        assert (problem["status"], problem["code"]) == (400, "bad_request")
        await client.socket.send_bytes(b"\x00")
        assert (await client.next("error"))["problem"]["status"] == 400
        await client.send("ping")
        assert await client.next() == {"type": "pong"}


@pytest.mark.parametrize(
    "frame",
    [
        "{",
        '{"type":"say","id":"c","text":"x"}',
        '{"type":"hello","agent":"ghost"}',
        '{"type":"hello","agent":"main","after":-1}',
        '{"type":"hello","agent":"main","channel":"telegram"}',
        '{"type":"hello","agent":"main","conversation":"a:b"}',
    ],
)
async def test_without_a_valid_hello_the_socket_is_closed(rig: ApiFixture, frame: str) -> None:
    async with connect(rig) as client:
        await client.socket.send_str(frame)
        assert (await client.next())["type"] == "error"
        assert await client.closed() == 4400
    assert rig.live._feed_count == 0


async def test_running_text_reaches_the_client(rig: ApiFixture) -> None:
    async with chat(rig) as (client, welcome):
        assert welcome["live"] == []
        rig.live.begin("agt_main", "console:local", "m1")
        rig.live.begin("agt_main", "console:desk", "m2")
        rig.live.delta("m2", "not for this one")
        assert await client.next() == {"type": "begin", "message_id": "m1"}
        rig.live.delta("m1", "Hel")
        assert await client.next() == {"type": "delta", "message_id": "m1", "text": "Hel"}
        rig.live.tool("m1", "read", "started")
        assert (await client.next())["type"] == "tool"
        rig.live.end("m1")
        assert await client.next() == {"type": "end", "message_id": "m1"}
    while rig.live._feed_count:
        await rig.call("GET", "/healthz")


async def test_a_store_that_fails_is_told_before_the_socket_ends(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chat(rig) as (client, _):

        async def unreadable(*_: object, **__: object) -> None:
            raise StoreUnavailable("the disk is gone")

        monkeypatch.setattr(rig.deps.events, "page", unreadable)
        await rig.tell("main", "x")
        assert (await client.next("error"))["problem"]["code"] == "store_unavailable"
        assert await client.closed() == 1011


async def test_closing_says_goodbye(rig: ApiFixture) -> None:
    async with chat(rig) as (client, _):
        closing = asyncio.get_running_loop().create_task(rig.server.close())
        assert await client.next() == {"type": "bye", "reason": "draining"}
        assert await client.closed() == 1001
        await closing


async def test_sockets_are_bounded(rig: ApiFixture) -> None:
    async with connect(rig), connect(rig), connect(rig):
        status, document, _ = await rig.call(
            "GET",
            "/ws",
            headers={
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
            },
        )
        assert (status, document["queue"]) == (429, "api.sockets")


class TestPings:
    @pytest.fixture
    def limits(self) -> ApiLimits:
        return replace(LIMITS, ping_s=0.2)

    async def test_a_client_that_answers_no_ping_is_disconnected(self, rig: ApiFixture) -> None:
        headers = {"Authorization": f"Bearer {OPERATOR_TOKEN}"}
        async with rig.client.ws_connect(
            f"{rig.url}/ws", headers=headers, autoping=False
        ) as socket:
            await socket.send_json({"type": "hello", "agent": "main"})
            types = [(await socket.receive()).type]
            while types[-1] is WSMsgType.TEXT:
                types.append((await socket.receive()).type)
            assert types[-1] is WSMsgType.PING
            while (await socket.receive()).type is WSMsgType.PING:
                pass
            assert socket.closed
        await rig.until_open("sockets", 0)


class TestImpatient:
    """Short limits: a silent client and a slow one."""

    @pytest.fixture
    def limits(self) -> ApiLimits:
        return replace(LIMITS, hello_s=0.05, stall_s=0.2, heartbeat_s=30.0, outgoing_frames=4)

    async def test_a_silent_client_is_sent_away(self, rig: ApiFixture) -> None:
        async with connect(rig) as client:
            assert "hello" in (await client.next("error"))["problem"]["detail"]
            assert await client.closed() == 4400

    async def test_a_slow_client_is_cut_and_resumes(
        self, rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sizes: list[int] = []
        post = ChatSocket._send_soon

        async def watched(served: ChatSocket, frame: Mapping[str, Any]) -> None:
            await post(served, frame)
            sizes.append(served._outgoing.qsize())

        monkeypatch.setattr(ChatSocket, "_send_soon", watched)
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.server.port, limit=1024)
        head = (
            f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{rig.server.port}\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            f"Authorization: Bearer {OPERATOR_TOKEN}\r\n\r\n"
        )
        hello = b'{"type":"hello","agent":"main"}'
        writer.write(head.encode() + bytes((0x81, 0x80 | len(hello), 0, 0, 0, 0)) + hello)
        await reader.readuntil(b"\r\n\r\n")
        while not rig.live._feed_count:
            await rig.call("GET", "/healthz")
        # The client reads nothing from here on; the server may hold four frames and no more.
        big = "x" * 200_000
        seqs = [await rig.tell("main", big) for _ in range(60)]
        await rig.until_open("sockets", 0)
        writer.close()
        assert max(sizes) <= 4
        assert len(sizes) < len(seqs), "the server went on filling what nobody took"
        async with chat(rig, after=seqs[0]) as (client, _):
            assert [(await client.next("event"))["seq"] for _ in seqs[1:]] == seqs[1:]


async def test_a_text_that_something_breaks_on_is_answered(
    rig: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(text: str, context: object) -> None:
        raise ValueError(f"a bug at {text} for {context}")

    monkeypatch.setattr(rig.commands, "run", broken)
    async with chat(rig) as (client, _):
        await client.send("say", id="1", text="/hold")
        frame = await client.next("error")
        assert (frame["id"], frame["problem"]["code"]) == ("1", "internal")
        assert "a bug" not in str(frame), "what broke is in the log"
        monkeypatch.undo()
        await client.send("say", id="2", text="hello")
        assert (await client.next("accepted"))["id"] == "2"
