"""What the guard decides, as plain values: no task, no clock, no engine.

``Account`` keeps the books of one run: what was said, how large it grew, which calls repeat. The
guard asks it what to pass on and what the one end of the run shall be. Its events are clean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from agentsup.engines.clean import clean
from agentsup.engines.failures import EndedSilently, GoesOn, LoopOfCalls, TurnTimedOut
from agentsup.model.engine import (
    Done,
    EngineEvent,
    Suspended,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from agentsup.model.errors import EngineFailed

TRUNCATED = "\n[The answer was cut off here: it is over the limit of {limit} bytes.]"
_WORDS = re.compile(r"\w+")
_RUNAWAY_FACTOR = 4
"""An engine that goes on to this multiple of the answer limit is stopped; up to it, it may end by
itself, so that its usage and state are kept."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Bounds of one engine run.

    ``idle_s`` bounds the silence between two events while no tool call is open; ``hard_s`` the run
    as a whole; ``cancel_s`` how long the engine may take to obey before it is abandoned.
    """

    idle_s: float = 300.0
    hard_s: float = 1800.0
    cancel_s: float = 1.0
    max_answer_bytes: int = 1024 * 1024
    identical_calls: int = 5


@dataclass(slots=True)
class CallRepeats:
    """Counts equal calls in a row."""

    last: str = ""
    count: int = 0

    def add(self, name: str, args: dict[str, Any]) -> int:
        """Note one call and return how many times in a row it was made by now."""
        key = f"{name} {json.dumps(args, sort_keys=True, default=str)}"
        self.count = self.count + 1 if key == self.last else 1
        self.last = key
        return self.count


POLLS = 5
"""So many times more often than other calls one that looks at the work of others may be equal."""
_IDLE_S = 1.0
"""Two looks that are so far apart are no loop, whatever they tell."""


@dataclass(slots=True)
class PollRepeats:
    """Counts looks in a row that tell nothing new, without any time between them."""

    last: str = ""
    ended_s: float = 0.0
    count: int = 0

    def add(self, name: str, args: dict[str, Any], told: str, ended_s: float) -> int:
        """Note one look with what it told, when it ended, and return the count by now."""
        key = f"{name} {json.dumps(args, sort_keys=True, default=str)} {told}"
        is_same = key == self.last and ended_s - self.ended_s < _IDLE_S
        self.count = self.count + 1 if is_same else 1
        self.last, self.ended_s = key, ended_s
        return self.count


def bare_name(name: str) -> str:
    """A tool of ours as we call it, whatever a program puts before its name."""
    words = _WORDS.findall(name)
    return words[-1].rpartition("__")[2] if words else name


def loop_error(name: str, count: int) -> LoopOfCalls:
    """The failure for ``count`` equal calls of the tool ``name`` in a row."""
    return LoopOfCalls(
        f"the engine called {name} {count} times in a row with the same arguments; the turn was "
        "ended so that it does not go on for ever",
        tool=name,
        count=count,
    )


def failure(error: EngineFailed, text: str) -> Done:
    """The end of a run that failed with ``error`` after saying ``text``."""
    retry_after_s = error.facts.get("retry_after_s")
    return Done(
        "failed",
        text=text,
        error=clean(error.message),
        code=error.code,
        permanent=error.permanent,
        retry_after_s=retry_after_s if isinstance(retry_after_s, (int, float)) else None,
        engine_state=error.state if isinstance(error, GoesOn) else None,
    )


def crash(error: BaseException, text: str) -> Done:
    """The end of a run whose engine raised something that is not an engine failure."""
    return Done(
        "failed",
        text=text,
        error=clean(
            f"the engine broke ({type(error).__name__}: {str(error)[:500]}); the log has more"
        ),
        code="engine_error",
    )


def silent_end(text: str) -> Done:
    """The end of a run whose engine stopped yielding without saying how it ended."""
    return Done(
        "failed",
        text=text,
        error="the engine stopped without finishing its answer",
        code=EndedSilently.code,
        permanent=False,
    )


def timed_out(text: str, which: Literal["idle", "hard"], limit_s: float) -> Done:
    """The end of a run over its idle or hard deadline of ``limit_s`` seconds."""
    why = f"said nothing for {limit_s:g} s" if which == "idle" else f"took over {limit_s:g} s"
    return Done("failed", text=text, error=f"the turn {why} and was ended", code=TurnTimedOut.code)


def cancelled(text: str) -> Done:
    """The end of a run that was asked to stop."""
    return Done("cancelled", text=text, code="cancelled", error="the turn was stopped")


def cut(text: str, keep_bytes: int, limit: int) -> str:
    """``text`` if it fits in ``keep_bytes`` of UTF-8, else its beginning and a line naming ``limit``."""
    if len(text) * 4 <= keep_bytes:
        return text
    raw = text.encode("utf-8")
    if len(raw) <= keep_bytes:
        return text
    return raw[:keep_bytes].decode("utf-8", "ignore") + TRUNCATED.format(limit=limit)


class Account:
    """The books of one run."""

    def __init__(
        self, limits: RunLimits, is_poll: Callable[[str], bool] = lambda name: False
    ) -> None:
        """``is_poll(name)``: the tool tells what changes by itself; its calls are counted elsewhere."""
        self.limits = limits
        self._is_poll = is_poll
        self._said: list[str] = []
        self._bytes = 0
        self._open_calls = 0
        self._repeats = CallRepeats()

    @property
    def text(self) -> str:
        """Everything that was passed on as text."""
        return "".join(self._said)

    @property
    def in_call(self) -> bool:
        """A tool call is open: silence is the tool's, not the engine's."""
        return self._open_calls > 0

    @property
    def runaway(self) -> bool:
        """The engine goes on far beyond the answer limit."""
        return self._bytes > _RUNAWAY_FACTOR * self.limits.max_answer_bytes

    def note(self, event: EngineEvent) -> EngineEvent | None:
        """Enter ``event`` and return what to pass on (None: nothing).

        Raises ``LoopOfCalls`` at the call that completes a loop.
        """
        if isinstance(event, TextDelta):
            return self._text(event)
        if isinstance(event, ToolStarted):
            self._open_calls += 1
            if not self._is_poll(event.name):
                count = self._repeats.add(event.name, event.args)
                if count >= self.limits.identical_calls:
                    raise loop_error(event.name, count)
        elif isinstance(event, ToolFinished):
            self._open_calls = max(0, self._open_calls - 1)
        return event

    def _text(self, event: TextDelta) -> TextDelta | None:
        limit, text = self.limits.max_answer_bytes, event.text
        before, self._bytes = self._bytes, self._bytes + len(text.encode("utf-8"))
        if before > limit or not text:
            return None
        if self._bytes > limit:
            text = cut(text, limit - before, limit)
        self._said.append(text)
        return event if text is event.text else TextDelta(text)

    def end(self, event: Done | Suspended) -> Done | Suspended:
        """The end to report for the end that the engine gave."""
        if isinstance(event, Suspended):
            return event
        limit = self.limits.max_answer_bytes
        text = cut(event.text, limit, limit) or self.text
        return replace(event, text=text)
