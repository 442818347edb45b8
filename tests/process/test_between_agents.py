"""Agents among each other: no deadlock (P6), and one agent's trouble stays its own (P3)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess

pytestmark = pytest.mark.process

RULES: list[dict[str, Any]] = [
    {
        "match": "go (\\w+) (\\w+)",
        "steps": [
            {"tool": {"name": "ask_agent", "args": {"to": "$1", "message": "pass $2"}}},
            {"say": "by way of $1: $result"},
        ],
    },
    {
        "match": "pass (\\w+)",
        "steps": [
            {"sleep": 0.05},
            {"tool": {"name": "ask_agent", "args": {"to": "$1", "message": "end"}}},
            {"say": "from $1: $result"},
        ],
    },
    {"match": "end", "steps": [{"sleep": 0.05}, {"say": "the end"}]},
    {"match": "crash", "steps": [{"crash": "again"}]},
    {"match": "hang", "steps": [{"hang": True}]},
    {"match": "work", "steps": [{"sleep": 0.01}, {"say": "worked"}]},
    {"match": "hi", "steps": [{"say": "hello"}]},
]


@pytest.mark.timeout(180)
async def test_the_triangle(make_daemon: MakeDaemon) -> None:
    """Three chats at once, each over both others, one peer slot each: all end."""
    slots = {"interactive": 1, "peer": 1, "background": 1}
    daemon = make_daemon([{"name": name, "slots": slots} for name in ("a", "b", "c")], RULES)
    await daemon.start()
    chats = {name: await daemon.chat(name) for name in ("a", "b", "c")}
    ways = {"a": "go b c", "b": "go c a", "c": "go a b"}
    reached = 0
    for _ in range(6):
        answers = await asyncio.gather(*(chats[name].ask(way) for name, way in ways.items()))
        for answer in answers:
            assert "the end" in answer or "never end" in answer or "waiting" in answer, answer
            reached += "the end" in answer
    assert reached, "all were refused"
    assert daemon.sql("SELECT count(*) n FROM waits")[0]["n"] == 0


async def flood(daemon: DaemonProcess, stop: asyncio.Event) -> None:
    while not stop.is_set():
        await daemon.post("/interagent/send_async", {"to": "dora", "message": "work"})


@pytest.mark.timeout(180)
async def test_noise_of_others_leaves_an_agent_as_it_was(make_daemon: MakeDaemon) -> None:
    restart = {"base_s": 0.02, "cap_s": 0.05, "max_restarts": 1000}
    daemon = make_daemon(
        [
            "quiet",
            {"name": "bob", "restart": restart},
            "carl",
            {"name": "dora", "queue_limit": 300},
        ],
        RULES,
    )
    await daemon.start()
    chat = await daemon.chat("quiet")
    before = (await daemon.agents())["quiet"]["instance_id"]
    assert await chat.ask("hi") == "hello"
    for number in range(60):
        await daemon.send("bob", "crash", thread_id=f"t{number}")
    for number in range(6):
        await daemon.send("carl", "hang", thread_id=f"t{number}")
    stop = asyncio.Event()
    noise = [asyncio.create_task(flood(daemon, stop)) for _ in range(2)]
    for _ in range(40):
        assert await chat.ask("hi") == "hello"
    stop.set()
    await asyncio.gather(*noise)
    # Each answer came while older work of carl's hung, and dora did hers: it stood behind nobody's.
    states = "SELECT count(*) n FROM messages JOIN agents USING (agent_id) WHERE name = ?"
    done = {
        name: daemon.sql(f"{states} AND state = 'done'", (name,))[0]["n"]
        for name in ("quiet", "carl", "dora")
    }
    assert (done["quiet"], done["carl"]) == (41, 0)
    assert done["dora"], "there was no noise"
    views = await daemon.agents()
    assert views["quiet"]["instance_id"] == before
    assert views["bob"]["restarts"] > 0
    # The one that hangs is there again after a stop, without a rebuild.
    assert (await daemon.post("/stop_all")).status == 200
    answer = await daemon.post("/interagent/send", {"to": "carl", "message": "hi"})
    assert answer.body["text"] == "hello"


@pytest.mark.timeout(180)
async def test_results_outlive_a_sender_that_is_down(make_daemon: MakeDaemon) -> None:
    """D8: an answer for an agent that is stopped waits for it, and survives kill -9."""
    rules = [
        {
            "match": "relay (\\w+)",
            "steps": [
                {"tool": {"name": "ask_agent_async", "args": {"to": "$1", "message": "later"}}},
                {"say": "sent"},
            ],
        },
        {"match": "later", "steps": [{"sleep": 0.5}, {"say": "the result"}]},
        {"match": "the result", "steps": [{"say": "I have the result"}]},
    ]
    daemon = make_daemon(["main", "ann", "bob"], rules)
    await daemon.start()
    chat = await daemon.chat("ann")
    assert await chat.ask("relay bob") == "sent"
    assert (await daemon.post("/agents/ann/stop")).body["status"] == "stopped"
    async with asyncio.timeout(BOUND_S):
        async for _ in daemon.events():
            if daemon.sql("SELECT 1 FROM messages WHERE kind = 'reply'"):
                break
    daemon.kill()
    await daemon.ended()
    await daemon.start()
    chat = await daemon.chat("ann", after=0)
    assert (await daemon.post("/agents/ann/start")).status == 200
    (reply,) = daemon.sql("SELECT message_id FROM messages WHERE kind = 'reply'")
    assert (await chat.event(reply["message_id"]))["text"] == "I have the result"
