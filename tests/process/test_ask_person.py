"""A program asks a person over MCP, in a whole daemon that is killed before the answer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.daemon_process import group_members

pytestmark = pytest.mark.process

PROGRAM = """
import json, os, sys, urllib.request
sys.stdin.read()
body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
        {"name": "ask_person", "arguments": {"text": "Which colour?", "options": ["red", "blue"]}}}
request = urllib.request.Request(
    os.environ["AGENTSUP_URL"] + "/mcp", json.dumps(body).encode(),
    {"Authorization": "Bearer " + os.environ["AGENTSUP_TOKEN"],
     "Content-Type": "application/json", "Accept": "application/json, text/event-stream"})
answer = json.loads(urllib.request.urlopen(request, timeout=60).read())
print("painted " + answer["result"]["content"][0]["text"])
"""


@pytest.mark.timeout(180)
async def test_the_old_button_answers_a_program_that_is_long_gone(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    options = {"command": [sys.executable, str(program)], "output": "text"}
    daemon = make_daemon(
        [{"name": "main"}, {"name": "ada", "engine": "command", "engine_options": options}]
    )
    await daemon.start()
    chat = await daemon.chat("ada")
    message_id = await chat.say("paint it")
    asked = await chat.event(message_id, "question", timeout_s=BOUND_S)
    assert (asked["text"], asked["options"]) == ("Which colour?", ["red", "blue"])
    groups = [row["pgid"] for row in daemon.sql("SELECT pgid FROM processes")]
    daemon.kill()
    await daemon.ended()
    await daemon.start()
    assert not [pid for group in groups for pid in group_members(group)]
    again = await daemon.chat("ada")
    assert (await again.command("/answer blue"))["ok"]
    answer = await again.event(message_id, timeout_s=BOUND_S)
    assert answer["text"] == "painted blue"
    assert daemon.sql("SELECT count(*) AS n FROM questions")[0]["n"] == 1
