"""Background work from the command line, against a real daemon."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.process.cli.process_cli import Cli, until

# Each of them starts several programs.
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True)
def named(cli: Cli) -> None:
    """The engine is named: without a model the offline engine finishes no task."""
    agents = cli.home / "agents.json"
    agents.write_text(agents.read_text().replace('"auto"', '"scripted"'))


def shown(cli: Cli, task_id: str) -> Any:
    return json.loads(cli.good("tasks", "show", task_id, "--json"))


def test_give_look_and_steer(cli: Cli) -> None:
    cli.daemon()
    assert cli.good("tasks", "create", "count birds", "--wait") == "you said count birds\n"
    failed = cli.run("tasks", "create", "fail", "--agent", "writer", "--wait")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "is failed: the script wants it so" in failed.stderr

    made = json.loads(cli.good("tasks", "create", "hang", "--name", "long", "--key", "k", "--json"))
    task_id = made["task_id"]
    assert task_id in cli.good("tasks", "create", "hang", "--name", "long", "--key", "k")
    until("it runs", lambda: shown(cli, task_id)["state"] == "running")
    refused = cli.run("tasks", "delete", task_id)
    assert (refused.returncode, "is running" in refused.stderr) == (1, True)
    assert cli.good("tasks", "cancel", task_id[-8:]) == f"{task_id} is cancelled\n"
    assert cli.run("tasks", "cancel", task_id).returncode == 1
    again = cli.good("tasks", "resume", task_id, "something short", "--wait")
    assert again == "you said something short\n"
    text = cli.good("tasks", "show", task_id)
    assert "run 2" in text
    assert "resume, done" in text
    assert "task.created" in cli.good("tasks", "log", task_id, "-n", "100")
    assert cli.good("tasks", "delete", task_id) == f"{task_id} is deleted\n"
    gone = cli.run("tasks", "show", task_id)
    assert (gone.returncode, gone.stdout) == (1, "")

    listed = json.loads(cli.good("tasks", "list", "--json", "--state", "done,failed"))["tasks"]
    assert [one["state"] for one in listed] == ["failed", "done"]
    assert cli.good("tasks", "list", "--agent", "writer").count("task_") == 1


def test_a_question_outlives_the_daemon(cli: Cli) -> None:
    first = cli.daemon()
    asked = cli.good("tasks", "create", "choose", "--wait")
    assert "asks: Which one? [tea | coffee]" in asked
    task_id = asked.split()[0]
    cli.kill(first)
    assert cli.run("tasks", "list").returncode == 1
    cli.daemon()
    assert shown(cli, task_id)["state"] == "waiting"
    wrong = cli.run("tasks", "answer", task_id, "water")
    assert (wrong.returncode, "tea, coffee" in wrong.stderr) == (1, True)
    assert cli.good("tasks", "answer", task_id[-8:], "tea") == "answered: tea\n"
    one = json.loads(cli.good("tasks", "show", task_id, "--wait", "10", "--json"))
    assert (one["state"], one["result"]) == ("done", "Then tea.")
    assert "→ tea" in cli.good("tasks", "show", task_id)
    assert cli.run("tasks", "answer", task_id, "coffee").returncode == 1


def test_times(cli: Cli) -> None:
    cli.daemon()
    made = cli.good("tasks", "create", "tick", "--every", "1s", "--name", "ticker")
    task_id = made.split()[0]
    assert "is todo; next run 2" in made
    until("it ran twice", lambda: shown(cli, task_id)["runs"] >= 2)
    assert "The schedule of ticker stays: next 2" in cli.good("stop-all")
    assert "is paused" in cli.good("tasks", "pause", task_id)
    assert "every 1 s, paused" in cli.good("tasks", "show", task_id)
    assert "schedule of" not in cli.good("stop-all")
    assert "goes on" in cli.good("tasks", "unpause", task_id)
    assert cli.run("tasks", "cancel", task_id).returncode == 0
    assert "no further time" in cli.good("tasks", "show", task_id)
    later = cli.good(
        "tasks", "create", "x", "--at", "2099-12-24T18:00", "--timezone", "Europe/Berlin"
    )
    assert "at 2099-12-24" in cli.good("tasks", "show", later.split()[0])
    assert "todo" in cli.good("tasks", "list", "--state", "todo")


WRONG = (
    ("create x --every soon", 2, "no length of time"),
    ("create x --cron odd", 1, "cron"),
    ("create x --every 5s --cron *", 1, "exactly one"),
    ("create x --agent ghost", 1, "ghost"),
    ("create x --role operatr", 1, "there is no role 'operatr'; did you mean 'operator'?"),
    ("show nothing", 1, "there is no task nothing"),
    ("list --state odd", 1, "must be one or more of"),
    ("answer x", 2, "TEXT"),
    ("nothing", 2, "nothing"),
)


def test_what_is_wrong_is_said(cli: Cli) -> None:
    cli.daemon()
    for line, code, part in WRONG:
        done = cli.run("tasks", *line.split())
        assert (done.returncode, done.stdout) == (code, ""), line
        assert part in done.stderr, (line, done.stderr)


def test_switched_off_says_so(cli: Cli) -> None:
    with (cli.home / "config.toml").open("a") as config:
        config.write("[tasks]\nenabled = false\n")
    cli.daemon()
    done = cli.run("tasks", "list")
    assert (done.returncode, "tasks are not enabled" in done.stderr) == (1, True)
