"""Handing work on with models behind HTTP, which count what is paid: circles, and a kill in a
fan-out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.model_server import Asked, Call, ModelServer, Reply

NAMES = ("main", "ben", "cat", "dan")


_asked_at: list[float] = []
"""When each of several was asked, by the loop's clock."""


def who(asked: Asked) -> str:
    """Whose request it is, by its instructions."""
    head = str(asked.messages[0])
    return next(name for name in NAMES if f"You are {name}" in head)


def model(asked: Asked) -> Reply:
    """Main hands parts to its team; in a circle each hands on to the next."""
    last, name = asked.messages[-1], who(asked)
    said = str(last["content"])
    if last["role"] == "tool":
        return Reply(f"heard: {said}")
    if "each" in said:
        if name == "main":
            asks = ({"to": to, "message": "each"} for to in NAMES[1:])
            return Reply(calls=tuple(Call("ask_agent", args) for args in asks))
        _asked_at.append(asyncio.get_running_loop().time())
        return Reply((f"{name} ", "is ", "done"), every_s=1.5)
    if "circle" in said:
        to = {"main": "ben", "ben": "cat", "cat": "main"}[name]
        return Reply(calls=(Call("delegate_task", {"prompt": "circle", "agent": to}),))
    if name == "main":
        return Reply(calls=(Call("dispatch_team", {"team": "red", "prompt": "your part"}),))
    if name in ("ben", "dan"):
        return Reply(f"{name} is done")
    return Reply(("cat ", "is ", "done"), every_s=1.0)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer(model) as running:
        yield running


@pytest.fixture
async def daemon(tmp_path: Path, server: ModelServer) -> AsyncIterator[DaemonProcess]:
    options = {"base_url": server.base_url, "api_key": "sk-loopback-0123456789abcdef"}
    entry = {"engine": "llm", "model": "loopback-1", "engine_options": options}
    main = {"name": "main", "tools": ["delegate_task", "dispatch_team", "ask_agent"], **entry}
    team = [{"name": n, "team": "red" if n != "dan" else "blue", **entry} for n in NAMES[1:]]
    async with DaemonProcess(write_home(tmp_path / "home", [main, *team])) as running:
        yield running


@pytest.mark.timeout(180)
async def test_what_one_message_asks_of_several_is_asked_at_once(
    daemon: DaemonProcess, server: ModelServer
) -> None:
    chat = await daemon.chat()
    _asked_at.clear()
    answer = await chat.ask("each", timeout_s=BOUND_S)
    assert "dan is done" in answer
    results = [m for m in server.asked[-1].messages if m["role"] == "tool"]
    assert [str(m["content"]) for m in results] == [f"{name} is done" for name in NAMES[1:]]
    assert max(_asked_at) - min(_asked_at) < 2.9, "each takes three seconds"
    assert server.violations == []


@pytest.mark.timeout(180)
async def test_a_kill_in_a_fan_out_pays_no_finished_part_again(
    daemon: DaemonProcess, server: ModelServer
) -> None:
    chat = await daemon.chat()
    message_id = await chat.say("go")

    def states() -> list[str]:
        rows = daemon.sql("SELECT state FROM messages WHERE kind = 'task' ORDER BY state")
        return [row["state"] for row in rows]

    async with asyncio.timeout(BOUND_S), aclosing(daemon.events()) as events:
        async for _ in events:
            if states() == ["done", "leased"]:
                break
    await server.wait_asked(3)
    daemon.kill()
    await daemon.ended()
    await daemon.start()
    again = await daemon.chat()
    answer = (await again.event(message_id))["text"]
    assert "ben is done" in answer
    assert "cat is done" in answer
    asked = Counter(map(who, server.asked))
    assert asked["ben"] == 1
    assert asked["cat"] == 2, "its first request was cut off by the kill"
    assert len(daemon.sql("SELECT run_id FROM runs")) == 2
    assert server.violations == []
