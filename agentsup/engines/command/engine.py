"""The engine object, and the dialogue of one segment: send the message, read the program's events."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
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
    ProgramDialogue,
    ProgramLaunch,
    ProgramOptions,
    ProgramSession,
    contained,
    read_options,
)
from agentsup.engines.process.homes import COMMAND
from agentsup.engines.thoughts import answer_of
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
        launch = ProgramLaunch(
            title=options.command[0],
            argv=options.command,
            home=EngineHome.of(spec, COMMAND, is_private=options.home == "private"),
            env=options.env,
            secrets=tuple(options.env.values()),
            memory_mb=options.memory_mb,
        )
        return CommandSession(self._children, launch, spec, host, self._opening, options)

    async def close(self) -> None:
        """Nothing to close; the process manager ends the programs."""


@dataclass(frozen=True)
class CommandSession(ProgramSession):
    """One turn: the program runs once, and once more for each answer it asked for."""

    options: CommandOptions

    def dialogue(self, child: EngineProcess, segment: Segment) -> ProgramDialogue:
        return _CommandDialogue(self, child, segment)


class _CommandDialogue(ProgramDialogue):
    """The message on the program's input, and the events on its output."""

    def __init__(self, session: CommandSession, child: EngineProcess, segment: Segment) -> None:
        left = events.suspension_of(segment)
        self._spec = session.spec
        self._child = child
        if session.options.input == "json":
            self._stdin = events.as_json(segment, session.spec, left)
        else:
            self._stdin = events.as_text(segment)
        self._read = self._events if session.options.output == "events" else self._plain
        self._said = [left.text] if left else []
        self._answer = session.answer()
        self._end: EngineDone | Suspended | None = None

    async def run(self) -> AsyncGenerator[EngineEvent]:
        self._child.feed(self._stdin, then_close=True)
        async with aclosing(self._read()) as found:
            async for event in found:
                if isinstance(event, EngineDone | Suspended):
                    self._end = event
                    break
                yield self._answer.feed(event.text) if isinstance(event, TextDelta) else event
        for rest in self._answer.end():
            yield rest
        if self._end is None:
            self._end = await self._ended()

    def end(self) -> EngineDone | Suspended:
        assert self._end is not None
        return self._end

    # -- inside ------------------------------------------------------------------------------------

    async def _events(self) -> AsyncGenerator[EngineEvent]:
        strange = b""
        async with aclosing(self._child.lines()) as lines:
            async for line in lines:
                try:
                    event = events.read_event(line)
                except events.NoEvent:
                    strange = strange or line[:_SHOWN_CHARS]
                    continue
                if event is not None:
                    yield self._engine_event(event)
        if strange and not any(self._said) and await self._child.wait() == 0:
            raise OutputUnreadable(
                f"{self._child.name} wrote no event but {strange.decode('utf-8', 'replace')!r}; if that "
                'is the answer, set engine_options.output to "text"'
            )

    def _engine_event(self, event: events.Event) -> EngineEvent:
        match event:
            case events.TextEvent(text=text):
                self._said.append(text)
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
                contained(self._spec.workspace, path)
                return FileOut(path)
            case events.AskEvent():
                saved = events.Suspension("".join(self._said), event.checkpoint)
                return Suspended(
                    checkpoint=saved.freeze(),
                    text=event.text,
                    options=event.options,
                    timeout_s=event.timeout_s,
                    who=event.who,
                )
            case events.Finish(text=text, state=state):
                whole = text if text is not None else "".join(self._said)
                return EngineDone(
                    "ok", text=answer_of(whole), engine_state=events.keep_state(state)
                )
            case events.GiveUp(error=error, permanent=True):
                raise Permanent(error)
            case events.GiveUp(error=error, retry_after_s=retry_after_s):
                raise Transient(error, retry_after_s=retry_after_s)

    async def _plain(self) -> AsyncGenerator[EngineEvent]:
        """Yield the output itself as the answer."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while data := await self._child.read():
            if text := decoder.decode(data):
                self._said.append(text)
                yield TextDelta(text)
        if text := decoder.decode(b"", final=True):
            self._said.append(text)
            yield TextDelta(text)

    async def _ended(self) -> EngineDone:
        """Return the end of a program that closed its output without an event for the end."""
        if await self._child.wait() != 0:
            raise await self._child.ended("failed")
        text = answer_of("".join(self._said)).rstrip("\n")
        if not text.strip():
            raise EmptyAnswer(f"{self._child.name} ended without an answer")
        return EngineDone("ok", text=text)
