"""Programs that wait for leave, more than may be held, through a real daemon: others are served."""

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
import json, os, sys
def send(**message):
    print(json.dumps(message), flush=True)
def hear():
    return json.loads(sys.stdin.readline() or "{}")
while (heard := hear()).get("type") != "user":
    response = {"subtype": "success", "request_id": heard["request_id"], "response": {}}
    send(type="control_response", response=response)
text, said = heard["message"]["content"][0]["text"], "hello"
if "make" in text:
    name = text.split("make ")[1].split()[0]
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t1",
               "input": {"command": "mktemp " + name + ".XXXX", "description": str(os.getpid())}}
    send(type="control_request", request_id="1", request=request)
    while (heard := hear()).get("type") != "control_response":
        if not heard:
            sys.exit(0)
    said = heard["response"]["response"]["behavior"]
    if said == "allow":
        open(name + "." + str(os.getpid()), "x").close()
send(type="result", subtype="success", is_error=False, result=said, num_turns=1,
     session_id="s", total_cost_usd=0.0, usage={"input_tokens": 1, "output_tokens": 1})
"""
MANY = 20
CONFIG = "[limits]\nprocesses = 3\nprocesses_per_agent = 3\nheld_processes = 2\ndrain_s = 600\n"


def entry(root: Path, name: str, **more: Any) -> dict[str, Any]:
    program = root / "program.py"
    program.write_text(PROGRAM)
    options = {"command": [sys.executable, str(program)]}
    return {"name": name, "engine": "claude", "engine_options": options, "slots": 4, **more}


async def questions(daemon: DaemonProcess, count: int) -> list[dict[str, Any]]:
    """Wait until so many are open."""
    async with asyncio.timeout(60):
        while len(found := (await daemon.get("/questions"))["questions"]) != count:
            await asyncio.sleep(0.1)
    return list(found)


@pytest.mark.timeout(240)
async def test_many_that_wait_keep_nobody_waiting_and_each_goes_on_once(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    daemon = make_daemon([entry(tmp_path, "main"), entry(tmp_path, "bob")], config=CONFIG)
    await daemon.start()
    sent = [
        await daemon.send("main", f"make file{number}", thread_id=f"t{number}")
        for number in range(MANY)
    ]
    open_ = await questions(daemon, MANY)
    answer = await daemon.post("/interagent/send", {"to": "bob", "message": "hi"})
    assert answer.body["text"] == "hello"
    answer = await daemon.post("/interagent/send", {"to": "main", "message": "hi"})
    assert answer.body["text"] == "hello"
    async with asyncio.timeout(BOUND_S):
        while len(rows := daemon.sql("SELECT pgid FROM processes")) > 2:
            await asyncio.sleep(0.05)
    states = [
        row["state"] for row in daemon.sql("SELECT state FROM messages WHERE state <> 'done'")
    ]
    assert sorted(states) == ["leased"] * 2 + ["parked"] * (MANY - 2)

    daemon.kill()
    await daemon.ended()
    await daemon.start()
    assert not [pid for row in rows for pid in group_members(row["pgid"])]
    answer = await daemon.post("/interagent/send", {"to": "main", "message": "hi"})
    assert answer.body["text"] == "hello"
    for number, question in enumerate(open_):
        decision = "deny" if number % 4 == 0 else "once"
        answer = await daemon.post(f"/questions/{question['id']}/answer", {"answer": decision})
        assert answer.status == 200, answer
    results = [await daemon.result(message_id, wait_s=60.0) for message_id in sent]
    texts = [result["text"] for result in results]
    assert (texts.count("allow"), texts.count("deny")) == (15, 5)
    workspace = daemon.home / "agents/main/workspace"
    assert sorted(path.name.split(".")[0] for path in workspace.glob("file*")) == sorted(
        f"file{number}" for number, text in enumerate(texts) if text == "allow"
    )
    assert len(daemon.sql("SELECT 1 FROM questions")) == MANY, "nobody is asked twice"
    await daemon.send("main", "make last")
    await questions(daemon, 1)
    assert await daemon.stop() == 0, "a drain is for those that work"
