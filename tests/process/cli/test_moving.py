"""A home of another product moves here, and a real daemon works with it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.process.cli.process_cli import ENV, Cli
from tests.support.bound import BOUND_S
from tests.support.moving_homes import openclaw_home, put, sygen_home

# It starts several programs.
pytestmark = pytest.mark.timeout(180)


def _without_accounts(there: Path) -> Path:
    """The same home without bots and engines, which would ask others."""
    config = json.loads((there / "config/config.json").read_text())
    for key in ("telegram_token", "transport", "provider", "model"):
        del config[key]
    put(there, "config/config.json", config)
    put(there, "agents.json", [{"name": "cook", "description": "Cooks."}])
    return there


def _import(home: Path, there: Path, fault: str = "") -> int:
    words = ["-m", "agentsup", "--home", str(home), "import", str(there), "--apply"]
    env = {**ENV, "PATH": os.environ["PATH"], **({"AGENTSUP_FAULT": fault} if fault else {})}
    done = subprocess.run(
        [sys.executable, *words], env=env, capture_output=True, timeout=BOUND_S, check=False
    )
    return done.returncode


def _content(home: Path) -> tuple[dict[str, bytes], dict[str, int]]:
    files = {
        str(path.relative_to(home)): path.read_bytes()
        for folder in ("agents", "skills", "secrets")
        for path in sorted((home / folder).rglob("*"))
        if path.is_file()
    }
    tables = ("agents", "memories", "tasks", "schedules", "sessions", "transcript")
    with closing(sqlite3.connect(home / "state.db")) as database:
        rows = {
            table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in tables
        }
    return {**files, "agents.json": (home / "agents.json").read_bytes()}, rows


@pytest.mark.parametrize("point", ["store.before_commit", "store.after_commit"])
def test_after_a_kill_the_same_command_brings_the_rest(tmp_path: Path, point: str) -> None:
    there = openclaw_home(tmp_path / "there")
    assert _import(tmp_path / "whole", there) == 0
    killed = tmp_path / "killed"
    assert _import(killed, there, f"{point}:1") == -signal.SIGKILL
    assert _import(killed, there) == 0
    assert _content(killed) == _content(tmp_path / "whole")


def _tool(cli: Cli, script: str, *words: str, token: str) -> subprocess.CompletedProcess[str]:
    path = cli.home / "agents/main/workspace/tools" / script
    address = {"AGENTSUP_URL": f"http://127.0.0.1:{cli.port}", "AGENTSUP_TOKEN": token}
    return subprocess.run(
        [sys.executable, str(path), *words],
        env={**ENV, "PATH": os.environ["PATH"], **address},
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )


def test_agents_schedules_memories_and_tool_scripts_work(cli: Cli, tmp_path: Path) -> None:
    there = _without_accounts(sygen_home(tmp_path / "there"))
    told = cli.good("import", str(there))
    assert "Nothing was changed" in told
    assert "cook" not in (cli.home / "agents.json").read_text()
    assert "Brought" in cli.good("import", str(there), "--apply")
    cli.daemon()
    again = cli.run("import", str(there), "--apply")
    assert (again.returncode, " stop`" in again.stderr) == (1, True)

    assert "cook" in cli.good("agents", "list")
    assert "Anna lives in Graz." in cli.good("memory", "list", "main")
    tasks = json.loads(cli.good("tasks", "list", "--json"))["tasks"]
    assert {"Weekly tidy", "Off"} == {one["name"] for one in tasks}
    one = json.loads(cli.good("tasks", "show", tasks[0]["id"], "--json"))
    assert one["schedule"]["timezone"]

    token = (cli.home / "api.token").read_text().strip()
    asked = _tool(cli, "agent_tools/ask_agent.py", "--new", "writer", "hello", token=token)
    assert (asked.returncode, asked.stdout) == (0, "you said hello\n"), asked.stderr
    made = _tool(cli, "task_tools/create_task.py", "--name", "birds", "count", token=token)
    assert made.stdout.startswith("birds is "), made.stderr
    assert "birds" in _tool(cli, "task_tools/list_tasks.py", token=token).stdout
    named = ("--name", "tea", "--description", "Make tea.", "--schedule", "0 9 * * *")
    added = _tool(cli, "cron_tools/cron_add.py", *named, token=token)
    task_id = json.loads(added.stdout)["id"]
    assert json.loads(_tool(cli, "cron_tools/cron_remove.py", task_id, token=token).stdout)
    refused = _tool(cli, "agent_tools/list_agents.py", token="wrong")
    assert (refused.returncode, "Error: " in refused.stderr) == (1, True)
    without = _tool(cli, "agent_tools/list_agents.py", token="")
    assert "AGENTSUP_TOKEN is not set" in without.stderr
