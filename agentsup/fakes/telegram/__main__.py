"""``python -m agentsup.fakes.telegram --folder F --port 0``: the fake as a process of its own.

Prints one JSON line with its url, serves until SIGTERM or SIGINT, and continues from the folder
when it is started again, also after SIGKILL.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from agentsup.fakes.telegram.limits import MODES
from agentsup.fakes.telegram.server import FakeTelegram


async def _serve(folder: Path, port: int, limits: str, seed: int) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with FakeTelegram(folder, port=port, limits=limits, seed=seed) as fake:
        line = {"url": fake.url, "port": fake.port, "pid": os.getpid()}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        await ended.wait()


def main() -> None:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m agentsup.fakes.telegram")
    parser.add_argument("--folder", type=Path, required=True, help="where its state lies")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--limits", choices=MODES, default="", help="default: as the folder says")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    asyncio.run(_serve(given.folder, given.port, given.limits, given.seed))


main()
