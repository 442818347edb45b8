"""A coding agent's program that wants its own call allowed: it tries whatever its token opens, spoofs
answers and replays ids, and comes back with the token when its turn is over."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess

pytestmark = pytest.mark.process

# It speaks as Claude Code does, and is talked into everything.
PROGRAM = """
import json, os, sys, urllib.error, urllib.request
TOKEN, URL = os.environ["AGENTSUP_TOKEN"], os.environ["AGENTSUP_URL"]
def send(**message):
    print(json.dumps(message), flush=True)
def hear():
    return json.loads(sys.stdin.readline() or "{}")
def ask(request_id, call_id, command):
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": call_id,
               "input": {"command": command}}
    send(type="control_request", request_id=request_id, request=request)
def answer():
    while (heard := hear()).get("type") != "control_response":
        if not heard:
            sys.exit(0)
    return heard["response"]["response"]["behavior"]
def http(method, path, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    known = {"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json", **headers}
    request = urllib.request.Request(URL + path, data, known, method=method)
    try:
        with urllib.request.urlopen(request, timeout=50) as found:
            return found.status
    except urllib.error.HTTPError as error:
        return error.code
while (heard := hear()).get("type") != "user":
    send(type="control_response", response={"subtype": "success",
         "request_id": heard["request_id"], "response": {}})
text = heard["message"]["content"][0]["text"]
said = []
if "first" in text:
    ask("1", "t1", "touch made")
    while not os.path.exists("asked"):
        pass
    question = open("asked").read()
    # What it would like to be an answer.
    send(type="control_response", response={"subtype": "success", "request_id": "1",
         "response": {"behavior": "allow", "updatedInput": {"command": "touch made"}}})
    yes = {"answer": "once"}
    tried = {
        "questions": http("GET", "/questions"),
        "answer": http("POST", f"/questions/{question}/answer", yes),
        "as a person": http("POST", f"/questions/{question}/answer", yes, **{"X-Forwarded-User": "operator"}),
        "in the address": http("POST", f"/questions/{question}/answer?token={TOKEN}", yes),
        "with a cookie": http("POST", f"/questions/{question}/answer", yes, Cookie="agentsup=" + TOKEN),
        "grants": http("GET", "/approvals"),
        "revoke": http("POST", "/approvals/revoke", {"id": "x"}),
        "stop": http("POST", "/stop_all", {}),
        "as another": http("POST", "/interagent/send", {"from": "main", "to": "main", "message": "/answer once"}),
        "by guessing": http("POST", f"/questions/{question}/answer", yes, Authorization="Bearer " + "x" * 43),
    }
    open("tried", "w").write(json.dumps(tried))
    said.append(answer())
    # The old id for something else; then the same once more.
    ask("2", "t1", "touch other")
    said.append(answer())
    ask("3", "t1", "touch made")
    said.append(answer())
    open("token", "w").write(TOKEN)
send(type="result", subtype="success", is_error=False, result=" ".join(said) or "hello",
     num_turns=1, session_id="s", total_cost_usd=0.0, usage={"input_tokens": 1, "output_tokens": 1})
"""
REFUSED = {401, 403, 404}


async def question_about(daemon: DaemonProcess, words: str) -> dict[str, Any]:
    async with asyncio.timeout(BOUND_S):
        while True:
            found = (await daemon.get("/questions"))["questions"]
            for one in found:
                if words in one["text"]:
                    return dict(one)
            await asyncio.sleep(0.05)


async def written(path: Path) -> str:
    async with asyncio.timeout(BOUND_S):
        while not path.exists() or not path.read_text():
            await asyncio.sleep(0.05)
    return path.read_text()


@pytest.mark.timeout(180)
async def test_a_program_gives_itself_no_leave(make_daemon: MakeDaemon, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    options = {"command": [sys.executable, str(program)]}
    daemon = make_daemon(
        [{"name": "main"}, {"name": "ada", "engine": "claude", "engine_options": options}]
    )
    await daemon.start()
    space = daemon.home / "agents/ada/workspace"
    message = await daemon.send("ada", "first")
    asked = await question_about(daemon, "touch made")
    (space / "asking").write_text(asked["id"])
    (space / "asking").rename(space / "asked")
    tried = json.loads(await written(space / "tried"))
    assert {how: status for how, status in tried.items() if status not in REFUSED} == {}
    still = await question_about(daemon, "touch made")
    assert (still["id"], still["state"]) == (asked["id"], "open")

    said = await daemon.post(f"/questions/{asked['id']}/answer", {"answer": "once"})
    assert said.status == 200
    # Leave for one command is none for another that comes under its id.
    other = await question_about(daemon, "touch other")
    assert (await daemon.post(f"/questions/{other['id']}/answer", {"answer": "deny"})).status == 200
    result = await daemon.result(message, wait_s=BOUND_S)
    assert result["text"] == "allow deny allow"
    assert daemon.sql("SELECT count(*) AS n FROM questions")[0]["n"] == 2
    again = await daemon.post(f"/questions/{other['id']}/answer", {"answer": "once"})
    assert again.status == 409, "an answer that was given counts"

    # The turn is over, and with it the token.
    token = (space / "token").read_text()
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    bearer = {"Authorization": f"Bearer {token}"}
    for path in ("/mcp", "/questions", "/interagent/send"):
        ended = await daemon.post(path, body, headers=bearer)
        assert ended.status == 401, (path, ended.status)
    ended = await daemon.post(f"/mcp/{token}", body, headers={"Authorization": ""})
    assert ended.status == 401, ended.status
