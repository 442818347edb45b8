"""The commands as people and scripts use them, against a real daemon."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentsup.cli.connect.locate import is_alive
from tests.process.cli.process_cli import ENV, Cli, until
from tests.support.bound import BOUND_S
from tests.support.ports import free_port

# Each of them starts several programs.
pytestmark = pytest.mark.timeout(180)


def names(cli: Cli) -> dict[str, str]:
    document = json.loads(cli.good("agents", "list", "--json"))
    return {one["name"]: one["status"] for one in document["agents"]}


def test_from_nothing_to_two_agents_that_ask_each_other(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "new home", 0)
    try:
        up = cli.run("up", "--port", "0", timeout_s=BOUND_S)
        assert up.returncode == 0, up.stderr
        assert "main, researcher, writer: no model is configured" in up.stdout
        first = cli.run(
            "chat",
            stdin="ask writer for a haiku\nask writer for a text about bees\nchoose\n2\n",
        )
        assert first.returncode == 0, first.stderr
        assert "main: writer says:\nOne line from the phone," in first.stdout
        assert "Certain: somebody asked about bees." in first.stdout
        assert "main asks: Which one do you like?\n  1. tea\n  2. coffee" in first.stdout
        assert "main: Then coffee it is." in first.stdout
        pid = json.loads(cli.good("status", "--json"))["pid"]
        assert cli.run("up").returncode == 0
        assert "Hello." in cli.good("chat", stdin="hello\n")
        assert json.loads(cli.good("status", "--json"))["pid"] == pid, "it ran already"
        assert "has ended" in cli.good("stop")
        assert not is_alive(pid)
        assert cli.run("status").returncode == 1
    finally:
        if (cli.home / "daemon.json").exists():
            cli.run("stop")


def test_reads_of_a_running_daemon(cli: Cli) -> None:
    """The text and the document of each command are in ``tests/golden``."""
    cli.daemon()
    sent = json.loads(cli.good("send", "writer", "hello", "--json"))
    assert (sent["text"], sent["success"]) == ("you said hello", True)
    assert cli.good("send", "writer", "-", stdin="from a pipe") == "you said from a pipe\n"
    for line, key in (
        ("status", "state"),
        ("dead list", "dead"),
        ("poison list", "poison"),
        ("doctor", "checks"),
    ):
        assert key in json.loads(cli.good(*line.split(), "--json"))
        assert "\x1b" not in cli.good(*line.split()), f"{line}: no colours in a pipe"
    assert sent["message_id"] in cli.good("messages", "list", "--agent", "writer")
    assert "turn done" in cli.good("logs", "writer")


def test_status_tells_what_waits_for_a_person(cli: Cli) -> None:
    rules = cli.home / "demo-rules.yaml"
    rules.write_text("- {match: 'break', steps: [{crash: boom}]}\n" + rules.read_text())
    config = cli.home / "config.toml"
    config.write_text(config.read_text() + "[limits]\ncrashes = 1\n")
    cli.daemon()
    quiet = json.loads(cli.good("status", "--json"))
    assert (quiet["questions"], quiet["failed_messages"]) == (0, 0)
    assert "questions" not in cli.good("status")
    cli.good("send", "writer", "choose", "--no-wait")
    cli.good("send", "researcher", "break", "--no-wait")

    def waiting() -> bool:
        found = json.loads(cli.good("status", "--json"))
        return (found["questions"], found["failed_messages"]) == (1, 1)

    until("a question and a failed message", waiting)
    text = cli.good("status")
    assert f"1 open: `agentsup --home {cli.home} questions list`" in text
    assert f"1 in all: `agentsup --home {cli.home} failed list`" in text


def test_send_fails_where_the_named_model_has_no_key(cli: Cli) -> None:
    agents = cli.home / "agents.json"
    text = agents.read_text().replace(
        '"name": "writer",', '"name": "writer", "model": "gpt-5-mini",'
    )
    agents.write_text(text)
    cli.daemon()
    done = cli.run("send", "writer", "hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert "model gpt-5-mini is named but the daemon has no key for it" in done.stderr
    assert cli.run("send", "researcher", "hello").stderr == ""


def test_plain_reads_load_nothing_heavy(cli: Cli) -> None:
    """A command is waited for; ``make bench`` says how long, this why it stays that short."""
    cli.daemon()
    for words in (
        ("agents", "list", "--json"),
        ("status", "--json"),
        ("messages", "list", "--json"),
        ("tasks", "list", "--json"),
    ):
        done = cli.run_alone(*words, PYTHONPROFILEIMPORTTIME="1")
        assert done.returncode == 0, done.stderr
        loaded = {
            line.rpartition("|")[2].strip().partition(".")[0]
            for line in done.stderr.splitlines()
            if line.startswith("import time:")
        }
        assert "agentsup" in loaded
        assert not loaded & {"aiohttp", "aiosqlite", "asyncio", "pydantic", "rich", "structlog"}


def test_a_key_makes_a_repeated_send_count_once(cli: Cli) -> None:
    cli.daemon()
    first = json.loads(cli.good("send", "writer", "x", "--key", "k1", "--no-wait", "--json"))
    again = json.loads(cli.good("send", "writer", "x", "--key", "k1", "--no-wait", "--json"))
    assert again["message_id"] == first["message_id"]
    other = cli.run("send", "writer", "another text", "--key", "k1", "--no-wait")
    assert other.returncode == 1
    assert other.stderr.startswith("agentsup: ")


REFUSED = [
    (("send", "wirter", "x"), "writer"),
    (("send", "writer", " "), "message"),
    (("send", "writer", "fail"), "the script wants it so"),
    (("send", "writer", "hang", "--timeout", "0.3"), "0.3"),
    (("agents", "show", "nobody", "--json"), "nobody"),
    (("messages", "list", "--state", "odd"), "state"),
    (("questions", "answer", "q_none", "x"), "q_none"),
    (("dead", "requeue", "msg_none"), "msg_none"),
    (("poison", "retry", "odd"), "odd"),
    (("cost", "nobody"), "nobody"),
    (("memory", "pin", "writer", "tea"), "tea"),
    (("memory", "share", "writer", "t", "--id", "mem_x", "--updated-at", "1"), "mem_x"),
]


def test_failures_are_one_sentence(cli: Cli) -> None:
    cli.daemon()
    for words, said in REFUSED:
        done = cli.run(*words)
        assert (done.returncode, done.stdout) == (1, ""), words
        assert done.stderr.startswith("agentsup: "), words
        assert done.stderr.count("\n") == 1, words
        assert said in done.stderr, words


@pytest.mark.timeout(180)  # it starts a dozen programs
def test_mail_of_a_removed_agent_is_shown_and_given_to_another(cli: Cli) -> None:
    cli.daemon()
    cli.good("agents", "stop", "writer")
    message_id = cli.good("send", "writer", "the work", "--no-wait").strip()
    cli.good("agents", "remove", "writer")
    until("writer is gone", lambda: "writer" not in names(cli))
    shown = json.loads(cli.good("messages", "list", "--removed", "--json"))["messages"]
    assert [(one["id"], one["agent"]) for one in shown] == [(message_id, "writer")]
    given = json.loads(cli.good("messages", "reassign", message_id, "main", "--json"))
    assert (given["agent"], given["replay_of"]) == ("main", message_id)
    again = cli.good("messages", "reassign", message_id, "main")
    assert again == f"given to main as {given['message_id']}\n"

    def result() -> str:
        return str(
            json.loads(cli.good("messages", "show", given["message_id"], "--json"))["result_text"]
        )

    assert until("main has done it", result) == "you said the work"
    assert json.loads(cli.good("messages", "list", "--removed", "--json"))["messages"] == []


def test_agents_are_added_and_removed_while_the_daemon_runs(cli: Cli) -> None:
    cli.daemon()
    before = json.loads(cli.good("agents", "show", "writer", "--json"))
    cli.good("agents", "add", "poet", "--description", "writes verse", "--engine", "scripted")
    until("the poet runs", lambda: names(cli).get("poet") == "running")
    assert cli.good("send", "poet", "hello") == "you said hello\n", "by the rules of the home"
    cli.good("agents", "stop", "poet")
    assert names(cli)["poet"] == "stopped"
    cli.good("agents", "start", "poet")
    until("the poet is back", lambda: names(cli).get("poet") == "running")
    cli.good("agents", "remove", "poet")
    until("the poet is gone", lambda: "poet" not in names(cli))
    after = json.loads(cli.good("agents", "show", "writer", "--json"))
    assert after["instance_id"] == before["instance_id"]


def test_stop_all_stops_and_counts(cli: Cli) -> None:
    cli.daemon()
    message_id = cli.good("send", "writer", "hang", "--no-wait").strip()

    def state() -> str:
        return str(json.loads(cli.good("messages", "show", message_id, "--json"))["state"])

    until("it runs", lambda: state() == "leased")
    report = json.loads(cli.good("stop-all", "--json"))
    assert (report["running"], report["queued"]) == (1, 0)
    assert state() == "cancelled"
    assert "Nothing was running" in cli.good("stop-all")


def test_a_second_daemon_on_the_same_home_is_refused(cli: Cli) -> None:
    daemon = cli.daemon()
    second = cli.run("run", "--port", "0")
    assert second.returncode == 1
    assert str(daemon.pid) in second.stderr


def test_a_copied_home_never_reaches_the_original(cli: Cli) -> None:
    daemon = cli.daemon()
    copy = Cli(Path(shutil.copytree(cli.home, cli.home.with_name("copy"))), 0)
    for words in (["status"], ["stop"], ["agents", "list", "--json"], ["stop-all"]):
        refused = copy.run(*words)
        assert refused.returncode == 1, words
        assert f"no daemon runs for {copy.home}" in refused.stderr, words
    assert daemon.poll() is None
    # An address that was written in this very home, and whose port another daemon has now.
    stale = {**cli.written(), "home_inode": None}
    (copy.home / "daemon.json").write_text(json.dumps(stale | {"boot_id": "boot_of_the_copy"}))
    assert "no daemon runs for" in copy.run("stop").stderr
    assert "no daemon runs for" in copy.run("status", "--json").stderr
    assert daemon.poll() is None
    assert cli.good("send", "writer", "hello") == "you said hello\n"


def test_run_stays_up_with_its_input_closed_and_stops_on_term(cli: Cli) -> None:
    words = " ".join(f"'{word}'" for word in cli.argv("run"))
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {words} <&- >/dev/null 2>&1"], env=ENV, text=True
    )
    cli.started.append(process)
    until("it is ready", cli.is_ready)
    assert process.poll() is None
    process.terminate()
    assert process.wait(BOUND_S) == 0


def test_restart_gives_a_new_process_and_keeps_the_mail(cli: Cli) -> None:
    cli.good("up", "--no-chat")
    message_id = cli.good("send", "writer", "before", "--no-wait").strip()
    old = json.loads(cli.good("status", "--json"))["pid"]
    cli.good("restart")
    status = json.loads(cli.good("status", "--json"))
    assert status["pid"] != old
    assert status["ready"]
    shown = until(
        "it was answered",
        lambda: (
            one
            if (one := json.loads(cli.good("messages", "show", message_id, "--json")))["state"]
            == "done"
            else None
        ),
    )
    assert shown["result_text"] == "you said before"


def test_restart_keeps_the_port_and_stops_nothing_for_one_that_is_taken(cli: Cli) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", cli.port))  # that of config.toml: another home's daemon has it
        other.listen()
        port = free_port()
        cli.good("up", "--no-chat", "--port", str(port))
        pid = cli.written()["pid"]
        again = cli.good("up", "--port", "0")
        assert f"The daemon runs already, at http://127.0.0.1:{port}." in again
        assert "--port 0 has no effect on it" in again
        assert "link` prints a link to it." in again
        taken = cli.run("restart", "--port", str(cli.port))
        assert taken.returncode == 1
        assert f"port {cli.port} on 127.0.0.1 can't be had" in taken.stderr
        assert "the daemon was not stopped" in taken.stderr
        assert json.loads(cli.good("status", "--json"))["pid"] == pid
        cli.good("restart")
        assert cli.written()["url"] == f"http://127.0.0.1:{port}"
        assert cli.written()["pid"] != pid
        os.kill(cli.written()["pid"], signal.SIGKILL)
    found = json.loads(cli.run("doctor", "--json").stdout)["checks"]
    (daemon,) = [one for one in found if one["name"] == "daemon"]
    assert (daemon["result"], "did not end normally" in daemon["text"]) == ("warn", True)


@pytest.mark.timeout(180)  # it starts a dozen programs
def test_nothing_answers_for_a_model_without_a_key_and_the_reason_is_told_everywhere(
    cli: Cli,
) -> None:
    """A model is named and the daemon has no key; the shell that asks may have one."""
    cli.home.joinpath("config.toml").write_text(f"[api]\nport = {cli.port}\n")
    cli.home.joinpath("agents.json").write_text('[{"name": "main", "engine": "auto"}]')
    reason = "main: model gpt-5-mini is named but the daemon has no key for it"
    model: dict[str, Any] = {"AGENTSUP_MAIN__MODEL": "gpt-5-mini"}
    up = cli.run("up", "--no-chat", **model)
    assert reason in up.stdout, up.stderr
    listed = cli.good("agents", "list")
    assert reason in listed
    assert "scripted" not in listed
    for words in (("send", "main", "hi"), ("tasks", "create", "read the feeds", "--wait")):
        asked = cli.run(*words)
        assert (asked.returncode, asked.stdout) == (1, "")
        assert reason.removeprefix("main: ") in asked.stderr
    assert reason.removeprefix("main: ") in cli.good("agents", "show", "main")
    assert f"* {reason.removeprefix('main: ')}" in cli.run("chat", stdin="hi\n").stderr
    told = cli.run("doctor", "--json", OPENAI_API_KEY="k", **model).stdout
    engines = [one for one in json.loads(told)["checks"] if one["name"] == "engine"]
    assert [one["result"] for one in engines] == ["warn", "warn"]
    assert "main uses llm: model gpt-5-mini is named but" in engines[0]["text"]
    assert "from this shell it would use llm" in engines[1]["text"]
    assert reason in cli.good("status")
    again = cli.run("restart", OPENAI_API_KEY="k", **model)
    assert "The engine llm answers with gpt-5-mini." in again.stdout
    worse = cli.run("restart", **model)
    assert "main thought with llm and gpt-5-mini before, and can't now" in worse.stdout
    assert reason in worse.stdout, "an engine that got worse is told"
    cli.home.joinpath("environment").write_text("OPENAI_API_KEY=k\n")
    lasting = cli.run("restart", **model)
    assert "The engine llm answers with gpt-5-mini." in lasting.stdout, "the key lasts"
    assert "WORSE" not in lasting.stdout


def test_an_offline_answer_is_no_success_of_a_task(cli: Cli) -> None:
    cli.home.joinpath("agents.json").write_text('[{"name": "main", "engine": "auto"}]')
    (cli.home / "demo-rules.yaml").unlink()
    cli.daemon()
    assert "offline" in cli.good("send", "main", "read the feeds")
    done = cli.run("tasks", "create", "read the feeds", "--wait")
    assert (done.returncode, done.stdout) == (1, "")
    cure = f"`agentsup --home {cli.home} setup`"
    assert f"no model is set up, so this task can't be done; {cure}" in done.stderr
    for words in (("up", "--no-chat"), ("status",), ("send", "main", "what now?")):
        assert cure in cli.good(*words), words
    assert cure in cli.good("chat", stdin="what now?\n")
    program = cli.run("up", "--no-chat", PATH="/usr/bin:/bin").stdout
    assert re.search(r"`agentsup` is not on your PATH\. It is /\S+/agentsup\n", program), program
    (task,) = json.loads(cli.good("tasks", "list", "--json"))["tasks"]
    assert (task["state"], task["result_preview"]) == ("failed", "")


def test_a_send_says_what_it_waits_for(cli: Cli) -> None:
    cli.daemon()
    done = cli.run("send", "main", "choose", "--timeout", "3")
    assert done.returncode == 1
    assert "* main asks: Which one?\n  1. tea\n  2. coffee\n" in done.stderr
    assert "it waits for the answer to a question" in done.stderr
    (asked,) = json.loads(cli.good("questions", "list", "--json"))["questions"]
    behind = cli.start("send", "main", "thanks")
    assert behind.stderr is not None
    line = behind.stderr.readline()
    assert line == "* this waits until an earlier question is answered: Which one?\n"
    assert [behind.stderr.readline() for _ in range(2)] == ["  1. tea\n", "  2. coffee\n"]
    assert f"questions answer {asked['id']} TEXT" in behind.stderr.readline()
    waiting = cli.start("send", "main", "choose", "--new-session")
    assert waiting.stderr is not None
    line = waiting.stderr.readline()
    assert line == "* main asks: Which one?\n"
    newest = json.loads(cli.good("questions", "list", "--json"))["questions"][-1]["id"]
    assert newest != asked["id"]
    cli.good("questions", "answer", newest[-12:], "tea")
    assert waiting.wait(BOUND_S) == 0
    assert waiting.stdout is not None
    assert waiting.stdout.read() == "Then tea.\n"
    messages = json.loads(cli.good("messages", "list", "--json"))["messages"]
    assert len(messages) == 3, "asked again and again, it is one message"


def test_the_log_of_nobody_is_refused(cli: Cli) -> None:
    cli.daemon()
    wrong = cli.run("logs", "wirter")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "wirter" in wrong.stderr
    assert "writer" in wrong.stderr
    assert cli.run("logs", "writer").returncode == 0


def test_the_log_is_followed(cli: Cli) -> None:
    cli.daemon()
    following = cli.start("logs", "-f")
    assert following.stdout is not None
    assert following.stdout.readline()
    cli.good("agents", "restart", "writer")
    while "writer" not in following.stdout.readline():
        assert following.poll() is None
    cli.home.joinpath("agents.json").write_text("[")  # as the daemon, it goes by what was applied
    assert cli.run("logs", "wirter").returncode == 1
    assert cli.run("logs", "writer").returncode == 0


def test_up_tells_why_the_daemon_does_not_start(cli: Cli) -> None:
    (cli.home / "api.token").write_text("x")
    (cli.home / "api.token").chmod(0o600)
    done = cli.run("up", "--no-chat")
    assert done.returncode == 1
    assert "too short" in done.stderr


def test_up_takes_the_store_as_it_is_on_demand_alone(cli: Cli) -> None:
    cli.good("up", "--no-chat")
    cli.good("stop")
    for path in cli.home.glob("state.db*"):
        path.unlink()
    refused = cli.run("up", "--no-chat")
    assert refused.returncode == 1
    assert "--accept-store" in refused.stderr
    cli.good("up", "--no-chat", "--accept-store")
    cli.good("stop")


def test_an_engine_uses_the_cli_with_its_own_token(cli: Cli) -> None:
    """Without a home in its environment, ``AGENTSUP_URL`` and ``AGENTSUP_TOKEN`` are what counts."""
    cli.daemon()
    url = json.loads((cli.home / "daemon.json").read_text())["url"]
    argv = [word for word in cli.argv("agents", "list") if word not in {"--home", str(cli.home)}]
    env = {
        **ENV,
        "AGENTSUP_URL": url,
        "AGENTSUP_TOKEN": (cli.home / "api.token").read_text().strip(),
    }
    done = subprocess.run(
        argv, env=env, capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    assert done.returncode == 0, done.stderr
    wrong = {**env, "AGENTSUP_TOKEN": "wrong"}
    refused = subprocess.run(
        argv, env=wrong, capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    assert (refused.returncode, "does not know this token" in refused.stderr) == (1, True)


def test_a_link_signs_one_browser_in(cli: Cli) -> None:
    cli.home.joinpath("config.toml").write_text(
        f"[api]\nport = {cli.port}\nallowed_hosts = ['home.example']\n[people.ann]\nrole = 'viewer'\n"
    )
    output = cli.good("up", "--no-chat")
    assert f"http://127.0.0.1:{cli.port}/#code=" in output
    assert cli.good("link").startswith(f"http://127.0.0.1:{cli.port}/#code=")
    made = json.loads(cli.good("link", "ann", "--base", "https://home.example/", "--json"))
    assert (made["person"], made["role"]) == ("ann", "viewer")
    assert made["url"] == f"https://home.example/#code={made['code']}"
    refused = cli.run("link", "nobody")
    assert (refused.returncode, "ann" in refused.stderr) == (1, True)


def test_a_closed_pipe_is_no_traceback(cli: Cli) -> None:
    words = " ".join(f"'{word}'" for word in cli.argv("agents", "explain", "writer"))
    done = subprocess.run(
        ["/bin/sh", "-c", f"{words} | head -1"],
        env={**ENV, "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert os.linesep in done.stdout


def test_a_command_of_the_chat_is_not_sent_to_a_model(cli: Cli) -> None:
    refused = cli.run("send", "main", "/help tasks")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "/help is a command of the chat" in refused.stderr
    assert "chat main` runs it" in " ".join(refused.stderr.split())
