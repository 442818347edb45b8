"""The chat: in a pipe, in a terminal, and over the death of the daemon."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shlex
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.process.cli.process_cli import ENV, RULES, Cli, until
from tests.support.bound import BOUND_S

# Each of them starts several programs.
pytestmark = pytest.mark.timeout(180)

ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>()][0-9A-Za-z]?|.)")


def test_a_pipe_gets_each_answer_once_and_in_order(cli: Cli) -> None:
    cli.daemon()
    said = "one\nslow two\nask researcher three\nstream\nfail\n/status\n"
    out = cli.good("chat", stdin=said)
    answers = [line for line in out.split("\n") if line.startswith("main: ")]
    assert answers == [
        "main: you said one",
        "main: slowly: two",
        "main: researcher: you said three",
        "main: one two three",
    ]
    assert "the script wants it so" in out
    assert "agentsup 0." in out, "the reply to /status"


def test_another_agent_and_another_conversation(cli: Cli) -> None:
    cli.daemon()
    assert (
        cli.good("chat", "Writer", "--conversation", "work", stdin="hi") == "writer: you said hi\n"
    )
    wrong = cli.run("chat", "wirter", stdin="hi\n")
    assert (wrong.returncode, "writer" in wrong.stderr) == (1, True)


def test_stop_in_a_pipe_ends_what_runs_and_the_chat(cli: Cli) -> None:
    cli.daemon()
    chat = cli.start("chat")
    assert chat.stdin is not None
    chat.stdin.write("hang\n")
    until("it runs", lambda: '"leased"' in cli.good("messages", "list", "--json"))
    chat.stdin.write("/stop\n")
    chat.stdin.close()
    assert chat.wait(BOUND_S) == 0
    messages = json.loads(cli.good("messages", "list", "--json"))["messages"]
    assert [one["state"] for one in messages] == ["cancelled"]


def test_a_question_is_answered_by_its_number_in_a_pipe(cli: Cli) -> None:
    cli.daemon()
    out = cli.good("chat", stdin="choose\n2\n")
    assert "main asks: Which one?\n  1. tea\n  2. coffee\n" in out
    assert out.rstrip().endswith("main: Then coffee.")


def slow_for(cli: Cli, seconds: float) -> None:
    """How long ``slow`` takes in the next life of the daemon."""
    (cli.home / "demo-rules.yaml").write_text(RULES.replace("sleep: 1.0", f"sleep: {seconds}"))


def test_nothing_is_lost_or_doubled_when_the_daemon_is_killed(cli: Cli) -> None:
    slow_for(cli, 600)
    daemon = cli.daemon()
    chat = cli.start("chat")
    assert chat.stdin is not None
    chat.stdin.write("slow one\n")
    until("it runs", lambda: '"leased"' in cli.good("messages", "list", "--json"))
    cli.kill(daemon)
    slow_for(cli, 0.1)
    chat.stdin.write("two\nask writer three\n")
    chat.stdin.close()
    cli.daemon()
    assert chat.wait(BOUND_S) == 0
    assert chat.stdout is not None
    assert chat.stderr is not None
    answers = [line for line in chat.stdout.read().split("\n") if line.startswith("main: ")]
    assert answers == ["main: slowly: one", "main: you said two", "main: writer: you said three"]
    assert chat.stderr.read().split("\n")[1:3] == ["reconnecting…", "connected again"]
    messages = json.loads(cli.good("messages", "list", "--json"))["messages"]
    assert sorted(one["text"] for one in messages) == [
        "ask writer three",
        "slow one",
        "three",
        "two",
    ]
    assert {one["state"] for one in messages} == {"done"}


MARKED = r"""
- {match: 'mark', steps: [{stream: {chunks: ["**bold** and `co", "de`\n- o", "ne"]}}]}
- {match: '(?s)say (\w)\n(\w)\n(\w)', steps: [{say: 'heard $1|$2|$3|'}]}
- {match: '(?s)say (\w)\n(\w)', steps: [{say: 'heard $1|$2|'}]}
- {match: '(?s).*\[file: (.+?) .*', steps: [{say: 'got $1'}]}
"""


class Terminal:
    """A chat behind a pseudo-terminal, and what it has shown so far."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self.raw = ""

    @property
    def shown(self) -> str:
        return ESCAPES.sub("", self.raw).replace("\r", "")

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def read_until(self, text: str, *, within_s: float = BOUND_S) -> None:
        end = time.monotonic() + within_s
        while text not in self.shown:
            left_s = end - time.monotonic()
            assert left_s > 0, f"{text!r} is not in:\n{self.shown}"
            self._read(left_s)

    def wait(self, within_s: float = BOUND_S) -> int:
        end = time.monotonic() + within_s
        while self.process.poll() is None:
            assert time.monotonic() < end, f"still there:\n{self.shown}"
            self._read(0.05)
        return self.process.wait()

    def _read(self, limit_s: float) -> None:
        if select.select([self._descriptor], [], [], limit_s)[0]:
            try:
                chunk = os.read(self._descriptor, 65536).decode("utf-8", "replace")
            except OSError:  # the other side has closed
                return
            self.raw += chunk


@contextmanager
def terminal(
    cli: Cli, *words: str, columns: int = 80, env: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    process = subprocess.Popen(
        cli.argv(*words),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**ENV, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **(env or {})},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(BOUND_S)
        os.close(ours)


def test_a_terminal_streams_completes_and_leaves(cli: Cli) -> None:
    cli.daemon()
    with terminal(cli, "chat") as chat:
        chat.read_until("You talk to main")
        chat.read_until("›")
        chat.type("stream\r")
        chat.read_until("main: one two three")
        chat.type("ask writer hello\r")
        chat.read_until("· ask_agent")
        chat.read_until("writer: you said hello")
        chat.type("choose\r")
        chat.read_until("2. coffee")
        chat.type("2\r")
        chat.read_until("Then coffee.")
        chat.type("dropped text\x03")  # Ctrl-C drops the line and stays
        chat.type("/agents\r")
        chat.read_until("researcher")
        chat.type("\x04")
        assert chat.wait() == 0
    messages = json.loads(cli.good("messages", "list", "--json"))["messages"]
    assert "dropped text" not in {one["text"] for one in messages}
    history = (cli.home / "chat.history").read_text()
    assert "+ask writer hello" in history
    assert (cli.home / "chat.history").stat().st_mode & 0o077 == 0


def test_a_terminal_takes_several_lines_and_files_and_renders_answers(cli: Cli) -> None:
    (cli.home / "demo-rules.yaml").write_text(MARKED)
    note = cli.home.with_name("my note.txt")
    note.write_text("hello")
    cli.daemon()
    with terminal(cli, "chat") as chat:
        chat.read_until("›")
        chat.type("mark\r")
        chat.read_until("• one")
        # While it is written, a part may stand there as it came; it is drawn anew.
        assert "main: bold and code" in chat.shown
        assert "**" not in chat.shown.rpartition("main: ")[2]
        assert "\x1b[1mbold\x1b[0m" in chat.raw
        chat.type("say a\x1b\rb\\\rc\r")  # Alt+Enter, then a backslash at the end of the line
        chat.read_until("heard a|b|c|")
        chat.type("\x1b[200~say d\ne\x1b[201~\r")  # pasted
        chat.read_until("heard d|e|")
        chat.type(f"/file {note}\r")
        chat.read_until("main: got inbox/")
        chat.type("/file nowhere.txt\r")
        chat.read_until("not sent: nowhere.txt can't be read")
        chat.type("/help\r")
        chat.read_until("Alt+Enter")
        chat.type("\x04")
        assert chat.wait() == 0
    assert cli.good("chat", stdin="mark\n").startswith("main: **bold** and `code`\n- one\n")
    assert "main: got inbox/" in cli.good("chat", stdin=f"/file {note}\n")
    messages = json.loads(cli.good("messages", "list", "--json"))["messages"]
    assert "say a\nb\nc" in {one["text"] for one in messages}


def test_no_colour_means_no_rendering(cli: Cli) -> None:
    (cli.home / "demo-rules.yaml").write_text(MARKED)
    cli.daemon()
    with terminal(cli, "chat", env={"NO_COLOR": "1"}) as chat:
        chat.read_until("›")
        chat.type("mark\r")
        chat.read_until("main: **bold** and `code`")
        chat.type("\x04")
        assert chat.wait() == 0


def test_a_terminal_lives_through_the_death_of_the_daemon(cli: Cli) -> None:
    slow_for(cli, 600)
    daemon = cli.daemon()
    with terminal(cli, "chat", columns=40) as chat:
        chat.read_until("›")
        chat.type("slow one\r")
        until("it runs", lambda: '"leased"' in cli.good("messages", "list", "--json"))
        cli.kill(daemon)
        slow_for(cli, 0.1)
        chat.read_until("reconnecting…")
        chat.type("two\r")
        cli.daemon()
        chat.read_until("connected again")
        chat.read_until("main: slowly: one")
        chat.read_until("main: you said two")
        chat.type("/quit\r")
        assert chat.wait() == 0
        assert chat.shown.count("reconnecting…") == 1
    messages = json.loads(cli.good("messages", "list", "--json"))["messages"]
    assert sorted(one["text"] for one in messages) == ["slow one", "two"]


@pytest.mark.timeout(180)  # two lives of a daemon and two chats
def test_an_answer_stands_once_on_the_screen_over_a_kill(cli: Cli) -> None:
    """And in the chat that is opened while it is written."""
    whole = ("1 2 3 4", "5 6 7 8")  # the line being written is drawn anew; these never stand in it
    daemon = cli.daemon()
    with terminal(cli, "chat") as chat:
        chat.read_until("›")
        chat.type("count\r")
        chat.read_until("1 2 3 4")
        cli.kill(daemon)
        chat.read_until("reconnecting…")
        cli.daemon()
        chat.read_until("connected again")
        with terminal(cli, "chat") as late:
            late.read_until("1 2")
            late.read_until("9 end")
            late.type("/quit\r")
            assert late.wait() == 0
            assert [late.shown.count(each) for each in whole] == [1, 1], late.shown
        chat.read_until("9 end")
        chat.type("/quit\r")
        assert chat.wait() == 0
        assert [chat.shown.count(each) for each in whole] == [1, 1], chat.shown


@pytest.mark.timeout(180)  # two lives of a daemon
def test_the_next_text_answers_a_free_question_over_a_kill(cli: Cli) -> None:
    daemon = cli.daemon()
    with terminal(cli, "chat") as chat:
        chat.read_until("›")
        chat.type("name\r")
        chat.read_until("your next text is the answer; /skip goes on without one")
        cli.kill(daemon)
        chat.read_until("reconnecting…")
        chat.type("Anna\r")
        cli.daemon()
        chat.read_until("Taken as the answer to “What is your name?”")
        chat.read_until("main: Hello Anna.")
        chat.type("name\r")
        until("it asks", lambda: '"open"' in cli.good("questions", "list", "--json"))
        chat.type("/say one\r")
        chat.read_until("Sent as a new message.")
        chat.type("/skip\r")
        chat.read_until("Left unanswered")
        chat.read_until("main: you said one")
        chat.type("/quit\r")
        assert chat.wait() == 0
    messages = json.loads(cli.good("messages", "list", "--json"))["messages"]
    assert sorted(one["text"] for one in messages) == ["name", "name", "one"]
    assert {one["state"] for one in messages} == {"done"}


def test_what_waits_for_a_person_says_for_which_question(cli: Cli) -> None:
    cli.daemon()
    out = cli.good("chat", stdin="choose\nsomething else\n2\n")
    asked = json.loads(cli.good("questions", "list", "--state", "answered", "--json"))
    (question,) = asked["questions"]
    assert "* waits until this is answered: Which one?\n  1. tea\n  2. coffee\n" in out
    assert f"/skip {question['id']} goes on without" in out
    assert "0 s" not in out
    assert out.rstrip().endswith("main: Then coffee.\nmain: you said something else")


@pytest.mark.parametrize("source", ["/dev/null", "/dev/zero", "a file", "closed", "a pipe"])
@pytest.mark.timeout(180)
def test_a_chat_without_a_terminal_neither_hangs_nor_breaks(cli: Cli, source: str) -> None:
    cli.daemon()
    lines = cli.home.with_name("lines")
    lines.write_text("one\ntwo")
    given = {
        "/dev/null": "</dev/null",
        "/dev/zero": "</dev/zero",
        "a file": f"<{lines}",
        "closed": "<&-",
        "a pipe": f"<<X\n{lines.read_text()}\nX",
    }[source]
    done = _in_shell(cli, "chat", given)
    assert "Traceback" not in done.stderr
    answers = ["main: you said one", "main: you said two"]
    is_read = source in {"a file", "a pipe"}
    assert [line for line in done.stdout.split("\n") if line] == (answers if is_read else [])
    # A line without an end is refused before it fills the memory.
    assert done.returncode == (1 if source == "/dev/zero" else 0)
    assert ("a line of standard input is over" in done.stderr) == (source == "/dev/zero")


@pytest.mark.timeout(180)
def test_up_without_a_terminal_says_where_the_daemon_is_and_ends(cli: Cli) -> None:
    cli.daemon()
    url = cli.written()["url"]
    for given in ("</dev/null", "<&-", "<<X\nhello\nX"):
        done = _in_shell(cli, "up", given)
        assert done.returncode == 0, done.stderr
        assert f"The daemon is up at {url}." in done.stdout
        assert "chat`" in done.stdout
        assert "main: " not in done.stdout, "it has chatted"
        assert "Traceback" not in done.stderr


def test_up_in_a_terminal_chats(cli: Cli) -> None:
    cli.daemon()
    with terminal(cli, "up") as chat:
        chat.read_until("You talk to main")
        chat.read_until("›")
        chat.type("/quit\r")
        assert chat.wait() == 0
        assert chat.shown.count("no model is configured") == 1, "told twice"


def _in_shell(cli: Cli, word: str, given: str) -> subprocess.CompletedProcess[str]:
    command = f"exec {shlex.join(cli.argv(word))} {given}"
    return subprocess.run(
        ["/bin/sh", "-c", command],
        env=ENV,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )


def test_a_model_server_that_is_down_is_told_before_the_next_attempt(cli: Cli) -> None:
    (cli.home / "agents.json").write_text("[]")
    with (cli.home / "config.toml").open("a") as config:
        config.write(
            '[limits]\nattempts = 2\n[main]\nengine = "llm"\nmodel = "m"\n'
            'engine_options = { base_url = "http://127.0.0.1:9/v1" }\n'
        )
    cli.daemon()
    said = " ".join(cli.good("chat", stdin="hello\n").split())
    first, _, rest = said.partition("Trying again (2 of 2).")
    assert "http://127.0.0.1:9/v1 can't be reached" in first
    assert rest, "and then what became of it"
