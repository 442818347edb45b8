"""One turn: Claude's own session is resumed, or begun, and the dialogue with the running program."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agentsup.engines.claude import arguments, stream
from agentsup.engines.claude.arguments import ClaudeOptions, ClaudeSessionId
from agentsup.engines.claude.stream import ALIVE, ClaudeTurnState, read_line
from agentsup.engines.clean import as_dict
from agentsup.engines.failures import (
    EmptyAfterToolUse,
    EmptyAnswer,
    EnginesBusy,
    Permanent,
    ProgramEnded,
)
from agentsup.engines.process import (
    EngineProcess,
    Program,
    ProgramDialogue,
    ProgramSession,
)
from agentsup.engines.thoughts import answer_of
from agentsup.kit.clock import Clock
from agentsup.kit.log import get_logger
from agentsup.kit.safe_files import GuardedFolder
from agentsup.kit.tasks import TaskOwner, time_limit
from agentsup.model.engine import EngineDone, EngineEvent, PermissionRequest, Segment, Usage
from agentsup.model.errors import AgentsupError

_log = get_logger(__name__)

_INTERRUPT_S = 0.15
"""Seconds that an interrupted turn may take to report its cost."""
_CLOSE_S = 0.2
_UNKNOWN = ClaudeSessionId("", exists=False)
_NO_ANSWER = "ended without an answer"
_SPEAKERS = {"user": "User", "assistant": "You", "note": "Note"}
AGAIN = (
    "(Your work on the following message was interrupted. Go on with it, and do not repeat what "
    "is done already.)"
)


def prompt_of(segment: Segment, session: ClaudeSessionId) -> str:
    """Return the prompt: the message, and before it what Claude's session can't know."""
    blocks = [segment.prompt]
    if segment.resume is not None and segment.resume.answer is not None:
        blocks.append(f"(The answer to your question: {segment.resume.answer})")
    if not session.exists and segment.history:
        said = [f"{_SPEAKERS[each.role]}: {each.text}" for each in segment.history]
        blocks.insert(0, "(The conversation so far:)\n\n" + "\n\n".join(said) + "\n\n(Now:)")
    if segment.resume is not None and segment.resume.answer is None:
        blocks.insert(0, AGAIN)
    return "\n\n".join(blocks)


class _OtherSession(Exception):
    """Claude's session is missing though it should exist, or the reverse."""


@dataclass(frozen=True)
class ClaudeSession(ProgramSession):
    """One turn."""

    options: ClaudeOptions
    clock: Clock
    session_id: ClaudeSessionId = _UNKNOWN
    """Claude's own session, which ``run`` finds out."""

    async def run(self, segment: Segment) -> AsyncGenerator[EngineEvent]:
        first = arguments.session_of(segment)
        other = ClaudeSessionId(first.session_id, exists=True)
        if first.exists:
            other = ClaudeSessionId(arguments.fresh_id(segment), exists=False)
        for session_id in (first, other):
            attempt = replace(self, session_id=session_id)
            with suppress(_OtherSession):
                async with aclosing(ProgramSession.run(attempt, segment)) as events:
                    async for event in events:
                        yield event
                return
        # The id of a fresh session was taken by an earlier attempt, whose session is gone.
        raise EmptyAnswer("claude can neither resume nor begin its session")

    def dialogue(self, child: EngineProcess, segment: Segment) -> ProgramDialogue:
        return _ClaudeDialogue(self, child, segment)

    @asynccontextmanager
    async def started(self, segment: Segment) -> AsyncGenerator[Program]:
        program = self.launch.program(self.spec)
        # After its limit of steps the turn is asked for a summary: one request.
        spec = replace(self.spec, max_steps=1) if segment.nudge == "wrap_up" else self.spec
        async with self._mcp_config() as mcp_config:
            argv = arguments.argv(spec, self.options, self.session_id, mcp_config)
            home = program.home
            if mcp_config:
                home = replace(home, shown=(*home.shown, mcp_config))
            yield replace(program, argv=argv, home=home)

    @asynccontextmanager
    async def _mcp_config(self) -> AsyncGenerator[str]:
        """Yield the path of a file with the MCP servers, which is removed after the turn. It has
        the turn's token, so only this program may read it. It is in no home, as parallel turns can
        share one."""
        if not self.spec.mcp_servers:
            yield ""
            return
        document = arguments.mcp_document(self.spec)
        # The token makes the name unique to this turn; the name does not reveal the token.
        file = f"mcp-{hashlib.sha256(document).hexdigest()[:32]}.json"
        folder, files = GuardedFolder(self.launch.home.turn_files), self.launcher.files
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


class _ClaudeDialogue(ProgramDialogue):
    """One prompt and everything until its result."""

    def __init__(self, session: ClaudeSession, child: EngineProcess, segment: Segment) -> None:
        self._session_id = session.session_id
        self._clock = session.clock
        self._host = session.host
        self._child = child
        self._segment = segment
        self._turn = ClaudeTurnState(
            api_retries=session.options.api_retries, answer=session.answer()
        )
        self._numbers = itertools.count(1)
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._owner = TaskOwner("claude permissions")

    async def run(self) -> AsyncGenerator[EngineEvent]:
        segment = self._segment
        greeting: dict[str, Any] = {"subtype": "initialize"}
        if segment.instructions:
            greeting["appendSystemPrompt"] = segment.instructions
        await self._request(greeting)
        text = prompt_of(segment, self._session_id)
        content: list[dict[str, Any]] = [{"type": "text", "text": text}]
        for each in segment.pictures:
            data = base64.b64encode(each.data).decode()
            source = {"type": "base64", "media_type": "image/jpeg", "data": data}
            content.append({"type": "image", "source": source})
        await self._send({"type": "user", "message": {"role": "user", "content": content}})
        async with aclosing(self._child.lines()) as lines:
            async for line in lines:
                for event in self._hear(line):
                    yield event
                if self._turn.is_over():
                    return
        raise await self._child.ended(_NO_ANSWER)

    def end(self) -> EngineDone:
        turn, session_id = self._turn, self._session_id
        result = turn.result or {}
        if session_id.exists and stream.is_other_session(stream.said_by(result), exists=True):
            raise _OtherSession
        retry_after_s = None
        if turn.resets_at_s is not None:
            retry_after_s = max(0.0, turn.resets_at_s - self._clock.now_ms() / 1000)
        state = ClaudeSessionId(turn.session_id or session_id.session_id, exists=True).freeze()
        failure = stream.result_failure(result, turn.error_word, retry_after_s, state)
        if failure is not None:
            raise failure
        text = turn.text or answer_of(str(result.get("result") or ""))
        if not text.strip() and turn.used_tools:
            raise EmptyAfterToolUse("claude used its tools and then said nothing", state=state)
        if not text.strip():
            raise EmptyAnswer("claude ended its turn without an answer")
        return EngineDone("ok", text=text, engine_state=state)

    async def break_off(self) -> Sequence[Usage]:
        await self.close()
        if self._turn.is_over():
            return ()
        events: list[EngineEvent] = []
        try:
            async with time_limit(_INTERRUPT_S):
                await self._request({"subtype": "interrupt"})
                async with aclosing(self._child.lines()) as lines:
                    async for line in lines:
                        message = read_line(line)
                        events += self._turn.hear(message) if message else []
                        if self._turn.is_over():
                            break
        except (TimeoutError, AgentsupError):
            pass  # it is ended by force next
        return [event for event in events if isinstance(event, Usage)]

    async def failure(self, error: Exception) -> Exception | None:
        if not isinstance(error, ProgramEnded):
            return None
        ended = await self._child.ended(_NO_ANSWER)
        stderr = self._child.stderr_text()
        if stream.is_other_session(stderr, exists=self._session_id.exists):
            return _OtherSession()
        return stream.too_old(stderr) or ended

    async def close(self) -> None:
        """Cancel the permission requests that are still open."""
        await self._owner.close(_CLOSE_S)

    # -- inside ------------------------------------------------------------------------------------

    def _hear(self, line: bytes) -> list[EngineEvent]:
        message = read_line(line)
        if message is None:
            return []
        match message["type"]:
            case "control_request":
                self._asked_by(message)
            case "control_cancel_request":
                task = self._asked.pop(str(message.get("request_id")), None)
                if task is not None:
                    task.cancel()
            case "control_response":
                response = message.get("response")
                if isinstance(response, dict) and response.get("subtype") == "error":
                    raise Permanent(f"claude refused to start: {response.get('error')}")
            case _:
                return self._turn.hear(message)
        return [ALIVE]

    def _asked_by(self, message: dict[str, Any]) -> None:
        request_id, request = str(message.get("request_id")), message.get("request")
        if not isinstance(request, dict) or request.get("subtype") != "can_use_tool":
            what = request.get("subtype") if isinstance(request, dict) else request
            self._respond(
                {"subtype": "error", "request_id": request_id, "error": f"{what!r} is not offered"}
            )
            return
        self._asked[request_id] = self._owner.spawn(
            self._permit(request_id, request), name=f"permit:{request_id}"
        )

    async def _permit(self, request_id: str, request: dict[str, Any]) -> None:
        args = as_dict(request.get("input"))
        call_id = str(request.get("tool_use_id") or request_id)
        wanted = PermissionRequest(
            request_id=call_id,
            tool=str(request.get("tool_name") or "unknown"),
            args=args,
            title=str(
                request.get("title")
                or request.get("description")
                or request.get("display_name")
                or ""
            ),
        )
        try:
            permission = await self._child.waiting(self._host.permit(wanted))
        except AgentsupError as error:
            _log.warning(f"no decision about {wanted.tool} of claude: {error.message}")
            self._deny(request_id, call_id, error.message)
            return
        finally:
            self._asked.pop(request_id, None)
        if permission.allowed:
            updated = args if permission.args is None else permission.args
            self._answer(request_id, {"behavior": "allow", "updatedInput": updated})
        else:
            self._deny(request_id, call_id, permission.reason or "this was not allowed")

    def _deny(self, request_id: str, call_id: str, reason: str) -> None:
        self._turn.refused.add(call_id)
        self._answer(request_id, {"behavior": "deny", "message": reason})

    def _answer(self, request_id: str, decision: dict[str, Any]) -> None:
        self._respond({"subtype": "success", "request_id": request_id, "response": decision})

    def _respond(self, response: dict[str, Any]) -> None:
        message = {"type": "control_response", "response": response}
        self._child.feed(json.dumps(message).encode() + b"\n")

    async def _request(self, request: dict[str, Any]) -> None:
        number = f"agentsup-{next(self._numbers)}"
        await self._send({"type": "control_request", "request_id": number, "request": request})

    async def _send(self, message: dict[str, Any]) -> None:
        # Escaped to ASCII: a lone surrogate in a prompt can't break the stream.
        await self._child.write(json.dumps(message).encode() + b"\n")
