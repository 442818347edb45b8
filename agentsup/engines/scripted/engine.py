"""The scripted engine: deterministic, offline, for first use, demonstration and tests.

It answers by the rules of a script; without one, or where none fits, it says in one line that no
model is configured and repeats the text.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from agentsup.engines.failures import CheckpointUnusable, EngineCrash, Permanent, ScriptInvalid
from agentsup.engines.process import contained
from agentsup.engines.scripted.script import (
    MAX_SCRIPT_BYTES,
    Script,
    ScriptStep,
    build_script,
    fill,
    parse_script,
    steps_from_data,
    steps_to_data,
)
from agentsup.kit.clock import Clock
from agentsup.kit.known_files import KnownFiles
from agentsup.kit.own_command import with_home
from agentsup.kit.pipes import Stdio
from agentsup.kit.pool import BoundedPool
from agentsup.kit.procgroup import ProcessGroup
from agentsup.kit.safe_files import GuardedFolder, read_plain
from agentsup.model.engine import (
    EngineCaps,
    EngineDone,
    EngineEvent,
    EngineHost,
    EngineSpec,
    FileOut,
    Segment,
    Suspended,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Usage,
)
from agentsup.model.errors import ConfigError
from agentsup.model.hook import CallSuspended
from agentsup.model.question import AnswerableBy
from agentsup.model.tool import Effect

NO_MODEL = (
    "I answer offline, without a model, and can only repeat what you say. Try `agentsup setup` for a "
    "model, `/help` for commands, or say `what can you do?` to main.\n"
)
HOME_RULES = "demo-rules.yaml"
"""Of the home: the rules of agents without a script."""
_PREVIEW_CHARS = 200
_EFFECTS_BYTES = 64 * 1024 * 1024
_TERM_GRACE_S = 0.5

# A child and a grandchild that ignore SIGTERM (an ignored signal stays ignored across exec). The
# child waits for a line first, so that nothing works before the group has been recorded.
_STUBBORN_TREE = 'trap "" TERM; read -r go || exit 1; sleep "$0" & wait'


class ScriptedEngine:
    """Engine ``scripted``. Options: ``script`` (``file:PATH`` or a path, relative to the home) or
    ``rules`` (the rules themselves). Without either it follows ``HOME_RULES``, if the home has it."""

    name = "scripted"
    caps = EngineCaps(streaming=True, tools=True, suspend=True, usage=True, only_thinks=True)

    def __init__(self, clock: Clock, files: BoundedPool | None = None) -> None:
        """``files`` is the pool for scripts, and for what effects write."""
        self._clock = clock
        self.files = files or BoundedPool("files")
        self._scripts: KnownFiles[Script] = KnownFiles(self.files)

    async def open(self, spec: EngineSpec, host: EngineHost) -> ScriptedSession:
        """Open a session; the script is read at its first run, and again when it has changed."""
        return ScriptedSession(self, spec, host, self._clock)

    async def close(self) -> None:
        """Nothing to close."""

    async def script_for(self, spec: EngineSpec) -> Script:
        """Return the script that ``spec`` names, as it is now. Raises ``ScriptInvalid``."""
        source = spec.options.get("script")
        try:
            if source:
                return await self._from_file(str(source), spec.home)
            if spec.home and "rules" not in spec.options:
                try:
                    return await self._from_file(HOME_RULES, spec.home)
                except ConfigError as error:
                    if not isinstance(error.__cause__, FileNotFoundError):
                        raise
            return build_script(spec.options.get("rules") or [], path="engine_options.rules")
        except ConfigError as error:
            raise ScriptInvalid(f"the script of this agent can't be used: {error}") from error

    async def _from_file(self, source: str, home: str) -> Script:
        find = partial(script_path, source, home)
        try:
            return await self._scripts.get(
                (source, home), find, load_script, home=home, slot=source
            )
        except OSError as error:
            raise ConfigError(
                f"the script can't be read: {error.strerror or error}",
                path=str(find()),
                hint="engine_options.script is relative to the home",
            ) from error


def script_path(source: str, home: str) -> Path:
    """Return the path of the script named in ``engine_options``."""
    return Path(home) / Path(source.removeprefix("file:")).expanduser()


def load_script(path: Path) -> Script:
    """Read and check a script file; blocks. Raises ``ConfigError`` or ``OSError``."""
    return parse_script(read_script(path), path=str(path))


def read_script(path: Path) -> bytes:
    """The content of a script file, not longer than ``parse_script`` needs to refuse it; blocks.
    Raises ``OSError``."""
    return read_plain(path, MAX_SCRIPT_BYTES + 1)


@dataclass(slots=True)
class _ScriptRun:
    """The progress of a turn, which a checkpoint stores."""

    steps: tuple[ScriptStep, ...]
    groups: tuple[str, ...] = ()
    text: list[str] = field(default_factory=list)
    result: str = ""
    exit_code: int | None = None
    waiting: tuple[str, dict[str, Any]] | None = None
    """The call, filled in, that waits for an approval: it is made before the steps."""

    def fill(self, value: Any) -> Any:
        return fill(value, self.groups, self.result)

    def seconds(self, value: float | str) -> float:
        """A number, or a text that became one."""
        filled = self.fill(value)
        try:
            return max(0.0, float(filled))
        except ValueError:
            raise Permanent(f"the script wants a number of seconds, not {filled!r}") from None

    def say(self, text: str) -> TextDelta:
        self.text.append(text)
        return TextDelta(text)

    def freeze(self, rest: tuple[ScriptStep, ...]) -> bytes:
        """A checkpoint with the steps still to come, so that an edited script changes nothing."""
        data = {
            "v": 1,
            "steps": steps_to_data(rest),
            "groups": self.groups,
            "text": "".join(self.text),
            "exit_code": self.exit_code,
            "waiting": self.waiting,
            "result": self.result,
        }
        return json.dumps(data).encode()

    @classmethod
    def thaw(cls, checkpoint: bytes, answer: str | None) -> _ScriptRun:
        try:
            data = json.loads(checkpoint)
            waiting = data.get("waiting")
            return cls(
                steps=steps_from_data(data["steps"]),
                groups=tuple(data["groups"]),
                text=[data["text"]],
                # The answer to an approval is for the gate, not for the script.
                result=str(data["result"]) if waiting else answer or "",
                exit_code=data["exit_code"],
                waiting=(str(waiting[0]), dict(waiting[1])) if waiting else None,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointUnusable(f"the scripted turn can't be resumed: {error}") from error


class ScriptedSession:
    """One turn by the script."""

    def __init__(
        self, engine: ScriptedEngine, spec: EngineSpec, host: EngineHost, clock: Clock
    ) -> None:
        self._engine = engine
        self._spec = spec
        self._host = host
        self._clock = clock
        self._forced = asyncio.Event()

    async def run(self, segment: Segment) -> AsyncIterator[EngineEvent]:
        """Run the steps of the first rule that fits, or continue after the checkpoint.

        Raises ``EngineFailed`` (a ``fail`` step, a bad script) or ``EngineCrash``.
        """
        run = await self._begin(segment)
        if run.waiting is not None:
            async for event in self._call(run, *run.waiting, rest=run.steps):
                yield event
                if isinstance(event, Suspended):
                    return
        for index, step in enumerate(run.steps):
            async for event in self._step(run, step, index, segment):
                yield event
                if isinstance(event, Suspended):
                    return
        yield EngineDone("ok", text="".join(run.text), exit_code=run.exit_code)

    async def close(self) -> None:
        """Ends a hanging step by force."""
        self._forced.set()

    # -- inside ------------------------------------------------------------------------------------

    async def _begin(self, segment: Segment) -> _ScriptRun:
        resume = segment.resume
        if resume is not None and resume.checkpoint is not None:
            return _ScriptRun.thaw(resume.checkpoint, resume.answer)
        script = await self._engine.script_for(self._spec)
        text = _text_of(segment)
        found = script.find(text, segment.nudge)
        if found is None:
            # Built, not filled: the person's own "$1" must come back as it is.
            return _ScriptRun((ScriptStep(say="$1"),), ("", with_home(NO_MODEL) + text))
        return _ScriptRun(*found)

    async def _step(
        self, run: _ScriptRun, step: ScriptStep, index: int, segment: Segment
    ) -> AsyncIterator[EngineEvent]:
        """The events of one step; exactly one field of ``step`` is set."""
        if step.say is not None:
            yield run.say(run.fill(step.say))
        elif step.stream is not None:
            pause_s = run.seconds(step.stream.every)
            for number, chunk in enumerate(step.stream.chunks):
                if number:
                    await self._clock.sleep(pause_s)
                yield run.say(run.fill(chunk))
        elif step.sleep is not None:
            await self._clock.sleep(run.seconds(step.sleep))
        elif step.tool is not None:
            name, args = run.fill(step.tool.name), run.fill(step.tool.args)
            async for event in self._call(run, name, args, rest=run.steps[index + 1 :]):
                yield event
        elif step.fail is not None:
            raise Permanent(run.fill(step.fail))
        elif step.trouble is not None:
            raise step.trouble.error(run.fill(step.trouble.text))
        elif step.crash is not None:
            raise EngineCrash(run.fill(step.crash))
        elif step.exit is not None:
            run.exit_code = step.exit
        elif step.hang is not None:
            await self._hang()
        elif step.spawn is not None:
            await self._spawn(run.seconds(step.spawn))
        elif step.question is not None:
            asked = step.question
            yield Suspended(
                checkpoint=run.freeze(run.steps[index + 1 :]),
                text=run.fill(asked.text),
                options=tuple(run.fill(asked.options)),
                timeout_s=None if asked.timeout is None else run.seconds(asked.timeout),
                who=AnswerableBy(asked.who),
            )
        elif step.file is not None:
            path = run.fill(step.file)
            contained(self._spec.workspace, path)
            yield FileOut(path)
        elif step.usage is not None:
            used = step.usage
            yield Usage(used.input, used.output, used.usd)
        elif step.effect is not None:
            await self._effect(run.fill(step.effect), segment.message_id)

    async def _call(
        self, run: _ScriptRun, name: str, args: dict[str, Any], *, rest: tuple[ScriptStep, ...]
    ) -> AsyncIterator[EngineEvent]:
        """Make one call; if it must wait, end the segment, and make it again before ``rest``."""
        yield ToolStarted(name, args)
        try:
            result = await self._host.call(name, args)
        except CallSuspended as waits:
            run.waiting = (name, args)
            yield waits.ending(run.freeze(rest))
            return
        run.waiting = None
        run.result = result.text
        yield ToolFinished(name, result.ok, result.text[:_PREVIEW_CHARS])

    async def _hang(self) -> None:
        """Ignore every cancellation until the session is closed by force."""
        was_cancelled = False
        while not self._forced.is_set():
            try:
                await self._forced.wait()
            except asyncio.CancelledError:
                was_cancelled = True
        if was_cancelled:
            raise asyncio.CancelledError

    async def _spawn(self, seconds: float) -> None:
        group = await ProcessGroup.spawn(
            ["/bin/sh", "-c", _STUBBORN_TREE, f"{seconds:.3f}"],
            env=self._spec.env,
            cwd=self._spec.workspace or "/",
            stdin=Stdio.PIPE,
            stdout=Stdio.NULL,
            stderr=Stdio.NULL,
        )
        try:
            record = group.record
            await self._host.spawned(record.pgid, record.started_ticks, record.argv0)
            if group.stdin is not None:
                group.stdin.feed(b"go\n")
            await group.wait()
        finally:
            try:
                await group.stop(term_grace_s=_TERM_GRACE_S)
            finally:
                await self._host.reaped(group.pgid)

    async def _effect(self, path: str, message_id: str) -> None:
        contained(self._spec.workspace, path)
        step = partial(_append_line, GuardedFolder(self._spec.workspace), path, message_id)

        async def append() -> str:
            await self._engine.files.run(step, key=self._spec.agent)
            return f"appended to {path}"

        done = await self._host.perform("effect", Effect.BLIND, {"path": path}, append)
        if not done.ok:
            raise Permanent(f"the effect on {path} failed: {done.text}")


def _text_of(segment: Segment) -> str:
    """Return the text, and a line for each file that came with it, as a model reads it."""
    files = [
        f"[file: {part.path}" + (f" ({part.name})]" if part.name else "]")
        for part in segment.parts
        if part.type == "file"
    ]
    return "\n".join([*([segment.text] if segment.text else []), *files])


def _append_line(folder: GuardedFolder, path: str, line: str) -> None:
    """Append one line durably, in one write; blocks."""
    above = path.rpartition("/")[0]
    folder.make(above)
    folder.append(path, f"{line}\n".encode(), _EFFECTS_BYTES, mode=0o600)
