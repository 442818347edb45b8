"""The fake Telegram as a process of its own: it outlives daemons that are killed beside it.

async with FakeTelegramProcess(folder) as fake, TelegramDriver(fake.url) as people:
    await people.add_bot("7001:secret", username="helper_bot")
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.support.bound import BOUND_S

UNHURRIED: Final = (
    "import sys\n"
    "from agentsup.channels.telegram import flood\n"
    "many = (100_000, 1.0)\n"
    "flood.Rates.__init__.__defaults__ = (many, many, many, many, many, 0.4)\n"
    "from agentsup.cli.main import main\n"
    "sys.exit(main())\n"
)
"""The daemon without the platform's limits, which would stretch this to minutes of waiting."""


class FakeTelegramProcess:
    """``python -m agentsup.fakes.telegram`` on a folder, through any number of starts."""

    def __init__(self, folder: Path, *, limits: str = "") -> None:
        """``limits`` is count or enforce; empty keeps what the folder remembers."""
        self._folder = folder
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.url = ""

    async def start(self) -> None:
        """Start and wait until it listens; later starts take the same port."""
        self._process = self._spawned()
        output = self._process.stdout
        assert output is not None
        async with asyncio.timeout(BOUND_S):
            line = await asyncio.to_thread(output.readline)
        if not line:
            raise RuntimeError((self._folder / "stderr.out").read_text()[-2000:])
        told: dict[str, Any] = json.loads(line)
        self.port, self.url = told["port"], told["url"]

    def _spawned(self) -> subprocess.Popen[bytes]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "stderr.out").open("ab") as errors:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "agentsup.fakes.telegram"),
                    *("--folder", str(self._folder), "--port", str(self.port)),
                    *(("--limits", self._limits) if self._limits else ()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    async def stop(self, number: int = signal.SIGKILL) -> None:
        """End it; its folder keeps everything."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        await asyncio.to_thread(process.wait)
        if process.stdout is not None:
            process.stdout.close()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()
