"""Traffic of the storm: users who talk, forget nothing, and repeat what was not confirmed.

Each user has one thing going at a time: a chat text over ``/ws``, a ``send_async`` or a waiting
``send``
with an idempotency key. What was confirmed is on the record; after a kill a user repeats what was
not, with the same id, and waits on for what was. The record is what the oracle judges by.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.support.bound import BOUND_S
from tests.support.chat_client import Chat
from tests.support.daemon_process import DaemonProcess
from tests.support.storm_record import AGENTS, GONE, Item, Record
from tests.support.web_client import Tab

SLOTS: Final = {"interactive": 4, "peer": 4, "background": 1}
ENDS: Final = ("done", "cancelled", "dead")
_SAY, _RESULT = "say", "$result"
RULES: Final[list[dict[str, Any]]] = [
    {"match": r"say (\S+)", "steps": [{"sleep": 0.1}, {_SAY: "said $1"}]},
    {
        "match": r"stream (\S+)",
        "steps": [{"stream": {"chunks": ["one ", "two ", "$1"], "every": 0.15}}],
    },
    {
        "match": r"effect (\S+)",
        "steps": [{"sleep": 0.05}, {"effect": "effects.txt"}, {"sleep": 0.15}, {_SAY: "did $1"}],
    },
    {
        "match": r"ask (\w+) (\S+)",
        "steps": [
            {"tool": {"name": "ask_agent", "args": {"to": "$1", "message": "effect $2-in"}}},
            {_SAY: f"asked $2: {_RESULT}"},
        ],
    },
    {
        "match": r"relay (\w+) (\S+)",
        "steps": [
            {"tool": {"name": "ask_agent_async", "args": {"to": "$1", "message": "say $2-in"}}},
            {_SAY: "relayed $2"},
        ],
    },
    {"match": r"said (\S+)-in", "steps": [{"effect": "effects.txt"}, {_SAY: "heard $1"}]},
    {
        "match": r"question (\S+)",
        "steps": [
            {"question": {"text": "go on with $1?", "options": ["yes", "no"]}},
            {"effect": "effects.txt"},
            {_SAY: f"$1 was answered {_RESULT}"},
        ],
    },
    {
        "match": r"long (\S+)",
        "steps": [{"sleep": 0.4}, {"effect": "effects.txt"}, {_SAY: "long $1"}],
    },
    {
        "match": r"chain (\w+) (\w+) (\S+)",
        "steps": [
            {"tool": {"name": "ask_agent", "args": {"to": "$1", "message": "ask $2 $3-mid"}}},
            {_SAY: f"chained $3: {_RESULT}"},
        ],
    },
    {"match": r"spawn (\S+)", "steps": [{"spawn": 0.4}, {_SAY: "spawned $1"}]},
]
KINDS: Final = ("say", "stream", "effect", "ask", "relay", "question", "chain", "spawn")
"""What users do, each as likely as the others."""


class User:
    """One client; ``number`` decides by which way it talks."""

    WAYS: Final = ("chat", "async", "web", "send")

    def __init__(self, number: int, chance: random.Random, record: Record) -> None:
        self._way = self.WAYS[number % len(self.WAYS)]
        self._name = f"u{number}"
        self._agent = AGENTS[number % len(AGENTS)]
        self._chance = chance
        self._record = record
        self._number = 0
        self._after: int | None = None
        self._ends: dict[str, tuple[str, str]] = {}
        """Ends that came over an earlier connection. A kill may hide that a text was accepted and
        leave its answer: the next connection begins behind it."""
        self._tab: Tab | None = None
        self.item: Item | None = None

    @property
    def is_busy(self) -> bool:
        """Whether something was begun whose end is not known."""
        return self.item is not None

    async def close(self) -> None:
        """The browser of one who talks in the page, which lives through all kills."""
        if self._tab is not None:
            await self._tab.close()

    async def live(self, daemon: DaemonProcess, wants_more: Callable[[], bool]) -> None:
        """Do one thing after the other until nothing more is wanted or the daemon is gone."""
        try:
            if self._way in {"chat", "web"}:
                await self._chat(daemon, wants_more)
            else:
                await self._http(daemon, wants_more)
        except GONE:
            return

    def _next(self) -> Item:
        self._number += 1
        key = f"{self._name}-{self._number}"
        # Chains that begin at all three can wait for one another in a ring, which is rightly refused.
        kind = self._chance.choice([k for k in KINDS if k != "chain" or self._agent != "bob"])
        peers = [name for name in AGENTS if name != self._agent]
        peer = self._chance.choice(peers)
        if kind == "chain":
            peer = " ".join((peer, *(name for name in peers if name != peer)))
        text = f"{kind} {peer} {key}" if kind in {"ask", "relay", "chain"} else f"{kind} {key}"
        item = Item(key, self._agent, kind, text, self._way, conversation=self._name)
        self._record.items.append(item)
        return item

    async def _chat(self, daemon: DaemonProcess, wants_more: Callable[[], bool]) -> None:
        chat = await self._connect(daemon)
        heard = 0
        try:
            while self.item is not None or wants_more():
                item = self.item = self.item or self._next()
                if not item.message_id:
                    item.ack(await chat.say(item.text, item.key, timeout_s=20))
                ended = self._ends.pop(item.message_id, None)
                ended = ended or await _ended_in_chat(chat, item.message_id)
                heard = self._record.hear(chat, heard)
                item.terminal, item.answer = ended
                self.item = None
        finally:
            self._record.hear(chat, heard)
            self._ends |= _ends(chat.frames)
            self._after = max((f["seq"] for f in chat.frames if "seq" in f), default=self._after)

    async def _connect(self, daemon: DaemonProcess) -> Chat:
        after = self._after or 0
        if self._way == "chat":
            return await daemon.chat(self._agent, self._name, after=after)
        tab = self._tab = self._tab or Tab(daemon)
        if not tab.is_signed_in:
            await tab.sign_in()
        return await tab.chat(self._name, self._agent, after=after)

    async def _http(self, daemon: DaemonProcess, wants_more: Callable[[], bool]) -> None:
        while self.item is not None or wants_more():
            item = self.item = self.item or self._next()
            body = {"to": item.agent, "message": item.text, "idempotency_key": item.key}
            if not item.message_id and self._way == "async":
                item.ack(await daemon.send(item.agent, item.text, idempotency_key=item.key))
                if self._chance.random() < 0.2:
                    item.ack(await daemon.send(item.agent, item.text, idempotency_key=item.key))
            elif not item.message_id:
                answer = await daemon.post("/interagent/send", body, timeout_s=40)
                assert answer.status in {200, 502}, answer
                item.ack(answer.body["message_id"])
            while (result := await daemon.result(item.message_id, 20))["state"] not in ENDS:
                continue
            item.terminal = result["outcome"] or result["state"]
            item.answer = result["text"]
            self.item = None


async def _ended_in_chat(chat: Chat, message_id: str) -> tuple[str, str]:
    """The answer, or the notice that there is none, as delivered to the conversation."""
    seen = 0
    async with asyncio.timeout(BOUND_S):
        while True:
            found = _ends(chat.frames[seen:])
            if message_id in found:
                return found[message_id]
            seen = len(chat.frames)
            await chat.more()


def _ends(frames: Sequence[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """By message: how it ended (``ok``, ``failed``, ``cancelled`` or ``dead``) and the text that
    said so."""
    ends = {}
    for frame in frames:
        event = frame.get("event", {})
        if event.get("type") != "chat.out":
            continue
        data = event["data"]
        if data["kind"] == "answer":
            ends[event["message_id"]] = ("ok", data["text"])
        elif data["kind"] == "notice" and "outcome" in data:
            ends[event["message_id"]] = (data["outcome"], data["text"])
    return ends


class Stopper:
    """A user who gives work and stops it again, in a conversation of its own."""

    CONVERSATION: Final = "stopme"
    is_busy = False

    def __init__(self, record: Record) -> None:
        self._record = record
        self._number = 0
        self.mine: list[Item] = []

    async def live(self, daemon: DaemonProcess, wants_more: Callable[[], bool]) -> None:
        try:
            chat = await daemon.chat("bob", self.CONVERSATION)
            for item in [item for item in self.mine if not item.message_id]:
                item.ack(await chat.say(item.text, item.key))
            while wants_more():
                for _ in range(2):
                    await self._say(chat)
                await self._stop(chat)
        except GONE:
            return

    async def finish(self, daemon: DaemonProcess) -> None:
        """Repeat what was not confirmed, and learn how all of it ended."""
        chat = await daemon.chat("bob", self.CONVERSATION)
        for item in self.mine:
            if not item.message_id:
                item.ack(await chat.say(item.text, item.key))
            result = await daemon.result(item.message_id, 30)
            item.terminal = result["outcome"] or result["state"]
        await chat.close()

    async def _say(self, chat: Chat) -> None:
        self._number += 1
        key = f"{self.CONVERSATION}-{self._number}"
        item = Item(key, "bob", "long", f"long {key}", "stop", conversation=self.CONVERSATION)
        self.mine.append(item)
        item.ack(await chat.say(item.text, item.key))

    async def _stop(self, chat: Chat) -> None:
        before = tuple(item.message_id for item in self.mine if item.message_id)
        reply = await chat.command("/stop")
        assert reply["ok"], reply
        self._record.stops.append((time.time_ns() // 1_000_000, before))
