"""The page's way in and the OpenAI-compatible front, through a real daemon process and its deaths."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from agentsup.kit.tasks import TaskOwner
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.web_client import Tab

RULES: list[dict[str, Any]] = [
    {
        "match": r"effect (\S+)",
        "steps": [{"sleep": 0.3}, {"effect": "effects.txt"}, {"sleep": 0.7}, {"say": "did $1"}],
    },
    {
        "match": r"stream (\S+)",
        "steps": [{"stream": {"chunks": ["one ", "two ", "$1"], "every": 0.1}}],
    },
    {
        "match": r"paint (\S+)",
        "steps": [
            {"stream": {"chunks": ["Let me ", "see."], "every": 0}},
            {"question": {"text": "Which colour for $1?", "options": ["red", "blue"]}},
            {"say": "it is $result"},
        ],
    },
    {"match": "(.+)", "steps": [{"say": "you said $1"}]},
]
CONFIG = '[people.ann]\nrole = "user"\n'


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[DaemonProcess]:
    home = write_home(tmp_path / "home", [{"name": "main"}, {"name": "ann"}], RULES, CONFIG)
    async with DaemonProcess(home) as started:
        yield started


@contextlib.asynccontextmanager
async def client_of(daemon: DaemonProcess, **options: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        api_key=daemon.token, base_url=f"{daemon.url}/v1", timeout=BOUND_S, **options
    ) as client:
        yield client


async def test_a_browser_stays_signed_in_and_misses_nothing_over_kill_9(
    daemon: DaemonProcess,
) -> None:
    tab = Tab(daemon)
    try:
        assert (await tab.sign_in("ann"))["conversation"] == "ann"
        chat = await tab.chat("ann")
        assert await chat.ask("hello") == "you said hello"
        message_id = await chat.say("stream three", "s-1")
        await chat.frame(type="begin", message_id=message_id)
        daemon.kill()
        await daemon.ended()
        seen = max(frame["seq"] for frame in chat.frames if frame["type"] == "event")
        daemon.launch()
        await daemon.ready()
        assert (await tab.call("GET", "/web/session"))["who"] == "ann"
        again = await tab.chat("ann", after=seen)
        assert await again.say("stream three", "s-1") == message_id
        assert (await again.event(message_id))["text"] == "one two three"
        history = await tab.call("GET", "/web/history?agent=main&conversation=ann")
        answers = [e for e in history["events"] if e["type"] == "chat.out"]
        assert [e["data"]["text"] for e in answers] == ["you said hello", "one two three"]
    finally:
        await tab.close()
    kept = (daemon.home / "logs" / "agentsup.log").read_text() + daemon.output.read_text()
    for secret in ("#code=", "agentsup_"):
        assert secret not in kept


async def test_the_official_client_talks_to_an_agent(daemon: DaemonProcess) -> None:
    async with client_of(daemon) as client:
        assert [model.id async for model in client.models.list()] == ["main", "ann"]
        got = await client.chat.completions.create(
            model="ann", messages=[{"role": "user", "content": "hello"}]
        )
        assert got.choices[0].message.content == "you said hello"
        stream = await client.chat.completions.create(
            model="main", messages=[{"role": "user", "content": "stream three"}], stream=True
        )
        async with stream:  # else its generator is ended whenever it is collected
            pieces = [piece.choices[0].delta.content async for piece in stream]
        assert "".join(piece or "" for piece in pieces) == "one two three"
        assert len([piece for piece in pieces if piece]) >= 2
    noted = daemon.sql("SELECT data FROM events WHERE type = 'chat.out'")
    assert noted == [], "no chat is disturbed by it"


async def test_a_request_survives_kill_9_and_counts_once(daemon: DaemonProcess) -> None:
    """The daemon dies in mid-turn; the client's own repetition gets the answer of the same turn."""
    work = TaskOwner("test")
    try:
        async with client_of(daemon, max_retries=10) as client:
            asking = work.spawn(
                client.chat.completions.create(
                    model="main", messages=[{"role": "user", "content": "effect x"}]
                ),
                name="ask",
            )
            while not daemon.sql("SELECT 1 FROM tool_calls"):
                await asyncio.sleep(0.02)
            daemon.kill()
            await daemon.ended()
            daemon.launch()
            await daemon.ready()
            text = (await asking).choices[0].message.content or ""
            if "I was interrupted" in text:
                # Whether the effect happened is asked where it can't be known.
                messages: list[Any] = [
                    {"role": "user", "content": "effect x"},
                    {"role": "assistant", "content": text},
                    {"role": "user", "content": "1"},
                ]
                more = await client.chat.completions.create(model="main", messages=messages)
                text = more.choices[0].message.content or ""
        assert "did x" in text
    finally:
        await work.close(1.0)
    rows = daemon.sql("SELECT message_id FROM messages WHERE kind = 'chat'")
    assert len(rows) == 1
    effects = [*daemon.home.rglob("effects.txt")]
    assert sum(len(path.read_text().splitlines()) for path in effects) <= 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_question_to_the_official_client_survives_kill_9(
    daemon: DaemonProcess, stream: bool
) -> None:
    """Killed between question and answer; the answer is given to the same work once."""
    said: list[Any] = []

    async def say(client: openai.AsyncOpenAI, text: str) -> str:
        said.append({"role": "user", "content": text})
        create = client.chat.completions.create
        if stream:
            async with await create(model="main", messages=said, stream=True) as pieces:
                got = "".join([piece.choices[0].delta.content or "" async for piece in pieces])
        else:
            whole = await create(model="main", messages=said)
            got = whole.choices[0].message.content or ""
        said.append({"role": "assistant", "content": got})
        return got

    async with client_of(daemon, max_retries=0) as client:
        assert await say(client, "hello") == "you said hello"
        got = await say(client, "paint the-door")
        assert "Which colour for the-door?\n\n1. red\n2. blue" in got
        assert got.startswith("Let me see.\n\n" if stream else "Which")
        daemon.kill()
        await daemon.ended()
        daemon.launch()
        await daemon.ready()
        assert (await say(client, "2")).endswith("it is blue")
        assert await say(client, "thanks") == "you said thanks"
    rows = daemon.sql("SELECT session_id, state FROM messages WHERE kind = 'chat'")
    assert [row["state"] for row in rows] == ["done"] * 3
    assert len({row["session_id"] for row in rows}) == 1


def run_until_it_listens(home: Path, stdout: Any, env: dict[str, str]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "agentsup", "--home", str(home), "run", "--port", "0"],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        env=env,
    )
    while process.poll() is None and not (home / "daemon.json").exists():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    return process


@pytest.mark.parametrize("kept_by", ["nobody", "file", "journal"])
async def test_run_prints_a_link_to_whoever_watches(tmp_path: Path, kept_by: str) -> None:
    home = write_home(tmp_path / "home", [{"name": "main"}], RULES)
    env = {name: value for name, value in os.environ.items() if name != "JOURNAL_STREAM"}
    if kept_by == "journal":
        env["JOURNAL_STREAM"] = "8:1"
    file = tmp_path / "out"
    with file.open("wb") as opened:
        stdout: Any = opened if kept_by == "file" else subprocess.PIPE
        process = await asyncio.to_thread(run_until_it_listens, home, stdout, env)
    try:
        if kept_by == "nobody":
            assert process.stdout is not None
            line = (await asyncio.to_thread(process.stdout.readline)).decode()
            url, _, code = line.split()[2].partition("/#code=")
            async with aiohttp.ClientSession() as http:
                for wanted in (200, 401):
                    async with http.post(
                        f"{url}/web/login", json={"code": code}, headers={"Origin": url}
                    ) as answer:
                        assert answer.status == wanted
    finally:
        process.terminate()
        rest = (await asyncio.to_thread(process.communicate, timeout=BOUND_S))[0]
    log = (home / "logs" / "agentsup.log").read_text()
    assert "code=" not in log + file.read_text() + (rest or b"").decode()
