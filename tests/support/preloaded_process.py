"""A process that has loaded the daemon's program and waits: lives of a matrix are forks of it.

Loading is the same in each life, touches nothing of the home, and takes most of a start, with
python-telegram-bot seconds of it. A matrix of kills pays it once. What is killed is a process of
its own all the same, with its own session and environment, and runs the program from its first
line; only what that imports is there already. Its parent is the waiting process, which is told what
to run line by line on its standard input and says pid and exit code on its standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support import fork_server, loaded_life
from tests.support.fork_server import Cage

DAEMON: Final[tuple[str, ...]] = (
    "agentsup.cli.output.reads",
    "agentsup.cli.app",
    "agentsup.daemon.main",
    "agentsup.engines.scripted.script",
)
"""What every ``agentsup run`` imports before it opens its store."""
_TELEGRAM: Final = (
    "agentsup.channels.telegram.client",
    "agentsup.channels.telegram.life",
)
_MODEL: Final = (
    "agentsup.engines.llm.client",
    "agentsup.engines.llm.openai_client",
    "agentsup.engines.llm.session",
)
WITH_MODEL: Final = (*DAEMON, *_MODEL)
"""The same of a daemon whose agents have a model by the engine ``llm``."""


def modules_of(home: Path) -> tuple[str, ...]:
    """What a daemon loads for the agents of a home, as far as they are written."""
    agents = home / "agents.json"
    text = agents.read_text(errors="replace") if agents.exists() else ""
    telegram = _TELEGRAM if '"telegram_token"' in text else ()
    return (*DAEMON, *telegram, *(_MODEL if '"llm"' in text else ()))


class Process:
    """One life; answers as ``subprocess.Popen`` does."""

    def __init__(self, pid: int, parent: LoadedProcess) -> None:
        self.pid = pid
        self._parent = parent
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, once it has ended."""
        if self._code is None:
            with contextlib.suppress(TimeoutError):
                self._code = self._parent.told(0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait (blocking) for the end; the exit code (negative: a signal). Raises ``TimeoutError``
        after ``timeout`` seconds."""
        if self._code is None:
            self._code = self._parent.told(timeout)
        return self._code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class LoadedProcess:
    """The process that waits. One life at a time."""

    def __init__(
        self,
        modules: Sequence[str],
        command: Sequence[str],
        env: Mapping[str, str],
        output: Path,
        cage: Cage,
        files: tuple[int, int, int] | None = None,
    ) -> None:
        """Have it forked where a fork server runs, else start it, with ``env``. ``modules`` is what it
        loads, ``command`` what each life runs (``-m`` or ``-c``), ``cage`` shuts it in with each
        life. With
        ``files``, which needs a fork server, it has one life, and those are its standard files."""
        self._command = tuple(command)
        orders, self._orders = os.pipe()
        told, says = os.pipe()
        self._told, self._text = told, b""
        self._has_files = files is not None
        self._process: subprocess.Popen[bytes] | None = None
        with output.open("ab") as errors:
            if fork_server.ADDRESS in os.environ:
                fork_server.fork(modules, cage, (orders, says, errors.fileno(), *(files or ())))
            else:
                assert files is None, "only a fork server hands files on"
                self._process = subprocess.Popen(
                    [sys.executable, "-m", loaded_life.__name__, *modules],
                    stdin=orders,
                    stdout=says,
                    stderr=errors,
                    env=dict(env),
                    start_new_session=True,
                    preexec_fn=cage.close,  # noqa: PLW1509 - system calls, no locks
                )
        os.close(orders)
        os.close(says)

    def launch(self, arguments: Sequence[str], env: Mapping[str, str], output: Path) -> Process:
        """Begin a life; the first call waits until all is loaded."""
        order = {
            "command": self._command,
            "arguments": list(arguments),
            "env": dict(env),
            "output": str(output),
            "has_files": self._has_files,
        }
        os.write(self._orders, json.dumps(order).encode() + b"\n")
        return Process(self.told(), self)

    def told(self, timeout_s: float | None = None) -> int:
        """The next number that it says. Raises ``TimeoutError`` if it says none for so long."""
        while b"\n" not in self._text:
            if not select.select([self._told], [], [], timeout_s)[0]:
                raise TimeoutError(f"nothing was told within {timeout_s} s")
            text = os.read(self._told, 4096)
            assert text, "the loaded process has ended"
            self._text += text
        line, _, self._text = self._text.partition(b"\n")
        return int(line)

    def close(self) -> None:
        """End it; a life that still runs has to be ended before."""
        os.close(self._orders)
        while os.read(self._told, 4096):
            continue
        os.close(self._told)
        if self._process is not None:
            self._process.wait()
