"""A model that writes its thoughts into its text, seen in a chat, over /v1 and in the store."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.process.test_model_memory import cli
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.model_server import Asked, ModelServer, Reply

SECRET = "SECRET REASONING"
FORMS = {
    "opened": ("SECRET", " REASONING\n</thi", "nk>Fo", "ur."),
    "tagged": ("<th", "ink>\nSECRET REASON", "ING\n</think>\n", "\nFour."),
    "glued": ("<thinking>SECRET REASONING</thinking>Four.",),
}


def model(asked: Asked) -> Reply:
    said = str(asked.messages[-1]["content"])
    return Reply(next(pieces for name, pieces in FORMS.items() if name in said), every_s=0.005)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer(model) as running:
        yield running


@pytest.fixture
async def daemon(tmp_path: Path, server: ModelServer) -> AsyncIterator[DaemonProcess]:
    options = {"base_url": server.base_url, "api_key": "sk-loopback-0123456789abcdef"}
    entry = {"engine": "llm", "model": "loopback-1", "engine_options": options}
    async with DaemonProcess(write_home(tmp_path / "home", [{"name": "main", **entry}])) as running:
        yield running


@pytest.mark.timeout(180)
async def test_thoughts_are_seen_nowhere(daemon: DaemonProcess, server: ModelServer) -> None:
    chat = await daemon.chat()
    for name in FORMS:
        assert await chat.ask(name) == "Four."
    deltas = "".join(frame["text"] for frame in chat.frames if frame["type"] == "delta")
    assert deltas == "Four." * len(FORMS)
    for name in FORMS:
        body = {
            "model": "main",
            "stream": True,
            "messages": [{"role": "user", "content": f"{name}, please"}],
        }
        url = f"{daemon.url}/v1/chat/completions"
        async with daemon.http().post(url, json=body) as answer:
            lines = (await answer.text()).splitlines()
        told = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        texts = [
            each["choices"][0]["delta"].get("content") or "" for each in told if each["choices"]
        ]
        assert "".join(texts) == "Four."
    assert server.violations == []
    assert SECRET not in json.dumps(server.asked[-1].body)
    await daemon.stop()
    stored = b"".join(path.read_bytes() for path in daemon.home.glob("state.db*"))
    assert SECRET.encode() not in stored
    assert b"Four." in stored


def picky(asked: Asked) -> Reply:
    """A provider that refuses a tool, or all of them to another model."""
    names = [tool["function"]["name"] for tool in asked.body.get("tools") or ()]
    if asked.body["model"] == "talker" and names:
        return Reply(status=400, error="library/talker does not support tools")
    if "mcp__odd__echo" in names:
        return Reply(status=400, error="Invalid schema for function 'mcp__odd__echo'")
    return Reply("Hello.")


@pytest.mark.timeout(180)
async def test_a_refused_tool_is_named_by_mcp_and_doctor(tmp_path: Path) -> None:
    (tmp_path / "told").write_text("{}")
    odd = ["-m", "tests.support.odd_mcp_server", str(tmp_path / "told"), "asked"]
    path = {"PYTHONPATH": str(Path(__file__).parents[2])}
    async with ModelServer(picky) as server:
        options = {"base_url": server.base_url}
        entry = {"engine": "llm", "model": "loopback-1", "engine_options": options}
        servers = {"odd": {"command": sys.executable, "args": odd, "env": path}}
        agents = [
            {"name": "main", **entry, "mcp": servers},
            {"name": "talker", **entry, "model": "talker"},
        ]
        async with DaemonProcess(write_home(tmp_path / "home", agents)) as daemon:
            chat = await daemon.chat()
            assert await chat.ask("hi") == "Hello."
            chat_with_talker = await daemon.chat("talker")
            assert await chat_with_talker.ask("hi") == "Hello."
            assert server.violations == []
            told = (await chat.command("/mcp"))["text"]
            assert "mcp:odd/echo is left out, since the model's provider refuses it" in told
            (warning,) = (await daemon.agents())["talker"]["warnings"]
            assert warning.startswith("its provider refuses all tools: ")
            shown = " ".join((await cli(daemon.home, "doctor")).split())
            assert "mcp:odd/echo is left out" in shown
            assert "its provider refuses all tools" in shown
