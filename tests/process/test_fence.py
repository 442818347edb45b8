"""P3, P7: whatever an agent runs, the home and the other agents are out of its reach."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentsup
from agentsup.kit import fence
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(fence.version() < fence.OLDEST, reason="this kernel has no Landlock"),
]

# Tries each way to what isn't its own, and says which ones led somewhere.
ATTACK = """
import json, os, pathlib, socket, sys, tempfile
home, daemon = pathlib.Path(sys.argv[1]), int(sys.argv[2])
found = []
def attempt(name, step):
    try:
        step()
    except OSError:
        return
    found.append(name)
attempt("token", (home / "api.token").read_bytes)
attempt("store", (home / "state.db").read_bytes)
attempt("config", (home / "agents.json").read_bytes)
attempt("names", lambda: os.listdir(home))
attempt("notes of bob", (home / "agents" / "bob" / "workspace" / "notes").read_bytes)
attempt("edit", lambda: (home / "agents.json").open("r+").close())
attempt("plant", (home / "agents" / "bob" / "workspace" / "planted").touch)
attempt("signal", lambda: os.kill(daemon, 0))
user = pathlib.Path(sys.argv[3])
attempt("keys", (user / ".config" / "agentsup" / "environment").read_bytes)
attempt("sign-in", (user / ".claude" / ".credentials.json").read_bytes)
attempt("code", lambda: open(sys.argv[4], "a").close())
attempt("start-up file", lambda: open(user / ".bashrc", "a").close())
attempt("new start-up file", lambda: open(user / ".zshrc", "a").close())
attempt("unit", lambda: open(user / ".config" / "systemd" / "user" / "x.service", "a").close())
attempt("program", lambda: open(user / ".local" / "bin" / "ls", "a").close())
attempt("program of npm", lambda: open(user / ".npm-global" / "bin" / "claude", "a").close())
attempt("program on PATH", lambda: open(user / "tools" / "bin" / "claude", "a").close())
attempt("new program on PATH", lambda: open(user / "tools" / "bin" / "git", "a").close())
attempt("its package", lambda: open(user / "packs" / "node_modules" / "cli.js", "a").close())
def relink():
    os.rename(user / "links" / "now", user / "links" / "then")
    os.rename(user / "links" / "then", user / "links" / "now")
attempt("link on PATH", relink)
attempt("abstract socket", lambda: socket.socket(socket.AF_UNIX).connect("\\0" + sys.argv[5]))
assert (user / ".bashrc").read_text() == "alias", "what is read-only can be read"
(user / "projects" / "mine").write_text("mine")
pathlib.Path("mine").write_text("mine")
pathlib.Path(os.environ["HOME"], "kept").write_text("kept")
tempfile.TemporaryFile().close()
print(json.dumps({"found": found, "mine": pathlib.Path("mine").read_text()}))
"""
EVERYTHING = {
    *("token", "store", "config", "names", "notes of bob", "edit", "plant", "signal"),
    *("keys", "sign-in", "code", "start-up file", "new start-up file", "unit", "program"),
    *("program of npm", "program on PATH", "new program on PATH", "its package", "link on PATH"),
    "abstract socket",
}
"""What a program of the same user gets without a fence."""


async def attacks(tmp_path: Path, config: str) -> list[dict[str, Any]]:
    """What the programs of three agents find: run by ``exec``, an engine, and a tool server."""
    program, home = tmp_path / "attack.py", tmp_path / "home"
    program.write_text(ATTACK)
    log, user = tmp_path / "server.log", user_of(tmp_path)
    log.touch()
    beyond = [str(user), str(Path(agentsup.__file__)), f"agentsup-{os.getpid()}-{tmp_path.name}"]

    def entries(daemon_pid: int) -> list[dict[str, Any]]:
        command = [sys.executable, str(program), str(home), str(daemon_pid), *beyond]
        server = {"command": "/bin/sh", "args": ["-c", f'exec "$0" "$@" > {log}', *command]}
        return [
            {"name": "main"},
            {"name": "ann", "tools": ["exec"], "permission_mode": "bypassPermissions"},
            {
                "name": "cid",
                "engine": "command",
                "engine_options": {"command": command, "output": "text"},
            },
            {"name": "dan", "mcp": {"thief": server}},
            {"name": "bob"},
        ]

    rules = [
        {
            "match": r"run (\d+)",
            "steps": [
                {
                    "tool": {
                        "name": "exec",
                        "args": {"argv": [sys.executable, str(program), str(home), "$1", *beyond]},
                    }
                },
                {"say": "$result"},
            ],
        }
    ]
    write_home(home, [{"name": "main"}, {"name": "bob"}], rules=rules, config=config)
    with socket.socket(socket.AF_UNIX) as service:
        service.bind("\0" + beyond[-1])
        service.listen()
        return await told_by(home, user, entries, rules, config, log)


def user_of(tmp_path: Path) -> Path:
    """The home of the daemon's user."""
    user = tmp_path / "user"
    for name in (
        *(".config/agentsup", ".config/systemd/user", ".local/bin", ".claude", "projects"),
        *(".npm-global/bin", "tools/bin", "packs/node_modules", "links"),
    ):
        (user / name).mkdir(parents=True)
    package = user / "packs" / "node_modules" / "cli.js"
    package.touch(mode=0o755)
    (user / ".npm-global" / "bin" / "claude").touch()
    (user / "tools" / "bin" / "claude").symlink_to(package)
    (user / "links" / "now").symlink_to(user / "tools" / "bin")
    (user / ".config" / "agentsup" / "environment").write_text("KEY=1")
    (user / ".claude" / ".credentials.json").write_text("{}")
    (user / ".bashrc").write_text("alias")
    return user


async def told_by(
    home: Path,
    user: Path,
    entries: Callable[[int], list[dict[str, Any]]],
    rules: list[dict[str, Any]],
    config: str,
    log: Path,
) -> list[dict[str, Any]]:
    path = f"{user}/links/now:{os.environ['PATH']}"
    async with DaemonProcess(home, env={"HOME": str(user), "PATH": path}) as daemon:
        notes = home / "agents" / "bob" / "workspace" / "notes"
        notes.write_text("of bob")
        write_home(home, entries(daemon.pid), rules=rules, config=config)
        said = []
        async with asyncio.timeout(30):
            while not {"ann", "cid", "dan"} <= set(await daemon.agents()):
                await asyncio.sleep(0.05)
            for agent, text in (("ann", f"run {daemon.pid}"), ("cid", "go")):
                result = await daemon.result(await daemon.send(agent, text), wait_s=BOUND_S)
                assert result["success"], result
                said.append(result["text"])
            while not log.read_text().endswith("\n"):
                await asyncio.sleep(0.05)
        said.append(log.read_text())
        assert notes.read_text() == "of bob"
        return [json.loads(text[text.index("{") : text.rindex("}") + 1]) for text in said]


@pytest.mark.timeout(60)
async def test_what_agents_run_reaches_nothing_that_is_not_theirs(tmp_path: Path) -> None:
    for got in await attacks(tmp_path, ""):
        assert got == {"found": [], "mine": "mine"}


@pytest.mark.timeout(60)
async def test_without_the_fence_each_attack_finds_what_it_looks_for(tmp_path: Path) -> None:
    for got in await attacks(tmp_path, '[fence]\nmode = "off"\n'):
        # Where the program was installed by somebody else, its code is out of reach anyway.
        theirs = set() if os.access(agentsup.__file__, os.W_OK) else {"code"}
        assert set(got["found"]) == EVERYTHING - theirs


@pytest.mark.timeout(60)
async def test_what_the_settings_close_is_closed_too(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "id").write_text("a private key")
    argv = ["cat", str(keys / "id")]
    home = write_home(
        tmp_path / "home",
        [{"name": "main", "tools": ["exec"], "permission_mode": "bypassPermissions"}],
        rules=[
            {
                "match": "go",
                "steps": [{"tool": {"name": "exec", "args": {"argv": argv}}}, {"say": "$result"}],
            }
        ],
        config=f'[fence]\nclosed = ["{keys}"]\n',
    )
    async with DaemonProcess(home) as daemon:
        result = await daemon.result(await daemon.send("main", "go"), wait_s=BOUND_S)
        assert "denied" in result["text"], result
        assert "a private key" not in result["text"]
