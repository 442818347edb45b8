"""A model that costs money: a day of a cent over HTTP, and a kill in the midst of a paid turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.model_server import Asked, Call, ModelServer, Reply

PRICES = '[prices."loopback-1"]\ninput = 10.0\noutput = 100.0\n'
"""A reply of 100 tokens in and 30 out costs 0.004 USD."""


def paid(text: str | tuple[str, ...] = (), **more: Any) -> Reply:
    return Reply(text, input_tokens=100, output_tokens=30, **more)


def home_of(path: Path, server: ModelServer, budget: dict[str, Any]) -> Path:
    options = {"base_url": server.base_url, "api_key": "sk-loopback-0123456789"}
    entry = {
        "name": "main",
        "engine": "llm",
        "model": "loopback-1",
        "engine_options": options,
        "budget": budget,
        "tools": ["list_agents"],
        "user_timezone": "Etc/GMT-14",
    }
    return write_home(path, [entry], config=PRICES)


@pytest.mark.timeout(180)
async def test_a_day_of_a_cent(tmp_path: Path) -> None:
    async with ModelServer(lambda asked: paid("hello")) as server:
        home = home_of(tmp_path / "home", server, {"per_day_usd": 0.01})
        async with DaemonProcess(home) as daemon:
            chat = await daemon.chat()
            for _ in range(2):
                assert await chat.ask("hi") == "hello"
            refused = (await daemon.result(await chat.say("hi")))["error"]
            assert "$0.008 of $0.01" in refused
            assert "budget.per_day_usd in agents.json" in refused
            assert len(server.asked) == 2, "the provider was asked for what can't be paid"
            (found,) = (await daemon.get("/cost"))["agents"]
            assert found["day"]["usd"] == pytest.approx(0.008)
            assert [(b["scope"], b["state"]) for b in found["budgets"]] == [("agent_day", "warned")]

            def was_told() -> bool:
                rows = daemon.sql("SELECT body FROM outbox WHERE message_id = ''")
                return sum("80 % of main's budget" in row["body"] for row in rows) == 1

            await comes(was_told, "nobody was warned")


@pytest.mark.timeout(180)
async def test_a_kill_in_a_paid_turn_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Three requests are paid and the fourth hangs when the daemon is killed: each paid one counts
    once, also when the turn runs again; nothing stays held."""
    asked_before: list[int] = []

    def model(asked: Asked) -> Reply:
        tools = sum(message["role"] == "tool" for message in asked.messages)
        if tools == 3 and not asked_before:
            return paid(("...", "..."), hang_after=1)
        if tools < 3:
            return paid(calls=(Call("list_agents", {}),))
        return paid("done")

    async with ModelServer(model) as server:
        home = home_of(tmp_path / "home", server, {"per_day_usd": 1.0})
        async with DaemonProcess(home) as daemon:
            chat = await daemon.chat()
            message_id = await chat.say("go")
            await comes(lambda: len(server.asked) == 4, "there is no fourth request")
            await comes(lambda: _reports(daemon) == 3, "three reports are not recorded")
            assert len(daemon.sql("SELECT * FROM budget_holds")) == 1
            daemon.kill()
            await daemon.ended()
            assert _reports(daemon) == 3
            asked_before.append(len(server.asked))
            await daemon.start()
            result = await daemon.result(message_id, wait_s=BOUND_S)
            assert result["text"].endswith("done")
            count = len(server.asked) - 1
            assert _reports(daemon) == count
            (row,) = daemon.sql(
                "SELECT sum(nano_usd) AS nano, sum(tokens) AS tokens FROM budget_spent"
            )
            assert row == {"nano": count * 4_000_000, "tokens": count * 130}
            assert daemon.sql("SELECT * FROM budget_holds") == []
            (found,) = (await daemon.get("/cost"))["agents"]
            assert found["budgets"][0]["used"] == pytest.approx(count * 0.004)
            assert found["budgets"][0]["held"] == 0


async def comes(is_so: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(BOUND_S):
            while not is_so():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(what) from None


def _reports(daemon: DaemonProcess) -> int:
    return int(daemon.sql("SELECT count(*) AS n FROM usage")[0]["n"])
