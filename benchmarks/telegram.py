"""Telegram: what fifty bots cost, whether adding them holds up the loop, what a bot adds to an
answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp

from agentsup.channels.telegram.messages import ReceiveLimits
from agentsup.fakes.telegram import TelegramDriver
from agentsup.kit.lag import LagProbe
from benchmarks.daemon_fixture import household, write_home
from benchmarks.figure import BenchContext, Figure, median, percentile
from benchmarks.peers import RULES
from benchmarks.process import Process
from tests.support.telegram_process import FakeTelegramProcess

BOTS, MORE_BOTS = 50, 150
"""The memory of one more is the difference between both, by the number of those between."""
CHATS = 40
"""One text each, so that no limit of a chat is met."""
_BARE = 7900


@asynccontextmanager
async def _town(folder: Path) -> AsyncIterator[tuple[FakeTelegramProcess, TelegramDriver]]:
    async with FakeTelegramProcess(folder) as fake, TelegramDriver(fake.url) as people:
        yield fake, people


def _token(number: int) -> str:
    return f"{number}:AAF{'b' * 20}{number}"


def _entry(number: int, url: str, people: list[int]) -> dict[str, Any]:
    return {
        "name": f"agent-{number}",
        "engine": "scripted",
        "engine_options": {"script": "file:rules.yaml"},
        "telegram_token": _token(7000 + number),
        "telegram_base_url": url,
        "allowed_user_ids": people,
    }


async def measure(boot_context: BenchContext) -> list[Figure]:
    """Four daemons, one fake."""
    bots, more = boot_context.size(BOTS, 2), boot_context.size(MORE_BOTS, 4)
    async with boot_context.fresh("telegram") as folder, _town(folder / "fake") as (fake, people):
        for number in range(more):
            await people.add_bot(_token(7000 + number), username=f"agent{number}_bot")
        entries = [_entry(number, fake.url, [1]) for number in range(more)]
        rss_mib = await _rss_mib(boot_context, folder / "idle", entries[:bots])
        more_mib = await _rss_mib(boot_context, folder / "more", entries)
        stall = await _added(folder / "added", entries[:bots])
        trip = await _round_trip(boot_context, folder / "trip", fake.url, people)
    return [
        Figure("50 idle Telegram agents, memory", rss_mib, "MiB", 85),
        Figure(
            "one more idle Telegram agent, memory",
            (more_mib - rss_mib) * 1024 / (more - bots),
            "KiB",
            250,
            note=f"{more} agents less {bots}, the same daemon",
        ),
        *stall,
        trip,
    ]


async def _rss_mib(boot_context: BenchContext, home: Path, entries: list[dict[str, Any]]) -> float:
    write_home(home, entries, RULES)
    process = Process(home)
    try:
        await process.ready()
        await _all_up(process, len(entries))
        await asyncio.sleep(0.1 if boot_context.tiny else 3.0)
        return process.rss_mib()
    finally:
        await process.end()


async def _all_up(process: Process, count: int) -> None:
    async with asyncio.timeout(60):
        while True:
            views = (await process.json("/agents"))["agents"]
            named = [view for view in views if view["name"] != "main"]
            if len(named) == count and all(
                view["status"] == "running" and not view["warnings"] for view in named
            ):
                return
            await asyncio.sleep(0.05)


async def _added(folder: Path, entries: list[dict[str, Any]]) -> list[Figure]:
    """All of them by one save, into a daemon that has no bot yet."""
    async with household(folder / "home", [], files=RULES) as home:
        probe = LagProbe(0.005, watches_from_thread=False)
        watching = asyncio.ensure_future(probe.run())
        await asyncio.sleep(0.2)
        began_s = perf_counter()
        new = home.home / "agents.new"
        new.write_text(json.dumps(entries), encoding="utf-8")
        new.replace(home.home / "agents.json")
        async with asyncio.timeout(60):
            while True:
                views = [view for view in await home.daemon.control.agents() if not view.is_main]
                if len(views) == len(entries) and all(
                    view.status == "running" and not view.warnings for view in views
                ):
                    break
                await asyncio.sleep(0.05)
        took_s = perf_counter() - began_s
        worst_ms = probe.stats().max_s * 1_000
        watching.cancel()
        await asyncio.wait({watching})
    return [
        Figure(
            "50 bots added at once, longest stall",
            worst_ms,
            "ms",
            50,
            note=f"all connected after {took_s:.1f} s",
        )
    ]


async def _round_trip(
    boot_context: BenchContext, home: Path, url: str, people: TelegramDriver
) -> Figure:
    """A person's text until the answer is in the chat, beside a bot of ten lines."""
    chats = boot_context.size(CHATS, 2)
    users = [await people.user(f"P{number}") for number in range(chats)]
    bot = await people.add_bot(_token(7800), username="trip_bot")
    entry = _entry(800, url, users)
    write_home(home, [entry], RULES)
    process = Process(home)
    try:
        await process.ready()
        await _all_up(process, 1)
        ours_ms = [await _one(people, user, bot) for user in users]
    finally:
        await process.end()
    bare = await people.add_bot(_token(_BARE), username="bare_bot")
    answering = asyncio.ensure_future(_bare_bot(url, _token(_BARE)))
    try:
        bare_ms = [await _one(people, user, bare) for user in users]
    finally:
        answering.cancel()
        await asyncio.wait({answering})
    waits_ms = ReceiveLimits().comment_s * 1_000
    added_ms = median(ours_ms) - median(bare_ms) - waits_ms
    return Figure(
        "message in, answer out, added",
        added_ms,
        "ms",
        15,
        raw=median(bare_ms),
        raw_is="a bot of ten lines, the whole trip",
        note=f"whole trip p50 {median(ours_ms):.1f}, p99 {percentile(ours_ms, 0.99):.1f} ms, of"
        f" which {waits_ms:.0f} ms wait for messages forwarded with the text",
    )


async def _one(people: TelegramDriver, user: int, bot: int) -> float:
    chat = await people.private(user, bot)
    began_s = perf_counter()
    said = await people.say(chat, "hello")
    await people.wait_text(chat, "ok", after=said)
    return (perf_counter() - began_s) * 1_000


async def _bare_bot(url: str, token: str) -> None:
    """Answers everything and keeps nothing."""
    offset = 0
    async with aiohttp.ClientSession(f"{url}/bot{token}/") as http:
        while True:
            query = {"offset": offset, "timeout": 20}
            async with http.post("getUpdates", json=query) as response:
                updates = (await response.json())["result"]
            for update in updates:
                offset = update["update_id"] + 1
                answer = {"chat_id": update["message"]["chat"]["id"], "text": "ok"}
                async with http.post("sendMessage", json=answer) as response:
                    await response.read()
