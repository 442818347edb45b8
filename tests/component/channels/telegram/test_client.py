"""What becomes of a call, by type: over raw HTTP against the fake, and a server that is none."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import IO, Any

import pytest
from aiohttp import web

from agentsup.channels.core.errors import (
    ChatGone,
    NotSent,
    OutcomeUnknown,
    RateLimited,
    RequestRefused,
    TokenRefused,
)
from agentsup.channels.core.files import UploadFile
from agentsup.channels.core.files.inbox_files import Write
from agentsup.channels.telegram import SharedHttp, TelegramClient
from agentsup.channels.telegram.errors import (
    ChatMigrated,
    MarkupRefused,
    NotModified,
    PollConflict,
    error_of,
)
from agentsup.channels.telegram.flood import CallKind
from agentsup.fakes.telegram.refusals import REFUSALS, refused
from agentsup.kit.outbound.aiohttp_client import Session
from agentsup.model.errors import TooLarge
from agentsup.model.secret import Secret
from tests.component.channels.telegram.bench import TOKEN, StreamFixture
from tests.support.bound import BOUND_S


async def test_a_result_is_raw_json(context: StreamFixture) -> None:
    me = await context.client.call("getMe")
    assert (me["id"], me["is_bot"], me["username"]) == (context.bot_id, True, "main_bot")
    ann, _ = await context.person()
    entity = {"type": "bold", "offset": 0, "length": 2}
    sent = await context.client.call(
        "sendMessage", chat_id=ann, text="hi", entities=[entity], x=None
    )
    assert sent["text"] == "hi"
    assert sent["entities"] == [entity]


async def test_each_refusal_has_its_type(context: StreamFixture) -> None:
    await context.people.limits("count")
    ann, chat = await context.person()
    sent = await context.client.call("sendMessage", chat_id=ann, text="hi")

    async def error(method: str, **fields: Any) -> Exception:
        with pytest.raises(Exception) as raised:
            await context.client.call(method, **fields)
        return raised.value

    edit = {"chat_id": ann, "message_id": sent["message_id"], "text": "hi"}
    assert isinstance(await error("editMessageText", **edit), NotModified)
    assert isinstance(await error("sendMessage", chat_id=123, text="?"), ChatGone)
    wrong = await error("sendMessage", chat_id=ann, text="*", parse_mode="MarkdownV2")
    assert isinstance(wrong, MarkupRefused)
    long = await error("sendMessage", chat_id=ann, text="x" * 5_000)
    assert type(long) is RequestRefused
    assert (long.number, "too long" in long.description) == (400, True)
    unknown = await error("sendNothing", chat_id=ann)
    assert type(unknown) is RequestRefused  # a method that is missing says nothing of the token
    await context.people.block(chat)
    assert isinstance(await error("sendMessage", chat_id=ann, text="x"), ChatGone)
    await context.people.block(chat, blocked=False)
    await context.people.fault("flood", chat_id=ann, retry_after=7, count=1)
    flood = await error("sendMessage", chat_id=ann, text="x")
    assert isinstance(flood, RateLimited)
    assert flood.retry_after_s == 7.0
    group = await context.people.group("g", [ann, context.bot_id])
    new = await context.people.migrate(group)
    moved = await error("sendMessage", chat_id=int(group), text="x")
    assert isinstance(moved, ChatMigrated)
    assert moved.new_chat_id == int(new)
    await context.people.revoke(context.bot_id)
    assert isinstance(await error("getMe"), TokenRefused)
    await context.people.act("clear_violations")


async def test_two_pollers_conflict(context: StreamFixture) -> None:
    other = TelegramClient(Secret(TOKEN), context.url + "/bot/", http=context.http)
    first = asyncio.create_task(context.client.call("getUpdates", timeout=10, timeout_s=15))
    await context.people.call(TOKEN, "getMe")
    async with asyncio.timeout(BOUND_S):
        ends = [first, asyncio.create_task(other.call("getUpdates", timeout=10, timeout_s=15))]
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        assert isinstance(done.pop().exception(), PollConflict)
    for task in ends:
        task.cancel()
    await asyncio.wait(ends)


@pytest.mark.parametrize(
    "kind", ["server_error", "cut_before", "cut_after", "late", "malformed", "hang", "slow"]
)
async def test_where_nobody_knows_the_fate_is_unknown(context: StreamFixture, kind: str) -> None:
    ann, _ = await context.person()
    await context.people.fault(kind, method="sendMessage", count=1, seconds=1.0)
    with pytest.raises(OutcomeUnknown):
        await context.client.call("sendMessage", timeout_s=0.4, chat_id=ann, text="x")
    await context.client.call("sendMessage", chat_id=ann, text="next")


async def test_without_a_connection_nothing_was_sent(context: StreamFixture) -> None:
    nobody = TelegramClient(Secret(TOKEN), "http://127.0.0.1:1", http=context.http)
    with pytest.raises(NotSent, match="Connect call failed") as error:
        await nobody.call("getMe")
    assert "secret" not in repr(error.getrepr(chain=True))
    # A plain server where TLS is expected: the handshake fails before anything is said.
    tls = TelegramClient(Secret(TOKEN), context.url.replace("http:", "https:"), http=context.http)
    with pytest.raises(NotSent):
        await tls.call("getMe")
    await context.client.close()
    with pytest.raises(NotSent, match="closed"):
        await context.client.call("getMe")


async def test_a_server_that_accepts_and_says_nothing_leaves_the_fate_open() -> None:
    ended = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    http = SharedHttp()
    client = TelegramClient(Secret(TOKEN), f"http://127.0.0.1:{port}", http=http)
    with pytest.raises(OutcomeUnknown, match="timed out"):
        await client.call("getMe", timeout_s=0.3)
    await http.close()
    await ended.wait()
    server.close()
    await server.wait_closed()


async def test_a_redirect_is_not_followed() -> None:
    seen: list[str] = []

    async def away(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", away)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    http = SharedHttp()
    client = TelegramClient(Secret("1:a"), f"http://127.0.0.1:{runner.addresses[0][1]}", http=http)
    with pytest.raises(OutcomeUnknown):
        await client.call("sendMessage", chat_id=1, text="x")
    assert seen == ["/bot1:a/sendMessage"]
    await http.close()
    await runner.cleanup()


def into(out: IO[bytes]) -> Write:
    async def write(piece: bytes) -> None:
        out.write(piece)

    return write


async def test_a_file_comes_and_goes(context: StreamFixture, tmp_path: Path) -> None:
    ann, chat = await context.person()
    await context.people.send_file(chat, b"x" * 70_000, name="in.bin")
    updates = await context.client.call("getUpdates")
    document = updates[-1]["message"]["document"]
    found = await context.client.call("getFile", file_id=document["file_id"])
    to = tmp_path / "in.bin"
    with to.open("wb") as out:
        assert await context.client.download(found["file_path"], into(out), 100_000) == 70_000
    assert to.read_bytes() == b"x" * 70_000
    with pytest.raises(TooLarge), (tmp_path / "small").open("wb") as out:
        await context.client.download(found["file_path"], into(out), 60_000)
    upload = UploadFile(to, "out.bin", workspace=tmp_path)
    sent = await context.client.call("sendDocument", chat_id=ann, files={"document": upload})
    assert await context.people.download(sent["document"]["file_unique_id"]) == b"x" * 70_000
    outside = UploadFile(Path("/etc/hostname"), "h", workspace=tmp_path)
    with pytest.raises(PermissionError):
        await context.client.call("sendDocument", chat_id=ann, files={"document": outside})


async def test_bots_share_what_is_dear(context: StreamFixture) -> None:
    other = TelegramClient(Secret("200:else"), context.url, http=context.http)
    await context.people.add_bot("200:else", username="other_bot")
    await asyncio.gather(context.client.call("getMe"), other.call("getMe"))
    assert context.client.flood is context.http.flood_of(f"{context.url}/100")
    assert context.client.flood is not other.flood
    context.client.flood.begin(1, 7, CallKind.MESSAGE, 0.0)


@pytest.mark.parametrize("name", sorted(REFUSALS))
def test_no_refusal_of_the_platform_is_taken_for_an_unknown_fate(name: str) -> None:
    places = dict.fromkeys(("why", "retry_after", "field", "kind"), "x")
    refusal = refused(name, **places)
    error = error_of(refusal.code, json.dumps(refusal.body()).encode())
    assert not isinstance(error, OutcomeUnknown | NotSent)
    expected = {
        "unauthorized": TokenRefused,
        "conflict": PollConflict,
        "flood": RateLimited,
        "not modified": NotModified,
        "entities": MarkupRefused,
        "entity": MarkupRefused,
        "parse mode": MarkupRefused,
        "no chat": ChatGone,
        "blocked": ChatGone,
        "deactivated": ChatGone,
    }.get(name)
    if expected is not None:
        assert type(error) is expected
    elif refusal.code != 403:
        assert type(error) is RequestRefused


@pytest.mark.parametrize(
    "status, body, kind",
    [
        (404, b'{"ok":false,"error_code":404,"description":"Not Found"}', TokenRefused),
        (404, b"<html>nginx</html>", OutcomeUnknown),
        (401, b"<html>log in to the hotel's network</html>", OutcomeUnknown),
        (429, b"<html>slow down</html>", RateLimited),
        (200, b"{}", OutcomeUnknown),
        (200, b"", OutcomeUnknown),
        (502, b'{"ok":false,"error_code":502,"description":"Bad Gateway"}', OutcomeUnknown),
        (400, b'{"ok":false,"description":"Bad Request: chat not found"}', ChatGone),
        (403, b'{"ok":false,"error_code":403,"description":"Forbidden: any"}', ChatGone),
        (302, b"", OutcomeUnknown),
        (400, b'["a list"]', OutcomeUnknown),
    ],
)
def test_odd_answers(status: int, body: bytes, kind: type[Exception]) -> None:
    assert type(error_of(status, body)) is kind


def test_the_wait_is_taken_from_wherever_it_is_said() -> None:
    assert error_of(429, b"", retry_after="12").facts["retry_after_s"] == 12.0
    body = b'{"ok":false,"error_code":429,"parameters":{"retry_after":3}}'
    assert error_of(429, body, retry_after="12").facts["retry_after_s"] == 3.0
    assert error_of(429, b"nonsense", retry_after="soon").facts["retry_after_s"] == 5.0
    deep = b"[" * 100_000 + b"]" * 100_000
    assert error_of(429, deep).facts["retry_after_s"] == 5.0


async def test_no_error_carries_the_token(
    context: StreamFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is part of each URL, and what an error says is stored and shown."""

    async def odd(session: Session, method: str, url: str, **more: Any) -> Any:
        raise ValueError(f"can't make anything of {url}")

    monkeypatch.setattr(Session, "request", odd)
    with pytest.raises(NotSent, match="ValueError") as raised:
        await context.client.call("getMe")
    assert TOKEN not in raised.value.message
    assert raised.value.__cause__ is None


def test_a_method_that_an_old_server_lacks_is_no_refused_token() -> None:
    for text in ("Not Found", "Not Found: method not found"):
        body = json.dumps({"ok": False, "error_code": 404, "description": text}).encode()
        error = error_of(404, body, method="sendMessageDraft")
        assert type(error) is RequestRefused
    bare = json.dumps({"ok": False, "error_code": 404, "description": "Not Found"}).encode()
    assert isinstance(error_of(404, bare, method="getMe"), TokenRefused)
