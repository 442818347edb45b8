"""P3, P7: what a program changed in modes of the home is put right at the next start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

ATTACK = """
import os, sys
home = sys.argv[1]
os.chmod(home + "/api.token", 0o644)
for name in ("state.db", "agents.json", "logs", "tasks", "agents/good"):
    os.chmod(os.path.join(home, name), 0)
os.chmod(home, 0o755)
print("done")
"""


def laid(tmp_path: Path) -> Path:
    program, home = tmp_path / "attack.py", tmp_path / "home"
    program.write_text(ATTACK)
    argv = ["python3", str(program), str(home)]
    call = {"tool": {"name": "exec", "args": {"argv": argv}}}
    rule: dict[str, Any] = {"match": "go", "steps": [call, {"say": "$result"}]}
    bad = {"name": "bad", "tools": ["exec"], "permission_mode": "bypassPermissions"}
    rules = [rule, {"match": ".*", "steps": [{"say": "well"}]}]
    return write_home(home, [{"name": "main"}, bad, {"name": "good"}], rules=rules)


def modes(home: Path) -> dict[str, int]:
    names = (".", "api.token", "state.db", "agents.json", "logs", "tasks", "agents/good")
    return {name: (home / name).stat().st_mode & 0o777 for name in names}


async def attacked(daemon: DaemonProcess) -> None:
    result = await daemon.result(await daemon.send("bad", "go"), wait_s=BOUND_S)
    assert "done" in result["text"], result
    assert modes(daemon.home)["agents/good"] == 0


async def test_a_start_puts_modes_right_and_makes_a_new_token(tmp_path: Path) -> None:
    home = laid(tmp_path)
    async with DaemonProcess(home) as daemon:
        before = {name: mode & 0o700 for name, mode in modes(home).items()}
        token = (home / "api.token").read_text()
        await attacked(daemon)
        daemon.kill()
        await daemon.ended()
        await daemon.start()
        assert (home / "api.token").read_text() != token
        now = modes(home)
        assert {name: mode & 0o700 for name, mode in now.items()} == before
        assert (now["."], now["api.token"]) == (0o700, 0o600)
        result = await daemon.result(await daemon.send("good", "hello"), wait_s=BOUND_S)
        assert result["text"] == "well"
        async with asyncio.timeout(BOUND_S):
            while not (told := await notices(daemon)):
                await asyncio.sleep(0.05)
        assert "api.token" not in told
        assert "agents/good" in told
        assert "The operator's token could be read" in told


OPEN = "import os, sys; os.umask(0); from agentsup.cli.main import main; sys.exit(main())"


async def test_no_umask_opens_what_the_daemon_makes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_home(home, [{"name": "main"}], [{"match": ".*", "steps": [{"say": "well"}]}])
    given = {path: path.stat().st_mode for path in home.iterdir()}
    async with DaemonProcess(home, command=("-c", OPEN)) as daemon:
        result = await daemon.result(await daemon.send("main", "hello"))
        assert result["text"] == "well"
        await daemon.post("/tasks/create", {"prompt": "work"})
        made = {path: path.stat().st_mode for path in [home, *home.rglob("*")] if path not in given}
        assert home / "agents" / "main" in made
        assert [str(path) for path, mode in made.items() if mode & 0o022] == []


async def notices(daemon: DaemonProcess) -> str:
    rows = daemon.sql("SELECT body FROM outbox WHERE lower(body) LIKE '%put right%'")
    return " ".join(row["body"] for row in rows)
