"""An agent with a tool server of its own in a whole daemon: leave, kills, coding agents, secrets."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, group_members, write_home
from tests.support.model_server import Asked, Call, ModelServer, Reply

KEY = "a-very-secret-key-of-this-proof"
PYTHON = {"PYTHONPATH": str(Path(__file__).parents[2])}


def proof_server(effects: Path, **more: Any) -> dict[str, Any]:
    effects.touch()  # what is made beside the home later is behind the fence
    return {
        "command": sys.executable,
        "args": ["-m", "tests.support.mcp_server", "--effects", str(effects)],
        "env": {"API_KEY": "env:PROOF_KEY", **PYTHON},
        **more,
    }


def with_grandchild(effects: Path) -> dict[str, Any]:
    """The same behind a shell that leaves a program of its own behind, as ``npx`` might."""
    server = proof_server(effects)
    script = 'sleep 3600 & exec "$0" "$@"'
    return {
        **server,
        "command": "/bin/sh",
        "args": ["-c", script, server["command"], *server["args"]],
    }


def done(effects: Path, what: str) -> list[str]:
    rows = map(json.loads, effects.read_text().splitlines())
    return [text for kind, text in rows if kind == what]


async def until(look: Callable[[], Awaitable[Any]], wanted: Any, within_s: float = BOUND_S) -> None:
    async with asyncio.timeout(within_s):
        while await look() != wanted:
            await asyncio.sleep(0.05)


async def states(daemon: DaemonProcess, agent: str) -> list[str]:
    return [one["state"] for one in (await daemon.get(f"/agents/{agent}/mcp"))["servers"]]


async def agentsup(home: Path, *line: str) -> str:
    argv = [sys.executable, "-m", "agentsup", "--home", str(home), *line]
    env = {**os.environ, **PYTHON, "PROOF_KEY": KEY, "COLUMNS": "200"}
    ran = await asyncio.to_thread(subprocess.run, argv, env=env, capture_output=True, text=True)
    return ran.stdout + ran.stderr


def stored(home: Path) -> Iterable[bytes]:
    for path in (*home.glob("state.db*"), *(home / "logs").glob("*")):
        yield path.read_bytes()


def model(asked: Asked) -> Reply:
    last = asked.messages[-1]
    if last["role"] == "tool":
        return Reply(f"it says: {last['content']}")
    return Reply(calls=(Call("mcp__proof__note", {"text": "once"}),))


@pytest.mark.timeout(180)
async def test_a_call_waits_for_leave_over_a_killed_daemon_and_is_made_once(
    tmp_path: Path,
) -> None:
    effects = tmp_path / "effects"
    async with ModelServer(model) as server:
        options = {"base_url": server.base_url, "api_key": "sk-loopback-0123456789"}
        entry = {"engine": "llm", "model": "loopback-1", "engine_options": options}
        home = write_home(
            tmp_path / "home",
            [{"name": "main", **entry, "mcpServers": {"proof": with_grandchild(effects)}}],
        )
        async with DaemonProcess(home, env={"PROOF_KEY": KEY, **PYTHON}) as daemon:
            chat = await daemon.chat()
            await until(lambda: states(daemon, "main"), ["running"])
            message_id = await chat.say("note it")
            asked = await chat.event(message_id, "question", timeout_s=30.0)
            assert "mcp:proof/note" in asked["text"]
            offered = [tool["function"]["name"] for tool in server.asked[0].body["tools"]]
            assert "mcp__proof__note" in offered
            (group,) = (row["pgid"] for row in daemon.sql("SELECT pgid FROM processes"))
            assert len(group_members(group)) == 2
            assert KEY.encode() not in Path(f"/proc/{group}/cmdline").read_bytes()

            daemon.kill()
            await daemon.ended()
            await daemon.start()
            assert group_members(group) == []
            again = await daemon.chat()
            assert (await again.command("/answer once"))["ok"]
            # The turn goes on when its server is there again.
            answer = await again.event(message_id, timeout_s=30.0)
            assert "noted: once" in answer["text"]
            assert "[outside " in answer["text"], "what a server says is marked as foreign"
            assert done(effects, "note") == ["once"]
            assert len(done(effects, "started")) == 2, "one program for each life of the daemon"

            shown = await again.command("/mcp")
            assert "proof (stdio): running" in shown["text"]
            (one,) = (await daemon.get("/agents/main/mcp"))["servers"]
            assert (one["state"], one["error"]) == ("running", "")
            (group,) = (row["pgid"] for row in daemon.sql("SELECT pgid FROM processes"))
            await daemon.stop()
        assert group_members(group) == []
        assert server.violations == []
    assert not any(KEY.encode() in data for data in stored(home))
    assert KEY not in daemon.output.read_text()


# An engine of the kind "command" with the official client, as coding agents have.
PROGRAM = """
import asyncio, json, os, sys
import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

async def main():
    sys.stdin.read()
    headers = {"Authorization": "Bearer " + os.environ["AGENTSUP_TOKEN"]}
    http = httpx2.AsyncClient(headers=headers, timeout=30)
    url = os.environ["AGENTSUP_URL"] + "/mcp"
    async with http, Client(streamable_http_client(url, http_client=http)) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("mcp__proof__note", {"text": "by a program"})
        beyond = await client.call_tool("mcp__proof__wait", {"seconds": 0, "text": "no"})
    print(json.dumps([names, result.content[0].text, beyond.is_error, beyond.content[0].text]))

asyncio.run(main())
"""


@pytest.mark.timeout(180)
async def test_a_coding_agent_reaches_its_agents_servers_through_us_and_a_person_is_asked(
    tmp_path: Path,
) -> None:
    program, effects = tmp_path / "program.py", tmp_path / "effects"
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
                "tools": ["mcp:proof/n*"],
                "mcp": {"proof": proof_server(effects)},
            },
        ],
        rules=[{"match": ".*", "steps": [{"say": "hello"}]}],
    )
    async with DaemonProcess(home, env={"PROOF_KEY": KEY, **PYTHON}) as daemon:
        chat = await daemon.chat("ada")
        await until(lambda: states(daemon, "ada"), ["running"])
        message_id = await chat.say("go")
        asked = await chat.event(message_id, "question", timeout_s=30.0)
        assert "mcp:proof/note" in asked["text"]
        assert done(effects, "note") == []
        assert (await chat.command("/answer once"))["ok"]
        names, noted, is_error, beyond = json.loads((await chat.event(message_id))["text"])
        assert "mcp__proof__note" in names
        assert "mcp__proof__wait" not in names
        assert "noted: by a program" in noted
        assert is_error
        assert "there is no tool" in beyond
        assert done(effects, "note") == ["by a program"]
        assert done(effects, "begin") == []


@pytest.mark.timeout(180)
async def test_an_edit_adds_and_removes_a_server_while_the_agent_works_on(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    rules = [
        {
            "match": "echo (.*)",
            "steps": [
                {"tool": {"name": "mcp:proof/echo", "args": {"text": "$1"}}},
                {"say": "$result"},
            ],
        }
    ]
    home = write_home(tmp_path / "home", [{"name": "main"}], rules=rules)
    async with DaemonProcess(home, env={"PROOF_KEY": KEY, **PYTHON}) as daemon:
        chat = await daemon.chat()
        (before,) = (await daemon.get("/agents"))["agents"]
        server = proof_server(effects, safety={"echo": "safe"})
        write_home(home, [{"name": "main", "mcp": {"proof": server}}], rules=rules)
        await until(lambda: states(daemon, "main"), ["running"])
        assert "echo: hello" in await chat.ask("echo hello")
        for line, words in (
            (("mcp",), "running"),
            (("mcp", "main", "--json"), '"mcp:proof/echo"'),
            (("doctor",), f"proof of main: {sys.executable}"),
        ):
            said = await agentsup(home, *line)
            assert words in said, said
        roles = await daemon.get("/roles")
        assert "mcp:proof/echo" in roles["unmatched"], "roles don't see the tools of servers"
        write_home(home, [{"name": "main"}], rules=rules)
        await until(lambda: states(daemon, "main"), [])

        async def programs() -> list[Any]:
            return daemon.sql("SELECT pgid FROM processes")

        await until(programs, [])
        (after,) = (await daemon.get("/agents"))["agents"]
        assert after["instance_id"] == before["instance_id"], "the agent was rebuilt"
