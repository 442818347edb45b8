"""The engine object, and one turn: one process, which ends with it.

Claude stores its own session on disk and is resumed by id. So a process for each turn costs a
start, and between turns there is nothing that must be limited, cleaned up or rebuilt.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from agentsup.engines.claude import arguments, stream
from agentsup.engines.claude.arguments import ClaudeOptions, ClaudeSessionId
from agentsup.engines.claude.dialogue import Dialogue, prompt_of
from agentsup.engines.claude.stream import ClaudeTurnState
from agentsup.engines.failures import EmptyAfterToolUse, EmptyAnswer, EnginesBusy, ProgramEnded
from agentsup.engines.process import (
    EngineHome,
    EngineProcess,
    ProcessLauncher,
    ProcessLimits,
    read_options,
)
from agentsup.engines.programs.presets import CLAUDE
from agentsup.engines.thoughts import AnswerText, answer_of
from agentsup.kit.clock import Clock
from agentsup.kit.safe_files import GuardedFolder
from agentsup.model.engine import (
    EngineCaps,
    EngineDone,
    EngineEvent,
    EngineHost,
    EngineSpec,
    Segment,
    Usage,
)

_EXIT_S = 0.8


class ClaudeEngine:
    """Engine ``claude``. Options: see ``arguments.ClaudeOptions``; ``env`` is the daemon's."""

    name = "claude"
    caps = EngineCaps(streaming=True, usage=True, may_not_report=True, pictures=True)

    def __init__(self, children: ProcessLauncher, clock: Clock, env: Mapping[str, str]) -> None:
        self._children = children
        self._clock = clock
        self._env = env
        self._opening: set[str] = set()

    async def open(self, spec: EngineSpec, host: EngineHost) -> ClaudeSession:
        """Open a session for one turn. Raises ``NotConfigured`` naming the field."""
        options = read_options(ClaudeOptions, spec.options, self.name)
        env = arguments.environment(options, self._env)
        return ClaudeSession(self._children, self._clock, options, env, spec, host, self._opening)

    async def close(self) -> None:
        """Nothing to close; the process manager ends the programs."""


class _OtherSession(Exception):
    """The session is missing though it should exist, or the reverse."""


@dataclass(frozen=True, slots=True)
class ClaudeSession:
    """One turn."""

    children: ProcessLauncher
    clock: Clock
    options: ClaudeOptions
    env: Mapping[str, str] = field(repr=False)
    spec: EngineSpec
    host: EngineHost
    opening: set[str]
    """See ``AnswerText``."""

    async def run(self, segment: Segment) -> AsyncIterator[EngineEvent]:
        """Run the segment in Claude's session. Raises ``EngineFailed``."""
        first = arguments.session_of(segment)
        other = ClaudeSessionId(first.session_id, exists=True)
        if first.exists:
            other = ClaudeSessionId(arguments.fresh_id(segment), exists=False)
        for session in (first, other):
            with suppress(_OtherSession):
                async with aclosing(self._attempt(segment, session)) as events:
                    async for event in events:
                        yield event
                return
        # The id of a fresh session was taken by an earlier attempt, whose session is gone.
        raise EmptyAnswer("claude can neither resume nor begin its session")

    async def close(self) -> None:
        """Nothing to close: the program ends with its run."""

    # -- inside ------------------------------------------------------------------------------------

    async def _attempt(
        self, segment: Segment, session: ClaudeSessionId
    ) -> AsyncGenerator[EngineEvent]:
        options, answer = self.options, AnswerText(self.opening, self.spec.agent)
        turn = ClaudeTurnState(api_retries=options.api_retries, answer=answer)
        # After its limit of steps the turn is asked for a summary: one request.
        spec = replace(self.spec, max_steps=1) if segment.nudge == "wrap_up" else self.spec
        home = EngineHome.of(
            self.spec, CLAUDE.name, CLAUDE.settings, is_private=options.home == "private"
        )
        for notice in await self.children.homes.prepare(home, CLAUDE.title):
            yield notice
        env, paths = home.variables(self.spec.env, self.env), home.paths
        async with (
            self._mcp_config(home) as mcp_config,
            self.children.open(
                arguments.argv(spec, options, session, mcp_config),
                self.spec,
                self.host,
                env=env,
                home=replace(paths, shown=(*paths.shown, mcp_config)) if mcp_config else paths,
                secrets=[value for name, value in self.env.items() if not name.endswith("_URL")],
                limits=ProcessLimits(memory_mb=options.memory_mb),
                remedy=CLAUDE.remedy,
                slot=self.host.slot,
            ) as child,
        ):
            dialogue = Dialogue(child, self.host, turn)
            was_cancelled: asyncio.CancelledError | None = None
            try:
                asked = prompt_of(segment, session)
                async with aclosing(
                    dialogue.talk(segment.instructions, asked, segment.pictures)
                ) as events:
                    async for event in events:
                        yield event
            except asyncio.CancelledError as cancelled:
                was_cancelled = cancelled
            except ProgramEnded:
                raise await self._broken(child, session) from None
            finally:
                await dialogue.close()
            if was_cancelled is not None:
                # The usage until now is still reported; then the cancellation continues.
                for event in await dialogue.interrupt():
                    if isinstance(event, Usage):
                        yield event
                raise was_cancelled
            if turn.result is None:
                raise await self._broken(child, session)
            await child.end_input(_EXIT_S)
        yield self._end(turn, session)

    @asynccontextmanager
    async def _mcp_config(self, home: EngineHome) -> AsyncGenerator[str]:
        """Yield the path of a file with the MCP servers, which is removed after the turn. It has
        the turn's token, so only this program may read it. It is in no home, as parallel turns can
        share one."""
        if not self.spec.mcp_servers:
            yield ""
            return
        document = arguments.mcp_document(self.spec)
        # The token makes the name unique to this turn; the name does not reveal the token.
        file = f"mcp-{hashlib.sha256(document).hexdigest()[:32]}.json"
        folder, files = GuardedFolder(home.turn_files), self.children.files
        agent = self.spec.agent
        remove = partial(folder.remove, file)

        def write() -> None:
            folder.make(mode=0o700)
            folder.renew(file, document, mode=0o600)

        try:
            await files.run(write, key=agent, undo=lambda _: remove())
        except OSError as error:
            raise EnginesBusy(f"the file of tools can't be written: {error}") from error
        try:
            yield str(folder.root / file)
        finally:
            with suppress(OSError):
                await files.run(remove, key=agent)

    async def _broken(self, child: EngineProcess, session: ClaudeSessionId) -> Exception:
        failure = await child.ended("ended without an answer")
        stderr = child.stderr_text()
        if stream.is_other_session(stderr, exists=session.exists):
            return _OtherSession()
        return stream.too_old(stderr) or failure

    def _end(self, turn: ClaudeTurnState, session: ClaudeSessionId) -> EngineDone:
        result = turn.result or {}
        if session.exists and stream.is_other_session(stream.said_by(result), exists=True):
            raise _OtherSession
        retry_after_s = None
        if turn.resets_at_s is not None:
            retry_after_s = max(0.0, turn.resets_at_s - self.clock.now_ms() / 1000)
        state = ClaudeSessionId(turn.session_id or session.session_id, exists=True).freeze()
        failure = stream.result_failure(result, turn.error_word, retry_after_s, state)
        if failure is not None:
            raise failure
        text = turn.text or answer_of(str(result.get("result") or ""))
        if not text.strip() and turn.used_tools:
            raise EmptyAfterToolUse("claude used its tools and then said nothing", state=state)
        if not text.strip():
            raise EmptyAnswer("claude ended its turn without an answer")
        return EngineDone("ok", text=text, engine_state=state)
