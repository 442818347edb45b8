"""One turn with an engine that is a program: one process for each segment, which ends with it.

The programs keep their own sessions on disk and resume them by id. So a process for each segment
costs a start, and between turns there is nothing that must be limited, cleaned up or rebuilt. An
engine adds the dialogue with its program.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, field
from typing import ClassVar

from agentsup.engines.process.homes import EngineHome
from agentsup.engines.process.launcher import ProcessLauncher, Program
from agentsup.engines.process.process import EngineProcess, ProcessLimits
from agentsup.engines.thoughts import AnswerText
from agentsup.model.engine import (
    EngineDone,
    EngineEvent,
    EngineHost,
    EngineSpec,
    Segment,
    Suspended,
    Usage,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLaunch:
    """How an engine's program is started: see ``Program``. ``title`` is its name in messages, ``env``
    has its variables beside those of the agent and of its home."""

    title: str
    argv: Sequence[str]
    home: EngineHome
    env: Mapping[str, str] = field(repr=False)
    secrets: Sequence[str] = field(repr=False)
    memory_mb: int | None = None
    remedy: str = ""

    def program(self, spec: EngineSpec) -> Program:
        """The program for a turn of the agent of ``spec``."""
        return Program(
            self.argv,
            self.home.variables(spec.env, self.env),
            self.home.paths,
            secrets=self.secrets,
            limits=ProcessLimits(memory_mb=self.memory_mb),
            remedy=self.remedy,
        )


class ProgramDialogue(ABC):
    """What is said to a running program in one segment, and what its answers mean."""

    @abstractmethod
    def run(self) -> AsyncGenerator[EngineEvent]:
        """Yield the events of the segment until the program has done its work."""

    @abstractmethod
    def end(self) -> EngineDone | Suspended:
        """The end of a segment that has run; the program has ended. Raises ``EngineFailed``."""

    async def break_off(self) -> Sequence[Usage]:
        """Ask the program to stop, as the segment is cancelled, and give it a moment to store its
        session. Returns the usage that it reports."""
        return ()

    async def failure(self, error: Exception) -> Exception | None:
        """The failure to raise for an error while the segment ran; None: the error itself."""
        return None

    async def close(self) -> None:  # noqa: B027 - not every dialogue has something to stop
        """Stop what still waits in the dialogue; may be called repeatedly."""


@dataclass(frozen=True)
class ProgramSession(ABC):
    """Implements ``EngineSession``."""

    launcher: ProcessLauncher
    launch: ProgramLaunch
    spec: EngineSpec
    host: EngineHost
    opening: set[str]
    """See ``AnswerText``."""

    exit_s: ClassVar[float] = 0.8
    """Seconds that the program may take to end by itself after its work."""

    @abstractmethod
    def dialogue(self, child: EngineProcess, segment: Segment) -> ProgramDialogue:
        """The dialogue with the running program about a segment."""

    def started(self, segment: Segment) -> AbstractAsyncContextManager[Program]:
        """The program to start for a segment. Files made for it exist inside the block alone."""
        return nullcontext(self.launch.program(self.spec))

    def answer(self) -> AnswerText:
        """The text of an answer, with the program's thoughts told apart."""
        return AnswerText(self.opening, self.spec.agent)

    async def run(self, segment: Segment) -> AsyncGenerator[EngineEvent]:
        """Run one segment. Raises ``EngineFailed``."""
        for notice in await self.launcher.homes.prepare(self.launch.home, self.launch.title):
            yield notice
        async with (
            self.started(segment) as program,
            self.launcher.open(program, self.spec, self.host, slot=self.host.slot) as child,
        ):
            dialogue = self.dialogue(child, segment)
            try:
                async with aclosing(dialogue.run()) as events:
                    async for event in events:
                        yield event
                await dialogue.close()
                await child.end_input(self.exit_s)
            except asyncio.CancelledError:
                # The usage until now is still reported; then the cancellation continues.
                for used in await dialogue.break_off():
                    yield used
                raise
            except Exception as error:
                failure = await dialogue.failure(error)
                if failure is None:
                    raise
                raise failure from error
            finally:
                await dialogue.close()
        yield dialogue.end()

    async def close(self) -> None:  # noqa: B027 - the method of ``EngineSession``
        """No state remains between segments."""
