"""Traffic of tasks for kills: givers who have work done, forget nothing, and repeat what was not
confirmed.

Each giver has one piece of work at a time and takes it through its life: over ``/tasks/*`` as the
operator, or by a word to an agent that makes the task with its own tool. What was confirmed is on
the record; after a kill it goes on where it was, with the same keys. The oracle judges by that.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.daemon_process import Answer, DaemonProcess
from tests.support.model_server import Asked, Call, Reply
from tests.support.storm_record import AGENTS, GONE, Record, Work

THINKER: Final = "lou"
"""The agent whose engine asks a model, which costs."""
SLOTS: Final = {"interactive": 4, "peer": 4, "background": 8}
CONFIG: Final = "[tasks]\nmax_parallel = 24\n"
ENDED: Final = ("done", "failed", "cancelled")
MARK: Final = "mine.txt"
_SAY, _EFFECT = "say", {"effect": "effects.txt"}
RULES: Final[list[dict[str, Any]]] = [
    {"match": r"say (\S+)", "steps": [{"sleep": 0.1}, {_SAY: "said $1"}]},
    {
        "match": r"effect (\S+)",
        "steps": [{"sleep": 0.05}, _EFFECT, {"sleep": 0.1}, {_SAY: "did $1"}],
    },
    {"match": r"tick (\S+)", "steps": [{"sleep": 0.05}, _EFFECT, {_SAY: "ticked $1"}]},
    {"match": r"slow (\S+)", "steps": [{"sleep": 0.4}, {_SAY: "slow $1"}]},
    {
        "match": r"question (\S+)",
        "steps": [
            {"question": {"text": "go on with $1?", "options": ["yes", "no"]}},
            _EFFECT,
            {_SAY: "$1 was answered $result"},
        ],
    },
    {
        "match": r"make (\w+) (\S+)",
        "steps": [
            {"tool": {"name": "task_create", "args": {"prompt": "$1 $2-in", "title": "$2-in"}}},
            {_SAY: "made $2: $result"},
        ],
    },
    {
        "match": r"askback (\S+)",
        "steps": [
            {"sleep": 0.05},
            {"tool": {"name": "ask_parent", "args": {"question": "parent of $1?"}}},
            {_SAY: "asked back $1: $result"},
        ],
    },
    {"match": r"parent of (\S+)\?", "steps": [{"sleep": 0.05}, {_SAY: "parent says yes"}]},
    # What comes back to a session that has made a task.
    {"match": r"(?:said|did|asked back) (\S+)-in.*", "steps": [_EFFECT, {_SAY: "heard $1"}]},
]
KINDS: Final = (
    *("say", "effect", "question", "ask", "resume", "cancel", "delete", "todo"),
    *("make", "make", "chat", "chat"),
)
"""What givers do, each as likely as the others; one giver in four keeps schedules instead."""
MADE: Final = ("say", "effect", "askback")


def think(asked: Asked) -> Reply:
    """The model: it looks who is there, and then says so."""
    last = asked.messages[-1]
    if last["role"] == "tool":
        key = next(
            word
            for message in reversed(asked.messages)
            if message["role"] == "user"
            for word in str(message["content"]).split()
            if word.startswith("think-")
        )
        return Reply(("thought ", "of ", key), every_s=0.03)
    return Reply(calls=(Call("list_agents", {}),))


class TaskClient:
    """One who gives work; ``number`` decides of what kind, unless ``kind`` does."""

    kinds: Sequence[str] = KINDS

    def __init__(self, number: int, chance: random.Random, works: Record, kind: str = "") -> None:
        self._name, self._chance, self._works = f"g{number}", chance, works
        self._kind = kind or ("schedule" if number % 4 == 3 else "")
        self._agent = AGENTS[number % len(AGENTS)]
        self._number = 0
        self.work: Work | None = None

    @property
    def is_busy(self) -> bool:
        """Whether something was begun whose end is not known."""
        return self.work is not None

    async def arrive(self, daemon: DaemonProcess) -> None:
        """Write in the own conversation once: nothing is delivered where nobody ever wrote."""
        is_thinker = self._kind == "think"
        chat = await daemon.chat(THINKER if is_thinker else self._agent, self._name)
        await chat.ask("think-hello" if is_thinker else "say hello")
        await chat.close()

    async def live(self, daemon: DaemonProcess, wants_more: Callable[[], bool]) -> None:
        """One piece of work after the other until nothing more is wanted or the daemon is gone."""
        with contextlib.suppress(*GONE):
            while self.work is not None or wants_more():
                work = self.work = self.work or self._next()
                await self._through(daemon, work, wants_more)
                self.work = None

    def _next(self) -> Work:
        self._number += 1
        kind = self._kind or self._chance.choice(self.kinds)
        agent = THINKER if kind == "think" else self._agent
        work = Work(f"{self._name}-{self._number}", kind, agent)
        if kind in {"make", "chat"}:
            work.detail = self._chance.choice(MADE)
        elif kind == "schedule":
            work.detail = self._chance.choice(["once skip", "skip skip", "all queue", "all skip"])
            work.until = time.monotonic() + self._chance.uniform(3, 9)
        if kind == "chat" or self._chance.random() < 0.5:
            work.conversation = self._name
        self._works.works.append(work)
        return work

    async def _through(
        self, daemon: DaemonProcess, work: Work, wants_more: Callable[[], bool]
    ) -> None:
        if work.kind in {"make", "chat"}:
            await self._have_it_made(daemon, work)
        elif not work.task_id:
            await self._create(daemon, work)
        match work.kind:
            case "ask":
                await self._once(work, "ask", self._ask, daemon)
            case "cancel":
                await asyncio.sleep(self._chance.uniform(0, 0.3))
                await self._once(work, "cancel", self._cancel, daemon)
            case "todo":
                await self._once(work, "start", self._resume, daemon, f"say {work.key}")
            case "resume":
                if "again" not in work.done_steps:
                    await self._ended(daemon, work)
                await self._once(work, "again", self._resume, daemon, f"say {work.key}-again")
            case "schedule":
                while wants_more() and time.monotonic() < work.until:
                    await daemon.get(f"/tasks/{work.task_id}")
                    await asyncio.sleep(0.1)
                await self._once(work, "cancel", self._cancel, daemon)
        state, result = await self._ended(daemon, work)
        if work.kind == "delete":
            await self._delete(daemon, work)
        work.terminal, work.result = state, result

    async def _once(self, work: Work, step: str, act: Any, *args: Any) -> None:
        """A step of the work that was not confirmed yet."""
        if step not in work.done_steps:
            await act(work, *args)
            work.done_steps.add(step)

    # -- steps -------------------------------------------------------------------------------------

    async def _create(self, daemon: DaemonProcess, work: Work) -> None:
        verb = {"ask": "slow", "cancel": "slow", "schedule": "tick"}.get(work.kind, "say")
        if work.kind in {"effect", "question"}:
            verb = work.kind
        text = f"think-{work.key}" if work.kind == "think" else f"{verb} {work.key}"
        body: dict[str, Any] = {
            "prompt": text,
            "agent": work.agent,
            "name": work.key,
            "idempotency_key": work.key,
            "start": work.kind != "todo",
        }
        if work.conversation:
            body["chat_id"] = work.conversation
        if work.kind == "schedule":
            misfire, overlap = work.detail.split()
            every = 1 + int(work.key.rpartition("-")[2]) % 3 / 2
            body["schedule"] = {"every": every, "misfire": misfire, "overlap": overlap}
        again = self._chance.random() < 0.2
        for _ in range(1 + again):
            task_id = await _accepted(daemon, body)
            work.task_id = work.task_id or task_id
            work.ids_given.add(task_id)
        work.acked_at_ms = time.time_ns() // 1_000_000
        mark(daemon.home, work)

    async def _have_it_made(self, daemon: DaemonProcess, work: Work) -> None:
        text = f"make {work.detail} {work.key}"
        if not work.message_id and work.kind == "chat":
            chat = await daemon.chat(work.agent, self._name)
            work.message_id = await chat.say(text, work.key, timeout_s=20)
            await chat.close()
        elif not work.message_id:
            fields = {"idempotency_key": work.key, "thread_id": self._name}
            work.message_id = await daemon.send(work.agent, text, **fields)
        if not work.task_id:
            result = await daemon.result(work.message_id, 40)
            assert result["state"] in {"done", "dead"}, result
            if not result["success"]:  # tried too often: the oracle looks whether that is so
                work.terminal = "dead"
                return
            found = await daemon.get("/tasks/list?limit=500")
            named = [t for t in found["tasks"] if t["name"] == f"{work.key}-in"]
            assert len(named) == 1, (work, named)
            assert named[0]["task_id"] in result["text"], (work, result)
            work.task_id = named[0]["task_id"]

    async def _ask(self, work: Work, daemon: DaemonProcess) -> None:
        """As the running turn would, by ``ask_parent``."""
        body = {"task_id": work.task_id, "question": f"go on with {work.key}?"}
        while True:
            answer = await daemon.post("/tasks/ask_parent", {**body, "options": ["yes", "no"]})
            if answer.status == 200:
                return
            assert answer.status == 409, answer
            if (await self._look(daemon, work))["state"] in ENDED:
                return
            await asyncio.sleep(0.02)

    async def _cancel(self, work: Work, daemon: DaemonProcess) -> None:
        work.was_tried = True
        answer = await daemon.post("/tasks/cancel", {"task_id": work.task_id})
        assert answer.status in {200, 409}, answer

    async def _resume(self, work: Work, daemon: DaemonProcess, text: str) -> None:
        body = {"task_id": work.task_id, "prompt": text, "idempotency_key": f"{work.key}-again"}
        answer: Answer = await daemon.post("/tasks/resume", body)
        assert answer.status == 200, answer

    async def _delete(self, daemon: DaemonProcess, work: Work) -> None:
        was_tried, work.was_tried = work.was_tried, True
        answer = await daemon.post("/tasks/delete", {"task_id": work.task_id})
        assert answer.status == 200 or (was_tried and answer.status == 404), answer
        work.is_deleted = True

    # -- looking -----------------------------------------------------------------------------------

    async def _look(self, daemon: DaemonProcess, work: Work, wait_s: float = 0.0) -> dict[str, Any]:
        path = f"/tasks/{work.task_id}?wait={wait_s}"
        return dict(await daemon.get(path, timeout_s=wait_s + 10))

    async def _ended(self, daemon: DaemonProcess, work: Work) -> tuple[str, str]:
        """Its end, awaited."""
        if work.terminal:
            return work.terminal, work.result
        async with asyncio.timeout(60):
            while True:
                if work.kind == "delete" and work.was_tried:
                    return "done", work.expected()
                found = await self._look(daemon, work, 10)
                if found["state"] in ENDED:
                    return str(found["state"]), str(found["result"])
                await asyncio.sleep(0.05)  # it asks, and waits for the answer


async def _accepted(daemon: DaemonProcess, body: dict[str, Any]) -> str:
    """The id of the task that ``body`` makes, tried again while too many are open."""
    while True:
        answer = await daemon.post("/tasks/create", body)
        if answer.status == 200:
            return str(answer.body["task_id"])
        assert answer.status == 429, answer
        await asyncio.sleep(0.1)


def mark(home: Path, work: Work) -> None:
    """Leave a file of one's own in the task's folder, where there is one by now."""
    folder = home / "tasks" / work.task_id
    if folder.is_dir():
        (folder / MARK).write_text(work.key)
        work.done_steps.add("marked")


class Answerer:
    """People who answer what is asked outside of Telegram. Half of the questions about lost effects
    that end by themselves they leave alone; of the others they tell what comes to their mind."""

    def __init__(self, record: Record, chance: random.Random) -> None:
        self._record, self._chance = record, chance
        self._is_left: dict[str, bool] = {}

    async def live(self, daemon: DaemonProcess) -> None:
        """Answer as long as this life of the daemon lasts."""
        while daemon.is_running:
            with contextlib.suppress(*GONE):
                for asked in (await daemon.get("/questions?limit=500"))["questions"]:
                    if asked["agent"] in AGENTS:
                        await self._press(daemon, asked)
            await asyncio.sleep(0.05)

    async def _press(self, daemon: DaemonProcess, asked: dict[str, Any]) -> None:
        said, message_id = "yes", asked["message_id"]
        is_put = "SELECT 1 FROM questions WHERE question_id = ? AND put_as <> ''"
        if daemon.sql(is_put, (asked["id"],)) and self._chance.random() < 0.8:
            return  # the agent that was asked answers; now and then a person is quicker
        in_chat = "SELECT 1 FROM outbox WHERE message_id = ? AND channel = 'telegram'"
        if daemon.sql(f"{in_chat} AND kind = 'question'", (message_id,)):
            return  # whoever is asked there answers there
        if asked["kind"] == "uncertain":
            ends_itself = asked["deadline_at"] is not None
            if self._is_left.setdefault(asked["id"], ends_itself and self._chance.random() < 0.5):
                return
            said = self._record.decide(message_id, self._chance)
        answer = await daemon.post(f"/questions/{asked['id']}/answer", {"answer": said})
        assert answer.status in {200, 409}, answer
