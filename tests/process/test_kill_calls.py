"""Kills while programs call our tools over MCP and people give leave: the daemon at any instant, and
the programs of engines. Each job with leave is done once, counted in a file outside the store.

``AGENTSUP_KILL_SEED`` replays a schedule; ``AGENTSUP_CALL_KILLS`` says how many kills (5).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.daemon_process import DaemonProcess, group_members, marked_by, write_home
from tests.support.preloaded_process import DAEMON

pytestmark = pytest.mark.process

KILLS = int(os.environ.get("AGENTSUP_CALL_KILLS", "5"))
SEED = int(os.environ.get("AGENTSUP_KILL_SEED") or random.SystemRandom().randrange(1 << 32))
JOBS_A_LIFE = 3
GONE = (aiohttp.ClientError, ConnectionError, OSError, TimeoutError)

# An engine of the kind "command": it asks another agent by the tools it is given over MCP.
PROGRAM = """
import json, os, re, subprocess, sys, urllib.request
job = re.search(r"job-[0-9]+", sys.stdin.read()).group()
subprocess.Popen(["setsid", "sleep", "300"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
        {"name": "ask_agent", "arguments": {"to": "hand", "message": job, "timeout": 60, "new_session": True}}}
request = urllib.request.Request(
    os.environ["AGENTSUP_URL"] + "/mcp", json.dumps(body).encode(),
    {"Authorization": "Bearer " + os.environ["AGENTSUP_TOKEN"],
     "Content-Type": "application/json", "Accept": "application/json, text/event-stream"})
answer = json.loads(urllib.request.urlopen(request, timeout=90).read())
text = answer["result"]["content"][0]["text"]
print(("did " if not answer["result"]["isError"] else "could not: ") + text)
"""


class Scene:
    """One home through many lives, what was asked of it and what came of it."""

    def __init__(self, root: Path) -> None:
        self.chance = random.Random(SEED)
        self.world = root / "world"
        self.world.touch()
        program = root / "program.py"
        program.write_text(PROGRAM)
        effect = ["sh", "-c", f"echo $0 >> {self.world}; sleep 0.05"]
        rules = [
            {
                "match": "job-([0-9]+)",
                "steps": [{"tool": {"name": "exec", "args": {"argv": effect}}}, {"say": "$result"}],
            }
        ]
        options = {"command": [sys.executable, str(program)], "output": "text"}
        home = write_home(
            root / "home",
            [
                {"name": "main"},
                {"name": "mouth", "engine": "command", "engine_options": options, "slots": 4},
                {"name": "hand", "tools": ["exec"], "slots": 4},
            ],
            rules=rules,
        )
        self.daemon = DaemonProcess(home, loaded=DAEMON)
        self.jobs: dict[str, str] = {}
        self.leave: set[str] = set()
        self.lives: list[int] = []

    def done(self) -> Counter[str]:
        return Counter(self.world.read_text().split())

    async def ask(self) -> None:
        """Give work; what was confirmed counts."""
        for _ in range(JOBS_A_LIFE):
            job = f"job-{len(self.jobs)}"
            self.jobs[job] = ""
            with contextlib.suppress(*GONE):
                self.jobs[job] = await self.daemon.send("mouth", job, thread_id=job)

    async def answer(self) -> None:
        """Press buttons, those of earlier lives too, and tell the truth about lost effects."""
        while True:
            with contextlib.suppress(*GONE):
                for one in (await self.daemon.get("/questions"))["questions"]:
                    await asyncio.sleep(self.chance.uniform(0, 0.05))
                    await self._press(one)
            await asyncio.sleep(0.03)

    async def _press(self, one: dict[str, Any]) -> None:
        row = self.daemon.sql(
            "SELECT parts FROM messages WHERE message_id = ?", (one["message_id"],)
        )[0]
        job = next(job for job in sorted(self.jobs, key=len, reverse=True) if job in str(row))
        said = "once"
        if one["kind"] == "uncertain":
            said = "it happened" if self.done()[job] else "do it again"
        else:
            self.leave.add(job)
        answer = await self.daemon.post(f"/questions/{one['id']}/answer", {"answer": said})
        assert answer.status in {200, 409}, answer

    async def kill_a_program(self) -> None:
        rows = self.daemon.sql("SELECT pgid FROM processes")
        if rows:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(rows)["pgid"], signal.SIGKILL)

    async def life(self) -> None:
        """Up, no orphan of earlier lives, some work, and a kill."""
        await self.daemon.start()
        assert self.orphans() == []
        self.lives.append(self.daemon.pid)
        answering = asyncio.create_task(self.answer())
        asking = asyncio.create_task(self.ask())
        await asyncio.sleep(self.chance.uniform(0.2, 1.2))
        if self.chance.random() < 0.4:
            await self.kill_a_program()
            await asyncio.sleep(self.chance.uniform(0.0, 0.4))
        self.daemon.kill()
        for task in (answering, asking):
            await end(task)
        await self.daemon.ended()

    def orphans(self) -> list[int]:
        """Living processes that carry the mark of a life that is over."""
        return marked_by(self.lives, now=self.daemon.pid)


async def end(task: asyncio.Task[None]) -> None:
    """Cancel, and raise what it ended with before."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()


@pytest.mark.timeout(60 + 6 * KILLS)
async def test_no_kill_doubles_or_loses_what_got_leave(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    daemon = scene.daemon
    print("seed", SEED)
    try:
        for _ in range(KILLS):
            await scene.life()
        await daemon.start()
        assert scene.orphans() == []
        answering = asyncio.create_task(scene.answer())
        accepted = {job: message for job, message in scene.jobs.items() if message}
        ended = {
            job: await daemon.result(message, wait_s=30.0) for job, message in accepted.items()
        }
        await end(answering)
        done = scene.done()
        assert max(done.values()) == 1, f"done twice: {done}"
        assert set(done) <= scene.leave, "done without leave"
        for job, result in ended.items():
            assert result["state"] in {"done", "dead"}, (job, result)
            # The kill of an effect's program is in the answer; the effect may be missing then.
            if result["success"] and "ended by signal" not in result["text"]:
                assert done[job] == 1, (job, result)
        assert len([1 for result in ended.values() if result["success"]]) > KILLS
        assert daemon.sql("SELECT * FROM questions WHERE state = 'open'") == []
        print(f"{len(accepted)} jobs, {len(done)} done, {len(scene.leave)} with leave")
        assert await daemon.stop() == 0
        scene.lives.append(daemon.pid)
        assert scene.orphans() == []
        assert [
            group_members(row["pgid"]) for row in daemon.sql("SELECT pgid FROM processes")
        ] == []
    finally:
        await daemon.close()
