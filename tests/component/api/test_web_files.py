"""Files over the page: bounded on the way in, contained on the way out, never a path to be named."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentsup.api.http import ApiLimits
from agentsup.api.server.listener import API, ApiServer
from agentsup.channels import LocalChannel
from agentsup.mailbox.delivery import Relay
from agentsup.mailbox.messages import Completion
from agentsup.model.message import MessageOutcome, Part
from tests.component.api.browser import Browser, frame
from tests.component.api.conftest import LIMITS, ApiFixture

PIXEL = b"\x89PNG\r\n\x1a\n" + b"x" * 100


@pytest.fixture
def limits() -> ApiLimits:
    return replace(
        LIMITS, upload_bytes=200_000, uploads=1, stored_upload_bytes=400_000, stored_uploads=4
    )


def workspace(rig: ApiFixture, agent: str = "main") -> Path:
    return rig.deps.web.workspace(agent)


async def send(browser: Browser, name: str, data: bytes, agent: str = "main") -> Any:
    from urllib.parse import quote

    return await browser.call(
        "POST", f"/web/uploads?agent={agent}&name={quote(name, safe='')}", data=data
    )


async def deliver(rig: ApiFixture, *files: tuple[str, str], conversation: str = "uwe") -> list[int]:
    """Let main answer a message of uwe's with files; the numbers of the delivered parts."""
    browser = Browser(rig)
    await browser.sign_in("otto")
    async with browser.socket(conversation=conversation) as socket:
        await frame(socket, "welcome")
        await socket.send_json({"type": "say", "id": "files", "text": "files, please"})
        await frame(socket, "accepted")
        lease = await rig.lease("main")
        parts = tuple(Part("file", path=path, name=name) for path, name in files)
        await rig.mailbox.leases.complete(
            lease, Completion(MessageOutcome.OK, text="here", parts=parts)
        )
        relay = Relay(
            rig.database,
            rig.deps.clock,
            rig.deps.entropy,
            {"web": LocalChannel("web")},
            boot_id="boot",
        )
        relaying = asyncio.ensure_future(relay.run(lambda: None, asyncio.Event()))
        numbers: list[int] = []
        while len(numbers) < len(files):
            event = (await frame(socket, "event"))["event"]
            if event["data"].get("kind") == "file":
                numbers.append(event["data"]["outbox_id"])
        relaying.cancel()
        await asyncio.wait({relaying})
        return numbers


async def test_a_file_comes_in_and_is_said(rig: ApiFixture) -> None:
    browser = Browser(rig)
    await browser.sign_in("uwe")
    status, document, _ = await send(browser, "../../my photo (1).png", PIXEL)
    assert (status, document["size"]) == (201, len(PIXEL))
    path = document["path"]
    assert path.startswith("inbox/")
    assert path.endswith("-my_photo_1_.png")
    assert (workspace(rig) / path).read_bytes() == PIXEL
    async with browser.socket(conversation="uwe") as socket:
        await frame(socket, "welcome")
        files = [{"path": path, "name": document["name"]}]
        await socket.send_json({"type": "say", "id": "s1", "text": "", "files": files})
        accepted = await frame(socket, "accepted")
        event = (await frame(socket, "event"))["event"]
        assert event["data"]["files"] == ["../../my photo (1).png"]
    message = await rig.mailbox.messages.get(accepted["message_id"])
    assert [(part.type, part.path) for part in message.parts] == [("file", path)]
    status, data, headers = await browser.call("GET", f"/web/sent/{message.message_id}/0")
    assert (status, data, headers["Content-Type"]) == (200, PIXEL, "image/png")
    assert headers["Content-Disposition"].startswith("attachment;")
    assert headers["X-Content-Type-Options"] == "nosniff"
    stranger = Browser(rig)
    await stranger.sign_in("ute")
    assert (await stranger.call("GET", f"/web/sent/{message.message_id}/0"))[0] == 403
    for number in ("1", "-1", "x", "9" * 30):
        assert (await browser.call("GET", f"/web/sent/{message.message_id}/{number}"))[0] == 404


async def test_a_text_after_a_file_stays_after_it(rig: ApiFixture) -> None:
    browser = Browser(rig)
    await browser.sign_in("uwe")
    _, document, _ = await send(browser, "photo.png", PIXEL)
    async with browser.socket(conversation="uwe") as socket:
        await frame(socket, "welcome")
        files = [{"path": document["path"], "name": "photo.png"}]
        await socket.send_json({"type": "say", "id": "s1", "text": "look", "files": files})
        await socket.send_json({"type": "say", "id": "s2", "text": "what is it?"})
        for _ in range(2):
            await frame(socket, "accepted")
    said = sorted(await rig.mailbox.messages.list(), key=lambda message: message.seq)
    assert [message.text for message in said] == ["look", "what is it?"]


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "inbox/../../secret",
        "/etc/passwd",
        "inbox/",
        "inbox/.",
        "inbox/..",
        "inbox/deep/file",
        "inbox/link",
        "notes.txt",
        "inbox/none",
        "inbox\\x",
    ],
)
async def test_only_an_uploaded_file_can_be_said(rig: ApiFixture, path: str) -> None:
    inbox = workspace(rig) / "inbox"
    (inbox / "deep").mkdir(parents=True)
    (inbox / "deep" / "file").write_text("x")
    (inbox.parent / "notes.txt").write_text("x")
    (inbox.parent.parent / "secret").write_text("x")
    (inbox / "link").symlink_to(inbox.parent.parent / "secret")
    browser = Browser(rig)
    await browser.sign_in("uwe")
    async with browser.socket(conversation="uwe") as socket:
        await frame(socket, "welcome")
        files = [{"path": path, "name": "x"}]
        await socket.send_json({"type": "say", "id": "s1", "text": "x", "files": files})
        problem = (await frame(socket, "error"))["problem"]
        assert (problem["code"], problem["field"]) == ("bad_request", "files")
    assert await rig.mailbox.messages.list() == []


async def test_too_much_is_refused_and_leaves_nothing(rig: ApiFixture) -> None:
    browser = Browser(rig)
    await browser.sign_in("uwe")

    async def pieces():  # type: ignore[no-untyped-def]  # an async generator of bytes
        for _ in range(5):
            yield b"x" * 50_000

    answers = [
        await send(browser, "big", b"x" * 200_001),
        await browser.call("POST", "/web/uploads?agent=main&name=big", data=pieces()),  # type: ignore[no-untyped-call]  # as above
    ]
    for status, document, _ in answers:
        assert (status, document["code"]) == (413, "too_large")
    assert (await send(browser, "fits", b"x" * 200_000))[0] == 201
    assert [file.name[11:] for file in (workspace(rig) / "inbox").iterdir()] == ["fits"]
    viewer = Browser(rig)
    await viewer.sign_in("vera")
    assert (await send(viewer, "x", b"x"))[0] == 403
    assert (await send(browser, "x", b"x", agent="ghost"))[0] == 404
    for name in ("", "x" * 501):
        assert (await send(browser, name, b"x"))[0] == 400
    rig.control.is_draining = True
    assert (await send(browser, "x", b"x"))[0] == 503


async def test_what_a_person_keeps_in_an_inbox_is_bounded(rig: ApiFixture) -> None:
    browser, other = Browser(rig), Browser(rig)
    await browser.sign_in("uwe")
    await other.sign_in("otto")
    for name in ("a", "b"):
        assert (await send(browser, name, b"x" * 180_000))[0] == 201
    status, document, _ = await send(browser, "c", b"x" * 60_000)
    assert (status, document["code"], document["files"]) == (413, "quota_exceeded", 2)
    assert "remove" in document["detail"]
    assert (await send(other, "c", b"x" * 60_000))[0] == 201, "each person has a share"
    assert (await send(browser, "c", b"x" * 60_000, agent="Scout"))[0] == 201, "with each agent"
    assert len([*(workspace(rig) / "inbox").iterdir()]) == 3, "nothing was lost, nothing left half"
    next(workspace(rig).glob("inbox/*a")).unlink()
    for name in ("d", "e", "f"):
        assert (await send(browser, name, b"x"))[0] == 201
    assert (await send(browser, "g", b"x"))[1]["code"] == "quota_exceeded", "four files"


async def test_an_inbox_that_leads_elsewhere_is_set_aside(rig: ApiFixture, tmp_path: Path) -> None:
    workspace(rig).mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (workspace(rig) / "inbox").symlink_to(tmp_path / "elsewhere")
    browser = Browser(rig)
    await browser.sign_in("uwe")
    status, document, _ = await send(browser, "x", b"x")
    assert status == 201
    assert (workspace(rig) / document["path"]).read_bytes() == b"x"
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert (workspace(rig) / "inbox.set-aside-1").is_symlink()


async def test_what_an_agent_sent_comes_out_by_its_number(rig: ApiFixture) -> None:
    at = workspace(rig)
    at.mkdir(parents=True)
    (at / "page.html").write_text("<script>alert(1)</script>")
    (at / "pic.png").write_bytes(PIXEL)
    html, picture, gone = await deliver(
        rig, ("page.html", 'a"b\nü.html'), ("pic.png", "pic.png"), ("none.txt", "none.txt")
    )
    browser = Browser(rig)
    await browser.sign_in("uwe")
    status, data, headers = await browser.call("GET", f"/web/files/{html}")
    assert (status, data) == (200, b"<script>alert(1)</script>")
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["Content-Disposition"] == (
        "attachment; filename=\"a_b__.html\"; filename*=UTF-8''a%22b%0A%C3%BC.html"
    )
    assert "sandbox" in headers["Content-Security-Policy"]
    assert (await browser.call("GET", f"/web/files/{picture}"))[2]["Content-Type"] == "image/png"
    assert (await browser.call("GET", f"/web/files/{gone}"))[0] == 410
    for number in ("0", "999", "x", "-1", "1e3", "9" * 30):
        assert (await browser.call("GET", f"/web/files/{number}"))[0] == 404
    stranger = Browser(rig)
    await stranger.sign_in("ute")
    assert (await stranger.call("GET", f"/web/files/{html}"))[0] == 403
    assert (await Browser(rig).call("GET", f"/web/files/{html}"))[0] == 401


async def test_nothing_outside_the_workspace_comes_out(rig: ApiFixture, tmp_path: Path) -> None:
    at = workspace(rig)
    at.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (at / "link").symlink_to(secret)
    (at / "folder").mkdir()
    numbers = await deliver(
        rig,
        ("../../../secret", "a"),
        (str(secret), "b"),
        ("link", "c"),
        ("folder", "d"),
        ("x\0y", "e"),
    )
    browser = Browser(rig)
    await browser.sign_in("otto")
    for number in numbers:
        status, document, _ = await browser.call("GET", f"/web/files/{number}")
        assert (status, document["code"]) == (410, "gone")


@pytest.mark.parametrize(
    "path",
    [
        "/page/../access.py",
        "/page/..%2faccess.py",
        "/page/%2e%2e/access.py",
        "/page/%2e%2e%2faccess.py",
        "/page/..%5caccess.py",
        "/page//etc/passwd",
        "/page/index.html%00.js",
        "/page/INDEX.HTML",
        "/page/",
        "/page/.",
        "/page/__init__.py",
    ],
)
async def test_the_page_has_exact_names_only(rig: ApiFixture, path: str) -> None:
    """By a raw request: clients tidy such paths up before they send them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.server.port)
    try:
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{rig.server.port}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        answer = await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert int(head.split()[1]) in (400, 401, 404), head
    assert b"import" not in body


async def test_what_somebody_else_has_uploaded_can_t_be_said(rig: ApiFixture) -> None:
    """Names in the inbox can be guessed; a message with the file would let its sender read it."""
    ute, uwe = Browser(rig), Browser(rig)
    await ute.sign_in("ute")
    await uwe.sign_in("uwe")
    _, document, _ = await send(ute, "picture.png", PIXEL)
    chat = workspace(rig) / "inbox" / "from-a-chat.txt"
    chat.write_text("of somebody on Telegram")
    for path in (document["path"], "inbox/from-a-chat.txt"):
        async with uwe.socket(conversation="uwe") as socket:
            await frame(socket, "welcome")
            files = [{"path": path, "name": "x"}]
            await socket.send_json({"type": "say", "id": path, "text": "", "files": files})
            refused = await frame(socket, "error")
            assert refused["problem"]["code"] == "bad_request"


async def test_halves_of_a_killed_life_go_and_nothing_else(rig: ApiFixture, tmp_path: Path) -> None:
    browser = Browser(rig)
    await browser.sign_in("uwe")
    status, kept, _ = await send(browser, "whole.txt", b"whole")
    assert status == 201
    inbox = workspace(rig) / "inbox"
    (inbox / ".agentsup-web-half").write_bytes(b"ha")
    (inbox / ".agentsup-telegram-a-half").write_bytes(b"ha")
    (inbox / ".agentsup-web-folder").mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ".agentsup-web-precious").write_bytes(b"precious")
    (inbox / ".agentsup-web-link").symlink_to(outside / ".agentsup-web-precious")
    workspace(rig, "Scout").mkdir(parents=True)
    (workspace(rig, "Scout") / "inbox").symlink_to(outside)
    next_life = ApiServer(rig.deps, port=0)
    await next_life.start()
    try:
        for name in rig.deps.directory.names():
            await next_life._app[API].sweeps.over(name)
    finally:
        await next_life.close()
    assert sorted(each.name for each in inbox.iterdir()) == sorted(
        [
            ".agentsup-telegram-a-half",
            ".agentsup-web-folder",
            ".agentsup-web-link",
            kept["path"].removeprefix("inbox/"),
        ]
    )
    assert [each.name for each in outside.iterdir()] == [".agentsup-web-precious"]
