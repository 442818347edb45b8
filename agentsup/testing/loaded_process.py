"""A process that has loaded the daemon's program and waits: lives of a matrix are forks of it.

Loading is the same in each life, touches nothing of the home, and takes most of a start, with
python-telegram-bot seconds of it. A matrix of kills pays it once. What is killed is a process of
its own all the same, with its own session and environment, and runs the program from its first
line; only what that imports is there already. Its parent is the waiting process, which is told what
to run line by line on its standard input and says pid and exit code on its standard output.
"""

import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agentsup.kit import faults
from agentsup.kit.loading import loading

__all__ = ["DAEMON", "WITH_MODEL", "WITH_TELEGRAM", "LoadedProcess", "Process"]

DAEMON: Final = (
    "agentsup.cli.reads",
    "agentsup.cli.app",
    "agentsup.daemon.main",
    "agentsup.engines.scripted_rules",
)
"""What every `agentsup run` imports before it opens its store."""
WITH_TELEGRAM: Final = (
    *DAEMON,
    "agentsup.channels.telegram.library",
    "agentsup.channels.telegram.life",
)
"""The same of a daemon with a bot; the library behind it is loaded by the channel's own door."""
WITH_MODEL: Final = (*DAEMON, "agentsup.engines.llm.client", "agentsup.engines.llm.session")
"""The same of a daemon whose agents have a model by the engine `llm`."""
_LIBRARY: Final = "agentsup.channels.telegram.library"


class Process:
    """One life; answers as `subprocess.Popen` does."""

    def __init__(self, pid: int, parent: "LoadedProcess") -> None:
        self.pid = pid
        self._parent = parent
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, once it was waited for."""
        return self._code

    def wait(self) -> int:
        """Wait (blocking) for the end; the exit code (negative: a signal)."""
        if self._code is None:
            self._code = self._parent.told()
        return self._code


class LoadedProcess:
    """The process that waits. One life at a time."""

    def __init__(
        self,
        modules: Sequence[str],
        command: Sequence[str],
        env: Mapping[str, str],
        output: Path,
        *,
        before: Callable[[], None] | None = None,
    ) -> None:
        """Start it. `modules` is what it loads, `command` what each life runs (`-m` or `-c`);
        limits that `before` sets are those of each life too."""
        self._command = tuple(command)
        with output.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, *modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(env),
                start_new_session=True,
                preexec_fn=before,  # noqa: PLW1509 - system calls, no locks
            )

    def launch(self, arguments: Sequence[str], env: Mapping[str, str], output: Path) -> Process:
        """Begin a life; the first call waits until all is loaded."""
        order = {
            "command": self._command,
            "arguments": list(arguments),
            "env": dict(env),
            "output": str(output),
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        return Process(self.told(), self)

    def told(self) -> int:
        """The next number that it says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the loaded process has ended"
        return int(line)

    def close(self) -> None:
        """End it; a life that still runs has to be ended before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _load(names: Sequence[str]) -> None:
    os.environ["PYDANTIC_AI_NO_BANNER"] = "1"  # as the engine has it before it imports the library
    with loading():
        for name in names:
            module = importlib.import_module(name)
            if name == _LIBRARY:
                module._load()


def _serve() -> dict[str, Any] | None:
    """Fork for each order; in the fork the order is returned, at the end of all orders None."""
    last = 0
    for line in sys.stdin.buffer:
        if last:
            os.waitpid(last, 0)
        assert threading.active_count() == 1, "threads do not live through a fork"
        last = os.fork()
        if not last:
            order: dict[str, Any] = json.loads(line)
            return order
        os.write(1, b"%d\n" % last)
        # It stays a zombie until the next order, so that its pid means nobody else meanwhile.
        found = os.waitid(os.P_PID, last, os.WEXITED | os.WNOWAIT)
        assert found is not None
        killed = found.si_code != os.CLD_EXITED
        os.write(1, b"%d\n" % (-found.si_status if killed else found.si_status))
    return None


def _become(order: Mapping[str, Any]) -> None:
    """Be what an `exec` would have made of this process, as far as the program can see."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(order["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for descriptor, place in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, place)
    os.close(nothing)
    os.close(output)
    os.environ.clear()
    os.environ.update(order["env"])
    faults._plan = faults.FaultPlan.from_env(os.environ)
    sys.argv = [order["command"][0], *order["arguments"]]
    sys.orig_argv = [sys.executable, *order["command"], *order["arguments"]]


def _run(command: Sequence[str]) -> None:
    """Run `-m module` or `-c text` as the interpreter would."""
    way, what = command
    if way == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    _load(sys.argv[1:])
    given = _serve()
    if given is not None:
        signal.signal(signal.SIGINT, interrupt)
        _become(given)
        _run(given["command"])
