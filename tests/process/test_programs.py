"""An agent whose engine is a program of somebody's own, through a real daemon."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, group_members

pytestmark = pytest.mark.process

PROGRAM = """
import json, os, subprocess, sys, time
given = json.load(sys.stdin)
def send(**event):
    print(json.dumps(event), flush=True)
text, number, resume = given["text"], (given["state"] or 0) + 1, given["resume"]
if text == "work":
    stubborn = ["sh", "-c", "trap '' TERM; sleep 300", __file__]
    subprocess.Popen(stubborn)
    subprocess.Popen(stubborn, start_new_session=True)
    send(type="text", text="working")
    time.sleep(300)
if text == "die":
    sys.stderr.write("the key " + os.environ["MY_KEY"] + " is bad")
    sys.exit(42)
if text == "ask" and resume is None:
    send(type="ask", text="red or blue?", options=["red", "blue"], checkpoint=[number])
    sys.exit(0)
if resume is not None and resume["answer"] is not None:
    text = resume["answer"] + " " + json.dumps(resume["checkpoint"])
send(type="usage", input=3, output=4, usd=0.01)
send(type="text", text=f"{number}: {text}")
send(type="done", state=number)
"""


def entry(home: Path) -> dict[str, Any]:
    program = home / "program.py"
    program.write_text(PROGRAM)
    options = {"command": [sys.executable, str(program)], "env": {"MY_KEY": "a-secret-key"}}
    return {"name": "main", "engine": "command", "engine_options": options}


def groups(daemon: DaemonProcess) -> list[int]:
    return [row["pgid"] for row in daemon.sql("SELECT pgid FROM processes")]


async def working(daemon: DaemonProcess) -> list[int]:
    """Wait until the program and its child work; the recorded group."""
    async with asyncio.timeout(BOUND_S):
        while not any(len(group_members(pgid)) >= 2 for pgid in groups(daemon)):
            await asyncio.sleep(0.02)
    return groups(daemon)


def sleepers(home: Path) -> list[int]:
    """Living children of the program in ``home``, also those that left its group. Other tests may
    run the same program at the same time."""
    mark = str(home / "program.py").encode()
    found = []
    for place in Path("/proc").glob("[0-9]*"):  # below them it would raise for one that ends
        try:
            words, state = (place / "cmdline").read_bytes(), (place / "stat").read_text()
        except OSError:
            continue
        if (
            b"trap '' TERM" in words
            and mark in words
            and state.rpartition(")")[2].split()[0] != "Z"
        ):
            found.append(int(place.name))
    return found


@pytest.mark.timeout(180)
async def test_a_program_answers_remembers_asks_and_fails_in_words(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    daemon = make_daemon([entry(tmp_path)], config="[limits]\ndrain_s = 0.5\n")
    await daemon.start()
    for wanted in ("1: hello", "2: hello"):
        answer = await daemon.post("/interagent/send", {"to": "main", "message": "hello"})
        assert answer.body["text"] == wanted
    answer = await daemon.post("/interagent/send", {"to": "main", "message": "die"})
    assert answer.body["success"] is False
    assert "exit code 42" in answer.body["error"]
    assert "a-secret-key" not in str(answer.body)
    assert (await daemon.agents())["main"]["restarts"] == 0
    message_id = await daemon.send("main", "ask")
    async with asyncio.timeout(BOUND_S):
        while not (found := (await daemon.get("/questions"))["questions"]):
            await asyncio.sleep(0.05)
    daemon.kill()
    await daemon.ended()
    await daemon.start()
    path = f"/questions/{found[0]['id']}/answer"
    assert (await daemon.post(path, {"answer": "blue"})).status == 200
    result = await daemon.result(message_id)
    assert result["text"].endswith(": blue [3]")
    told = daemon.sql("SELECT sum(input_tokens) n FROM usage WHERE is_estimated = 0")
    assert told[0]["n"] == 9
    guessed = daemon.sql("SELECT input_tokens n FROM usage WHERE is_estimated = 1")
    assert [row["n"] > 0 for row in guessed] == [True], "it asked, and told nothing of that run"
    assert "a-secret-key" not in daemon.tail(1_000_000)


@pytest.mark.timeout(180)
async def test_a_killed_daemon_leaves_no_program_behind(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    daemon = make_daemon([entry(tmp_path)], config="[limits]\ndrain_s = 0.5\n")
    await daemon.start()
    message_id = await daemon.send("main", "work")
    (first,) = await working(daemon)
    daemon.kill()
    await daemon.ended()
    await daemon.start()
    assert group_members(first) == []
    assert first not in groups(daemon)
    async with asyncio.timeout(BOUND_S):
        while message_id not in {
            row["message_id"] for row in daemon.sql("SELECT message_id FROM processes")
        }:
            await asyncio.sleep(0.02)
    await working(daemon)
    async with asyncio.timeout(BOUND_S):
        while not sleepers(tmp_path):  # a child shows its program's name until it has begun its own
            await asyncio.sleep(0.02)
    assert (await daemon.stop()) == 0
    assert sleepers(tmp_path) == []


@pytest.mark.timeout(180)
async def test_stop_all_ends_programs_at_once(make_daemon: MakeDaemon, tmp_path: Path) -> None:
    daemon = make_daemon([entry(tmp_path)], config="[limits]\ndrain_s = 0.5\n")
    await daemon.start()
    await daemon.send("main", "work")
    found = await working(daemon)
    answer = await daemon.post("/stop_all")
    assert answer.status == 200
    # Not one of them ends by itself for minutes.
    assert [pid for pgid in found for pid in group_members(pgid)] == []
    async with asyncio.timeout(BOUND_S):
        while sleepers(tmp_path):
            await asyncio.sleep(0.02)
    answer = await daemon.post("/interagent/send", {"to": "main", "message": "still there?"})
    assert answer.body["text"] == "1: still there?"
