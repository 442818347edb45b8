"""What a process does that has loaded the daemon's program: it waits, and each life is a fork of it.

It is told what to run line by line on its standard input and says pid and exit code on its standard
output. ``loaded_process`` starts it and speaks with it, by itself or through a ``fork_server``.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentsup.kit import faults
from agentsup.kit.loading import loading

OWN_FILES: Final = (3, 4, 5)
"""Where the standard files of its only life stand, if they were given to it from outside."""

_LIBRARY: Final = "agentsup.channels.telegram.client"


def serve() -> None:
    """Run lives, one at a time, until standard input ends; returns in each life, at its end."""
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    given = _orders()
    if given is None:
        os._exit(0)  # nothing here has to be taken down in order
    signal.signal(signal.SIGINT, interrupt)
    _become(given)
    _run(given["command"])


def load(names: Sequence[str]) -> None:
    """Import these modules, and what stands behind their doors."""
    os.environ["PYDANTIC_AI_NO_BANNER"] = "1"  # as the engine has it before it imports the library
    with loading():
        for name in names:
            module = importlib.import_module(name)
            if name == _LIBRARY:
                module._load()


def _orders() -> dict[str, Any] | None:
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
        if json.loads(line)["has_files"]:
            _close_own_files()
        # It stays a zombie until the next order, so that its pid means nobody else meanwhile.
        found = os.waitid(os.P_PID, last, os.WEXITED | os.WNOWAIT)
        assert found is not None
        killed = found.si_code != os.CLD_EXITED
        os.write(1, b"%d\n" % (-found.si_status if killed else found.si_status))
    if last:
        os.waitpid(last, 0)
    return None


def _close_own_files() -> None:
    for descriptor in OWN_FILES:
        os.close(descriptor)


def _become(order: Mapping[str, Any]) -> None:
    """Be what an ``exec`` would have made of this process, as far as the program can see."""
    os.setsid()
    if order["has_files"]:
        for place, descriptor in enumerate(OWN_FILES):
            os.dup2(descriptor, place)
        _close_own_files()
    else:
        nothing = os.open(os.devnull, os.O_RDONLY)
        output = os.open(order["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        for descriptor, place in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(descriptor, place)
        os.close(nothing)
        os.close(output)
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    faults._plan = faults.FaultPlan.from_env(os.environ)
    sys.argv = [order["command"][0], *order["arguments"]]
    sys.orig_argv = [sys.executable, *order["command"], *order["arguments"]]


def _run(command: Sequence[str]) -> None:
    """Run ``-m module`` or ``-c text`` as the interpreter would."""
    way, what = command
    if way == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    load(sys.argv[1:])
    serve()
