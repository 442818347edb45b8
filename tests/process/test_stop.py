"""Stop means stop (P5), drains lose nothing (P1): a real daemon with real process trees."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import pytest

from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, group_members

pytestmark = pytest.mark.process

RULES: list[dict[str, Any]] = [
    # A child and a grandchild that ignore SIGTERM.
    {"match": "tree", "steps": [{"spawn": 600}, {"say": "the tree fell"}]},
    {"match": "long", "steps": [{"stream": {"chunks": ["a"] * 1000, "every": 0.1}}]},
    {"match": "two seconds", "steps": [{"stream": {"chunks": ["a"] * 5, "every": 0.5}}]},
    {
        "match": "until let go",
        "steps": [
            {"stream": {"chunks": ["a"]}},
            {
                "tool": {
                    "name": "exec",
                    "args": {"argv": ["sh", "-c", "until [ -e go ]; do sleep 0.05; done"]},
                }
            },
            {"say": "let go"},
        ],
    },
    {"match": "hang", "steps": [{"hang": True}]},
    {
        "match": "ask me",
        "steps": [{"question": {"text": "Sure?", "options": ["yes"]}}, {"effect": "effects.txt"}],
    },
    {"match": "do (.*)", "steps": [{"effect": "effects.txt"}, {"say": "did $1"}]},
    {"match": "hi", "steps": [{"say": "hello"}]},
]
SUBS = 21
NAMES = ["main", *(f"sub{n}" for n in range(SUBS))]


def groups(daemon: DaemonProcess) -> list[int]:
    return [row["pgid"] for row in daemon.sql("SELECT pgid FROM processes")]


def living(pgids: list[int]) -> list[int]:
    return [pid for pgid in pgids for pid in group_members(pgid)]


async def until_sql(
    daemon: DaemonProcess, query: str, count: int, timeout_s: float = BOUND_S
) -> None:
    """Follow the events until ``query`` counts ``count``."""
    async with asyncio.timeout(timeout_s):
        async for _ in daemon.events():
            if daemon.sql(query)[0]["n"] == count:
                return


async def until_trees(daemon: DaemonProcess, count: int) -> list[int]:
    """Wait until that many groups are recorded and each has both its processes."""
    async with asyncio.timeout(BOUND_S):
        while len(found := groups(daemon)) < count or len(living(found)) < 2 * count:
            await asyncio.sleep(0.02)
    return found


async def load(daemon: DaemonProcess) -> list[str]:
    """Per agent: a running tree, a message behind it, and a parked question."""
    ids = []
    for name in NAMES:
        ids += [await daemon.send(name, "tree", thread_id=f"t-{name}")]
        ids += [await daemon.send(name, "do later", thread_id=f"t-{name}")]
        ids += [await daemon.send(name, "ask me", thread_id=f"q-{name}")]
    parked = "SELECT count(*) n FROM messages WHERE state = 'parked'"
    await until_sql(daemon, parked, len(NAMES))
    return ids


@pytest.mark.timeout(180)
async def test_stop_all_over_many_agents_with_trees(make_daemon: MakeDaemon) -> None:
    """D9, D10: at once, exact, of everything, and nothing comes back later."""
    daemon = make_daemon(NAMES, RULES)
    await daemon.start()
    before = await daemon.agents()
    ids = await load(daemon)
    trees = await until_trees(daemon, len(NAMES))
    assert len(living(trees)) == 2 * len(NAMES)

    # No turn and no tree of them ends by itself for minutes.
    report = (await daemon.post("/stop_all")).body
    assert living(trees) == []
    counted = {key: report[key] for key in ("running", "queued", "parked", "processes", "agents")}
    count = len(NAMES)
    assert counted == {
        "running": count,
        "queued": count,
        "parked": count,
        "processes": 2 * count,
        "agents": count,
    }
    for message_id in ids:
        assert (await daemon.result(message_id, 0))["state"] == "cancelled"
    assert (await daemon.get("/questions"))["questions"] == []
    # The agents are the same ones, and answer the next message.
    for name in NAMES:
        answer = await daemon.post("/interagent/send", {"to": name, "message": "hi"})
        assert answer.body["text"] == "hello"
    after = await daemon.agents()
    assert {n: v["instance_id"] for n, v in after.items()} == {
        n: v["instance_id"] for n, v in before.items()
    }
    # Neither does anything come back after kill -9.
    daemon.kill()
    await daemon.ended()
    await daemon.start()
    assert (await daemon.post("/interagent/send", {"to": "sub3", "message": "hi"})).body["success"]
    states = daemon.sql("SELECT DISTINCT state FROM messages")
    assert {row["state"] for row in states} == {"cancelled", "done"}
    assert daemon.sql("SELECT count(*) n FROM tool_calls")[0]["n"] == 0
    assert list(daemon.home.glob("agents/*/workspace/effects.txt")) == []
    assert living(groups(daemon)) == []


@pytest.mark.timeout(180)
async def test_trees_of_a_killed_daemon_are_swept(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["main", "sub0"], RULES)
    await daemon.start()
    for name in ("main", "sub0"):
        await daemon.send(name, "tree")
    trees = await until_trees(daemon, 2)
    daemon.kill()
    await daemon.ended()
    await daemon.start()
    assert living(trees) == []
    # The turns were young, so they run again, with trees of their own; a stop ends those.
    fresh = await until_trees(daemon, 2)
    assert not set(fresh) & set(trees)
    report = (await daemon.post("/stop_all")).body
    assert (report["running"], report["processes"], report["agents"]) == (2, 4, 2)
    assert living(fresh) == []


@pytest.mark.timeout(180)
async def test_turns_that_do_not_obey_are_left_behind(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["main", "sub0", "sub1"], RULES)
    await daemon.start()
    started = "SELECT count(*) n FROM messages WHERE state = 'leased'"
    ids = [await daemon.send(name, "hang") for name in ("main", "sub0", "sub1")]
    await until_sql(daemon, started, 3)
    report = (await daemon.post("/stop_all")).body
    assert (report["running"], report["agents"]) == (3, 3)
    for message_id in ids:
        assert (await daemon.result(message_id, 0))["state"] == "cancelled"
    for name in ("main", "sub0", "sub1"):
        answer = await daemon.post("/interagent/send", {"to": name, "message": "hi"})
        assert answer.body["text"] == "hello", name


@pytest.mark.timeout(180)
async def test_stop_and_interrupt_in_one_chat(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["main", "sub0"], RULES)
    await daemon.start()
    chat, other = await daemon.chat("sub0", "here"), await daemon.chat("sub0", "there")
    elsewhere = await other.say("two seconds")
    running, queued = await chat.say("long"), await chat.say("do it")
    await chat.frame(type="delta")
    # A plain word is no command.
    word = await chat.say("stop")
    reply = await chat.command("/interrupt")
    assert reply["ok"], reply
    assert (await daemon.result(running, 0))["state"] == "cancelled"
    assert (await chat.event(queued))["text"] == "did it"
    assert "stop" in (await chat.event(word))["text"]
    # /stop ends the running one and what waits behind it, and only here.
    running, queued = await chat.say("long"), await chat.say("do that")
    await chat.frame(type="delta", message_id=running)
    reply = await chat.command("/stop")
    assert "1 running" in reply["text"], reply
    assert "1 queued" in reply["text"], reply
    for message_id in (running, queued):
        assert (await daemon.result(message_id, 0))["state"] == "cancelled"
    assert (await other.event(elsewhere))["text"] == "aaaaa"
    assert await chat.ask("hi") == "hello"
    assert "Nothing was running" in (await chat.command("/stop"))["text"]
    lines = (daemon.home / "agents/sub0/workspace/effects.txt").read_text().splitlines()
    assert len(lines) == 1


@pytest.mark.timeout(180)
async def test_stop_all_of_a_sub_agent_stops_its_chats_alone(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["main", "sub0"], RULES)
    await daemon.start()
    chat, other = await daemon.chat("sub0", "here"), await daemon.chat("sub0", "there")
    main = await daemon.chat("main")
    kept = await main.say("two seconds")
    ended = [await chat.say("long"), await other.say("long")]
    for each in (chat, other, main):
        await each.frame(type="delta")
    reply = await chat.command("/stop_all")
    assert "2 running" in reply["text"], reply
    assert "all chats of sub0" in reply["text"], reply
    for message_id in ended:
        assert (await daemon.result(message_id, 0))["state"] == "cancelled"
    assert (await main.event(kept))["text"] == "aaaaa"


@pytest.mark.timeout(180)
async def test_sigterm_lets_a_running_turn_finish(make_daemon: MakeDaemon) -> None:
    sub0 = {"name": "sub0", "tools": ["exec"], "permission_mode": "bypassPermissions"}
    daemon = make_daemon(["main", sub0], RULES)
    await daemon.start()
    chat = await daemon.chat("sub0")
    running, queued = await chat.say("until let go"), await chat.say("do later")
    await chat.frame(type="delta")
    daemon.signal(signal.SIGTERM)
    async with asyncio.timeout(BOUND_S):
        while (await daemon.request("GET", "/readyz")).status != 503:
            await asyncio.sleep(0.01)
    refused = await daemon.post("/interagent/send_async", {"to": "main", "message": "hi"})
    assert refused.status == 503
    assert refused.headers["Retry-After"]
    (daemon.home / "agents/sub0/workspace/go").touch()
    assert await daemon.ended() == 0
    states = {row["message_id"]: row["state"] for row in daemon.sql("SELECT * FROM messages")}
    assert states == {running: "done", queued: "queued"}
    (answer,) = daemon.sql(
        "SELECT data FROM events WHERE type = 'chat.out' AND message_id = ?", (running,)
    )
    assert json.loads(answer["data"])["text"].endswith("let go")
    await daemon.start()
    chat = await daemon.chat("sub0", after=0)
    assert (await chat.event(queued))["text"] == "did later"


@pytest.mark.timeout(180)
async def test_a_second_sigterm_forces(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["main", "sub0"], RULES, "[limits]\ndrain_s = 600\n")
    await daemon.start()
    chat, main = await daemon.chat("sub0"), await daemon.chat("main")
    running = await chat.say("long")
    tree = await main.say("tree")
    await chat.frame(type="delta")
    trees = await until_trees(daemon, 1)
    daemon.signal(signal.SIGTERM)
    async with asyncio.timeout(BOUND_S):
        while (await daemon.request("GET", "/readyz")).status != 503:
            await asyncio.sleep(0.01)
    daemon.signal(signal.SIGTERM)
    assert await daemon.ended() == 0, "the last resort ended it"
    assert living(trees) == []
    # What obeyed was released; what did not is taken up by the next boot all the same.
    rows = {row["message_id"]: row for row in daemon.sql("SELECT * FROM messages")}
    assert (rows[running]["state"], rows[running]["attempts"]) == ("queued", 0)
    assert rows[tree]["state"] in {"queued", "leased"}
    await daemon.start()
    started = "SELECT count(*) n FROM messages WHERE state = 'leased' AND lease_boot = (SELECT"
    await until_sql(daemon, f"{started} boot_id FROM boots ORDER BY started_at DESC LIMIT 1)", 2)
    report = (await daemon.post("/stop_all")).body
    assert report["running"] == 2
