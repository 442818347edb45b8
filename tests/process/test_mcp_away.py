"""An approved call whose tool server is away when the turn goes on, in a whole daemon."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.model_server import Asked, Call, ModelServer, Reply

PYTHON = {"PYTHONPATH": str(Path(__file__).parents[2])}
TRIES = 9


def shop(place: Path) -> dict[str, Any]:
    """A server behind a script that can be put away."""
    program = place / "shop"
    line = f"exec {sys.executable} -m tests.support.mcp_server --effects effects"
    program.write_text(f"#!/bin/sh\n{line}\n")
    program.chmod(0o755)
    return {"command": str(program), "env": PYTHON}


async def shop_of(daemon: DaemonProcess) -> dict[str, Any]:
    (found,) = (await daemon.get("/agents/main/mcp"))["servers"]
    return dict(found)


@pytest.mark.timeout(240)
async def test_the_model_reads_why_and_the_leave_holds_until_the_server_is_back(
    tmp_path: Path,
) -> None:
    read: list[str] = []
    server_entry, away = shop(tmp_path), tmp_path / "put-away"
    program = Path(server_entry["command"])

    def model(asked: Asked) -> Reply:
        told = [str(each["content"]) for each in asked.messages if each["role"] == "tool"]
        if told:
            read.append(told[-1])
            if away.exists():
                away.rename(program)  # from now on it can be started again
            if "noted" in read[-1] or len(read) > TRIES:
                return Reply(f"it says: {read[-1]}")
        return Reply(calls=(Call("mcp__shop__note", {"text": "once"}),))

    async with ModelServer(model) as provider:
        options = {"base_url": provider.base_url, "api_key": "sk-loopback-0123456789"}
        entry = {"engine": "llm", "model": "loopback-1", "engine_options": options}
        home = write_home(
            tmp_path / "home", [{"name": "main", **entry, "mcp": {"shop": server_entry}}]
        )
        async with DaemonProcess(home, env=PYTHON) as daemon:
            chat = await daemon.chat()
            async with asyncio.timeout(30):
                while (await shop_of(daemon))["state"] != "running":
                    await asyncio.sleep(0.1)
            message_id = await chat.say("note it")
            await chat.event(message_id, "question", timeout_s=30.0)
            daemon.kill()
            await daemon.ended()
            program.rename(away)
            await daemon.start()
            again = await daemon.chat()
            assert (await again.command("/answer once"))["ok"]
            answer = await again.event(message_id, timeout_s=90.0)
            assert "noted: once" in answer["text"], read
            assert "the tool server shop is not running now, so nothing was done" in read[0]
            assert not any("nknown tool" in text for text in read)
            assert [row["n"] for row in daemon.sql("SELECT count(*) AS n FROM questions")] == [1]
            await daemon.stop()
        assert provider.violations == []
    effects = map(json.loads, (home / "agents/main/workspace/effects").read_text().splitlines())
    assert [text for kind, text in effects if kind == "note"] == ["once"]
