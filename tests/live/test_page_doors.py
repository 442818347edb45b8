"""The page's doors in a real browser: it gets in by a link; foreign pages in it, and servers on other
ports of the host, get nothing (P7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from multidict import CIMultiDictProxy
from playwright.async_api import Page, expect

from tests.live.browser import Browsing
from tests.live.page_fixture import log, say, theirs
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home

RULES = [{"match": "(.+)", "steps": [{"say": "you said $1"}]}]

ENTER = """async code => {
    const response = await fetch("/web/login", {
        method: "POST",
        headers: {"Content-Type": "application/json"},
        body: JSON.stringify({code}),
    });
    const {secret} = await response.json();
    if (secret) localStorage.setItem("agentsup:secret", JSON.stringify(secret));
    return [response.status, document.cookie];
}"""
SESSION = """async () => {
    const headers = {Authorization: `Bearer ${JSON.parse(localStorage.getItem("agentsup:secret"))}`};
    const response = await fetch("/web/session", {headers});
    return [response.status, (await response.json()).who ?? null];
}"""
CHAT = """async () => new Promise((resolve, reject) => {
    const offered = ["agentsup", `bearer.${JSON.parse(localStorage.getItem("agentsup:secret"))}`];
    const socket = new WebSocket(location.origin.replace("http", "ws") + "/ws", offered);
    socket.onopen = () => socket.send(JSON.stringify(
        {type: "hello", agent: "main", channel: "web", conversation: "local"}));
    socket.onerror = () => reject(new Error("refused"));
    socket.onmessage = message => {
        const frame = JSON.parse(message.data);
        if (frame.type === "welcome")
            socket.send(JSON.stringify({type: "say", id: "1", text: "hello"}));
        if (frame.type === "event" && frame.event.type === "chat.out") {
            socket.close();
            resolve(frame.event.data.text);
        }
    };
})"""
EVENT = """async () => {
    const headers = {Authorization: `Bearer ${JSON.parse(localStorage.getItem("agentsup:secret"))}`};
    const stream = await fetch("/events?types=agent.state", {headers});
    await fetch("/agents/ann/stop", {method: "POST", headers});
    const reader = stream.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    while (!/^data:.*\\n/m.test(text)) text += (await reader.read()).value;
    await reader.cancel();
    return JSON.parse(/^data: (.*)$/m.exec(text)[1]).agent;
}"""
ATTACK = """async target => {
    const told = {};
    const attempt = async (name, work) => {
        try { told[name] = await work(); } catch (error) { told[name] = "refused"; }
    };
    const json = {"Content-Type": "application/json"};
    await attempt("read", async () =>
        (await fetch(target + "/agents", {credentials: "include"})).status);
    await attempt("stop", async () => (await fetch(target + "/agents/ann/stop",
        {method: "POST", credentials: "include", mode: "no-cors"})).type);
    await attempt("stop with json", async () => (await fetch(target + "/stop_all",
        {method: "POST", credentials: "include", headers: json, body: "{}"})).status);
    await attempt("login", async () => (await fetch(target + "/web/login",
        {method: "POST", credentials: "include", mode: "no-cors", body: "{}"})).type);
    await attempt("socket", () => new Promise((resolve, reject) => {
        const socket = new WebSocket(target.replace("http", "ws") + "/ws");
        socket.onopen = () => resolve("open");
        socket.onerror = () => reject(new Error());
    }));
    await attempt("events", () => new Promise((resolve, reject) => {
        const source = new EventSource(target + "/events", {withCredentials: true});
        source.onopen = () => { source.close(); resolve("open"); };
        source.onerror = () => { source.close(); reject(new Error()); };
    }));
    for (const [name, tag, path] of [["script", "script", "/agents"], ["image", "img", "/status"]])
        await attempt(name, () => new Promise((resolve, reject) => {
            const element = document.createElement(tag);
            element.onload = () => resolve("loaded");
            element.onerror = () => reject(new Error());
            element.src = target + path;
            document.body.append(element);
        }));
    return told;
}"""


@asynccontextmanager
async def foreign_page(
    heard: list[CIMultiDictProxy[str]] | None = None,
    tossed: Mapping[str, str] | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
) -> AsyncIterator[str]:
    """Another server of this machine: the same site to a cookie, another origin to us. It notes in
    ``heard`` what browsers send, and sets the cookies ``tossed``."""

    async def serve(request: web.Request) -> web.Response:
        if heard is not None:
            heard.append(request.headers)
        response = web.Response(
            text="<!doctype html><title>elsewhere</title><body></body>", content_type="text/html"
        )
        for name, value in (tossed or {}).items():
            response.set_cookie(name, value)
        return response

    app = web.Application()
    app.router.add_get("/{path:.*}", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[DaemonProcess]:
    people = '[people.uwe]\nrole = "user"\n'
    home = write_home(folder / "home", [{"name": "main"}, {"name": "ann"}], RULES, people)
    async with DaemonProcess(home) as daemon:
        yield daemon


async def enter(page: Page, daemon: DaemonProcess) -> str:
    """Sign the browser in without the page's own code; the link's code."""
    code = str((await daemon.post("/web/links")).body["code"])
    await page.goto(f"{daemon.url}/page/icon.svg")
    status, shown = await page.evaluate(ENTER, code)
    assert (status, shown) == (200, ""), "a cookie goes to every port"
    return code


async def test_a_browser_gets_in_by_a_link_and_works(browsing: Browsing, tmp_path: Path) -> None:
    async with running(tmp_path) as daemon:
        page = await browsing.page()
        code = await enter(page, daemon)
        assert await page.evaluate(SESSION) == [200, "operator"]
        assert await page.evaluate(CHAT) == "you said hello"
        assert await page.evaluate(EVENT) == "ann"
        assert await page.context.cookies() == []
        other = await browsing.page()
        await other.goto(f"{daemon.url}/page/icon.svg")
        assert (await other.evaluate(ENTER, code))[0] == 401
        assert (await other.evaluate(SESSION))[0] == 401
        browsing.forgive()  # the refusals of the second browser, which it logs


async def test_a_foreign_page_in_the_same_browser_gets_nothing(
    browsing: Browsing, tmp_path: Path
) -> None:
    async with running(tmp_path) as daemon, foreign_page() as foreign:
        page = await browsing.page()
        await enter(page, daemon)
        told: dict[str, Any] = {}
        evil = await page.context.new_page()
        for origin in (foreign, foreign.replace("127.0.0.1", "localhost")):
            await evil.goto(origin)
            told = await evil.evaluate(ATTACK, daemon.url)
            # "opaque" is all that a page learns of a request it may send blindly.
            assert set(told.values()) <= {"refused", "opaque"}, told
        states = {one["name"]: one["desired"] for one in (await daemon.get("/agents"))["agents"]}
        assert states == {"main": "up", "ann": "up"}
        await evil.evaluate(
            """target => new Promise(resolve => {
                const frame = document.createElement("iframe");
                frame.onload = () => resolve();
                frame.src = target + "/";
                document.body.append(frame);
            })""",
            daemon.url,
        )
        # The browser tells of the frame's address a little later.
        async with asyncio.timeout(BOUND_S):
            while [each.url.partition(":")[0] for each in evil.frames] != ["http", "chrome-error"]:
                await asyncio.sleep(0.05)
        # A name that somebody points at this machine.
        answer = await evil.goto(daemon.url.replace("127.0.0.1", "evil.localhost") + "/")
        assert answer is not None
        assert answer.status == 403
        assert await page.evaluate(SESSION) == [200, "operator"]
        browsing.forgive()  # what the browser says of each refusal


async def test_a_server_on_another_port_of_the_host_holds_nothing_that_opens(
    browsing: Browsing, tmp_path: Path
) -> None:
    """An agent's program serves a report; the person who is signed in opens it."""
    heard: list[CIMultiDictProxy[str]] = []
    async with running(tmp_path) as daemon, foreign_page(heard) as foreign:
        page = await browsing.page()
        await page.goto(str((await daemon.post("/web/links")).body["url"]))
        await expect(log(page)).to_be_visible()
        report = await page.context.new_page()
        await report.goto(foreign)
        kept = "() => [document.cookie, ...Object.values(localStorage), window.opener]"
        assert await report.evaluate(kept) == ["", None]
        assert heard
        async with aiohttp.ClientSession() as http:
            for headers in heard:
                # All that it was sent, as if it came from the page.
                sent = {**headers, "Host": daemon.url.removeprefix("http://"), "Origin": daemon.url}
                for method, path in (("GET", "/web/session"), ("POST", "/web/links")):
                    async with http.request(method, daemon.url + path, headers=sent) as response:
                        assert response.status == 401, await response.text()
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await http.ws_connect(f"{daemon.url}/ws", headers=sent)
                assert refused.value.status == 401
        await page.context.close()


async def test_a_server_on_another_port_puts_no_session_into_the_page(
    browsing: Browsing, tmp_path: Path
) -> None:
    """It sets what it has of its own sign-in as cookies: the page goes on as who it was."""
    tossed: dict[str, str] = {}
    async with running(tmp_path) as daemon, foreign_page(tossed=tossed) as foreign:
        code = (await daemon.post("/web/links", {"person": "uwe"})).body["code"]
        login, headers = f"{daemon.url}/web/login", {"Origin": daemon.url}
        async with (
            aiohttp.ClientSession() as http,
            http.post(login, json={"code": code}, headers=headers) as response,
        ):
            tossed.update({name: morsel.value for name, morsel in response.cookies.items()})
            secret = (await response.json()).get("secret", "")
            tossed.update(dict.fromkeys(("agentsup", "agentsup:secret", "session"), secret))
        page = await browsing.page()
        await page.goto(str((await daemon.post("/web/links")).body["url"]))
        await expect(page.locator("#who")).to_have_text("operator")
        report = await page.context.new_page()
        await report.goto(foreign)
        assert len(await page.context.cookies()) == len(tossed)
        await report.evaluate(
            "v => localStorage.setItem('agentsup:secret', JSON.stringify(v))", secret
        )
        for _ in range(2):
            await say(page, "who am I")
            await expect(theirs(page, "you said who am I").last).to_be_visible()
            await page.reload()
            await expect(page.locator("#who")).to_have_text("operator")
        people = {row["person"] for row in daemon.sql("SELECT person FROM messages")}
        assert "uwe" not in people
        await page.context.close()


async def test_a_server_at_the_same_port_of_the_other_loopback_gets_nothing(
    browsing: Browsing, tmp_path: Path
) -> None:
    """``localhost`` is [::1] first to a browser, where an agent's program may listen."""
    heard: list[CIMultiDictProxy[str]] = []
    async with running(tmp_path) as daemon:
        port = int(daemon.url.rpartition(":")[2])
        page = await browsing.page()
        link = str((await daemon.post("/web/links")).body["url"])
        await page.goto(link.replace("127.0.0.1", "localhost"))
        await expect(log(page)).to_be_visible()
        assert page.url.startswith(daemon.url), "who signs in does so at the daemon's own address"
        async with foreign_page(heard, host="::1", port=port):
            # The same profile without the connections that it keeps.
            other = await browsing.page(storage_state=await page.context.storage_state())
            await other.goto(f"http://localhost:{port}/")
            assert await other.title() == "elsewhere", "the browser did not come here"
            assert await other.evaluate("() => Object.values(localStorage)") == []
            await other.context.close()
        assert heard
        assert not any(each.get("Authorization") for each in heard)
        assert await page.evaluate(SESSION) == [200, "operator"]
        await page.context.close()
        browsing.forgive()


async def test_who_has_the_old_port_is_sent_nothing_that_opens(
    browsing: Browsing, tmp_path: Path
) -> None:
    """An open tab goes on to call the port that it was opened at."""
    heard: list[CIMultiDictProxy[str]] = []
    async with running(tmp_path) as daemon:
        former = daemon.url
        page = await browsing.page()
        await page.goto(str((await daemon.post("/web/links")).body["url"]))
        await expect(log(page)).to_be_visible()
        secret = await page.evaluate(
            """() => JSON.parse(localStorage.getItem("agentsup:secret"))"""
        )
    async with (
        foreign_page(heard, port=int(former.rpartition(":")[2])),
        DaemonProcess(tmp_path / "home") as daemon,
        aiohttp.ClientSession() as http,
    ):
        async with asyncio.timeout(BOUND_S):
            while not any(secret in str(each) for each in heard):
                await asyncio.sleep(0.05)
        shown = {"Authorization": f"Bearer {secret}"}
        for url, status in ((daemon.url, 401), (former, 403)):
            host = url.removeprefix("http://")
            for path in ("/web/session", "/agents"):
                async with http.get(daemon.url + path, headers={**shown, "Host": host}) as answer:
                    assert answer.status in (401, status), (url, path)
        await page.context.close()
        browsing.forgive()  # what the browser says of the daemon that left
