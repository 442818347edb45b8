"""``agentsup trace``: what happened, in a pipe, after a kill, and what the doctor makes of it."""

from __future__ import annotations

import json

import pytest

from tests.process.cli.process_cli import Cli, until

# Each of them starts several programs.
pytestmark = pytest.mark.timeout(180)


def test_a_request_is_found_by_the_beginning_of_its_id(cli: Cli) -> None:
    """What is shown of it is in ``tests/golden``."""
    cli.daemon()
    cli.good("send", "main", "researcher three")
    (listed, *_) = json.loads(cli.good("trace", "list", "--json"))["traces"]
    assert listed["text"] == "researcher three"
    shown = json.loads(cli.good("trace", "show", listed["trace_id"][:10], "--json"))
    assert {"turn", "segment", "engine"} <= {span["kind"] for span in shown["spans"]}
    assert "main: turns" in cli.good("trace", "metrics", "--agent", "main")
    wrong = cli.run("trace", "show", "msg_nothing", "--json")
    assert (wrong.returncode, "no trace is known" in wrong.stderr) == (1, True)


def test_what_a_kill_cut_is_interrupted(cli: Cli) -> None:
    daemon = cli.daemon()
    message_id = cli.good("send", "main", "hang", "--no-wait").strip()
    until("it has begun", lambda: "segment" in cli.run("trace", "show", message_id).stdout)
    daemon.kill()
    daemon.wait()
    cli.daemon()
    until("it goes on", lambda: cli.good("trace", "show", message_id).count("segment") == 2)
    shown = json.loads(cli.good("trace", "show", message_id, "--json"))
    states = [span["state"] for span in shown["spans"] if span["kind"] == "segment"]
    assert states == ["interrupted", "running"]
