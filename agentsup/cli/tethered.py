"""`python -m agentsup.cli.tethered …`: a command line that ends when its standard input ends.

For a daemon that must not outlive the program that started it. That one holds the other end of a
pipe, which the system closes however it dies, also by kill -9, on every system. (The signal that
Linux sends at a parent's death would come when the thread ends that started the daemon.)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Final

from agentsup.config.home import Home

__all__ = ["FORCE_S", "OF_ITS_STARTER", "main"]

FORCE_S: Final = 5.0
"""How long running turns may take to end by themselves; what is cut is given back."""
OF_ITS_STARTER: Final = ".temporary"
"""A file in a home that nobody is to find after its starter has gone: it is removed then."""


def main() -> None:
    """Run the command line of this process; never returns."""
    over, cut = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, _leave)  # until the daemon has a handler of its own
    threading.Thread(target=_watch, args=(over, cut), name="tether", daemon=True).start()
    from agentsup.cli.main import main as run

    try:
        run()
    finally:
        over.set()
        if cut.is_set():
            _forget(sys.argv)


def _watch(over: threading.Event, cut: threading.Event) -> None:
    """At the end of standard input ask for an end, and a little later force it."""
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    cut.set()
    os.kill(os.getpid(), signal.SIGTERM)
    if not over.wait(FORCE_S):
        os.kill(os.getpid(), signal.SIGTERM)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _forget(arguments: list[str]) -> None:
    """Remove the home, if it was its starter's own."""
    if "--home" not in arguments:
        return
    root = Home(Path(arguments[arguments.index("--home") + 1])).root
    if (root / OF_ITS_STARTER).is_file():
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
