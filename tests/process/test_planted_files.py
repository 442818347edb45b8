"""Whatever an agent plants where it can write, and whatever file of the home hangs, hurts nobody else.

The regime: each path an agent can write, with each thing that may stand there, under each deed of
the daemon. ``TEST_PLANTED=all`` does all of them; otherwise each thing and each path comes once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.chat_client import Chat
from tests.support.daemon_process import DaemonProcess
from tests.support.preloaded_process import DAEMON
from tests.support.web_client import Tab

pytestmark = pytest.mark.process

RULES: list[dict[str, Any]] = [
    {"match": "send it", "steps": [{"file": "sent.txt"}, {"say": "sent"}]},
    {"match": "effect", "steps": [{"effect": "effects.txt"}, {"say": "done"}]},
    {"match": "exec", "steps": [{"tool": {"name": "exec", "args": {"argv": ["true"]}}},
     {"say": "$result"}]},
    {"match": "fs", "steps": [{"tool": {"name": "fs_read", "args": {"path": "sent.txt"}}},
     {"tool": {"name": "fs_list", "args": {"path": "inbox"}}}, {"say": "$result"}]},
    {"match": "(.+)", "steps": [{"say": "you said $1"}]},
]  # fmt: skip
CONFIG: Final = """
[people.cleo]
role = "user"
"""
SERVER: Final = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    told = {"initialize": {"protocolVersion": asked.get("params", {}).get("protocolVersion"),
                           "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}},
            "tools/list": {"tools": []}}.get(asked["method"], {})
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}), flush=True)
"""
"""A tool server that offers nothing, and starts quickly."""
ADA: Final[dict[str, Any]] = {
    "name": "ada",
    "tools": ["exec", "fs_read", "fs_list"],
    "permission_mode": "bypassPermissions",
    "slots": 8,
    "mcp": {"tool": {"command": sys.executable, "args": ["-I", "-S", "-c", SERVER]}},
}
CAM: Final[dict[str, Any]] = {
    "name": "cam",
    "engine": "command",
    "engine_options": {
        "command": ["/bin/sh", "-c", "cat > /dev/null; echo done"],
        "output": "text",
    },
    "slots": 4,
}
GIL: Final[dict[str, Any]] = {
    "name": "gil",
    "engine": "gemini",
    "engine_options": {"command": ["/bin/false"]},
    "slots": 4,
}
"""A coding agent whose settings are written before each turn; its program says nothing."""
AGENTS: Final[list[Any]] = ["main", ADA, "ben", CAM, GIL]
QUICK_S: Final = 4.5
"""What another agent's answer may take meanwhile: less than the shortest limit of a step, which it
would take behind one that hangs."""
DEED_S: Final = 8.0
"""Less than the limit of a step in the pool: nothing that is planted keeps even its own agent."""
GROWTH_KIB: Final = 100 * 1024
IS_WHOLE: Final = os.environ.get("TEST_PLANTED") == "all"


# -- what may stand there --------------------------------------------------------------------------


def pipe(at: Path) -> None:
    os.mkfifo(at)


def socket_(at: Path) -> None:
    here = os.open(at.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{at.name}")
    finally:
        os.close(here)


def directory(at: Path) -> None:
    (at / "in" / "it").mkdir(parents=True)


def loop(at: Path) -> None:
    at.symlink_to(at.name)


def device(at: Path) -> None:
    at.symlink_to("/dev/zero")


def giant(at: Path) -> None:
    with at.open("wb") as file:
        file.truncate(1 << 40)  # sparse: it takes no room


def closed(at: Path) -> None:
    at.write_bytes(b"closed")
    at.chmod(0)


PLANTS: dict[str, Callable[[Path], None]] = {
    each.__name__: each for each in (pipe, socket_, directory, loop, device, giant, closed)
}
PATHS: Final = (
    "agents/ada/workspace/SHAREDMEMORY.md",
    "agents/ada/workspace/inbox",
    "agents/ada/workspace/sent.txt",
    "agents/ada/workspace/effects.txt",
    "agents/ada/MEMORY.md",
    "agents/ada/engine-home",
    "agents/ada/exec-home",
    "agents/ada/exec-home/tmp",
    "agents/ada/mcp",
    "agents/ada/mcp/tool",
    "agents/cam/engine-home",
    "agents/cam/engine-home/command",
    "agents/cam/persons",
    "agents/cam/persons/{person}",
    "agents/cam/persons/{person}/engine-home",
    "agents/ada/persons/{person}/exec-home",
    "agents/gil/engine-home/gemini",
    "agents/gil/engine-home/gemini/.gemini",
    "agents/gil/engine-home/gemini/.gemini/settings.json",
    "agents/gil/workspace/.gemini",
    "agents/gil/workspace/.gemini/settings.json",
    "tasks/{task}/TASKMEMORY.md",
)
CHANGING = "changing"
"""Not a thing but a race: the name is a file, a pipe, a link and a giant in turn."""


@contextlib.contextmanager
def planted(at: Path, kind: str) -> Iterator[None]:
    """That thing under that name; what was there before stands beside it and comes back."""
    at.parent.mkdir(parents=True, exist_ok=True)
    kept = at.with_name(f".kept-{at.name}")
    if os.path.lexists(at):
        at.rename(kept)
    PLANTS[kind](at)
    try:
        yield
    finally:
        put_back(kept, at)
        for aside in at.parent.glob(f"{at.name}.set-aside-*"):
            cleared(aside)


def put_back(kept: Path, at: Path) -> None:
    """What was there before, in place of what there is; a program may go on making things there."""
    for last in (*[False] * 20, True):
        try:
            cleared(at)
            if os.path.lexists(kept):
                kept.rename(at)
        except OSError:
            if last:
                raise
        else:
            return


def cleared(at: Path) -> None:
    """Nothing has that name; a directory leaves it before what is in it goes."""
    if at.is_dir() and not at.is_symlink():
        gone = at.with_name(f".gone-{at.name}")
        at.rename(gone)
        while gone.exists():
            shutil.rmtree(gone, ignore_errors=True)
    else:
        at.unlink(missing_ok=True)


async def change(at: Path, stopping: asyncio.Event) -> None:
    """Put one thing after the other in its place, as fast as it goes."""
    at.parent.mkdir(parents=True, exist_ok=True)
    beside = at.with_name(f".{at.name}.next")
    while not stopping.is_set():
        for kind in ("pipe", "loop", "device", "giant", "closed"):
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
                PLANTS[kind](beside)
                beside.rename(at)
            await asyncio.sleep(0)


# -- what the daemon does --------------------------------------------------------------------------


class Fixture:
    """A daemon with agents that plant (ada, and cam and gil, which are programs) and one that does
    not, ben; they work for the operator, ada and cam for cleo as well."""

    def __init__(self, daemon: DaemonProcess, tab: Tab, cleo: Tab) -> None:
        self.daemon = daemon
        self.tab = tab
        self.cleo = cleo
        self.task = ""
        self.person = ""
        self.count = 0
        self._chats: dict[str, Chat] = {}

    async def set_up(self) -> None:
        """A task with a folder, a delivered file."""
        (self.daemon.home / "agents/ada/workspace/sent.txt").write_text("the file")
        self.task = await self.task_made()
        for agent in ("ada", "cam"):
            self._chats[agent] = await self.cleo.chat("cleo", agent=agent)
        self._chats["operator"] = await self.tab.chat("local", agent="ada")
        await self.person_says("cam", "hi")
        assert (await self.said("cam", "hi"))["success"]
        (folder,) = (self.daemon.home / "agents/cam/persons").iterdir()
        self.person = folder.name

    async def person_says(self, agent: str, text: str, who: str = "") -> None:
        """Words of cleo to an agent, or of who is named, answered."""
        message_id = await self._chats[who or agent].say(text)
        await self.tried(message_id)

    async def is_stopped(self) -> None:
        """What is obeyed past every queue is so now."""
        assert await self._chats["operator"].command("/stop", timeout_s=QUICK_S)

    async def copy_is_made(self) -> None:
        """Of the store, which lies beside what agents write."""
        target = self.daemon.home.parent / "copy.db"
        assert await self.command("backup", str(target)) == 0
        cleared(target)

    async def doctor_looks(self) -> None:
        """Whatever it finds, it ends."""
        assert await self.command("doctor") in (0, 1)

    async def command(self, *line: str) -> int:
        argv = [sys.executable, "-m", "agentsup", "--home", str(self.daemon.home), *line]
        run = await asyncio.create_subprocess_exec(
            *argv, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(BOUND_S):
                return await run.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                run.kill()
            await run.wait()

    async def agent_goes_and_comes(self, name: str) -> None:
        """Taken out of agents.json, then back: both are applied."""
        path = self.daemon.home / "agents.json"
        before = path.read_text()
        path.write_text(json.dumps([each for each in json.loads(before) if each["name"] != name]))
        async with asyncio.timeout(DEED_S):
            while name in await self.daemon.agents():
                await asyncio.sleep(0.05)  # asked over HTTP; within DEED_S
        path.write_text(before)
        await self.daemon.until(name, "running", "degraded", "failed", "backoff", timeout_s=DEED_S)

    async def task_made(self) -> str:
        body = {"prompt": "work on it", "from": "ada"}
        task_id = str((await self.daemon.post("/tasks/create", body)).body["task_id"])
        async with asyncio.timeout(DEED_S):
            while True:
                document = await self.daemon.get(f"/tasks/{task_id}")
                if document["status"] in ("done", "failed"):
                    return task_id
                await asyncio.sleep(0.05)

    async def said(self, to: str, text: str) -> Any:
        message_id = await self.daemon.send(to, text)
        return await self.daemon.result(message_id, DEED_S)

    async def tried(self, message_id: str) -> None:
        """A turn of a program has ended, or has failed with a reason and will be tried again: who
        plants in its own home keeps nobody but itself. No try is left for the next case."""
        async with asyncio.timeout(DEED_S):
            while True:
                document = await self.daemon.get(f"/messages/{message_id}")
                if document["state"] not in ("queued", "leased") or document["error"]:
                    break
                await asyncio.sleep(0.05)  # asked over HTTP; within DEED_S
        await self.daemon.post(f"/messages/{message_id}/cancel")

    async def program_works(self, agent: str) -> None:
        await self.tried(await self.daemon.send(agent, "hi"))

    async def shared_knowledge_is_edited(self) -> None:
        """Ben has the new text at once; the next edit of agents.json is applied."""
        self.count += 1
        text = f"the word of round {self.count}"
        (self.daemon.home / "SHAREDMEMORY.md").write_text(text)
        copy = self.daemon.home / "agents/ben/workspace/SHAREDMEMORY.md"
        async with asyncio.timeout(QUICK_S):
            while not (copy.is_file() and text in copy.read_text()):
                await asyncio.sleep(0.02)

    async def file_is_uploaded(self) -> None:
        with contextlib.suppress(AssertionError):
            await self.tab.call("POST", "/web/uploads?agent=ada&name=a.txt", data=b"sent")

    async def task_runs(self) -> None:
        await self.task_made()

    async def note_is_kept(self) -> None:
        await self.daemon.post("/tasks/resume", {"task_id": self.task, "prompt": "go on"})

    async def agent_is_restarted(self) -> None:
        await self.daemon.post("/agents/ada/restart")
        view = await self.daemon.until(
            "ada", "running", "degraded", "failed", "backoff", timeout_s=DEED_S
        )
        assert view["status"] != "starting"

    async def every_deed(self) -> None:
        """Each ends in time, well or with an error; they run beside one another."""
        async with asyncio.timeout(DEED_S):
            await asyncio.gather(
                *(self.said("ada", text) for text in ("send it", "effect", "exec", "fs", "hi")),
                self.shared_knowledge_is_edited(),
                self.file_is_uploaded(),
                self.task_runs(),
                self.note_is_kept(),
                self.program_works("cam"),
                self.program_works("gil"),
                self.person_says("cam", "hi"),
                self.person_says("ada", "exec"),
                self.person_says("ada", "send it", who="operator"),
            )
            await self.is_stopped()
            await self.agent_is_restarted()

    async def others_do_not_notice(self) -> None:
        async with asyncio.timeout(QUICK_S):
            found = await self.said("ben", "hi")
        assert found["success"], found

    async def task_is_deleted(self) -> None:
        answer = await self.daemon.post("/tasks/delete", {"task_id": self.task})
        assert answer.status < 500, answer
        self.task = await self.task_made()

    def rss_kib(self) -> int:
        status = Path(f"/proc/{self.daemon.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])


def cases() -> list[tuple[str, str]]:
    """Path and kind."""
    kinds = [*PLANTS, CHANGING]
    if IS_WHOLE:
        return [(path, kind) for path in PATHS for kind in kinds]
    # Pipes and races where the daemon opens what is there; each thing once.
    few = {
        "workspace/SHAREDMEMORY.md": ("pipe", "directory", "device"),
        "workspace/inbox": ("loop",),
        "workspace/sent.txt": ("pipe", CHANGING),
        "workspace/effects.txt": ("pipe", "giant"),
        "MEMORY.md": ("pipe",),
        "ada/engine-home": ("closed",),
        "ada/exec-home": ("socket_",),
        "exec-home/tmp": ("loop",),
        "ada/mcp": ("directory",),
        "mcp/tool": ("loop",),
        "cam/engine-home": ("device",),
        "engine-home/command": ("pipe",),
        "cam/persons": ("socket_",),
        "persons/{person}": ("loop",),
        "persons/{person}/engine-home": ("closed",),
        "persons/{person}/exec-home": ("pipe",),
        "engine-home/gemini": ("pipe",),
        "engine-home/gemini/.gemini": ("loop",),
        "engine-home/gemini/.gemini/settings.json": ("pipe",),
        "workspace/.gemini": ("device",),
        "workspace/.gemini/settings.json": ("pipe",),
        "TASKMEMORY.md": ("pipe",),
    }
    ends = {path: end for path in PATHS for end in few if path.endswith(f"/{end}")}
    assert len(ends) == len(PATHS), "each path comes once"
    return [(path, kind) for path, end in ends.items() for kind in few[end]]


async def one_case(scene: Fixture, at: Path, kind: str) -> None:
    if kind == CHANGING:
        stopping = asyncio.Event()
        racing = asyncio.create_task(change(at, stopping))
        try:
            await scene.every_deed()
            await scene.others_do_not_notice()
        finally:
            stopping.set()
            await racing
            cleared(at)
        return
    with planted(at, kind):
        await asyncio.gather(scene.every_deed(), scene.others_do_not_notice())
        await scene.others_do_not_notice()
        if IS_WHOLE:
            await asyncio.gather(scene.copy_is_made(), scene.doctor_looks())
            kind_of_folder, owner, *_ = at.relative_to(scene.daemon.home).parts
            await scene.agent_goes_and_comes(owner if kind_of_folder == "agents" else "ada")
        if at.name == "SHAREDMEMORY.md":
            assert f"round {scene.count}" in at.read_text(), "its own copy is renewed, too"
            aside = at.with_name(f"{at.name}.set-aside-1")
            assert os.path.lexists(aside) is (kind not in ("giant", "closed"))


@pytest.mark.timeout(0 if IS_WHOLE else 120)
async def test_what_an_agent_plants_hurts_no_other(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(AGENTS, RULES, CONFIG, loaded=DAEMON)
    (daemon.home / "SHAREDMEMORY.md").write_text("the first word")
    await daemon.start()
    tab, cleo = Tab(daemon), Tab(daemon)
    try:
        await tab.sign_in()
        await cleo.sign_in("cleo")
        scene = Fixture(daemon, tab, cleo)
        await scene.set_up()
        await scene.every_deed()
        before = scene.rss_kib()
        for path, kind in cases():
            at = daemon.home / path.format(task=scene.task, person=scene.person)
            try:
                await one_case(scene, at, kind)
            except (AssertionError, TimeoutError, aiohttp.ClientError) as error:
                raise AssertionError(f"{kind} at {path}: {error!r}") from error
            assert scene.rss_kib() - before < GROWTH_KIB, (path, kind)
        with planted(daemon.home / "agents/gil/engine-home", "loop"):
            await scene.agent_goes_and_comes("gil")
        with planted(daemon.home / "tasks" / scene.task / "TASKMEMORY.md", "pipe"):
            await scene.task_is_deleted()
        ready = await daemon.get("/readyz")
        assert ready["ready"], ready
        for each, kind in zip(
            PATHS[:5], ("pipe", "device", "giant", "loop", "socket_"), strict=True
        ):
            at = daemon.home / each
            cleared(at)
            PLANTS[kind](at)
        assert await daemon.stop(timeout_s=BOUND_S) == 0
        await daemon.start()
        await scene.others_do_not_notice()
    finally:
        await tab.close()
        await cleo.close()
    assert await daemon.stop(timeout_s=BOUND_S) == 0


# -- files of the home -----------------------------------------------------------------------------


async def until_told(daemon: DaemonProcess, words: str, *, told: bool = True) -> None:
    async with asyncio.timeout(BOUND_S):
        while (words in (await daemon.get("/status")).get("config_error", "")) is not told:
            await asyncio.sleep(0.05)


@pytest.mark.timeout(180)
async def test_pipes_in_place_of_files_of_the_home_are_told_and_keep_nobody(
    make_daemon: MakeDaemon,
) -> None:
    scripted = {"engine": "scripted", "engine_options": {"script": "file:own.yaml"}}
    daemon = make_daemon(["main", {"name": "ada", **scripted}], RULES, loaded=DAEMON)
    home = daemon.home
    (home / "own.yaml").write_text(json.dumps([{"match": "(.+)", "steps": [{"say": "own $1"}]}]))
    entries = json.loads((home / "agents.json").read_text())
    await daemon.start()
    for name, good in (
        ("agents.json", json.dumps([*entries, {**entries[0], "name": "late"}])),
        ("config.toml", "[limits]\ndepth = 7\n"),
    ):
        (home / name).unlink(missing_ok=True)
        os.mkfifo(home / name)
        await until_told(daemon, f"{name} is a pipe, not a plain file")
        (home / name).unlink()
        (home / name).write_text(good)
        await until_told(daemon, "pipe", told=False)
    assert "late" in await daemon.agents()
    (home / "SHAREDMEMORY.md").unlink(missing_ok=True)
    os.mkfifo(home / "SHAREDMEMORY.md")
    async with asyncio.timeout(BOUND_S):
        while "is a pipe" not in str((await daemon.get("/status"))["warnings"]):
            await asyncio.sleep(0.05)
    (home / "own.yaml").unlink()
    os.mkfifo(home / "own.yaml")
    found = await daemon.result(await daemon.send("ada", "hi"), BOUND_S)
    assert not found["success"]
    assert "is a pipe" in found["error"], found
    for name in ("agents.json", "config.toml"):
        (home / name).unlink()
        os.mkfifo(home / name)
    await until_told(daemon, "is a pipe")
    assert await daemon.stop(timeout_s=BOUND_S) == 0
    await daemon.start()  # on what was applied last
    assert "late" in await daemon.agents()
    assert await daemon.stop(timeout_s=BOUND_S) == 0


@pytest.mark.timeout(240)
async def test_a_mount_that_does_not_answer_is_told_and_keeps_nobody(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    dead = tmp_path / "dead"
    dead.mkdir()
    (dead / "workspace").mkdir()
    command = ("-m", "tests.support.stuck_files")
    daemon = make_daemon(["main", "ada"], RULES, command=command, env={"TEST_STUCK": str(dead)})
    home = daemon.home
    (home / "agents/ben").mkdir(parents=True)
    (home / "agents/ben/workspace").symlink_to(dead / "workspace")
    good = (home / "agents.json").read_text()
    await daemon.start()
    (home / "agents.json").unlink()
    (home / "agents.json").symlink_to(dead / "agents.json")
    await until_told(daemon, "the file can't be read: no answer within 5 s")
    async with asyncio.timeout(BOUND_S):
        while True:
            answer = await daemon.request("GET", "/readyz")
            if "agents.json" in str(answer.body):
                break
            await asyncio.sleep(0.1)
    assert answer.status == 503
    (home / "SHAREDMEMORY.md").write_text("a good edit beside it")
    copy = home / "agents/ada/workspace/SHAREDMEMORY.md"
    async with asyncio.timeout(BOUND_S):
        while not copy.exists():
            await asyncio.sleep(0.05)
    (home / "agents.json").unlink()
    (home / "agents.json").write_text(json.dumps([*json.loads(good), {"name": "ben"}]))
    await until_told(daemon, "no answer", told=False)
    view = await daemon.until("ben", "backoff", "failed", timeout_s=30)
    assert "no answer" in str(view["last_reason"])
    found = await daemon.result(await daemon.send("ada", "hi"), BOUND_S)
    assert found["success"], found
    assert await daemon.stop(timeout_s=BOUND_S) == 0
