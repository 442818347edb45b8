"""A program that does a task asks over HTTP with its run's own token, as the predecessor's scripts
do."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

PROGRAM = """
import json, os, re, sys, urllib.request
given = json.load(sys.stdin)

def call(path, **body):
    request = urllib.request.Request(
        os.environ["AGENTSUP_URL"] + path,
        data=json.dumps(body).encode(),
        headers={
            "Authorization": "Bearer " + os.environ["AGENTSUP_TOKEN"],
            "Content-Type": "application/json",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=50) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)

said, task = json.dumps(given), os.environ.get("AGENTSUP_TASK", "")
if found := re.search(r"has answered: (\\w+)", said):
    text = "counted: " + found[1]
elif "counted: " in said:
    text = "so it is counted"
elif "How many are there?" in said and not task:
    text = "seven"
elif task:
    call("/tasks/update", task_id=task, progress="looking", percent=20, note="Look twice.")
    told = call("/tasks/ask_parent", task_id=task, question="How many are there?")
    assert told["success"], told
    assert "End your turn now" in told["answer"]
    other = call("/tasks/cancel", task_id=os.environ.get("OTHER", "task_nothing"))
    text = "asked; " + str(other["status"])
else:
    made = call("/tasks/create", prompt="count the birds", **{"from": os.environ["AGENTSUP_AGENT"]})
    text = "began " + made["task_id"]
print(json.dumps({"type": "text", "text": text}), flush=True)
print(json.dumps({"type": "done"}), flush=True)
"""


def entry(home: Path, name: str) -> dict[str, Any]:
    program = home / "program.py"
    program.write_text(PROGRAM)
    options = {"command": [sys.executable, str(program)]}
    return {"name": name, "engine": "command", "engine_options": options}


async def shown(daemon: DaemonProcess, task_id: str, state: str) -> dict[str, Any]:
    """The task once it is in that state."""
    async with asyncio.timeout(BOUND_S):
        while True:
            one: dict[str, Any] = await daemon.get(f"/tasks/{task_id}")
            if one["state"] == state:
                return one
            await asyncio.sleep(0.05)


async def test_a_program_asks_its_parent_and_is_told_the_answer_after_a_kill(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    daemon = make_daemon([entry(tmp_path, "main"), entry(tmp_path, "scout")])
    await daemon.start()
    body = {"prompt": "count the birds", "agent": "scout", "name": "birds"}
    task_id = (await daemon.post("/tasks/create", body)).body["task_id"]
    one = await shown(daemon, task_id, "waiting")
    assert (one["last_question"], one["progress"], one["percent"]) == (
        "How many are there?",
        "looking",
        20,
    )
    async with asyncio.timeout(BOUND_S):  # its program ends, and the run is parked
        while daemon.sql("SELECT state FROM messages")[0]["state"] != "parked":
            await asyncio.sleep(0.05)
    assert "Look twice." in (Path(one["folder"]) / "TASKMEMORY.md").read_text()

    daemon.kill()
    await daemon.ended()
    await daemon.start()
    assert (await shown(daemon, task_id, "waiting"))["question_count"] == 1
    answered = await daemon.post("/tasks/answer", {"task_id": task_id, "answer": "eleven"})
    assert answered.status == 200
    one = await shown(daemon, task_id, "done")
    assert (one["result"], one["runs"]) == ("counted: eleven", 1)


async def test_what_a_turn_gives_is_its_agents_who_answers_and_gets_the_result(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    daemon = make_daemon([entry(tmp_path, "main"), entry(tmp_path, "scout")])
    await daemon.start()
    answer = await daemon.post("/interagent/send", {"to": "scout", "message": "begin"})
    task_id = answer.body["text"].removeprefix("began ")
    one = await shown(daemon, task_id, "done")
    assert (one["parent_agent"], one["agent"], one["runs"]) == ("scout", "scout", 1)
    assert (one["last_question"], one["result"]) == ("How many are there?", "counted: seven")
    assert (await daemon.post("/tasks/cancel", {"task_id": task_id, "from": "main"})).status == 403
    async with asyncio.timeout(BOUND_S):  # the result comes before the agent, as one turn
        while not daemon.sql("SELECT 1 FROM messages WHERE result_text = 'so it is counted'"):
            await asyncio.sleep(0.05)
