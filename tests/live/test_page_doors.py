"""The page's doors in a real browser: it gets in by a link, and a foreign page in it gets nothing (P7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from agentsup.testing.daemon_process import DaemonProcess, write_home
from tests.live.browser import Browsing, Page

RULES = [{"match": "(.+)", "steps": [{"say": "you said $1"}]}]

ENTER = """async code => {
    const response = await fetch("/web/login", {
        method: "POST",
        headers: {"Content-Type": "application/json"},
        body: JSON.stringify({code}),
    });
    return [response.status, document.cookie];
}"""
SESSION = """async () => {
    const response = await fetch("/web/session");
    return [response.status, (await response.json()).who ?? null];
}"""
CHAT = """async () => new Promise((resolve, reject) => {
    const socket = new WebSocket(location.origin.replace("http", "ws") + "/ws");
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
EVENT = """async () => new Promise((resolve, reject) => {
    const source = new EventSource("/events?types=agent.state");
    source.onmessage = event => {
        source.close();
        resolve(JSON.parse(event.data).agent);
    };
    source.onerror = () => reject(new Error("refused"));
    source.onopen = () => fetch("/agents/ann/stop", {method: "POST"});
})"""
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
async def foreign_page() -> AsyncIterator[str]:
    """Another server of this machine: the same site to a cookie, another origin to us."""

    async def serve(_: web.Request) -> web.Response:
        return web.Response(
            text="<!doctype html><title>elsewhere</title><body></body>", content_type="text/html"
        )

    app = web.Application()
    app.router.add_get("/{path:.*}", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[DaemonProcess]:
    home = write_home(folder / "home", [{"name": "main"}, {"name": "ann"}], RULES)
    async with DaemonProcess(home) as daemon:
        yield daemon


async def enter(page: Page, daemon: DaemonProcess) -> str:
    """Sign the browser in without the page's own code; the link's code."""
    code = str((await daemon.post("/web/links")).body["code"])
    await page.goto(f"{daemon.url}/page/icon.svg")
    status, shown = await page.evaluate(ENTER, code)
    assert (status, shown) == (200, ""), "scripts can read the cookie"
    return code


async def test_a_browser_gets_in_by_a_link_and_works(browsing: Browsing, tmp_path: Path) -> None:
    async with running(tmp_path) as daemon:
        page = await browsing.page()
        code = await enter(page, daemon)
        assert await page.evaluate(SESSION) == [200, "operator"]
        assert await page.evaluate(CHAT) == "you said hello"
        assert await page.evaluate(EVENT) == "ann"
        (cookie,) = await page.context.cookies()
        assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Strict")
        other = await browsing.page()
        await other.goto(f"{daemon.url}/page/icon.svg")
        assert (await other.evaluate(ENTER, code))[0] == 401
        assert (await other.evaluate(SESSION))[0] == 401
        browsing.problems.clear()  # the refusals of the second browser, which it logs


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
        async with asyncio.timeout(10):  # the browser tells of the frame's address a little later
            while [each.url.partition(":")[0] for each in evil.frames] != ["http", "chrome-error"]:
                await asyncio.sleep(0.05)
        # A name that somebody points at this machine.
        answer = await evil.goto(daemon.url.replace("127.0.0.1", "evil.localhost") + "/")
        assert answer is not None
        assert answer.status == 403
        assert await page.evaluate(SESSION) == [200, "operator"]
        browsing.problems.clear()  # what the browser says of each refusal
