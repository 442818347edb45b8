"""``python -m agentsup.cli.foreground …``: a command line that ends when its standard input ends.

For a daemon that must not outlive the program that started it. The starter holds the other end of a
pipe, which every system closes when the starter ends, also by kill -9. (The signal that Linux sends
at a parent's death would come when the thread ends that started the daemon.)
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

from agentsup.config import TEMPORARY_MARK, Home

FORCE_S: Final = 5.0
"""Seconds that running turns may take to end by themselves; others go back to their queue."""


def main() -> None:
    """Run the command line of this process; never returns."""
    over, cut = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, _exit_at_signal)  # until the daemon has a handler of its own
    threading.Thread(target=_watch, args=(over, cut), name="tether", daemon=True).start()
    from agentsup.cli.main import main as run

    try:
        run()
    finally:
        over.set()
        if cut.is_set():
            _forget(sys.argv)


def _watch(over: threading.Event, cut: threading.Event) -> None:
    """When standard input ends, ask for an end, and force it after ``FORCE_S`` seconds."""
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    cut.set()
    os.kill(os.getpid(), signal.SIGTERM)
    if not over.wait(FORCE_S):
        os.kill(os.getpid(), signal.SIGTERM)


def _exit_at_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _forget(arguments: list[str]) -> None:
    """Remove the home if it is marked as temporary."""
    if "--home" not in arguments:
        return
    root = Home(Path(arguments[arguments.index("--home") + 1])).root
    if (root / TEMPORARY_MARK).is_file():
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
