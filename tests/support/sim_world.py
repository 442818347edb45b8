"""The world outside the simulated process: what people, programs and platforms saw.

It survives every crash and is the oracle: nothing in here was told by the store. A broken promise
is noted under the name of its invariant, and the run fails with the first one.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from agentsup.fakes.entropy import SeededEntropy
from agentsup.model.channel import Begin, Delivery, DeliveryOutcome, OutboxPart
from agentsup.model.message import Message
from agentsup.model.tool import ToolResult
from tests.support.loop_clock import LoopClock
from tests.support.sim_script import OPTIONS, answer_to

TYPED = frozenset(
    {
        "agent_down",
        "conflict",
        "depth_exceeded",
        "engine_failed",
        "lease_lost",
        "loop_detected",
        "overloaded",
        "timed_out",
        "would_deadlock",
    }
)
"""Codes with which a request between agents may end; each tells its caller what to do."""


class Violation(AssertionError):
    """A broken promise; ``invariant`` is its name."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


@dataclass
class World:
    """One seed's outside world."""

    seed: int
    path: Path
    rng: Random
    clock: LoopClock = field(default_factory=LoopClock)
    violations: list[Violation] = field(default_factory=list)
    accepted: dict[str, str] = field(default_factory=dict)
    """Message ids that a client was told are accepted, and by which way."""
    keys: dict[str, str] = field(default_factory=dict)
    """Which message a platform id or an idempotency key stands for."""
    effects: Counter[tuple[str, str]] = field(default_factory=Counter)
    again: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often a person may have said "do it again", by message and call."""
    delivered: Counter[int] = field(default_factory=Counter)
    """How often each part of the outbox arrived."""
    arrivals: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    questions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Questions that people have before them, with their options."""
    answers: Counter[str] = field(default_factory=Counter)
    asked: dict[tuple[str, str], str] = field(default_factory=dict)
    """How a request of a turn ended: (asking message, token) → code, empty for an answer."""
    stopped: dict[str, str] = field(default_factory=dict)
    """Messages whose end by a stop, interrupt or cancel was confirmed."""
    epochs: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    """Completions by work that had been told to end: message → fence."""
    passings: Counter[tuple[str, int]] = field(default_factory=Counter)
    calm: bool = False
    """Nothing goes wrong any more; everything must end."""

    def __post_init__(self) -> None:
        self.entropy = SeededEntropy(self.clock, self.seed)
        self._file: sqlite3.Connection | None = None

    def fail(self, invariant: str, detail: str) -> None:
        """Note a broken promise."""
        self.violations.append(Violation(invariant, detail))

    def check(self) -> None:
        """Raise the first broken promise, if there is one."""
        if self.violations:
            raise self.violations[0]

    def sql(self, query: str, *params: Any) -> list[sqlite3.Row]:
        """Rows as the file has them, past all code of the store."""
        if self._file is None:
            self._file = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
            self._file.row_factory = sqlite3.Row
        return self._file.execute(query, params).fetchall()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def accept(self, message_id: str, way: str, key: str = "") -> None:
        """A client heard that its message is accepted."""
        self.accepted.setdefault(message_id, way)
        if key and self.keys.setdefault(key, message_id) != message_id:
            self.fail("one-key-one-message", f"{key}: {self.keys[key]} and {message_id}")

    def end(self, message_id: str, how: str) -> None:
        """Somebody was told that this message is stopped for good."""
        self.stopped.setdefault(message_id, how)


class Life:
    """What one life of the process sees of the world. A dead one changes nothing any more.

    Implements ``sim_script.Stage``.
    """

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.clock = world.clock
        self.is_dead = False
        self._running: dict[str, set[str]] = {}
        self._lanes: dict[str, tuple[str, str, int]] = {}
        self._working: set[str] = set()

    def begin(self, message: Message, slots: int) -> None:
        """A turn begins in a lane of so many slots."""
        self._lanes[message.message_id] = (message.agent_id, message.lane, slots)

    def enter(self, message_id: str, session_id: str) -> None:
        """The engine begins a segment."""
        if self.is_dead:
            return
        running = self._running.setdefault(session_id, set())
        others = running - {message_id}
        if others:
            self.world.fail("one-turn-per-session", f"{message_id} beside {others}")
        running.add(message_id)
        self.work(message_id)

    def leave(self, message_id: str, session_id: str) -> None:
        """The engine ends a segment."""
        self._running.get(session_id, set()).discard(message_id)
        self.wait(message_id)

    def wait(self, message_id: str) -> None:
        """The engine waits for another agent, and needs no slot."""
        self._working.discard(message_id)

    def work(self, message_id: str) -> None:
        """The engine works, so it holds a slot."""
        if self.is_dead:
            return
        self._working.add(message_id)
        lane = self._lanes[message_id]
        busy = [other for other in self._working if self._lanes[other] == lane]
        if len(busy) > lane[2]:
            self.world.fail("slots-hold", f"{len(busy)} turns at once in {lane}")

    def touch(self, message_id: str) -> None:
        """The engine works on a message."""
        if not self.is_dead and message_id in self.world.stopped:
            how = self.world.stopped[message_id]
            self.world.fail("stopped-means-stopped", f"{message_id} runs on after {how}")

    def effect(self, message_id: str, key: str) -> None:
        """Something happens outside that can't be undone."""
        if self.is_dead:
            return
        self.touch(message_id)
        self.world.effects[message_id, key] += 1
        allowed = 1 + self.world.again[message_id, f"effect {key}"]
        if self.world.effects[message_id, key] > allowed:
            self.world.fail("blind-once", f"{key} of {message_id} happened twice unasked")

    def told(self, message_id: str, step: list[Any], result: ToolResult) -> None:
        """A tool call of the engine ended."""
        if self.is_dead:
            return
        token = str(step[-1])
        self.world.asked[message_id, token] = "" if result.ok else result.code
        if not result.ok:
            if result.code not in TYPED:
                self.world.fail(
                    "typed-errors", f"{message_id} was told {result.code}: {result.text}"
                )
        elif step[0] == "ask":
            if result.text not in {answer_to(token), "leaving", "late"}:
                self.world.fail("own-answer", f"{message_id} asked {token}, got {result.text!r}")
        else:
            self.world.accept(result.text.partition(" as ")[2].partition(";")[0], "async")

    def answered(self, message_id: str, answer: str | None) -> None:
        """A turn goes on after its question."""
        if not self.is_dead and answer not in {*OPTIONS, "", None}:
            self.world.fail("own-answer", f"{message_id} was answered {answer!r}")

    def nth(self, message_id: str, index: int) -> int:
        """How often this step was reached, in all lives."""
        self.world.passings[message_id, index] += 1
        return self.world.passings[message_id, index]


class SimChannel:
    """A platform with trouble of its own; in calm it delivers everything."""

    def __init__(
        self,
        name: str,
        life: Life,
        *,
        idempotent: bool,
        on_question: Callable[[str, tuple[str, ...]], None],
    ) -> None:
        self.name = name
        self.idempotent = idempotent
        self.in_pieces = False
        self.is_event = False
        self._life = life
        self._on_question = on_question

    async def deliver(self, part: OutboxPart, begin: Begin) -> Delivery:
        """Deliver slowly, not at all, or without saying so."""
        world, life = self._life.world, self._life
        await life.clock.sleep(world.rng.choice((0.0, 0.01, 0.3)))
        luck = 0.0 if world.calm else world.rng.random()
        if luck > 0.95:
            return Delivery(DeliveryOutcome.RETRY, "come again", retry_after_s=0.5)
        await begin()
        if luck <= 0.92:
            self._arrive(part)
        await life.clock.sleep(world.rng.choice((0.0, 0.01)))
        if luck > 0.88:
            return Delivery(DeliveryOutcome.UNKNOWN, "cut off")
        return Delivery(DeliveryOutcome.DELIVERED)

    def _arrive(self, part: OutboxPart) -> None:
        if self._life.is_dead:
            return
        world = self._life.world
        world.delivered[part.outbox_id] += 1
        if world.delivered[part.outbox_id] > 1 and not self.idempotent:
            world.fail("sent-once", f"part {part.outbox_id} ({part.kind}) was sent twice")
        place = (part.channel, part.agent_id, part.conversation)
        arrivals = world.arrivals.setdefault(place, [])
        if world.delivered[part.outbox_id] == 1:
            if arrivals and arrivals[-1] > part.outbox_id:
                world.fail("delivery-order", f"{part.outbox_id} after {arrivals[-1]} in {place}")
            arrivals.append(part.outbox_id)
        if part.kind == "question":
            self._on_question(part.body["question_id"], tuple(part.body["options"]))
