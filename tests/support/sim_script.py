"""What simulated work does: scripts drawn from a seed, and the engine that follows them.

A script travels as JSON in the message's own text, so whoever gets the message knows what to do,
in whichever life of the process. Counters that must survive a crash (how often a step has failed)
are kept by the world, outside the simulated process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from agentsup.engines import EngineCrash
from agentsup.kit.clock import Clock
from agentsup.model.engine import (
    Engine,
    EngineCaps,
    EngineDone,
    EngineEvent,
    EngineHost,
    EngineSession,
    EngineSpec,
    Segment,
    Suspended,
    TextDelta,
)
from agentsup.model.tool import Effect, ToolResult
from tests.support.sim_bias import PLAIN, HistoryBias

OPTIONS = ("yes", "no")
Step = list[Any]
"""A step's name and its arguments, as JSON."""


@dataclass(frozen=True, slots=True)
class Script:
    """``token`` names the script and its answer; ``late`` work does not obey when it is ended."""

    token: str
    steps: tuple[Step, ...] = ()
    late: bool = False

    def text(self) -> str:
        """The message that carries it."""
        return json.dumps({"t": self.token, "do": self.steps, "late": self.late})


class ScriptContext(Protocol):
    """Where scripts play: what of the outside world a life lets its engine reach."""

    @property
    def clock(self) -> Clock: ...

    def enter(self, message_id: str, session_id: str) -> None: ...

    def leave(self, message_id: str, session_id: str) -> None: ...

    def wait(self, message_id: str) -> None: ...

    def work(self, message_id: str) -> None: ...

    def touch(self, message_id: str) -> None: ...

    def effect(self, message_id: str, key: str) -> None: ...

    def told(self, message_id: str, step: Step, result: ToolResult) -> None: ...

    def answered(self, message_id: str, answer: str | None) -> None: ...

    def nth(self, message_id: str, index: int) -> int: ...


def answer_to(token: str) -> str:
    """What the engine says at the end of the script called ``token``."""
    return f"answer {token}"


def parse(text: str) -> Script:
    """The script in ``text``; an empty one for texts that carry none, such as replies."""
    if not text.startswith("{"):
        return Script("noted")
    raw = json.loads(text)
    return Script(raw["t"], tuple(raw["do"]), raw["late"])


# -- drawing ---------------------------------------------------------------------------------------

_WEIGHTS = {
    "work": 30,
    "effect": 22,
    "ask": 18,
    "async": 10,
    "question": 7,
    "fail": 6,
    "crash": 3,
    "exit": 3,
    "refuse": 2,
    "stubborn": 4,
}
_MOST_DEEP = 3


def draw_script(
    rng: Random,
    tokens: list[int],
    agents: tuple[str, ...],
    leaning: HistoryBias = PLAIN,
    depth: int = 0,
) -> Script:
    """A script with a fresh token; ``tokens`` holds the last number given out."""
    tokens[0] += 1
    token = f"s{tokens[0]}"
    count = rng.choice((1, 1, 2, 2, 3)) if depth == 0 else rng.choice((0, 1, 1, 2))
    weights = [leaning.steps.get(name, weight) for name, weight in _WEIGHTS.items()]
    names = rng.choices(list(_WEIGHTS), weights, k=count)
    steps = [_draw_step(rng, name, tokens, agents, leaning, depth) for name in names]
    late = rng.random() < leaning.late
    if late:
        steps.append(["work", round(rng.uniform(2, 8), 3)])
    return Script(token, tuple(steps), late)


def _draw_step(
    rng: Random,
    name: str,
    tokens: list[int],
    agents: tuple[str, ...],
    leaning: HistoryBias,
    depth: int,
) -> Step:
    if name in {"ask", "async"} and depth >= _MOST_DEEP:
        name = "work"
    match name:
        case "ask":
            timeout_s = 3600.0 if rng.random() < 0.85 else round(rng.uniform(0.01, 3), 3)
            sub = draw_script(rng, tokens, agents, leaning, depth + 1)
            return ["ask", rng.choice(agents), sub.text(), timeout_s, sub.token]
        case "async":
            sub = draw_script(rng, tokens, agents, leaning, depth + 1)
            return ["async", rng.choice(agents), sub.text(), sub.token]
        case "effect":
            tokens[0] += 1
            return ["effect", f"e{tokens[0]}", round(rng.uniform(0, 0.2), 3)]
        case "question":
            return ["question", rng.choice((None, None, round(rng.uniform(0.5, 20), 3)))]
        case "fail" | "crash":
            return [name, rng.choice((1, 1, 1, 2, 6))]
        case "stubborn":
            tokens[0] += 1
            return ["stubborn", round(rng.uniform(0.2, 3), 3), f"e{tokens[0]}"]
        case "work":
            return ["work", round(rng.choice((0.0, 0.01, 0.1, 1.0, 4.0)) * rng.random(), 3)]
    return [name]


# -- playing -----------------------------------------------------------------------------------------


class SimEngine:
    """An engine that plays the script of each message on a ``Stage``."""

    name = "simulated"
    caps = EngineCaps(streaming=True, tools=True, suspend=True)

    def __init__(self, stage: ScriptContext) -> None:
        self._stage = stage

    async def open(self, spec: EngineSpec, host: EngineHost) -> EngineSession:
        """A session for one turn."""
        return _Session(self._stage, host)

    def make(self, spec: Any) -> tuple[Engine, Mapping[str, Any]]:
        """As an ``EngineMaker``: every agent gets this engine."""
        return self, {}


class _Session:
    def __init__(self, stage: ScriptContext, host: EngineHost) -> None:
        self._stage = stage
        self._host = host

    async def close(self) -> None:
        """Nothing is held."""

    async def run(self, segment: Segment) -> AsyncIterator[EngineEvent]:
        """Play the steps after the checkpoint."""
        stage, script = self._stage, parse(segment.text)
        resume = segment.resume
        start = int(resume.checkpoint) if resume and resume.checkpoint else 0
        if start and resume:
            stage.answered(segment.message_id, resume.answer)
        stage.enter(segment.message_id, segment.session_id)
        try:
            for index in range(start, len(script.steps)):
                stage.touch(segment.message_id)
                end = await self._step(segment, index, script.steps[index])
                if end is not None:
                    yield end
                    return
            stage.touch(segment.message_id)
            text = answer_to(script.token)
            yield TextDelta(text)
            yield EngineDone("ok", text=text)
        finally:
            stage.leave(segment.message_id, segment.session_id)

    async def _step(
        self, segment: Segment, index: int, step: Step
    ) -> EngineDone | Suspended | None:
        message_id, session_id = segment.message_id, segment.session_id
        match step[0]:
            case "work":
                await self._stage.clock.sleep(step[1])
            case "effect":
                await self._effect(message_id, step[1], step[2])
            case "ask":
                args = {"to": step[1], "message": step[2], "timeout": step[3]}
                self._stage.wait(message_id)
                result = await self._host.call("ask_agent", args)
                self._stage.work(message_id)
                self._stage.told(message_id, step, result)
            case "async":
                args = {"to": step[1], "message": step[2]}
                self._stage.told(message_id, step, await self._host.call("ask_agent_async", args))
            case "question":
                return Suspended(str(index + 1).encode(), "Go on?", OPTIONS, timeout_s=step[1])
            case "fail" if self._stage.nth(message_id, index) <= step[1]:
                return EngineDone("failed", error="not now", code="simulated", permanent=False)
            case "crash" if self._stage.nth(message_id, index) <= step[1]:
                raise EngineCrash("the script says so")
            case "exit" if self._stage.nth(message_id, index) <= 1:
                return EngineDone("ok", text="leaving", exit_code=42)
            case "refuse":
                return EngineDone("failed", error="never", code="simulated", permanent=True)
            case "stubborn":
                await self._ignore_the_end(message_id, session_id, step[1])
                await self._effect(message_id, step[2], 0.0)
        return None

    async def _effect(self, message_id: str, key: str, seconds: float) -> None:
        async def run() -> str:
            await self._stage.clock.sleep(seconds)
            self._stage.effect(message_id, key)
            await self._stage.clock.sleep(seconds)
            return "done"

        await self._host.perform(f"effect {key}", Effect.BLIND, {"key": key}, run)

    async def _ignore_the_end(self, message_id: str, session_id: str, seconds: float) -> None:
        until = self._stage.clock.monotonic() + seconds
        while (left_s := until - self._stage.clock.monotonic()) > 1e-6:
            try:
                await self._stage.clock.sleep(left_s)
            except asyncio.CancelledError:
                self._stage.leave(message_id, session_id)  # from here on it is left behind
