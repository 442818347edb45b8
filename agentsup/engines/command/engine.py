"""The engine object, and the life of one segment: start, tell, listen, end."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Literal

from agentsup.engines.child import (
    Child,
    ChildLimits,
    ChildManager,
    ChildOptions,
    EngineHome,
    contained,
    read_options,
)
from agentsup.engines.child.homes import COMMAND
from agentsup.engines.command import envelope, events
from agentsup.engines.command.envelope import Suspension
from agentsup.engines.failures import (
    EmptyAnswer,
    NotConfigured,
    OutputUnreadable,
    Permanent,
    Transient,
)
from agentsup.model.engine import (
    Done,
    EngineCaps,
    EngineEvent,
    EngineHost,
    EngineSpec,
    FileOut,
    Notice,
    Segment,
    Suspended,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    Usage,
)

_LEAVE_S = 0.8
"""After its last word the program may end by itself for this long."""
_SHOWN_CHARS = 120


class CommandOptions(ChildOptions):
    """``command``: the argument list. ``input``: what stands on its standard input. ``output``:
    JSON lines (see ``events``), or the answer itself as text."""

    input: Literal["json", "text"] = "json"
    output: Literal["events", "text"] = "events"


class CommandEngine:
    """Engine ``command``. Options: see ``CommandOptions``."""

    name = "command"
    caps = EngineCaps(streaming=True, suspend=True, usage=True, may_not_tell=True)

    def __init__(self, children: ChildManager) -> None:
        self._children = children

    async def open(self, spec: EngineSpec, host: EngineHost) -> CommandSession:
        """Open a session for one turn. Raises ``NotConfigured`` naming the field."""
        options = read_options(CommandOptions, spec.options, self.name)
        if not options.command:
            raise NotConfigured(
                "engine_options.command of the engine command: name the program and its "
                'arguments as a list, such as ["python3", "answer.py"]'
            )
        return CommandSession(self._children, options, spec, host)

    async def close(self) -> None:
        """Nothing is held; the programs are the manager's."""


class CommandSession:
    """One turn: the program runs once, and once more for each answer it asked for."""

    def __init__(
        self,
        children: ChildManager,
        options: CommandOptions,
        spec: EngineSpec,
        host: EngineHost,
    ) -> None:
        self._children = children
        self._options = options
        self._spec = spec
        self._host = host

    async def run(self, segment: Segment) -> AsyncIterator[EngineEvent]:
        """Run the program on the segment. Raises ``EngineFailed``."""
        options = self._options
        left = envelope.suspension_of(segment)
        if options.input == "json":
            stdin = envelope.as_json(segment, self._spec, left)
        else:
            stdin = envelope.as_text(segment)
        said = [left.text] if left else []
        end: Done | Suspended | None = None
        home = EngineHome.of(self._spec, COMMAND, is_private=options.home == "private")
        for notice in await self._children.homes.prepare(home, options.command[0]):
            yield notice
        env = home.variables(self._spec.env, options.env)
        async with self._children.open(
            options.command,
            self._spec,
            self._host,
            env=env,
            home=home.place,
            stdin=stdin,
            secrets=tuple(options.env.values()),
            limits=ChildLimits(memory_mb=options.memory_mb),
            slot=self._host.slot,
        ) as child:
            read = self._events if options.output == "events" else _plain
            async with aclosing(read(child, said)) as heard:
                async for event in heard:
                    if isinstance(event, Done | Suspended):
                        end = event
                        break
                    yield event
            if end is None:
                end = await _ended(child, said)
            else:
                await child.leave(_LEAVE_S)
        yield end

    async def close(self) -> None:
        """Nothing is held: the program ends with its run."""

    # -- inside ------------------------------------------------------------------------------------

    async def _events(self, child: Child, said: list[str]) -> AsyncGenerator[EngineEvent]:
        strange = b""
        async with aclosing(child.lines()) as lines:
            async for line in lines:
                try:
                    event = events.read_event(line)
                except events.NoEvent:
                    strange = strange or line[:_SHOWN_CHARS]
                    continue
                if event is not None:
                    yield self._told(event, said)
        if strange and not any(said) and await child.wait() == 0:
            raise OutputUnreadable(
                f"{child.name} wrote no event but {strange.decode('utf-8', 'replace')!r}; if that "
                'is the answer, set engine_options.output to "text"'
            )

    def _told(self, event: events.Event, said: list[str]) -> EngineEvent:
        match event:
            case events.Text(text=text):
                said.append(text)
                return TextDelta(text)
            case events.Thinking(text=text):
                return ThinkingDelta(text)
            case events.ToolBegan(name=name, args=args):
                return ToolStarted(name, args)
            case events.ToolEnded(name=name, ok=ok, preview=preview):
                return ToolFinished(name, ok, preview)
            case events.Notify(text=text):
                return Notice(text)
            case events.Used():
                return Usage(event.input, event.output, event.usd)
            case events.SendFile(path=path):
                contained(self._spec.workspace, path)
                return FileOut(path)
            case events.Ask():
                kept = Suspension("".join(said), event.checkpoint)
                return Suspended(
                    checkpoint=kept.freeze(),
                    text=event.text,
                    options=event.options,
                    timeout_s=event.timeout_s,
                    who=event.who,
                )
            case events.Finish(text=text, state=state):
                whole = text if text is not None else "".join(said)
                return Done("ok", text=whole, engine_state=envelope.keep_state(state))
            case events.GiveUp(error=error, permanent=True):
                raise Permanent(error)
            case events.GiveUp(error=error, retry_after_s=retry_after_s):
                raise Transient(error, retry_after_s=retry_after_s)


async def _plain(child: Child, said: list[str]) -> AsyncGenerator[EngineEvent]:
    """The output itself is the answer."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while data := await child.read():
        if text := decoder.decode(data):
            said.append(text)
            yield TextDelta(text)
    if text := decoder.decode(b"", final=True):
        said.append(text)
        yield TextDelta(text)


async def _ended(child: Child, said: list[str]) -> Done:
    """The end of a program that closed its output without a last word."""
    if await child.wait() != 0:
        raise await child.ended("failed")
    text = "".join(said).rstrip("\n")
    if not text.strip():
        raise EmptyAnswer(f"{child.name} ended without an answer")
    return Done("ok", text=text)
