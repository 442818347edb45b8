"""A program with the official MCP client calls our tools in a whole daemon."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home

# An engine of the kind "command": one turn, told by JSON on its standard input.
PROGRAM = """
import asyncio, json, os, sys, pathlib
import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

def plain(result):
    return [not result.is_error, result.content[0].text]

async def main():
    sys.stdin.read()
    token = os.environ["AGENTSUP_TOKEN"]
    http = httpx2.AsyncClient(headers={"Authorization": "Bearer " + token}, timeout=30)
    url = os.environ["AGENTSUP_URL"] + "/mcp"
    async with http, Client(streamable_http_client(url, http_client=http)) as client:
        seen = {"tools": sorted(tool.name for tool in (await client.list_tools()).tools)}
        call = client.call_tool
        seen["asked"] = plain(await call("ask_agent", {"to": "bob", "message": "hello bob"}))
        seen["beyond"] = plain(await call("ask_agent_async", {"to": "bob", "message": "psst"}))
        seen["files"] = plain(await call("fs_write", {"path": "a", "text": "b"}))
        both = (call("list_agents", {}), call("list_agents", {}))
        seen["at_once"] = [plain(each) for each in await asyncio.gather(*both)]
    pathlib.Path("token").write_text(token)
    print(json.dumps(seen))

asyncio.run(main())
"""


async def test_a_program_calls_our_tools_as_its_agent(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    options = {"command": [sys.executable, str(program)], "output": "text"}
    home = write_home(
        tmp_path / "home",
        [
            {"name": "main"},
            {
                "name": "ada",
                "engine": "command",
                "engine_options": options,
                "tools": ["ask_agent", "list_agents", "fs_*"],
            },
            {"name": "bob"},
        ],
        rules=[{"match": ".*", "steps": [{"say": "bob hears you"}]}],
    )
    async with DaemonProcess(home) as daemon:
        message = await daemon.send("ada", "go")
        result = await daemon.result(message, wait_s=BOUND_S)
        assert result["success"], result
        seen = json.loads(result["text"])
        # Files are what programs of its kind have tools of their own for.
        assert {"ask_agent", "list_agents"} <= set(seen["tools"])
        assert not [name for name in seen["tools"] if name.startswith("fs_")]
        assert seen["asked"] == [True, "bob hears you"]
        assert seen["beyond"][0] is False
        assert "is not among the tools of ada" in seen["beyond"][1]
        assert seen["files"][0] is False
        assert [ok for ok, _ in seen["at_once"]] == [True, True]

        # What was done is in the journal of the turn, under its message.
        rows = daemon.sql("SELECT name, state FROM tool_calls WHERE message_id = ?", (message,))
        assert [(row["name"], row["state"]) for row in rows] == [("ask_agent", "done")]
        (ada,) = daemon.sql("SELECT agent_id FROM agents WHERE name = 'ada'")
        asked = daemon.sql("SELECT * FROM messages WHERE sender_agent_id = ?", (ada["agent_id"],))
        assert len(asked) == 1, "bob was asked once, by ada"

        # The token has died with the turn.
        token = (home / "agents/ada/workspace/token").read_text()
        ping: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        headers = {"Authorization": f"Bearer {token}"}
        assert (await daemon.request("POST", "/mcp", json=ping, headers=headers)).status == 401
        assert token not in daemon.tail(1_000_000)


# It asks the agent that its prompt names, and answers with what it hears; or it just answers.
ASKING = """
import json, os, re, sys, urllib.request
text = re.findall("(?:(?:bob|cyd|eva):)*say-[0-9]+", sys.stdin.read())[-1]
to, _, rest = text.partition(":")
if not rest:
    print("heard " + text)
    sys.exit()
body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "ask_agent",
                   "arguments": {"to": to, "message": rest, "new_session": True, "timeout": 30}}}
request = urllib.request.Request(
    os.environ["AGENTSUP_URL"] + "/mcp", json.dumps(body).encode(),
    {"Authorization": "Bearer " + os.environ["AGENTSUP_TOKEN"], "Content-Type": "application/json",
     "Accept": "application/json, text/event-stream"})
print(json.loads(urllib.request.urlopen(request).read())["result"]["content"][0]["text"])
"""


@pytest.mark.parametrize(
    "limits, way",
    [("processes = 2", "bob:cyd:"), ("held_processes = 1", "eva:")],
    ids=["no place", "no slot"],
)
async def test_programs_that_wait_for_other_agents_hold_nobody_up(
    tmp_path: Path, limits: str, way: str
) -> None:
    """All places for programs are taken by some that wait for others, which need a place; or by
    some that need their slot back, while turns that have the slots need a place."""
    program = tmp_path / "asking.py"
    program.write_text(ASKING)
    options = {"command": [sys.executable, str(program)], "output": "text"}
    names = ("ada", "bob", "cyd")
    home = write_home(
        tmp_path / "home",
        [
            {"name": "main"},
            {"name": "eva"},
            *(
                {"name": name, "engine": "command", "engine_options": options, "slots": 2}
                for name in names
            ),
        ],
        rules=[{"match": "(say-\\d+)", "steps": [{"sleep": 0.5}, {"say": "heard $1"}]}],
        config=f"[limits]\n{limits}\nprocesses_per_agent = 2\n",
    )
    async with DaemonProcess(home) as daemon:
        messages = [
            await daemon.send("ada", f"{way}say-{number}", thread_id=str(number))
            for number in range(5)
        ]
        for number, message in enumerate(messages):
            result = await daemon.result(message, wait_s=BOUND_S)
            assert (result["success"], result["text"]) == (True, f"heard say-{number}"), result
        figures = (await daemon.request("GET", "/metrics")).body
        for state in ("running", "held", "waiting"):
            assert f"agentsup_programs_{state} 0.0" in figures
