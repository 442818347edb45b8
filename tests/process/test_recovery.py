"""Failures end to end: a real daemon, a model behind HTTP that fails as providers do, a chat, kills."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.model_server import Asked, Call, ModelServer, Reply, without_time
from tests.support.preloaded_process import WITH_MODEL


class Provider:
    """A model ``big`` that fails as the person's text says, and ``small``, which is well."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def times(self, text: str) -> int:
        """How often ``big`` was asked about it."""
        return self.asked.count(("big", text))

    def __call__(self, asked: Asked) -> Reply:
        model = str(asked.body["model"])
        texts = [without_time(str(m["content"])) for m in asked.messages if m["role"] == "user"]
        text, last = texts[-1], asked.messages[-1]
        self.asked.append((model, text))
        if model != "big":
            return Reply(f"{model} about {text}")
        match text.split():
            case ["wait", *_] if self.times(text) == 1:
                return Reply(status=429, headers=(("retry-after", "3"),))
            case ["later", *_]:
                return Reply(status=429, headers=(("retry-after", "600"),))
            case ["twice", *_] if self.times(text) <= 2:
                return Reply(status=500)
            case ["cut", *_] if self.times(text) == 1:
                return Reply(("half ", "of it"), cut_after=1)
            case ["always", *_]:
                return Reply(status=503)
            case ["money", *_]:
                return Reply(status=402)
            case ["nomodel", *_]:
                return Reply(status=404)
            case ["steps", *_]:
                return Reply(calls=(Call("list_agents", {}),))
        if text.startswith("You have reached the limit"):
            return Reply("nothing but a list" if "tools" not in asked.body else "tools?")
        if last["role"] == "tool":
            return Reply("done")
        return Reply(f"big about {text}")


@pytest.fixture
async def provider() -> Provider:
    return Provider()


@pytest.fixture
async def server(provider: Provider) -> AsyncIterator[ModelServer]:
    async with ModelServer(provider) as running:
        yield running


def entries(server: ModelServer, **more: Any) -> list[dict[str, Any]]:
    options = {"base_url": server.base_url, "api_key": "sk-loopback-0123456789"}
    entry = {"engine": "llm", "model": "big", "engine_options": options, "max_steps": 3, **more}
    return [{"name": "main", **entry}]


@pytest.mark.timeout(180)
async def test_kills_between_attempts_add_none(
    tmp_path: Path, server: ModelServer, provider: Provider
) -> None:
    home = write_home(tmp_path / "home", entries(server))
    die = {"AGENTSUP_FAULT": "turn.attempt_failed:1"}
    async with DaemonProcess(home, env=die, loaded=WITH_MODEL) as daemon:
        chat = await daemon.chat()
        message_id = await chat.say("always down")
        await daemon.ended()
        await daemon.start()
        await daemon.ended()
        await daemon.start(AGENTSUP_FAULT="")
        chat = await daemon.chat()
        ended = await chat.event(message_id, "notice", timeout_s=40)
        assert "does not answer at the moment" in ended["text"], "the person's sentence"
        assert provider.times("always down") == 4
        (dead,) = (await daemon.get("/dead"))["dead"]
        assert dead["id"] == message_id
        assert "4 attempts failed" in dead["error"], "the operator's sentence"


@pytest.mark.timeout(180)
async def test_a_kill_before_the_last_request_costs_no_answer(
    tmp_path: Path, server: ModelServer, provider: Provider
) -> None:
    home = write_home(tmp_path / "home", entries(server))
    die = {"AGENTSUP_FAULT": "turn.nudged:1"}
    async with DaemonProcess(home, env=die, loaded=WITH_MODEL) as daemon:
        message_id = await (await daemon.chat()).say("steps forever")
        await daemon.ended()
        await daemon.start(AGENTSUP_FAULT="")
        answer = await (await daemon.chat()).event(message_id, timeout_s=30)
        assert answer["text"].startswith("nothing but a list")
        assert server.violations == []


@pytest.mark.timeout(180)
async def test_a_wait_is_told_once_though_killed_before_it_is_sent(
    tmp_path: Path, server: ModelServer, provider: Provider
) -> None:
    home = write_home(tmp_path / "home", entries(server))
    die = {"AGENTSUP_FAULT": "turn.attempt_failed:1"}
    async with DaemonProcess(home, env=die, loaded=WITH_MODEL) as daemon:
        message_id = await (await daemon.chat()).say("later please")
        await daemon.ended()
        await daemon.start(AGENTSUP_FAULT="")
        chat = await daemon.chat()
        before = [event["data"] for event in chat.frames[0]["history"][1:]]
        before = [each for each in before if "stood still" not in each["text"]]  # a slow machine
        told = before[0] if before else await chat.event(message_id, "notice", timeout_s=BOUND_S)
        assert "takes no more requests for now (llm at 127.0.0.1" in told["text"]
        assert "in about 10 min" in told["text"]
        daemon.kill()
        await daemon.ended()
        await daemon.start()
        chat = await daemon.chat()
        assert (await chat.command("/stop"))["ok"]
        (stopped,) = (await daemon.get("/messages"))["messages"]
        assert stopped["state"] == "cancelled"
        with closing(sqlite3.connect(home / "state.db")) as store:
            rows = store.execute("SELECT count(*) FROM outbox WHERE body LIKE '%tried again%'")
            assert rows.fetchone() == (1,)
        assert provider.times("later please") == 1
