"""Roles of a running daemon: edits apply to the next turn, a broken file takes nothing along."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess

pytestmark = pytest.mark.process

RULES: list[dict[str, Any]] = [
    {"match": "look", "steps": [{"tool": {"name": "fs_list", "args": {"path": "."}}},
     {"say": "$result"}]},
    {"match": "write", "steps": [{"tool": {"name": "fs_write", "args": {"path": "made.txt",
     "content": "x"}}}, {"say": "$result"}]},
]  # fmt: skip


def put(daemon: DaemonProcess, name: str, text: str) -> Path:
    path = daemon.home / "roles" / name / "AGENT.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


async def told(daemon: DaemonProcess, *line: str) -> tuple[int, str]:
    """What the command line says and ends with."""
    command = [sys.executable, "-m", "agentsup", "--home", str(daemon.home), *line]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    return done.returncode, done.stdout


async def asked(daemon: DaemonProcess, text: str) -> str:
    found = await daemon.result(await daemon.send("ann", text))
    return str(found)


async def until_said(daemon: DaemonProcess, text: str, part: str, *, absent: bool = False) -> None:
    """Ask again until the answer holds ``part`` (or no longer does)."""
    async with asyncio.timeout(BOUND_S):
        while (part in await asked(daemon, text)) is absent:
            pass


async def until_warned(daemon: DaemonProcess, part: str) -> None:
    async with asyncio.timeout(BOUND_S):
        while part not in str((await daemon.get("/status"))["warnings"]):
            pass


async def test_an_edited_role_applies_to_the_next_turn(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon([{"name": "ann", "role": "reader"}], RULES)
    put(daemon, "reader", "---\nname: reader\nmax_tools: [fs_list]\n---\n")
    await daemon.start()
    assert "beyond the role reader" in await asked(daemon, "write")
    assert "beyond the role" not in await asked(daemon, "look")
    assert not (daemon.home / "agents" / "ann" / "workspace" / "made.txt").exists()

    path = put(daemon, "reader", "---\nname: reader\nmax_tools: ['fs_*']\n---\n")
    await until_said(daemon, "write", "beyond the role", absent=True)

    path.write_text("---\nname: reader\nmax_tool: []\n---\n", encoding="utf-8")
    await until_warned(daemon, f"{path}:3:1")
    assert "beyond the role" not in await asked(daemon, "write"), "the last good one stays"

    put(daemon, "vault", "---\nname: vault\nmax_tools: ['*']\n---\n")
    await until_warned(daemon, "'vault' is built in")

    path.unlink()
    await until_said(daemon, "look", "there is no usable role reader")
    await until_warned(daemon, "ann has no tools: there is no role 'reader'")


async def test_the_command_line_shows_roles_and_routes(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["ann"], RULES)
    put(daemon, "mine", "---\nname: mine\nprefixes: [fs_list]\n---\n")
    assert "mine" in (await told(daemon, "roles", "list"))[1], "without a daemon"
    await daemon.start()
    (code, text), (route_code, routed) = await asyncio.gather(
        told(daemon, "roles", "list", "--json"),
        told(daemon, "route", "read the file notes.txt", "--json"),
    )
    found = {one["name"]: one for one in json.loads(text)["roles"]}
    assert code == 0
    assert (found["operator"]["served"], found["vault"]["served"]) == (True, False)
    assert "fs_list" in found["operator"]["tools"], "a shipped role comes first"
    assert found["mine"]["tools"] == []
    assert (route_code, json.loads(routed)["role"]) == (0, "operator")


async def test_the_command_line_tells_of_a_broken_file(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["ann"], RULES)
    await daemon.start()
    assert (await told(daemon, "agents", "list"))[0] == 0
    put(daemon, "mine", "---\nname: mine\nkeyword: 1\n---\n")
    lines = (["roles", "list"], ["agents", "list"], ["agents", "list", "--json"])
    ends = await asyncio.gather(*(told(daemon, *line) for line in lines))
    for code, text in ends:
        assert code == 1
        assert "AGENT.md:3:1" in text
    assert all("ann" in text for _, text in ends[1:]), "the agents are listed all the same"
