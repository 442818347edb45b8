"""The engine object, and the life of one turn: one process, ended with it.

Claude keeps its own session on disk and is resumed by id, so a process of its own for each turn
costs a start and holds nothing between turns that would have to be bounded, swept or rebuilt.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

from agentsup.engines.child import (
    Child,
    ChildLimits,
    ChildManager,
    EngineHome,
    read_options,
)
from agentsup.engines.claude import arguments, ending
from agentsup.engines.claude.arguments import ClaudeOptions, Session
from agentsup.engines.claude.dialogue import Dialogue, prompt_of
from agentsup.engines.claude.stream import Turn
from agentsup.engines.failures import EmptyAfterToolUse, EmptyAnswer, EnginesBusy, ProgramEnded
from agentsup.engines.programs import CLAUDE
from agentsup.kit.clock import Clock
from agentsup.kit.planted import Folder
from agentsup.model.engine import (
    Done,
    EngineCaps,
    EngineEvent,
    EngineHost,
    EngineSpec,
    Segment,
    Usage,
)

_LEAVE_S = 0.8


class ClaudeEngine:
    """Engine ``claude``. Options: see ``arguments.ClaudeOptions``; ``env`` is the daemon's."""

    name = "claude"
    caps = EngineCaps(streaming=True, usage=True, may_not_tell=True)

    def __init__(self, children: ChildManager, clock: Clock, env: Mapping[str, str]) -> None:
        self._children = children
        self._clock = clock
        self._env = env

    async def open(self, spec: EngineSpec, host: EngineHost) -> ClaudeSession:
        """Open a session for one turn. Raises ``NotConfigured`` naming the field."""
        options = read_options(ClaudeOptions, spec.options, self.name)
        env = arguments.environment(options, self._env)
        return ClaudeSession(self._children, self._clock, options, env, spec, host)

    async def close(self) -> None:
        """Nothing is held; the programs are the manager's."""


class _OtherSession(Exception):
    """The session is not as it was thought: missing though it should exist, or the reverse."""


class ClaudeSession:
    """One turn."""

    def __init__(
        self,
        children: ChildManager,
        clock: Clock,
        options: ClaudeOptions,
        env: Mapping[str, str],
        spec: EngineSpec,
        host: EngineHost,
    ) -> None:
        self._children = children
        self._clock = clock
        self._options = options
        self._env = env
        self._spec = spec
        self._host = host

    async def run(self, segment: Segment) -> AsyncIterator[EngineEvent]:
        """Run the segment in Claude's session. Raises ``EngineFailed``."""
        session = arguments.session_of(segment)
        try:
            async with aclosing(self._attempt(segment, session)) as events:
                async for event in events:
                    yield event
            return
        except _OtherSession:
            pass
        other = Session(session.session_id, exists=True)
        if session.exists:
            other = Session(arguments.fresh_id(segment), exists=False)
        try:
            async with aclosing(self._attempt(segment, other)) as events:
                async for event in events:
                    yield event
        except _OtherSession:
            # The id of a fresh session was taken by an earlier attempt, whose session is gone.
            raise EmptyAnswer("claude can neither resume nor begin its session") from None

    async def close(self) -> None:
        """Nothing is held: the program ends with its run."""

    # -- inside ------------------------------------------------------------------------------------

    async def _attempt(self, segment: Segment, session: Session) -> AsyncGenerator[EngineEvent]:
        options, turn = self._options, Turn(api_retries=self._options.api_retries)
        # At its limit of steps it is asked for a summary: one request.
        spec = replace(self._spec, max_steps=1) if segment.nudge == "wrap_up" else self._spec
        home = EngineHome.of(
            self._spec, CLAUDE.name, CLAUDE.settings, is_private=options.home == "private"
        )
        for notice in await self._children.homes.prepare(home, CLAUDE.title):
            yield notice
        env, place = home.variables(self._spec.env, self._env), home.place
        async with (
            self._mcp_config(home) as mcp_config,
            self._children.open(
                arguments.argv(spec, options, session, mcp_config),
                self._spec,
                self._host,
                env=env,
                home=replace(place, shown=(*place.shown, mcp_config)) if mcp_config else place,
                secrets=[value for name, value in self._env.items() if not name.endswith("_URL")],
                limits=ChildLimits(memory_mb=options.memory_mb),
                remedy=CLAUDE.remedy,
                slot=self._host.slot,
            ) as child,
        ):
            dialogue = Dialogue(child, self._host, turn)
            was_cancelled: asyncio.CancelledError | None = None
            try:
                async with aclosing(
                    dialogue.talk(segment.system, prompt_of(segment, session))
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
                # What was used until now is told all the same; the cancellation goes on after it.
                for event in await dialogue.interrupt():
                    if isinstance(event, Usage):
                        yield event
                raise was_cancelled
            if turn.result is None:
                raise await self._broken(child, session)
            await child.leave(_LEAVE_S)
        yield self._end(turn, session)

    @asynccontextmanager
    async def _mcp_config(self, home: EngineHome) -> AsyncGenerator[str]:
        """A file with the MCP servers, as long as the turn lasts. It holds the turn's token, so it
        is for this program alone to read, and lies in no home, which parallel turns can share."""
        if not self._spec.mcp_servers:
            yield ""
            return
        document = arguments.mcp_document(self._spec)
        # The token in it makes the name one of this turn alone, and can't be found from it.
        file = f"mcp-{hashlib.sha256(document).hexdigest()[:32]}.json"
        folder, files, agent = Folder(home.turn_files), self._children.files, self._spec.agent
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

    async def _broken(self, child: Child, session: Session) -> Exception:
        failure = await child.ended("ended without an answer")
        stderr = child.stderr_text()
        if ending.is_session_taken(stderr) and not session.exists:
            return _OtherSession()
        if ending.is_session_missing(stderr) and session.exists:
            return _OtherSession()
        return ending.too_old(stderr) or failure

    def _end(self, turn: Turn, session: Session) -> Done:
        result = turn.result or {}
        if session.exists and ending.is_session_missing(ending.whole_text(result)):
            raise _OtherSession
        retry_after_s = None
        if turn.resets_at_s is not None:
            retry_after_s = max(0.0, turn.resets_at_s - self._clock.now_ms() / 1000)
        state = Session(turn.session_id or session.session_id, exists=True).freeze()
        failure = ending.result_failure(result, turn.error_word, retry_after_s, state)
        if failure is not None:
            raise failure
        text = turn.text or str(result.get("result") or "")
        if not text.strip() and turn.used_tools:
            raise EmptyAfterToolUse("claude used its tools and then said nothing", state=state)
        if not text.strip():
            raise EmptyAnswer("claude ended its turn without an answer")
        return Done("ok", text=text, engine_state=state)
