"""What those outside a killed daemon know: what they asked for, what was confirmed, what they saw."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from tests.support.chat_client import Chat

AGENTS: Final = ("main", "ann", "bob")
GONE: Final = (aiohttp.ClientError, ConnectionError, TimeoutError)
"""What a client sees of a daemon that was killed."""


@dataclass(slots=True)
class Item:
    """One thing that was asked for. ``key`` is the client's own id of it, the same at each repeat."""

    key: str
    agent: str
    kind: str
    text: str
    by: str
    conversation: str = ""
    message_id: str = ""
    ids_given: list[str] = field(default_factory=list)
    acked_at_ms: int = 0
    terminal: str = ""
    """What the client saw of the end: ``ok``, ``failed``, ``cancelled`` or ``dead``."""
    answer: str = ""

    @property
    def in_flight(self) -> bool:
        return bool(self.message_id) and not self.terminal

    def ack(self, message_id: str) -> None:
        self.ids_given.append(message_id)
        self.message_id = self.message_id or message_id
        self.acked_at_ms = self.acked_at_ms or time.time_ns() // 1_000_000

    def expected(self) -> str:
        """The answer that a turn without trouble gives."""
        tag = self.key
        return {
            "say": f"said {tag}",
            "stream": f"one two {tag}",
            "effect": f"did {tag}",
            "ask": f"asked {tag}: did {tag}-in",
            "relay": f"relayed {tag}",
            "question": f"{tag} was answered yes",
            "long": f"long {tag}",
            "chain": f"chained {tag}: asked {tag}-mid: did {tag}-mid-in",
            "spawn": f"spawned {tag}",
        }[self.kind]


@dataclass(slots=True)
class Work:
    """One piece of work. ``key`` is the giver's own id of it, the same at each repeat."""

    key: str
    kind: str
    agent: str
    detail: str = ""
    conversation: str = ""
    place: str = ""
    """Where a person asked for it, as ``<channel>:<conversation>``; empty for work of programs."""
    was_said: bool = False
    task_id: str = ""
    message_id: str = ""
    """Of the word that has an agent make the task."""
    ids_given: set[str] = field(default_factory=set)
    done_steps: set[str] = field(default_factory=set)
    until: float = 0.0
    """When a schedule is ended, by the giver's own clock."""
    acked_at_ms: int = 0
    terminal: str = ""
    result: str = ""
    is_deleted: bool = False
    was_tried: bool = False

    @property
    def in_flight(self) -> bool:
        return bool(self.task_id or self.message_id) and not self.terminal

    def expected(self) -> str:
        """The result that a run without trouble gives, for an end that is ``done``."""
        key = self.key
        return {
            "say": f"said {key}",
            "effect": f"did {key}",
            "question": f"{key} was answered yes",
            "ask": f"slow {key}",
            "cancel": f"slow {key}",
            "resume": f"said {key}-again",
            "delete": f"said {key}",
            "todo": f"said {key}",
            "think": f"thought of think-{key}",
            "schedule": f"ticked {key}",
            "make": {
                "say": f"said {key}-in",
                "effect": f"did {key}-in",
                "askback": f"asked back {key}-in: ",
            }.get(self.detail, ""),
        }["make" if self.kind == "chat" else self.kind]


@dataclass(slots=True)
class Record:
    """All that those outside know."""

    items: list[Item] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    answers_seen: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    """Per message id: the delivered answers, by event number."""
    asked_about: set[str] = field(default_factory=set)
    """Messages about whose blind effect somebody was asked."""
    left_out: set[str] = field(default_factory=set)
    """Messages whose effect a person chose to leave out, or said nothing of: their turns fail, and
    say so."""
    again: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How often ``do it again`` was said about a message's effect."""
    stops: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """A confirmed stop: when (wall ms), and the messages confirmed before it was asked for."""
    interrupted: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By message, the fences of turns that were cut off by a kill."""
    begun: set[int] = field(default_factory=set)
    """Parts for a platform that were on their way at a kill."""

    @property
    def in_flight(self) -> int:
        """How much was confirmed, and nobody has seen its end."""
        items = sum(item.in_flight for item in self.items)
        return items + sum(work.in_flight for work in self.works)

    def decide(self, message_id: str, chance: random.Random) -> str:
        """What is said about an effect of that message whose fate is unknown."""
        self.asked_about.add(message_id)
        said = chance.choice(["skip it", "it happened", "do it again"])
        # Counted before it is said: a kill may hide that it was heard.
        self.again[message_id] += said == "do it again"
        if said == "skip it":
            self.left_out.add(message_id)
        return said

    def hear(self, chat: Chat, start: int) -> int:
        """Take over the frames from ``start`` on; returns where the next ones begin."""
        for frame in chat.frames[start:]:
            event = frame.get("event", {})
            if event.get("type") == "chat.out" and event["data"]["kind"] == "answer":
                self.answers_seen[event["message_id"]][frame["seq"]] = event["data"]["text"]
        return len(chat.frames)
