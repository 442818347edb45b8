"""Every refusal is a clear sentence with a code, and leaves nothing half-written behind."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import os
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.daemon_process import Answer, DaemonProcess, group_members, write_home
from tests.support.ports import free_port
from tests.support.preloaded_process import DAEMON

pytestmark = pytest.mark.process

RULES: list[dict[str, Any]] = [
    {"match": "tree", "steps": [{"spawn": 600}]},
    {"match": "long", "steps": [{"sleep": 600}]},
    {"match": "fail", "steps": [{"fail": "the model is on strike"}]},
    {"match": "count (\\S+)", "steps": [{"sleep": 0.05}, {"effect": "order.txt"}, {"say": "$1"}]},
    {"match": "hi", "steps": [{"say": "hello"}]},
]


def refused(answer: Answer, status: int, *words: str) -> None:
    """A problem document of that status whose sentence says the words."""
    assert answer.status == status, answer
    assert answer.headers["Content-Type"].startswith("application/problem+json"), answer
    assert answer.body["code"]
    for word in words:
        assert word in answer.body["detail"], (word, answer.body)


@pytest.mark.parametrize("without_lock_file", [False, True])
async def test_a_second_run_on_the_same_home(
    make_daemon: MakeDaemon, without_lock_file: bool
) -> None:
    daemon = make_daemon(["main"], RULES)
    await daemon.start()
    if without_lock_file:
        (daemon.home / "agentsup.lock").unlink()
    second = DaemonProcess(daemon.home)
    second.output = daemon.home.parent / "second.out"
    second.launch()
    assert await second.ended() == 1
    await second.close()
    assert without_lock_file or str(daemon.pid) in second.tail()
    assert str(daemon.home) in second.tail()
    assert "belongs to a running daemon" in second.tail()
    assert "Traceback" not in second.tail()
    assert (await daemon.post("/interagent/send", {"to": "main", "message": "hi"})).body["success"]


async def test_a_port_in_use(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["main"], RULES)
    port = free_port()  # nobody's connection gets it, once it is free again
    with contextlib.closing(socket.create_server(("127.0.0.1", port))):
        daemon.launch("--port", str(port))
        assert await daemon.ended() == 1
    assert str(port) in daemon.tail()
    assert "Traceback" not in daemon.tail()
    daemon.launch("--port", str(port))
    await daemon.ready()
    assert daemon.url.endswith(str(port))


async def test_a_newer_schema(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["main"], RULES)
    await daemon.start()
    await daemon.stop()
    with contextlib.closing(sqlite3.connect(daemon.home / "state.db")) as file:
        file.execute("INSERT INTO schema_version (version, name, applied_at) VALUES (99, 'x', 1)")
        file.commit()
    before = (daemon.home / "state.db").read_bytes()
    daemon.launch()
    assert await daemon.ended() == 1
    assert "99" in daemon.tail()
    assert "Traceback" not in daemon.tail()
    assert (daemon.home / "state.db").read_bytes() == before


async def test_a_broken_file_at_the_first_start(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["main"], RULES)
    (daemon.home / "agents.json").write_text('[\n  {"name": "bob",}\n]')
    daemon.launch()
    assert await daemon.ended() == 1
    assert "agents.json:2:" in daemon.tail()
    assert "Traceback" not in daemon.tail()


@pytest.mark.timeout(180)
async def test_what_http_refuses(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["main", "bob", {"name": "small", "queue_limit": 3}], RULES)
    await daemon.start()
    send = "/interagent/send"
    count = "SELECT count(*) n FROM messages"

    good = {"to": "bob", "message": "hi"}
    refused(await daemon.post(send, good, headers={"Authorization": "Bearer no"}), 401)
    refused(await daemon.post(send, good, headers={"Origin": "https://evil.example"}), 403)
    refused(await daemon.post(send, good, headers={"Origin": "null"}), 403)
    refused(await daemon.post(send, good, headers={"Host": "evil.example"}), 403)
    text = {"Content-Type": "text/plain"}
    refused(await daemon.request("POST", send, data=b'{"to": "bob"}', headers=text), 415)
    large = b'{"to": "bob", "message": "' + b"x" * (2 << 20) + b'"}'
    json_ = {"Content-Type": "application/json"}
    refused(await daemon.request("POST", send, data=io.BytesIO(large), headers=json_), 413)
    refused(await daemon.request("POST", send, data=b'{"to": ', headers=json_), 400)
    refused(await daemon.post(send, {"to": 5, "message": "hi"}), 400, "to")
    refused(await daemon.post(send, {"to": "bob", "message": "hi", "mesage": "x"}), 400, "mesage")
    refused(await daemon.post(send, {"to": "bobb", "message": "hi"}), 404, "bob")
    refused(await daemon.request("GET", "/interagent/results/msg_nothing"), 404)
    assert daemon.sql(count)[0]["n"] == 0

    # A full queue: with its name and size, and when to come again.
    for _ in range(3):
        await daemon.send("small", "long")
    full = await daemon.post("/interagent/send_async", {"to": "small", "message": "hi"})
    refused(full, 429, "small", "3")
    assert int(full.headers["Retry-After"]) >= 1
    assert daemon.sql(count)[0]["n"] == 3

    # An engine failure is never success (D18).
    failed = await daemon.post(send, {"to": "bob", "message": "fail"})
    assert failed.status == 502
    assert failed.body["success"] is False
    assert "on strike" in failed.body["error"]


@pytest.mark.timeout(180)
async def test_a_token_of_an_engine_is_its_agents_own(make_daemon: MakeDaemon) -> None:
    """D7: the sender is who holds the token, and the token dies with the turn."""
    daemon = make_daemon(["main", "bob", "ann"], RULES)
    await daemon.start()
    await daemon.send("bob", "tree")
    async with asyncio.timeout(BOUND_S):
        while not (rows := daemon.sql("SELECT pgid FROM processes")):
            await asyncio.sleep(0.02)
    pid = group_members(rows[0]["pgid"])[0]
    environ = dict(
        pair.split("=", 1) for pair in Path(f"/proc/{pid}/environ").read_text().split("\0") if pair
    )
    assert environ["AGENTSUP_AGENT"] == "bob"
    assert environ["AGENTSUP_URL"].rstrip("/") == daemon.url
    assert not {"HOME", "PATH", "LANG"} - set(environ) - {"LANG"}
    assert all(daemon.token not in value for value in environ.values())
    own = {"Authorization": f"Bearer {environ['AGENTSUP_TOKEN']}"}
    body = {"to": "ann", "message": "hi"}
    spoofed = await daemon.post("/interagent/send", {**body, "from": "main"}, headers=own)
    refused(spoofed, 403, "bob")
    answer = await daemon.post("/interagent/send", {**body, "from": "bob"}, headers=own)
    assert (answer.status, answer.body["text"]) == (200, "hello")
    refused(await daemon.post("/interagent/send", {"to": "bob", "message": "hi"}, headers=own), 409)
    for path in ("/stop_all", "/agents/ann/stop", "/drain"):
        refused(await daemon.post(path, headers=own), 403)
    await daemon.post("/stop_all")
    refused(await daemon.post("/interagent/send", body, headers=own), 401)


@pytest.mark.timeout(180)
async def test_one_session_runs_one_turn_at_a_time(make_daemon: MakeDaemon) -> None:
    """D17, D18: parallel requests to one session run in order and never at once."""
    daemon = make_daemon(["main", "bob"], RULES)
    await daemon.start()
    keys = [str(number) for number in range(8)]
    ids = [await daemon.send("bob", f"count {key}", thread_id="t") for key in keys]
    results = await asyncio.gather(*(daemon.result(message_id) for message_id in ids))
    assert [result["text"] for result in results] == keys
    rows = daemon.sql("SELECT started_at, finished_at, session_id FROM messages ORDER BY seq")
    assert len({row["session_id"] for row in rows}) == 1
    for earlier, later in itertools.pairwise(rows):
        assert earlier["finished_at"] <= later["started_at"]
    assert (daemon.home / "agents/bob/workspace/order.txt").read_text().split() == ids


# -- the disk --------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MiB of its own."""
    where = tmp_path / "disk"
    where.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(where)]
    if os.geteuid() != 0 or subprocess.run(mounting, check=False, capture_output=True).returncode:
        pytest.skip("mounting a file system needs the right to do so")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


@pytest.mark.timeout(180)
async def test_a_full_disk_refuses_and_recovers(small_disk: Path, tmp_path: Path) -> None:
    home = write_home(small_disk / "home", [{"name": "main"}, {"name": "bob"}], RULES)
    daemon = DaemonProcess(home)
    daemon.output = tmp_path / "daemon.out"
    try:
        await daemon.start()
        before = await daemon.agents()
        kept = [await daemon.send("bob", "hi")]
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 65536)
        answer = Answer(202, None, {})
        big = "x" * 200_000
        async with asyncio.timeout(BOUND_S):
            while answer.status == 202:
                answer = await daemon.post(
                    "/interagent/send_async", {"to": "bob", "message": f"hi {big}"}
                )
                if answer.status == 202:
                    kept.append(answer.body["task_id"])
        refused(answer, 503, "disk")
        assert answer.headers["Retry-After"]
        assert (await daemon.request("GET", "/healthz")).status == 200
        ballast.unlink()
        async with asyncio.timeout(BOUND_S):
            while (answer := await daemon.post(
                "/interagent/send_async", {"to": "bob", "message": "hi"}
            )).status != 202:  # fmt: skip
                await asyncio.sleep(0.1)
        kept.append(answer.body["task_id"])
        # All that was accepted came to its end, by the agents that were there all the time.
        for message_id in kept:
            assert (await daemon.result(message_id, BOUND_S))["state"] == "done"
        assert daemon.sql("SELECT count(*) n FROM messages")[0]["n"] == len(kept)
        after = await daemon.agents()
        assert after["bob"]["instance_id"] == before["bob"]["instance_id"]
        assert await daemon.stop() == 0
    finally:
        await daemon.close()


@pytest.mark.timeout(180)
async def test_an_end_on_a_full_disk_is_an_end(small_disk: Path, tmp_path: Path) -> None:
    """A restart starts again, and the store that an orderly stop has left is taken."""
    home = write_home(small_disk / "home", [{"name": "main"}], RULES)
    (home / "config.toml").write_text('restart_in_place = "always"\n')
    daemon = DaemonProcess(home)
    daemon.output = tmp_path / "daemon.out"
    ballast = small_disk / "ballast"

    def fill() -> None:
        with ballast.open("ab", buffering=0) as file:
            for size in (65_536, 512, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"\0" * size)

    async def accept_until_full() -> None:
        """Until the log of the store has no room in its file either."""
        answer = Answer(202, None, {})
        while answer.status == 202:
            body = {"to": "main", "message": "hi " + "x" * 200_000}
            answer = await daemon.post("/interagent/send_async", body)

    try:
        await daemon.start()
        boot_id = (await daemon.get("/status"))["boot_id"]
        fill()
        await accept_until_full()
        fill()
        assert (await daemon.post("/restart", {})).status == 202
        async with asyncio.timeout(BOUND_S):
            while "waits for space" not in daemon.tail():
                assert daemon.is_running, daemon.tail()
                await asyncio.sleep(0.05)
        ballast.unlink()
        await daemon.ready()
        await daemon.leave()
        assert (await daemon.get("/status"))["boot_id"] != boot_id
        fill()
        await accept_until_full()
        fill()
        filling = asyncio.create_task(_keep_full(fill))
        assert await daemon.stop(BOUND_S) == 0
        filling.cancel()
        ballast.unlink()
        await daemon.start()
        assert (await daemon.get("/status"))["boot_id"] != boot_id
    finally:
        await daemon.close()


async def _keep_full(fill: Callable[[], None]) -> None:
    """Take what the end of a daemon frees before it can use it."""
    while True:
        fill()
        await asyncio.sleep(0.001)


@pytest.mark.timeout(180)
async def test_a_start_on_a_full_disk_waits(small_disk: Path, tmp_path: Path) -> None:
    home = write_home(small_disk / "home", [{"name": "main"}], RULES)
    daemon = DaemonProcess(home, loaded=DAEMON)
    daemon.output = tmp_path / "daemon.out"
    ballast = small_disk / "ballast"

    async def told(text: str, times: int) -> None:
        async with asyncio.timeout(BOUND_S):
            while daemon.tail().count(text) < times:
                assert daemon.is_running, daemon.tail()
                await asyncio.sleep(0.05)

    try:
        await daemon.start()
        kept = await daemon.send("main", "hi")
        assert (await daemon.result(kept))["state"] == "done"
        assert await daemon.stop() == 0
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 65536)
        daemon.launch()
        await told("agentsup: the start waits for space", 1)
        # Before there is a loop, the signal itself ends it.
        assert await daemon.stop(BOUND_S) in (0, -signal.SIGTERM)
        # Room for the lock and the log, and none for what the store needs to be opened.
        os.truncate(ballast, ballast.stat().st_size - 16 * 1024)
        daemon.launch()
        await told("agentsup: the start waits for space", 2)
        assert await daemon.stop(BOUND_S) == 0, daemon.tail()
        with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 4096)
        daemon.launch()
        await told("agentsup: the start waits for space", 3)
        ballast.unlink()
        await daemon.ready()
        assert (await daemon.result(kept, 0))["text"] == "hello"
        assert (await daemon.post("/interagent/send", {"to": "main", "message": "hi"})).body[
            "success"
        ]
    finally:
        await daemon.close()


@pytest.mark.timeout(180)
async def test_a_read_only_home(small_disk: Path, tmp_path: Path) -> None:
    home = write_home(small_disk / "home", [{"name": "main"}], RULES)
    daemon = DaemonProcess(home)
    daemon.output = tmp_path / "daemon.out"
    try:
        await daemon.start()
        await daemon.stop()
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        daemon.launch()
        assert await daemon.ended() == 1
        assert str(home) in daemon.tail(600)
        assert "Traceback" not in daemon.tail()
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
        await daemon.start()
        answer = await daemon.post("/interagent/send", {"to": "main", "message": "hi"})
        assert answer.body["text"] == "hello"
    finally:
        await daemon.close()


async def test_a_websocket_from_elsewhere(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(["main"], RULES)
    await daemon.start()
    for headers in ({"Origin": "https://evil.example"}, {"Authorization": "Bearer no"}):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            await daemon.http().ws_connect("/ws", headers=headers)
        assert refusal.value.status in {401, 403}
