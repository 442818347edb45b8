"""Where secrets are looked for: argument lists and environments of children, log, store, home."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest

from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home

pytestmark = pytest.mark.process

BOT, KEY = "4711:AAbot-token-of-nobody-at-all", "sk-key-of-the-engine-0815"
FILED = "sk-key-in-the-file-of-the-home-4712"

# It tells on both streams what it was given, and stays until it is looked at.
PROGRAM = """
import os, pathlib, sys, time
sys.stdin.read()
print("my key is", os.environ["KEY"], "and", os.environ["AGENTSUP_TOKEN"], flush=True)
print("my key is", os.environ["KEY"], file=sys.stderr, flush=True)
pathlib.Path("up").touch()
while not pathlib.Path("seen").exists():
    time.sleep(0.01)
"""


def of_lives(pid: int) -> dict[int, tuple[bytes, bytes]]:
    """Arguments and environment of the processes that this daemon has started."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environ = (place / "environ").read_bytes()
            if f"AGENTSUP_GROUP={pid}.".encode() in environ:
                found[int(place.name)] = ((place / "cmdline").read_bytes(), environ)
    return found


@pytest.mark.timeout(180)
async def test_no_secret_is_left_anywhere(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    options = {
        "command": [sys.executable, str(program)],
        "output": "text",
        "env": {"KEY": "env:KEY_OF_ENGINE"},
    }
    argv = ["sh", "-c", "env; cat /proc/self/environ; touch up; while ! [ -e seen ]; do :; done"]
    home = write_home(
        tmp_path / "home",
        [
            {"name": "main"},
            {"name": "ada", "engine": "command", "engine_options": options},
            {"name": "bob", "tools": ["exec"], "permission_mode": "bypassPermissions"},
        ],
        rules=[
            {
                "match": "go",
                "steps": [{"tool": {"name": "exec", "args": {"argv": argv}}}, {"say": "$result"}],
            }
        ],
        config='[agent_defaults]\ntelegram_base_url = "http://127.0.0.1:9"\n',
    )
    (home / "environment").write_text(f"KEY_OF_ENGINE={KEY}\nANTHROPIC_API_KEY={FILED}\n")
    (home / "environment").chmod(0o644)
    daemon = DaemonProcess(home, env={"BOT": BOT, "OPENAI_API_KEY": BOT})
    async with daemon:
        operators = daemon.token
        messages = [await daemon.send(name, "go") for name in ("ada", "bob")]
        spaces = [home / "agents" / name / "workspace" for name in ("ada", "bob")]
        async with asyncio.timeout(BOUND_S):
            while not all((space / "up").exists() for space in spaces):
                await asyncio.sleep(0.02)
        children = of_lives(daemon.pid)
        assert len(children) >= 2
        tokens: set[str] = set()
        for cmdline, environ in children.values():
            for secret in (BOT, KEY, FILED, operators):
                assert secret.encode() not in cmdline, cmdline
            for secret in (BOT, FILED, operators):
                assert secret.encode() not in environ
            pairs = dict(pair.split(b"=", 1) for pair in environ.split(b"\0") if b"=" in pair)
            tokens |= {pairs[b"AGENTSUP_TOKEN"].decode()} if b"AGENTSUP_TOKEN" in pairs else set()
            assert (b"KEY" in pairs) == (b"AGENTSUP_TOKEN" in pairs), "a key of another engine"
        assert tokens
        for space in spaces:
            (space / "seen").touch()
        results = [await daemon.result(message, wait_s=BOUND_S) for message in messages]
        assert all(result["success"] for result in results), results
        assert await daemon.stop() == 0
    shown = "".join(result["text"] for result in results)
    places = {path.name: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    places["output"] = daemon.output.read_bytes()
    for name in ("api.token", "environment"):
        del places[name]
    for secret in (BOT, KEY, FILED, operators):
        assert secret not in shown
        found = [name for name, data in places.items() if secret.encode() in data]
        assert found == [], secret
    # A turn's own token is worth nothing by now; it is in no log all the same.
    for name in ("output", "agentsup.log"):
        assert not any(token.encode() in places[name] for token in tokens)
    for name in ("api.token", "state.db", "environment"):
        assert (home / name).stat().st_mode & 0o077 == 0, name
