"""One running program of an engine: what it says, what it is told, how it ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from agentsup.engines.child.berths import Berth
from agentsup.engines.child.quoting import quote
from agentsup.engines.failures import OutputTooLong, ProgramEnded
from agentsup.kit.json_size import values_in
from agentsup.kit.pipes import LineTooLong
from agentsup.kit.procgroup import ProcessGroup
from agentsup.model.errors import EngineFailed

T = TypeVar("T")

MIB = 1024 * 1024
_IN_THREAD_BYTES = 256 * 1024
_ENDING_S = 0.5
"""How long an exit may come after the end of the output before it is called an end without one."""


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """Bounds of one program. ``memory_mb`` None: that of the manager."""

    line_bytes: int = 16 * MIB
    line_values: int = 40_000
    """Commas and opening brackets in a line of JSON. Whoever reads it holds up everybody else for as
    long as it takes, in whatever thread."""
    stderr_bytes: int = 64 * 1024
    memory_mb: int | None = None
    term_grace_s: float = 0.5
    held_after_s: float = 1.0
    """A wait for a person that lasts longer gives the berth to another program meanwhile."""


class Child:
    """Made by ``ChildManager.open``, which also ends it. One reader and one writer at a time."""

    def __init__(
        self,
        name: str,
        group: ProcessGroup,
        berth: Berth,
        limits: ChildLimits,
        conceal: Callable[[str], str],
        let_go: Callable[[], bool] = lambda: False,
    ) -> None:
        """``let_go`` ends the turn for now, where no more programs may be held and it only waits for
        a person; it says if it does."""
        self.name = name
        """The program's file name, for sentences."""
        self._group = group
        self._berth = berth
        self._limits = limits
        self._conceal = conceal
        self._verdict: EngineFailed | None = None
        self._let_go = let_go
        self._waits = 0
        self._later: asyncio.TimerHandle | None = None

    # -- dialogue ----------------------------------------------------------------------------------

    async def lines(self) -> AsyncGenerator[bytes]:
        """Line after line of its output, without the newline, until it ends.

        Raises ``OutputTooLong`` for a line over a limit, and why the program was ended if it
        was not by itself (too much memory).
        """
        assert self._group.stdout is not None
        try:
            async with contextlib.aclosing(
                self._group.stdout.lines(self._limits.line_bytes)
            ) as lines:
                async for line in lines:
                    await self._look_at(line)
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
        found = await asyncio.to_thread(count) if len(line) > _IN_THREAD_BYTES else count()
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

    async def leave(self, within_s: float) -> None:
        """Its work is done: let it end by itself for up to ``within_s`` seconds, unheard."""
        self.close_stdin()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._group.stdout is not None and await self._group.stdout.read():
                    pass
                await self._group.wait()

    async def waiting(self, answer: Awaitable[T]) -> T:
        """Wait for a person's ``answer``, which may be there at once."""
        self.rest(after_s=self._limits.held_after_s)
        try:
            return await answer
        finally:
            self.wake()

    def rest(self, *, after_s: float = 0.0) -> None:
        """Its turn waits, from now on or in a moment: it is held, see ``berths``. Where too many
        are and a person is waited for, the turn is ended for now."""
        self._waits += 1
        self._hold_in(after_s)

    def wake(self) -> None:
        """The wait of one ``rest`` is over."""
        self._waits -= 1
        if not self._waits:
            self._forget_later()
            self._berth.resume()

    def _hold_in(self, seconds: float) -> None:
        self._forget_later()
        if seconds:
            self._later = asyncio.get_running_loop().call_later(seconds, self._hold)
        else:
            self._hold()

    def _hold(self) -> None:
        is_over = not self._waits or self.returncode is not None
        if is_over or self._berth.is_held or self._berth.hold():
            return
        if self._later is not None and self._let_go():
            return  # it waited for a moment, and a person takes longer
        self._hold_in(self._limits.held_after_s or 1.0)

    def _forget_later(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    # -- how it is -----------------------------------------------------------------------------------

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
    def is_held(self) -> bool:
        """It waits for a person and is counted apart."""
        return self._berth.is_held

    def stderr_text(self) -> str:
        """The end of its error output: clean, without known secrets, at most 2,000 characters."""
        return quote(self._group.stderr_tail, self._conceal)

    def check(self) -> None:
        """Raise why it was ended by force, if it was."""
        if self._verdict is not None:
            raise self._verdict

    async def wait(self) -> int:
        """Its exit code, as soon as it ends."""
        return await self._group.wait()

    async def ended(self, what: str = "") -> EngineFailed:
        """The failure to raise for a program that ended, or went silent, before its work was done.

        ``what`` it did; the exit code and the end of its error output are added.
        """
        try:
            async with asyncio.timeout(_ENDING_S):
                code: int | None = await self._group.wait()
        except TimeoutError:
            code = None
        if self._verdict is not None:
            return self._verdict
        return ProgramEnded(
            sentence(self.name, what or "ended before its work was done", code, self.stderr_text()),
            program=self.name,
            exit_code=code,
        )

    # -- for the manager -------------------------------------------------------------------------------

    def condemn(self, verdict: EngineFailed) -> None:
        """End it by force, for the reason given; the first one stands."""
        if self._verdict is None:
            self._verdict = verdict
        self._group.kill_now()


def sentence(name: str, what: str, code: int | None, stderr: str) -> str:
    """One sentence about an end."""
    if code is None:
        how = ""
    elif code < 0:
        how = f" (signal {-code})"
    else:
        how = f" (exit code {code})"
    said = f"; it said: {stderr}" if stderr else ""
    return f"{name} {what}{how}{said}"
