"""The dialogue with a running Claude: its prompt, its permission requests, its interruption."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from agentsup.engines.claude.arguments import ClaudeSessionId
from agentsup.engines.claude.stream import ALIVE, ClaudeTurnState, read_line
from agentsup.engines.clean import as_dict
from agentsup.engines.failures import Permanent
from agentsup.engines.process import EngineProcess
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner, time_limit
from agentsup.model.engine import EngineEvent, EngineHost, PermissionRequest, Picture, Segment
from agentsup.model.errors import AgentsupError

_log = get_logger(__name__)

_INTERRUPT_S = 0.15
"""Seconds that an interrupted turn may take to report its cost."""
_CLOSE_S = 0.2
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


class Dialogue:
    """One prompt and everything until its result. Close it in any case."""

    def __init__(self, child: EngineProcess, host: EngineHost, turn: ClaudeTurnState) -> None:
        self._child = child
        self._host = host
        self._turn = turn
        self._numbers = itertools.count(1)
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._owner = TaskOwner("claude permissions")

    async def talk(
        self, system: str, prompt: str, pictures: Sequence[Picture] = ()
    ) -> AsyncGenerator[EngineEvent]:
        """Send the prompt and yield the events until the result, or the end of the output."""
        greeting: dict[str, Any] = {"subtype": "initialize"}
        if system:
            greeting["appendSystemPrompt"] = system
        await self._request(greeting)
        content: list[dict[str, Any]] = [{"type": "text", "text": prompt}]
        for each in pictures:
            data = base64.b64encode(each.data).decode()
            source = {"type": "base64", "media_type": "image/jpeg", "data": data}
            content.append({"type": "image", "source": source})
        await self._send({"type": "user", "message": {"role": "user", "content": content}})
        async with aclosing(self._child.lines()) as lines:
            async for line in lines:
                for event in self._hear(line):
                    yield event
                if self._turn.result is not None:
                    return

    async def interrupt(self) -> list[EngineEvent]:
        """Ask Claude to stop its turn; return the events that it sends within a moment."""
        events: list[EngineEvent] = []
        try:
            async with time_limit(_INTERRUPT_S):
                await self._request({"subtype": "interrupt"})
                async with aclosing(self._child.lines()) as lines:
                    async for line in lines:
                        message = read_line(line)
                        events += self._turn.hear(message) if message else []
                        if self._turn.result is not None:
                            break
        except (TimeoutError, AgentsupError):
            pass  # it is ended by force next
        return events

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
