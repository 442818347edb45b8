"""Jobs of the storm: a program that calls our tools over MCP, an agent that needs approval for what it
does, people who approve, and kills of the programs themselves.

Each job is counted in a file outside the store, so the judge knows what was really done.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.daemon_process import DaemonProcess, group_members
from tests.support.storm_oracle import all_rows
from tests.support.storm_record import GONE

MOUTH: Final = "mouth"
HAND: Final = "hand"
JOB_ENDS: Final = ("done", "dead")
AT_ONCE: Final = 4
# An engine of the kind "command": it asks another agent by the tools it is given over MCP.
PROGRAM: Final = """
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


@dataclass(slots=True)
class Job:
    """One job: ``text`` names it everywhere."""

    text: str
    message_id: str = ""
    result: dict[str, Any] = field(default_factory=dict)


class Jobs:
    """Who gives jobs, some at once, and who approves of them."""

    def __init__(self, place: Path, chance: random.Random) -> None:
        self._chance = chance
        self._place = place
        self._world = place / "world"
        self._world.touch()
        self.jobs: list[Job] = []
        self.approved: set[str] = set()

    def agents(self) -> list[dict[str, Any]]:
        """The entries of the two agents."""
        program = self._place / "program.py"
        program.write_text(PROGRAM)
        options = {"command": [sys.executable, str(program)], "output": "text"}
        return [
            {"name": MOUTH, "engine": "command", "engine_options": options, "slots": 4},
            {"name": HAND, "tools": ["exec"], "slots": 4},
        ]

    def rules(self) -> list[dict[str, Any]]:
        """What the hand does."""
        effect = ["sh", "-c", f"echo $0 >> {self._world}; sleep 0.05"]
        call = {"name": "exec", "args": {"argv": effect}}
        return [{"match": "job-([0-9]+)", "steps": [{"tool": call}, {"say": "$result"}]}]

    @property
    def is_busy(self) -> bool:
        """Whether something was begun whose end is not known."""
        return any(not job.result for job in self.jobs)

    @property
    def in_flight(self) -> int:
        """How many were confirmed, and nobody has seen their end."""
        return sum(bool(job.message_id) and not job.result for job in self.jobs)

    def done(self) -> Counter[str]:
        """How often each was done."""
        return Counter(self._world.read_text().split())

    async def live(self, daemon: DaemonProcess, wants_more: Callable[[], bool]) -> None:
        """Give some at once, again and again, and learn how all end."""
        with contextlib.suppress(*GONE, OSError):
            while wants_more() or self.is_busy:
                under_way = [job for job in self.jobs if not job.result]
                if wants_more() and len(under_way) < AT_ONCE:
                    under_way.append(Job(f"job-{len(self.jobs)}"))
                    self.jobs.append(under_way[-1])
                for job in under_way:
                    await self._look(daemon, job)
                await asyncio.sleep(0.05)

    async def _look(self, daemon: DaemonProcess, job: Job) -> None:
        if not job.message_id:
            fields = {"thread_id": job.text, "idempotency_key": job.text}
            job.message_id = await daemon.send(MOUTH, job.text, **fields)
        found = await daemon.result(job.message_id, 0)
        if found["state"] in JOB_ENDS:
            job.result = found

    async def attend(self, daemon: DaemonProcess) -> None:
        """Press buttons, those of earlier lives too, tell the truth about lost effects, and now and
        then kill a program, as long as this life of the daemon lasts."""
        while daemon.is_running:
            with contextlib.suppress(*GONE, OSError):
                for asked in (await daemon.get("/questions?limit=500"))["questions"]:
                    if asked["agent"] == HAND:
                        await self._press(daemon, asked)
            if self._chance.random() < 0.02:
                self._kill_a_program(daemon)
            await asyncio.sleep(0.05)

    async def _press(self, daemon: DaemonProcess, asked: dict[str, Any]) -> None:
        rows = daemon.sql("SELECT parts FROM messages WHERE message_id = ?", (asked["message_id"],))
        names = sorted((job.text for job in self.jobs), key=len, reverse=True)
        job = next(name for name in names if name in str(rows))
        said = "once"
        if asked["kind"] == "uncertain":
            said = "it happened" if self.done()[job] else "do it again"
        else:
            self.approved.add(job)
        answer = await daemon.post(f"/questions/{asked['id']}/answer", {"answer": said})
        assert answer.status in {200, 409}, answer

    def _kill_a_program(self, daemon: DaemonProcess) -> None:
        mine = "SELECT pgid FROM processes JOIN agents USING (agent_id) WHERE name IN (?, ?)"
        if rows := daemon.sql(mine, (MOUTH, HAND)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._chance.choice(rows)["pgid"], signal.SIGKILL)

    def check(self, sql: sqlite3.Connection) -> Counter[str]:
        """Each was done once at most and never without approval; what succeeded was done, and nothing
        of a program is left."""
        done = self.done()
        assert max(done.values(), default=1) == 1, f"a job was done twice: {done}"
        assert set(done) <= self.approved, "a job was done without approval"
        for job in self.jobs:
            assert job.result, f"nobody learnt the end of {job}"
            # The kill of an effect's program is in the answer; the effect may be missing then.
            if job.result["success"] and "ended by signal" not in job.result["text"]:
                assert done[job.text] == 1 or "could not" in job.result["text"], job
        groups = all_rows(sql, "SELECT pgid FROM processes")
        assert not [pid for row in groups for pid in group_members(row["pgid"])]
        return Counter(f"job {job.result['outcome'] or job.result['state']}" for job in self.jobs)
