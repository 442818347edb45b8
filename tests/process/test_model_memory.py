"""A model that remembers and talks for long: what the provider is sent stays a valid conversation."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.model_server import Asked, Call, ModelServer, Reply

LONG = "word " * 150


async def cli(home: Path, word: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agentsup", "--home", str(home), word),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return said.decode()


def model(asked: Asked) -> Reply:
    last, system = asked.messages[-1], str(asked.messages[0])
    if "You shorten conversations" in system:
        return Reply("They spoke about number zero and others.", every_s=0.02)
    if last["role"] == "tool":
        return Reply(f"noted {LONG}")
    asked_for = str(last["content"])  # with the memories that fit it
    if re.search(r"note \d", asked_for):
        fact = {"key": "colour", "content": "The bike of Eva is turquoise."}
        return Reply(calls=(Call("memory_save", fact),))
    return Reply("it is turquoise" if "turquoise" in asked_for else "no idea")


@pytest.mark.timeout(180)
async def test_a_long_talk_with_calls_is_shortened_and_survives_a_kill(tmp_path: Path) -> None:
    async with ModelServer(model) as server:
        options = {"base_url": server.base_url, "api_key": "sk-loopback-0123456789"}
        memory = {"history_tokens": 1500, "summariser": "engine"}
        entry = {"engine": "llm", "model": "loopback-1", "engine_options": options}
        home = write_home(tmp_path / "home", [{"name": "main", "memory": memory, **entry}])
        async with DaemonProcess(home) as daemon:
            chat = await daemon.chat()
            assert await chat.ask("which colour has the bike?") == "no idea"
            for number in range(7):
                assert (await chat.ask(f"note {number} {LONG}")).startswith("noted")
            assert server.violations == []
            talks = [a for a in server.asked if "You shorten" not in str(a.messages[0])]
            assert len(talks) < len(server.asked), "a summary was asked for"
            assert "They spoke about number zero" in str(talks[-1].messages)
            assert max(len(str(asked.messages[1:])) for asked in talks) < 20_000
            daemon.kill()
            await daemon.ended()
            await daemon.start()
            chat = await daemon.chat()
            assert await chat.ask("which colour has the bike?") == "it is turquoise"
            assert "They spoke about number zero" in str(server.asked[-1].messages)
            assert server.violations == []


@pytest.mark.timeout(180)
async def test_too_little_context_of_the_server_is_a_warning_of_the_agent(tmp_path: Path) -> None:
    loaded = {"name": "loopback-1:latest", "context_length": 4096}
    async with ModelServer(model, documents={"/api/ps": {"models": [loaded]}}) as server:
        options = {"base_url": server.base_url}
        entry = {"engine": "llm", "model": "loopback-1", "engine_options": options}
        home = write_home(tmp_path / "home", [{"name": "main", **entry}])
        async with DaemonProcess(home) as daemon:
            chat = await daemon.chat()
            assert (await daemon.agents())["main"]["warnings"] == []
            assert await chat.ask("which colour has the bike?") == "no idea"
            while not (told := (await daemon.agents())["main"]["warnings"]):
                assert daemon.is_running
            assert "OLLAMA_CONTEXT_LENGTH=32768 ollama serve" in told[0]
            for word in ("status", "doctor"):
                shown = await cli(home, word)
                assert "OLLAMA_CONTEXT_LENGTH=32768" in " ".join(shown.split()), word
