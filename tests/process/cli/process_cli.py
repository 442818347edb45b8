"""Real ``agentsup`` processes over a home, for the tests of this folder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.bound import BOUND_S
from tests.support.fork_server import Cage
from tests.support.preloaded_process import DAEMON, LoadedProcess, Process

WAIT_S = BOUND_S
ENV = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith("AGENTSUP_") and not name.endswith(("_API_KEY", "_BASE_URL"))
}
RULES = """
- {match: 'slow (.+)', steps: [{sleep: 1.0}, {say: 'slowly: $1'}]}
- {match: 'stream', steps: [{stream: {chunks: [one, ' two', ' three'], every: 0.05}}]}
- {match: 'count', steps: [{stream: {chunks: ['1 2 ', "3 4\\n", '5 6 ', "7 8\\n", '9 end'], every: 0.5}}]}
- {match: 'hang', steps: [{sleep: 60}]}
- {match: 'fail', steps: [{fail: the script wants it so}]}
- {match: 'choose', steps: [{question: {text: 'Which one?', options: [tea, coffee]}}, {say: 'Then $result.'}]}
- {match: 'name', steps: [{question: {text: 'What is your name?'}}, {say: 'Hello $result.'}]}
- {match: 'ask (\\w+) (.+)', steps: [{tool: {name: ask_agent, args: {to: $1, message: $2}}}, {say: '$1: $result'}]}
- {match: '(.+)', steps: [{say: 'you said $1'}]}
"""


def until(what: str, look: Callable[[], Any], *, within_s: float = WAIT_S) -> Any:
    """Look at another process until it shows what is wanted; it sends us no event."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {within_s} s: {what}")


@dataclass
class Cli:
    """Runs commands on one home."""

    home: Path
    port: int
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    daemons: list[Process] = field(default_factory=list)
    ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Lets go of what daemons are forked from."""

    @property
    def output(self) -> Path:
        """What the daemons of this home printed."""
        return self.home.with_name("daemon.out")

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "agentsup", "--home", str(self.home), *words]

    def run(
        self, *words: str, stdin: str = "", timeout_s: float = WAIT_S, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """One command to its end: a fork of a process that has loaded what commands load."""
        reading, writing = os.pipe()
        with (
            tempfile.TemporaryFile() as output,
            tempfile.TemporaryFile() as errors,
            os.fdopen(reading, "rb") as given,
            os.fdopen(writing, "wb") as said,
        ):
            said.write(stdin.encode())
            said.close()
            files = (given.fileno(), output.fileno(), errors.fileno())
            with self.forked(words, {**ENV, **env}, files) as life:
                try:
                    code = life.wait(timeout_s)
                except TimeoutError:
                    life.kill()
                    life.wait()
                    raise
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(
                self.argv(*words), code, output.read().decode(), errors.read().decode()
            )

    def run_alone(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """One command in an interpreter of its own, which loads all it needs."""
        return subprocess.run(
            self.argv(*words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env={**ENV, **env},
            check=False,
        )

    @contextlib.contextmanager
    def forked(
        self,
        words: Sequence[str],
        env: Mapping[str, str],
        files: tuple[int, int, int] | None = None,
    ) -> Iterator[Process]:
        """One command that has begun; with ``files`` as its standard input, output and error."""
        parent = LoadedProcess(DAEMON, ("-m", "agentsup"), env, self.output, Cage(), files)
        try:
            yield parent.launch(["--home", str(self.home), *words], env, self.output)
        finally:
            parent.close()

    def in_terminal(self, *words: str, columns: int = 80, stdin: str | None = None) -> str:
        """What one command prints on a terminal; ``stdin`` is what it reads from a pipe instead."""
        ours, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        reading = terminal
        if stdin is not None:
            reading, writing = os.pipe()
            with os.fdopen(writing, "w") as pipe:
                pipe.write(stdin)
        with self.forked(words, {**ENV, "TERM": "xterm"}, (reading, terminal, terminal)) as life:
            for descriptor in {reading, terminal}:
                os.close(descriptor)
            found = b"".join(iter(lambda: read_terminal(ours), b""))
            os.close(ours)
            life.wait(BOUND_S)
        return found.decode("utf-8", "replace")

    def good(self, *words: str, stdin: str = "") -> str:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command that goes on, with pipes to it."""
        made = subprocess.Popen(
            self.argv(*words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=ENV,
        )
        self.started.append(made)
        return made

    def daemon(self) -> Process:
        """``agentsup run``, ready."""
        words = ("run", "--port", str(self.port))
        made = self.ends.enter_context(self.forked(words, ENV))
        self.daemons.append(made)

        def ready() -> bool:
            assert made.poll() is None, self.output.read_text()[-2000:]
            return self.is_ready()

        until("the daemon is ready", ready)
        return made

    def is_ready(self) -> bool:
        """Whether the daemon of this home takes work; asked without the code under test."""
        written = self.written()
        if written is None:
            return False
        try:
            with urllib.request.urlopen(f"{written['url']}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def written(self) -> Any:
        """What a daemon wrote about itself into the home."""
        try:
            return json.loads((self.home / "daemon.json").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def keeper(self) -> list[int]:
        """The keeper that ``up`` left, and its daemon (0: none); empty without a status."""
        try:
            words = (self.home / "agentsup.keeper").read_text().split()
        except FileNotFoundError:
            return []
        return [int(word) for word in words[:2]]

    def end_all(self) -> None:
        """End what ``up`` started: it is no child of ours. First what would start it again."""
        pids = self.keeper()
        if (written := self.written()) is not None:
            pids.append(written["pid"])
        for pid in filter(None, pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill(self, daemon: Process) -> None:
        daemon.kill()
        daemon.wait(WAIT_S)


def read_terminal(terminal: int) -> bytes:
    """Nothing once nobody has the other end."""
    with contextlib.suppress(OSError):
        return os.read(terminal, 65536)
    return b""


class Shell:
    """A person's shell in a folder, with ``agentsup`` on its path."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.folder = folder
        programs = folder / "bin"
        programs.mkdir()
        (programs / "agentsup").write_text(f'#!/bin/sh\nexec {sys.executable} -m agentsup "$@"\n')
        (programs / "agentsup").chmod(0o700)
        self.env = {**ENV, **env, "PATH": f"{programs}:{os.environ['PATH']}"}

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    def type(self, line: str) -> str:
        """A line that ends well."""
        done = self.run(line)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout
