"""A running daemon and a crowd that connects and says little: API, agents and log stay well."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess
from tests.support.fork_server import Cage
from tests.support.preloaded_process import DAEMON

pytestmark = pytest.mark.process

CROWD = 1_100
HALF = b"GET / HTTP/1.1\r\n"
LOGIN = (
    b"POST /web/login HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nOrigin: http://127.0.0.1:%d\r\n"
    b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)
CHUNK = b"f3e58\r\n" + b" " * 0xF3E58 + b"\r\n"
RULES = [{"match": "hello", "steps": [{"say": "hi"}]}]
# The program is started anew for each turn, so that descriptors are needed for it.
PROGRAM = {
    "name": "runner",
    "engine": "command",
    "engine_options": {"command": ["/bin/sh", "-c", 'echo \'{"type":"done","text":"ran"}\'']},
}


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * CROWD)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def crowd(port: int, said: bytes, count: int = CROWD) -> list[socket.socket]:
    opened = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            each = socket.create_connection(("127.0.0.1", port), timeout=BOUND_S)
            opened.append(each)
            each.sendall(said)
    return opened


def resident_mib(pid: int) -> float:
    line = next(
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )
    return int(line.split()[1]) / 1024


def open_files(pid: int) -> tuple[int, int]:
    """The soft and the hard limit of a process."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    line = next(line for line in lines if line.startswith("Max open files"))
    soft, hard = line.split()[3:5]
    return int(soft), int(hard)


async def works(daemon: DaemonProcess, name: str, text: str) -> Any:
    return await daemon.result(await daemon.send(name, text), BOUND_S)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("descriptors", [1024, 256])
async def test_half_open_connections_stop_nothing(
    make_daemon: Any, many_files: None, descriptors: int
) -> None:
    daemon = make_daemon(
        ["main", PROGRAM], RULES, loaded=DAEMON, cage=Cage(descriptors=descriptors)
    )
    await daemon.start()
    port = int(daemon.url.rpartition(":")[2])
    sockets = await asyncio.to_thread(crowd, port, HALF)
    try:
        assert len(sockets) > CROWD * 9 // 10
        # Nobody's half request is over yet: it is answered beside them, and not after them.
        assert await daemon.get("/healthz")
        assert (await works(daemon, "runner", "go"))["text"] == "ran"
        assert (await works(daemon, "main", "hello"))["text"] == "hi"
        assert (await daemon.get("/readyz"))["ready"]
        held = len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))
        assert held < 512 + 128
        assert held < descriptors or descriptors == 1024  # the soft limit alone is raised
        soft, hard = open_files(daemon.pid)
        assert soft == min(hard, 65_536)
        log = (daemon.home / "logs" / "agentsup.log").stat().st_size
        assert log < 100_000, daemon.tail()
    finally:
        for each in sockets:
            each.close()


@pytest.mark.timeout(180)
async def test_bodies_before_any_token_are_not_kept(make_daemon: Any, many_files: None) -> None:
    daemon = make_daemon(["main"], RULES, loaded=DAEMON)
    await daemon.start()
    port = int(daemon.url.rpartition(":")[2])
    await daemon.get("/healthz")
    before = resident_mib(daemon.pid)

    def send() -> list[socket.socket]:
        opened = crowd(port, LOGIN % (port, port), 300)
        for each in opened:
            with contextlib.suppress(OSError):
                each.settimeout(0.2)
                each.sendall(CHUNK)
        return opened

    sockets = await asyncio.to_thread(send)
    try:
        assert resident_mib(daemon.pid) - before < 60
        assert (await works(daemon, "main", "hello"))["text"] == "hi"
        answers = set()
        for each in sockets:
            with contextlib.suppress(OSError):
                answers.add(each.recv(12))
        assert answers <= {b"HTTP/1.1 413", b""}
        assert b"HTTP/1.1 413" in answers
    finally:
        for each in sockets:
            each.close()
