"""The engine object, and one segment: start the program, send the message, read its events."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Literal

from agentsup.engines.command import events
from agentsup.engines.failures import (
    EmptyAnswer,
    NotConfigured,
    OutputUnreadable,
    Permanent,
    Transient,
)
from agentsup.engines.process import (
    EngineHome,
    EngineProcess,
    ProcessLauncher,
    ProcessLimits,
    ProgramOptions,
    contained,
    read_options,
)
from agentsup.engines.process.homes import COMMAND
from agentsup.engines.thoughts import AnswerText, answer_of
from agentsup.model.engine import (
    EngineCaps,
    EngineDone,
    EngineEvent,
    EngineHost,
    EngineNotice,
    EngineSpec,
    FileOut,
    Segment,
    Suspended,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    Usage,
)

_EXIT_S = 0.8
"""Seconds that the program may take to end by itself after its last event."""
_SHOWN_CHARS = 120


class CommandOptions(ProgramOptions):
    """``command``: the argument list. ``input``: the form of its standard input. ``output``: JSON
    lines (see ``events``), or the answer itself as text."""

    input: Literal["json", "text"] = "json"
    output: Literal["events", "text"] = "events"


class CommandEngine:
    """Engine ``command``. Options: see ``CommandOptions``."""

    name = "command"
    caps = EngineCaps(streaming=True, suspend=True, usage=True, may_not_report=True)

    def __init__(self, children: ProcessLauncher) -> None:
        self._children = children
        self._opening: set[str] = set()

    async def open(self, spec: EngineSpec, host: EngineHost) -> CommandSession:
        """Open a session for one turn. Raises ``NotConfigured`` naming the field."""
        options = read_options(CommandOptions, spec.options, self.name)
        if not options.command:
            raise NotConfigured(
                "engine_options.command of the engine command: name the program and its "
                'arguments as a list, such as ["python3", "answer.py"]'
            )
        return CommandSession(self._children, options, spec, host, self._opening)

    async def close(self) -> None:
        """Nothing to close; the process manager ends the programs."""


@dataclass(frozen=True, slots=True)
class CommandSession:
    """One turn: the program runs once, and once more for each answer it asked for."""

    children: ProcessLauncher
    options: CommandOptions
    spec: EngineSpec
    host: EngineHost
    opening: set[str]
    """See ``AnswerText``."""

    async def run(self, segment: Segment) -> AsyncIterator[EngineEvent]:
        """Run the program on the segment. Raises ``EngineFailed``."""
        options = self.options
        left = events.suspension_of(segment)
        if options.input == "json":
            stdin = events.as_json(segment, self.spec, left)
        else:
            stdin = events.as_text(segment)
        said = [left.text] if left else []
        end: EngineDone | Suspended | None = None
        home = EngineHome.of(self.spec, COMMAND, is_private=options.home == "private")
        for notice in await self.children.homes.prepare(home, options.command[0]):
            yield notice
        env = home.variables(self.spec.env, options.env)
        async with self.children.open(
            options.command,
            self.spec,
            self.host,
            env=env,
            home=home.paths,
            stdin=stdin,
            secrets=tuple(options.env.values()),
            limits=ProcessLimits(memory_mb=options.memory_mb),
            slot=self.host.slot,
        ) as child:
            read = self._events if options.output == "events" else _plain
            thoughts = AnswerText(self.opening, self.spec.agent)
            async with aclosing(read(child, said)) as found:
                async for event in found:
                    if isinstance(event, EngineDone | Suspended):
                        end = event
                        break
                    if isinstance(event, TextDelta):
                        text, thought = thoughts.feed(event.text)
                        yield TextDelta(text) if text else ThinkingDelta(thought)
                    else:
                        yield event
            if text := thoughts.end():
                yield TextDelta(text)
            if end is None:
                end = await _ended(child, said)
            elif isinstance(end, EngineDone):
                end = replace(end, text=answer_of(end.text))
            else:
                await child.end_input(_EXIT_S)
        yield end

    async def close(self) -> None:
        """Nothing to close: the program ends with its run."""

    # -- inside ------------------------------------------------------------------------------------

    async def _events(self, child: EngineProcess, said: list[str]) -> AsyncGenerator[EngineEvent]:
        strange = b""
        async with aclosing(child.lines()) as lines:
            async for line in lines:
                try:
                    event = events.read_event(line)
                except events.NoEvent:
                    strange = strange or line[:_SHOWN_CHARS]
                    continue
                if event is not None:
                    yield self._engine_event(event, said)
        if strange and not any(said) and await child.wait() == 0:
            raise OutputUnreadable(
                f"{child.name} wrote no event but {strange.decode('utf-8', 'replace')!r}; if that "
                'is the answer, set engine_options.output to "text"'
            )

    def _engine_event(self, event: events.Event, said: list[str]) -> EngineEvent:
        match event:
            case events.TextEvent(text=text):
                said.append(text)
                return TextDelta(text)
            case events.Thinking(text=text):
                return ThinkingDelta(text)
            case events.ToolBegan(name=name, args=args):
                return ToolStarted(name, args)
            case events.ToolEnded(name=name, ok=ok, preview=preview):
                return ToolFinished(name, ok, preview)
            case events.Notify(text=text):
                return EngineNotice(text)
            case events.Used():
                return Usage(event.input, event.output, event.usd)
            case events.SendFile(path=path):
                contained(self.spec.workspace, path)
                return FileOut(path)
            case events.AskEvent():
                saved = events.Suspension("".join(said), event.checkpoint)
                return Suspended(
                    checkpoint=saved.freeze(),
                    text=event.text,
                    options=event.options,
                    timeout_s=event.timeout_s,
                    who=event.who,
                )
            case events.Finish(text=text, state=state):
                whole = text if text is not None else "".join(said)
                return EngineDone("ok", text=whole, engine_state=events.keep_state(state))
            case events.GiveUp(error=error, permanent=True):
                raise Permanent(error)
            case events.GiveUp(error=error, retry_after_s=retry_after_s):
                raise Transient(error, retry_after_s=retry_after_s)


async def _plain(child: EngineProcess, said: list[str]) -> AsyncGenerator[EngineEvent]:
    """Yield the output itself as the answer."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while data := await child.read():
        if text := decoder.decode(data):
            said.append(text)
            yield TextDelta(text)
    if text := decoder.decode(b"", final=True):
        said.append(text)
        yield TextDelta(text)


async def _ended(child: EngineProcess, said: list[str]) -> EngineDone:
    """Return the end of a program that closed its output without an event for the end."""
    if await child.wait() != 0:
        raise await child.ended("failed")
    text = answer_of("".join(said)).rstrip("\n")
    if not text.strip():
        raise EmptyAnswer(f"{child.name} ended without an answer")
    return EngineDone("ok", text=text)
