"""``agentsup demo`` as a person uses it: a page, an answer, a killed daemon, and nothing left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agentsup.cli.connect.locate import is_alive
from agentsup.fakes.telegram import TelegramDriver
from tests.process.cli.process_cli import ENV, until
from tests.support.bound import BOUND_S


class Demo:
    """The command as a process, and what it printed."""

    def __init__(self, temporary: Path, *words: str) -> None:
        self.temporary = temporary
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agentsup", "demo", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**ENV, "TMPDIR": str(temporary), "AGENTSUP_HOME": str(temporary / "of-somebody")},
        )
        self._reader = threading.Thread(target=self._read, name="reader:demo")
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def says(self, pattern: str) -> re.Match[str]:
        """Wait until it printed something that fits."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.output)
            assert found or self.process.poll() is None, self.output
            return found

        found: re.Match[str] = until(pattern, look)
        return found

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(BOUND_S)
        self.close()
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        if self.process.wait(BOUND_S) == -signal.SIGKILL:
            for path in self.temporary.rglob("daemon.json"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(json.loads(path.read_text())["pid"], signal.SIGKILL)
        self._reader.join(BOUND_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    made = tmp_path / "temporary"
    made.mkdir()
    return made


@pytest.fixture
def started(temporary: Path) -> Iterator[list[Demo]]:
    demos: list[Demo] = []
    yield demos
    for one in demos:
        one.close()


def begin(started: list[Demo], temporary: Path, words: Sequence[str] = ("--port", "0")) -> Demo:
    started.append(Demo(temporary, *words))
    return started[-1]


async def talk(url: str, text: str, answer: str) -> None:
    """Say a text to Main as the page does."""
    async with TelegramDriver(url) as people:
        bots = {bot["first_name"]: bot["id"] for bot in await people.get("bots")}
        person = (await people.get("users"))[0]["id"]
        chat = await people.private(person, bots["Main"])
        said = await people.say(chat, text)
        await people.wait_text(chat, answer, after=said)
        assert await people.violations() == []


async def begin_to_count(url: str) -> None:
    """Have Main count, and return while it does."""
    async with TelegramDriver(url) as people:
        bots = {bot["first_name"]: bot["id"] for bot in await people.get("bots")}
        person = (await people.get("users"))[0]["id"]
        chat = await people.private(person, bots["Main"])
        said = await people.say(chat, "count")
        await people.wait_text(chat, "one, ", 10, after=said)


@pytest.mark.timeout(180)
def test_a_person_tries_it_and_nothing_is_left(started: list[Demo], temporary: Path) -> None:
    demo = begin(started, temporary)
    url = demo.says(r"The page: (\S+?)/\n")[1]
    pid = int(demo.says(r"kill -9 (\d+)")[1])
    asyncio.run(talk(url, "hello", "No model is at work here"))
    os.kill(pid, signal.SIGKILL)
    again = int(demo.says(r"The daemon is up again \(pid (\d+)\)")[1])
    asyncio.run(talk(url, "ask writer for a haiku", "nothing lost tonight"))
    assert demo.end(signal.SIGINT) == 0
    assert "The demo has ended." in demo.output
    assert "Traceback" not in demo.output
    assert not is_alive(pid)
    assert not is_alive(again)
    assert list(temporary.iterdir()) == [], "something was left"


@pytest.mark.timeout(180)
def test_a_home_is_kept_and_taken_up_again(started: list[Demo], temporary: Path) -> None:
    home = temporary / "kept"
    words = ("--port", "0", "--home", str(home))
    first = begin(started, temporary, words)
    first.says("The page")
    other = begin(started, temporary, words)
    assert other.process.wait(BOUND_S) == 1
    assert "runs for" in other.output
    assert first.end() == 0
    assert f"its home is {home}" in first.output
    second = begin(started, temporary, words)
    asyncio.run(talk(second.says(r"The page: (\S+?)/\n")[1], "hello", "No model is at work here"))
    assert second.end() == 0
    assert (home / "agents.json").is_file()
    assert [path.name for path in temporary.iterdir()] == ["kept"]


@pytest.mark.timeout(180)
def test_a_kill_ends_its_daemon_too(started: list[Demo], temporary: Path) -> None:
    demo = begin(started, temporary)
    url = demo.says(r"The page: (\S+?)/\n")[1]
    os.kill(int(demo.says(r"kill -9 (\d+)")[1]), signal.SIGKILL)
    # The one that was started in its place is held as well; a turn that runs keeps it a while.
    pid = int(demo.says(r"The daemon is up again \(pid (\d+)\)")[1])
    asyncio.run(begin_to_count(url))
    demo.process.kill()
    assert demo.process.wait(BOUND_S) == -signal.SIGKILL
    until("the daemon has ended too", lambda: not is_alive(pid))
    until("nothing is left", lambda: list(temporary.iterdir()) == [])


@pytest.mark.timeout(180)
def test_a_kill_leaves_a_home_that_was_named(started: list[Demo], temporary: Path) -> None:
    home = temporary / "kept"
    words = ("--port", "0", "--home", str(home))
    demo = begin(started, temporary, words)
    pid = int(demo.says(r"kill -9 (\d+)")[1])
    demo.process.kill()
    until("the daemon has ended too", lambda: not is_alive(pid))
    assert (home / "state.db").is_file()
    again = begin(started, temporary, words)
    again.says("The page")
    assert again.end() == 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_ends_while_it_begins(started: list[Demo], temporary: Path, number: int) -> None:
    demo = begin(started, temporary)
    until("the home is written", lambda: list(temporary.rglob("agents.json")))
    assert demo.end(number) == 0
    assert "The page" not in demo.output
    assert list(temporary.iterdir()) == []


@pytest.mark.timeout(180)
def test_it_ends_when_nobody_reads_it(temporary: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "agentsup", "demo", "--port", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENV, "TMPDIR": str(temporary)},
    ) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        demo.stdout.close()
        said = demo.stderr.read()
        assert demo.wait(BOUND_S) == 0
    assert "Error" not in said
    assert list(temporary.iterdir()) == []


@pytest.mark.timeout(180)
def test_a_taken_port_is_named(started: list[Demo], temporary: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        demo = begin(started, temporary, ("--port", str(port)))
        assert demo.process.wait(BOUND_S) == 1
        demo.close()
    assert f"127.0.0.1:{port}: Address already in use" in demo.output
    assert "--port" in demo.output
    assert "Traceback" not in demo.output
    assert list(temporary.iterdir()) == []
