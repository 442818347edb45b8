"""Whatever agents say, no control code of theirs reaches the terminal: commands, chat and the log."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
from typing import Any

import pytest
import typer.main

from agentsup.cli.app import app
from tests.process.cli.process_cli import ENV, Cli, until

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202edesrever\u2066x\x7f"
QUOTED = json.dumps(EVIL + " said")
RULES = f"""
- {{match: 'ask', steps: [{{question: {{text: {QUOTED}, options: [{QUOTED}, other]}}}}, {{say: {QUOTED}}}]}}
- {{match: 'fail', steps: [{{fail: {QUOTED}}}]}}
- {{match: '(.+)', steps: [{{say: {QUOTED}}}]}}
"""
OURS = re.compile(r"\x1b\[(?:0|1|2|31|32|33|36)m|\r\n")
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
FEW = {
    "init",
    "up",
    "demo",
    "run",
    "restart",
    "stop",
    "stop-all",
    "agents edit",
    "service install",
    "service uninstall",
    "uninstall",
    "upgrade",
}
"""They start or end daemons, or an editor. What they print of others is the log, seen below."""


def leaves(command: Any, name: tuple[str, ...] = ()) -> set[str]:
    below = getattr(command, "commands", None)
    if below is None:
        return {" ".join(name)}
    return {leaf for key, each in below.items() for leaf in leaves(each, (*name, key))}


@pytest.mark.timeout(180)
def test_no_command_passes_a_control_code_on(cli: Cli) -> None:
    (cli.home / "demo-rules.yaml").write_text(RULES)
    daemon, terminal = pty.openpty()
    process = subprocess.Popen(
        cli.argv("run", "--port", str(cli.port)),
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env={**ENV, "TERM": "xterm"},
    )
    cli.started.append(process)  # type: ignore[arg-type]  # its output is bytes of a terminal
    os.close(terminal)
    os.set_blocking(daemon, False)
    seen = b""

    def ready() -> bool:
        nonlocal seen
        with contextlib.suppress(BlockingIOError, OSError):
            seen += os.read(daemon, 65536)
        return cli.is_ready()

    until("the daemon is ready", ready)
    shown_first = [line for line in seen.splitlines() if b"GET /readyz" not in line]  # we asked
    assert len(shown_first) <= 6, "the link and each agent, and nothing of its parts"
    message = json.loads(cli.good("send", "writer", f"hello {EVIL}", "--json"))["message_id"]
    cli.run("send", "writer", "fail", "--json")
    task = json.loads(cli.good("tasks", "create", f"do {EVIL}", "--json"))
    assert cli.in_terminal("chat", stdin=f"hello {EVIL}\nfail\n"), "nothing was shown"
    asked = cli.in_terminal("chat", stdin="ask\n1\n")
    assert "desrever" in asked
    ids = {
        "ID": message,
        "TASK_ID": str(task.get("task_id") or task["task"]["id"]),
        "NAME": "writer",
    }
    shown = {"chat": asked}
    for leaf in sorted(leaves(typer.main.get_command(app)) - FEW - {"chat"}):
        words = [*leaf.split(), *ARGUMENTS.get(leaf, "").format(**ids).split()]
        has_words = leaf in ARGUMENTS or leaf.endswith("list")
        for extra in ([], ["--json"]) if has_words else ([],):
            shown[" ".join([leaf, *extra])] = cli.in_terminal(*words, *extra, stdin="")
    process.send_signal(signal.SIGTERM)
    os.set_blocking(daemon, True)
    while True:
        try:
            chunk = os.read(daemon, 65536)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    os.close(daemon)
    shown["run"] = seen.decode("utf-8", "replace")
    told = [name for name, text in shown.items() if "desrever" in text]
    assert {"messages list", "messages show", "tasks list", "tasks show", "chat"} <= set(told), told
    wrong = {n: t for n, t in shown.items() if STEERING.search(OURS.sub("", t))}
    assert wrong == {}


ARGUMENTS = {
    "messages show": "{ID}",
    "messages thread": "{ID}",
    "messages replay": "{ID}",
    "tasks show": "{TASK_ID}",
    "tasks log": "{TASK_ID}",
    "agents show": "{NAME}",
    "agents explain": "{NAME}",
    "memory list": "{NAME}",
    "send": "{NAME} again",
    "trace show": "{ID}",
    "route": "hello",
    "config get": "api",
    "service logs": "--no-follow",
}
