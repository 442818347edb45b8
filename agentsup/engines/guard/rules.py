"""The rules of the guard, as plain values: no task, no clock, no engine.

``SegmentAccount`` holds the state of one run: its text, its size, its repeated calls. The guard asks it
what to pass on and how the run ends. Its events come from ``engines.clean``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from agentsup.engines import failures, used_up
from agentsup.engines.clean import clean
from agentsup.engines.failures import Continuable, LoopOfCalls
from agentsup.kit import installation
from agentsup.model.engine import (
    EngineDone,
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
class SegmentLimits:
    """Limits of one engine run.

    ``idle_s`` limits the silence between two events while no tool call is open; ``hard_s`` the run
    as a whole; ``cancel_s`` the time in which the engine must stop before it is abandoned.
    """

    idle_s: float = 300.0
    hard_s: float = 1800.0
    cancel_s: float = 1.0
    max_answer_bytes: int = 1024 * 1024
    identical_calls: int = 5


POLLS = 5
"""Polling calls may be equal this many times as often as other calls."""
_IDLE_S = 1.0
"""Two polls that are so far apart are no loop, whatever they return."""


@dataclass(slots=True)
class CallRepeats:
    """Counts equal calls in a row, and polls that return the same with hardly any time between."""

    last: str = ""
    ended_s: float = 0.0
    count: int = 0

    def add(self, name: str, args: dict[str, Any], text: str = "", ended_s: float = 0.0) -> int:
        """Note one call and return how many times in a row it was made by now.

        A poll is noted with its result ``text`` and its end.
        """
        key = f"{name} {json.dumps(args, sort_keys=True, default=str)} {text}"
        is_same = key == self.last and ended_s - self.ended_s < _IDLE_S
        self.count = self.count + 1 if is_same else 1
        self.last, self.ended_s = key, ended_s
        return self.count


def bare_name(name: str) -> str:
    """Return the name of a tool of ours without what a program puts before it."""
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


def failure(error: EngineFailed, text: str) -> EngineDone:
    """The end of a run that failed with ``error`` after saying ``text``."""
    retry_after_s = error.facts.get("retry_after_s")
    return EngineDone(
        "failed",
        text=text,
        error=clean(error.message),
        code=error.code,
        permanent=error.permanent,
        retry_after_s=retry_after_s if isinstance(retry_after_s, (int, float)) else None,
        engine_state=error.state if isinstance(error, Continuable) else None,
    )


_MAY_HIDE_A_LIMIT = (
    failures.Permanent,
    failures.RequestRejected,
    failures.ProgramEnded,
    failures.ServerFailed,
    failures.ConnectionFailed,
    failures.ProviderRateLimited,
)
"""Types that an engine raises for errors of which it knows only the text."""


def used_up_failure(error: EngineFailed, now: Callable[[], datetime]) -> EngineFailed:
    """``error``, or a rate limit with its end if the text says that a plan is used up."""
    if type(error) not in _MAY_HIDE_A_LIMIT or error.facts.get("retry_after_s") is not None:
        return error
    wait_s = used_up.wait_s(error.message, now())
    if wait_s is None:
        return error
    return failures.ProviderRateLimited(error.message, retry_after_s=wait_s)


def used_up_answer(end: EngineDone, now: Callable[[], datetime]) -> EngineDone:
    """``end``, or the failure of an engine whose answer is nothing but that its plan is used up."""
    wait_s = used_up.wait_of_answer_s(end.text, now()) if end.outcome == "ok" else None
    if wait_s is None:
        return end
    return failure(failures.ProviderRateLimited(end.text.strip(), retry_after_s=wait_s), "")


def crash(error: BaseException, text: str) -> EngineDone:
    """The end of a run whose engine raised something that is not an engine failure."""
    changed = installation.change()
    return EngineDone(
        "failed",
        text=text,
        error=clean(
            f"the engine broke ({type(error).__name__}: {str(error)[:500]}); the log has more"
            + (f"; {changed}: restart it" if changed else "")
        ),
        code="engine_error",
    )


def cancelled(text: str) -> EngineDone:
    """The end of a run that was asked to stop."""
    return EngineDone("cancelled", text=text, code="cancelled", error="the turn was stopped")


def timed_out(why: str) -> failures.EngineTimedOut:
    """The failure of a run that took too long; ``why`` is a verb phrase."""
    return failures.EngineTimedOut(f"the turn {why} and was ended")


def cut(text: str, keep_bytes: int, limit: int) -> str:
    """``text`` if it fits in ``keep_bytes`` of UTF-8, else its beginning and a line naming
    ``limit``."""
    if len(text) * 4 <= keep_bytes:
        return text
    raw = text.encode("utf-8")
    if len(raw) <= keep_bytes:
        return text
    return raw[:keep_bytes].decode("utf-8", "ignore") + TRUNCATED.format(limit=limit)


class SegmentAccount:
    """The state of one run."""

    def __init__(
        self, limits: SegmentLimits, is_poll: Callable[[str], bool] = lambda name: False
    ) -> None:
        """``is_poll(name)``: the tool reports what changes by itself; its calls count elsewhere."""
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
        """Whether a tool call is open: then silence is the tool's, not the engine's."""
        return self._open_calls > 0

    @property
    def runaway(self) -> bool:
        """Whether the text is far beyond the answer limit."""
        return self._bytes > _RUNAWAY_FACTOR * self.limits.max_answer_bytes

    def note(self, event: EngineEvent) -> EngineEvent | None:
        """Record ``event`` and return what to pass on (None: nothing).

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

    def end(self, event: EngineDone | Suspended) -> EngineDone | Suspended:
        """Return the end to report for the end that the engine gave."""
        if isinstance(event, Suspended):
            return event
        limit = self.limits.max_answer_bytes
        text = cut(event.text, limit, limit) or self.text
        return event if text == event.text else replace(event, text=text)
