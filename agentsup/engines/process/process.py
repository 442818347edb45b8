"""One running program of an engine: its output, made fit to be shown, its input and its end."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from agentsup.engines.failures import OutputTooLong, ProgramEnded
from agentsup.engines.process.slots import ProcessSlot
from agentsup.kit.compute import compute
from agentsup.kit.outbound.limits import values_in
from agentsup.kit.pipes import LineTooLong
from agentsup.kit.procgroup import ProcessGroup
from agentsup.kit.tasks import time_limit
from agentsup.model.errors import EngineFailed

_MAX_CHARS = 2000
_MIN_SECRET = 8
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
T = TypeVar("T")

MIB = 1024 * 1024
_IN_THREAD_BYTES = 256 * 1024
_STRAY_BYTES = 4096
_MESSAGE = (b"{", b"[")
"""The beginning of a line of JSON."""
_ENDING_S = 0.5
"""The longest wait for a program's exit code after its output has ended."""


def quote(raw: bytes, conceal: Callable[[str], str]) -> str:
    """Return the end of ``raw`` as text, without escapes, control characters and secrets."""
    text = _ESCAPES.sub("", raw.decode("utf-8", "replace").replace("\r\n", "\n"))
    text = conceal(_CONTROLS.sub("", text).strip())
    return text if len(text) <= _MAX_CHARS else "…" + text[-_MAX_CHARS:]


def concealer(
    secrets: Iterable[str], further: Callable[[str], str] | None = None
) -> Callable[[str], str]:
    """Return a function that masks ``secrets`` in a text, and then what ``further`` masks."""
    known = sorted({each for each in secrets if len(each) >= _MIN_SECRET}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, known))) if known else None

    def conceal(text: str) -> str:
        if pattern is not None:
            text = pattern.sub("***", text)
        return further(text) if further is not None else text

    return conceal


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limits of one program. ``memory_mb`` None: the manager's limit."""

    line_bytes: int = 16 * MIB
    line_values: int = 40_000
    """Commas and opening brackets in a line of JSON. Parsing one holds the interpreter's lock, so
    it delays all other threads."""
    memory_mb: int | None = None
    term_grace_s: float = 0.5
    paused_after_s: float = 1.0
    """After this time in a wait for a person the slot is released for another program."""


class EngineProcess:
    """A running program. ``ProcessLauncher.open`` makes and ends it. One reader, one writer."""

    def __init__(
        self,
        name: str,
        group: ProcessGroup,
        slot: ProcessSlot,
        limits: ProcessLimits,
        conceal: Callable[[str], str],
        suspend_turn: Callable[[], bool] = lambda: False,
    ) -> None:
        """``suspend_turn`` is called if no more programs may be paused. If the turn only waits for a
        person, it ends the turn for now and returns True."""
        self.name = name
        """The program's file name, for messages."""
        self._group = group
        self._slot = slot
        self._limits = limits
        self._conceal = conceal
        self._verdict: EngineFailed | None = None
        self._suspend_turn = suspend_turn
        self._stray = b""
        """The end of what it wrote between the lines of its protocol."""
        self._waits = 0
        self._later: asyncio.TimerHandle | None = None

    # -- dialogue ----------------------------------------------------------------------------------

    async def lines(self) -> AsyncGenerator[bytes]:
        """Yield the lines of its output, without the newline, until it ends.

        Raises ``OutputTooLong`` for a line over a limit. If the program was ended by force, raises
        the reason (such as too much memory).
        """
        assert self._group.stdout is not None
        try:
            async with contextlib.aclosing(
                self._group.stdout.lines(self._limits.line_bytes)
            ) as lines:
                async for line in lines:
                    await self._look_at(line)
                    if line.strip() and not line.lstrip().startswith(_MESSAGE):
                        self._stray = (self._stray + line[-_STRAY_BYTES:] + b"\n")[-_STRAY_BYTES:]
                    yield line
        except LineTooLong as error:
            raise OutputTooLong(
                f"{self.name} wrote a line of more than {error.limit_bytes} bytes and was ended",
                program=self.name,
            ) from None
        self.check()

    async def _look_at(self, line: bytes) -> None:
        """Raise ``OutputTooLong`` for a line with so many values that reading it takes too long."""
        most = self._limits.line_values
        if len(line) <= most:
            return
        count = partial(values_in, line, most)
        is_long = len(line) > _IN_THREAD_BYTES
        found = await compute(count, key=self.name) if is_long else count()
        if found > most:
            raise OutputTooLong(
                f"{self.name} wrote a line of more than {most} JSON values and was ended",
                program=self.name,
            )

    async def read(self) -> bytes:
        """The next bytes of its output, whatever their number; empty at the end."""
        assert self._group.stdout is not None
        data = await self._group.stdout.read()
        if not data:
            self.check()
        return data

    async def write(self, data: bytes) -> None:
        """Send ``data`` and wait until it is out. Raises ``ProgramEnded`` if nobody reads it."""
        assert self._group.stdin is not None
        try:
            await self._group.stdin.write(data)
        except BrokenPipeError:
            raise await self.ended("stopped reading its input") from None

    def feed(self, data: bytes, *, then_close: bool = False) -> None:
        """Send ``data`` as the program takes it, without waiting."""
        assert self._group.stdin is not None
        self._group.stdin.feed(data, then_close=then_close)

    def close_stdin(self) -> None:
        """End its input; what is not sent yet is dropped."""
        if self._group.stdin is not None:
            self._group.stdin.close()

    async def end_input(self, within_s: float) -> None:
        """Close its input and give it ``within_s`` seconds to end. Its output is discarded."""
        self.close_stdin()
        with contextlib.suppress(TimeoutError):
            async with time_limit(within_s):
                while self._group.stdout is not None and await self._group.stdout.read():
                    pass
                await self._group.wait()

    async def waiting(self, answer: Awaitable[T]) -> T:
        """Wait for a person's ``answer``; the program is paused after ``limits.paused_after_s``."""
        self.rest(after_s=self._limits.paused_after_s)
        try:
            return await answer
        finally:
            self.wake()

    def rest(self, *, after_s: float = 0.0) -> None:
        """Count the program as paused in ``after_s`` seconds, as its turn waits.

        See ``engines.process.slots``. If too many are paused and the turn waits for a person, the
        turn is ended for now.
        """
        self._waits += 1
        self._pause_in(after_s)

    def wake(self) -> None:
        """End the wait of one ``rest``; after the last one the program counts as running."""
        self._waits -= 1
        if not self._waits:
            self._forget_later()
            self._slot.resume()

    def _pause_in(self, seconds: float) -> None:
        self._forget_later()
        if seconds:
            self._later = asyncio.get_running_loop().call_later(seconds, self._pause)
        else:
            self._pause()

    def _pause(self) -> None:
        is_over = not self._waits or self.returncode is not None
        if is_over or self._slot.is_paused or self._slot.pause():
            return
        if self._later is not None and self._suspend_turn():
            return  # called by the timer, so the turn has waited for a while already
        self._pause_in(self._limits.paused_after_s or 1.0)

    def _forget_later(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    # -- state -------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._group.pid

    @property
    def pgid(self) -> int:
        """Its process group."""
        return self._group.pgid

    @property
    def returncode(self) -> int | None:
        """Its exit code (negative: the signal); None while it runs. Never a restart signal."""
        return self._group.returncode

    @property
    def is_paused(self) -> bool:
        """Whether its turn waits and the program is counted as paused."""
        return self._slot.is_paused

    def stderr_text(self) -> str:
        """The end of its error output: clean, without known secrets, at most 2,000 characters."""
        return quote(self._group.stderr_tail, self._conceal)

    def said_text(self) -> str:
        """The program's output for people, as in ``stderr_text``: its error output, and its output
        where it is no line of JSON, also one that has no end yet, as a question has none."""
        unread = self._group.stdout.unread(_STRAY_BYTES) if self._group.stdout is not None else b""
        if unread.lstrip().startswith(_MESSAGE):
            unread = b""
        both = (self.stderr_text(), quote(self._stray + unread, self._conceal))
        return "; ".join(filter(None, both))

    def check(self) -> None:
        """Raise the reason if it was ended by force."""
        if self._verdict is not None:
            raise self._verdict

    async def wait(self) -> int:
        """Wait for its end and return the exit code."""
        return await self._group.wait()

    async def ended(self, what: str = "") -> EngineFailed:
        """Return the failure to raise for a program that ended or went silent too early.

        ``what`` is what it did, as a verb phrase; the exit code and what it said are added.
        """
        try:
            async with time_limit(_ENDING_S):
                code: int | None = await self._group.wait()
        except TimeoutError:
            code = None
        if self._verdict is not None:
            return self._verdict
        return ProgramEnded(
            sentence(self.name, what or "ended before its work was done", code, self.said_text()),
            program=self.name,
            exit_code=code,
        )

    # -- for the manager -------------------------------------------------------------------------------

    def condemn(self, verdict: EngineFailed) -> None:
        """End it by force. ``verdict`` is the reason; only the first one counts."""
        if self._verdict is None:
            self._verdict = verdict
        self._group.kill_now()


def sentence(name: str, what: str, code: int | None, text: str) -> str:
    """Return one sentence about how a program ended."""
    if code is None:
        how = ""
    elif code < 0:
        how = f" (signal {-code})"
    else:
        how = f" (exit code {code})"
    said = f"; it said: {text}" if text else ""
    return f"{name} {what}{how}{said}"
