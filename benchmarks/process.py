"""A real daemon process: start it, ask it, measure it from outside, end or kill it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

_RUN = """
import sys
from pathlib import Path
from agentsup.daemon.main import run_daemon
sys.exit(run_daemon(Path(sys.argv[1]), port=int(sys.argv[2])))
"""
_TICKS = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """One daemon process of a home."""

    def __init__(self, home: Path) -> None:
        """Start it; ``ready`` waits for it."""
        self.home = home
        self.port = free_port()
        self.began_s = perf_counter()
        self._log = (home / "bench.log").open("ab")
        self._child = subprocess.Popen(
            [sys.executable, "-c", _RUN, str(home), str(self.port)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def token(self) -> str:
        return (self.home / "api.token").read_text(encoding="utf-8").strip()

    async def ready(self, limit_s: float = 60.0) -> float:
        """Milliseconds from the start of the process until ``/readyz`` says yes."""
        while True:
            if self._child.poll() is not None or perf_counter() - self.began_s > limit_s:
                said = (self.home / "bench.log").read_text(encoding="utf-8")[-800:]
                raise RuntimeError(f"the daemon did not get ready: {said}")
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                status, _ = await self.get("/readyz", token="")
                if status == 200:
                    return (perf_counter() - self.began_s) * 1_000
            await asyncio.sleep(0.004)

    async def get(self, path: str, *, token: str | None = None) -> tuple[int, bytes]:
        """Status and body of one GET."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            return await _ask(
                reader, writer, self.port, path, self.token if token is None else token
            )
        finally:
            writer.close()

    async def json(self, path: str) -> Any:
        """The parsed body of one GET."""
        return json.loads((await self.get(path))[1])

    @asynccontextmanager
    async def events(self, types: str) -> AsyncIterator[asyncio.StreamReader]:
        """The event stream, as lines, positioned after its headers."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(_request(self.port, f"/events?types={types}", self.token))
            await reader.readuntil(b"\r\n\r\n")
            yield reader
        finally:
            writer.close()

    def cpu_s(self) -> float:
        """User and system seconds so far, of the threads there are."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        spent_ns = [int(each.read_text(encoding="ascii").split()[0]) for each in tasks]
        if spent_ns:  # the other counter moves in steps of 10 ms, a tenth of what is looked for
            return sum(spent_ns) / 1e9
        fields = (
            Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss_mib(self) -> float:
        """Resident memory."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def kill(self) -> None:
        """``kill -9``."""
        self._child.kill()
        self._child.wait()
        self._log.close()

    async def end(self) -> None:
        """Ask it to end; by force after ten seconds."""
        self._child.send_signal(signal.SIGTERM)
        for _ in range(1_000):
            if self._child.poll() is not None:
                break
            await asyncio.sleep(0.01)
        self.kill()


def _request(port: int, path: str, token: str) -> bytes:
    auth = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{auth}\r\n".encode()


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, path: str, token: str
) -> tuple[int, bytes]:
    writer.write(_request(port, path, token))
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = next(
        int(line.partition(":")[2])
        for line in head.splitlines()
        if line.lower().startswith("content-length:")
    )
    return int(head.split()[1]), await reader.readexactly(length)


async def run_ms(*arguments: str, env: dict[str, str] | None = None) -> float:
    """Milliseconds that a Python process with these arguments takes from start to exit."""

    def run() -> float:
        began_s = perf_counter()
        subprocess.run(
            [sys.executable, *arguments],
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=None if env is None else os.environ | env,
        )
        return (perf_counter() - began_s) * 1_000

    return await asyncio.to_thread(run)
