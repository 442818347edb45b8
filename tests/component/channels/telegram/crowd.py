"""Five chats full of people, trouble in everything the bot does, and a judge of what came of it.

People write and read over raw HTTP. The judge reads the chats as people see them, and the outbox
where an answer is missing.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.component.channels.telegram.fixture import TelegramFixture

CHATS = 5
"""The last one is a group."""
SEND_TIMEOUT_S = 1.6
"""How long the bot waits for the answer to a send in these tests."""
_TOO_LONG_S = SEND_TIMEOUT_S + 0.4
_KEY = re.compile(r"\b[0-4]-[0-9]+\b")

TROUBLE: Mapping[str, Mapping[str, tuple[float, dict[str, Any]]]] = {
    "sendMessage": {
        "flood": (0.015, {"retry_after": 1}),
        "server_error": (0.02, {}),
        "cut_before": (0.01, {}),
        "cut_after": (0.02, {}),
        "hang": (0.01, {"seconds": _TOO_LONG_S}),
        "late": (0.01, {"seconds": _TOO_LONG_S}),
        "slow": (0.03, {"seconds": 0.01, "bytes": 50}),
        "malformed": (0.01, {}),
    },
    "getUpdates": {
        "flood": (0.03, {"retry_after": 1}),
        "server_error": (0.03, {}),
        "cut_before": (0.03, {}),
        "cut_after": (0.03, {}),
        "hang": (0.03, {"seconds": 0.3}),
        "late": (0.05, {"seconds": 0.3}),
        "slow": (0.05, {"seconds": 0.01, "bytes": 500}),
        "malformed": (0.03, {}),
    },
    # What the bot asks after an unknown fate, before it sends on.
    "getMe": {"server_error": (0.05, {}), "hang": (0.02, {"seconds": 0.3})},
    # Decoration: an answer that waited for it would come too late.
    "setMessageReaction": {"flood": (0.2, {"retry_after": 60}), "hang": (0.05, {"seconds": 2.0})},
}
"""How likely each fault is, per method."""


def answer_to(text: str) -> str:
    """What the agent says."""
    key = _KEY.search(text)
    return f"answer {key[0] if key else 'to nothing'}"


class Crowd:
    """The people of all chats."""

    def __init__(self, rig: TelegramFixture, seed: int, each: int) -> None:
        self._rig = rig
        self._people = rig.people
        self._seed = seed
        self.each = each
        self.chats: list[str] = []
        self._writers: list[int] = []

    async def gather(self) -> None:
        """Everybody has a private chat with the bot, and all meet in a group."""
        rig, people = self._rig, self._people
        for number in range(CHATS - 1):
            self._writers.append(await people.user(f"P{number}"))
            self.chats.append(await people.private(self._writers[-1], rig.bot.bot_id))
        group = await people.group("all", [*self._writers, rig.bot.bot_id])
        self.chats.append(group)
        rig.allow(*self._writers, groups=(int(group),))
        rig.spec = replace(rig.spec, group_mention_only=False)

    async def write(self) -> None:
        """Each chat gets its texts, one after the other, the chats side by side."""
        async with asyncio.TaskGroup() as writers:
            for number in range(CHATS):
                writers.create_task(self._fill(number))

    async def _fill(self, number: int) -> None:
        chance, gap_s = random.Random(f"{self._seed}/{number}"), max(0.02, 5.0 / self.each)
        for index in range(self.each):
            text = f"{number}-{index}"
            if number < CHATS - 1:
                await self._people.say(self.chats[number], text)
            else:  # in a group a bot hears what is said to it
                writer = chance.choice(self._writers)
                await self._people.say(self.chats[number], f"@bob_bot {text}", user=writer)
            await asyncio.sleep(chance.uniform(0.0, 2 * gap_s))

    async def trouble(self) -> None:
        """Let everything go wrong that can, now and then."""
        seeds = random.Random(self._seed)
        for method, kinds in TROUBLE.items():
            for kind, (share, facts) in kinds.items():
                await self._people.fault(
                    kind,
                    method=method,
                    probability=share,
                    seed=seeds.randrange(1 << 30),
                    **facts,
                )

    async def peace(self) -> Counter[str]:
        """The end of all trouble; how often each had come, as ``method kind``."""
        faults = await self._people.get("faults")
        await self._people.clear_faults()
        return Counter({f"{each['method']} {each['kind']}": each["hits"] for each in faults})

    async def answered(self, timeout_s: float) -> None:
        """Wait until nothing is left to do anywhere."""
        rig, total = self._rig, CHATS * self.each
        async with asyncio.timeout(timeout_s):
            while (
                (await rig.rows("SELECT count(*) FROM messages"))[0][0] < total
                or await rig.rows("SELECT 1 FROM received WHERE state = 'received' LIMIT 1")
                or await rig.rows("SELECT 1 FROM messages WHERE state <> 'done' LIMIT 1")
                or await rig.rows("SELECT 1 FROM outbox WHERE state = 'pending' LIMIT 1")
            ):
                await asyncio.sleep(0.1)

    async def found(self) -> Found:
        """What there is to judge."""
        seen = [await self._people.texts(chat) for chat in self.chats]
        rows = await self._rig.rows("SELECT outbox_id, kind, state, body FROM outbox")
        found = Found(self.each, seen)
        for outbox_id, kind, state, raw in rows:
            body = json.loads(raw)
            if kind == "answer":
                found.answers.setdefault(body["text"].removeprefix("answer "), []).append(
                    (outbox_id, state)
                )
            elif "again" in body:
                found.notes[body["again"]] = (state, body["text"])
        return found


@dataclass
class Found:
    """Texts of the bot per chat, and from the outbox its answers and notes."""

    each: int
    seen: list[list[str]]
    answers: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Id and state of all parts, by the text's key."""
    notes: dict[int, tuple[str, str]] = field(default_factory=dict)
    """State and text, by the part in doubt."""

    def state_of(self, text: str) -> str:
        """What the outbox says of an answer; empty for other texts."""
        parts = self.answers.get(text.removeprefix("answer "), ())
        return parts[0][1] if parts else ""


def judge(found: Found) -> Counter[str]:
    """Each text has one answer, or one in doubt with its note; per chat they are in order. Returns
    what there was of each; raises ``AssertionError``."""
    counted: Counter[str] = Counter()
    for number, texts in enumerate(found.seen):
        times = Counter(texts)
        for index in range(found.each):
            key = f"{number}-{index}"
            count = times[f"answer {key}"]
            assert count <= 1, f"{key} was answered {count} times"
            assert len(found.answers.get(key, ())) == 1, f"{key} has not one part in the outbox"
            ((outbox_id, state),) = found.answers[key]
            if state == "delivered":
                assert count == 1, f"the answer to {key} is lost"
                counted["answered"] += 1
                continue
            assert state == "unknown", f"the answer to {key} is {state}"
            note_state, note = found.notes[outbox_id]
            assert note_state in ("delivered", "unknown"), f"the note about {key} is {note_state}"
            assert note_state == "unknown" or note in times, f"the note about {key} is not seen"
            counted["in doubt, arrived" if count else "in doubt, not arrived"] += 1
            counted["notes in doubt"] += note_state == "unknown"
        told = [text for text in texts if text.startswith("answer ")]
        order = [f"answer {number}-{index}" for index in range(found.each)]
        assert told == [text for text in order if text in times], f"out of order in chat {number}"
    return counted
