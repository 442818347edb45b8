"""The main job, end to end: a real daemon, two agents on a model behind HTTP, a person in a chat."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.model_server import Asked, Call, ModelServer, Reply

SECRET = "sk-loopback-0123456789abcdef"


def model(asked: Asked) -> Reply:
    """What the model says, from what it was asked; the agents differ by their instructions."""
    last = asked.messages[-1]
    said = str(last["content"])
    if "You are bob" in str(asked.messages[0]):
        return Reply(("I am ", "bob."), every_s=0.02)
    if last["role"] == "tool":
        return Reply(f"heard: {said}")
    if "ask bob" in said:
        return Reply(calls=(Call("ask_agent", {"to": "bob", "message": "who are you?"}),))
    if "decide" in said:
        args = {"text": "Really?", "options": ["yes", "no"]}
        return Reply(calls=(Call("ask_user", args),))
    return Reply(("one ", "two ", f"of {len(asked.messages)}"), every_s=0.02)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer(model) as running:
        yield running


@pytest.fixture
async def daemon(tmp_path: Path, server: ModelServer) -> AsyncIterator[DaemonProcess]:
    options = {
        "base_url": server.base_url,
        "api_key": SECRET,
        "template_opens_thought": False,
    }
    entry = {"engine": "llm", "model": "loopback-1", "engine_options": options}
    home = write_home(tmp_path / "home", [{"name": name, **entry} for name in ("main", "bob")])
    async with DaemonProcess(home) as running:
        yield running


@pytest.mark.timeout(180)
async def test_a_person_chats_with_agents_that_ask_each_other(
    daemon: DaemonProcess, server: ModelServer
) -> None:
    chat = await daemon.chat()
    assert await chat.ask("hello") == "one two of 2"
    deltas = [f["text"] for f in chat.frames if f["type"] == "delta"]
    assert "".join(deltas) == "one two of 2"
    assert len(deltas) > 1, "the answer was not streamed"
    assert await chat.ask("hello again") == "one two of 4", "the session's history is missing"
    assert await chat.ask("please ask bob") == "heard: I am bob."
    assert server.violations == []


@pytest.mark.timeout(180)
async def test_a_question_of_the_model_survives_a_killed_daemon(
    daemon: DaemonProcess, server: ModelServer
) -> None:
    chat = await daemon.chat()
    message_id = await chat.say("decide")
    asked = await chat.event(message_id, "question")
    assert (asked["text"], asked["options"]) == ("Really?", ["yes", "no"])
    daemon.kill()
    await daemon.ended()
    await daemon.start()
    again = await daemon.chat()
    assert (await again.command("/answer 1"))["ok"]
    assert (await again.event(message_id))["text"] == "heard: yes"
    assert server.violations == []


@pytest.mark.timeout(180)
async def test_the_key_is_in_no_log(daemon: DaemonProcess) -> None:
    chat = await daemon.chat()
    await chat.ask("hello")
    explained = await daemon.get("/agents/main/explain")
    assert SECRET not in str(explained)
    await daemon.stop()
    logs = (daemon.home / "logs" / "agentsup.log").read_text() + daemon.output.read_text()
    assert "turn done" in logs
    assert SECRET not in logs
    assert daemon.token not in logs
