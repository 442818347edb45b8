"""A model for real command line agents, on the loopback: four ways to stream an answer.

Unlike ``model_server`` it is lenient: what real programs send beside their turns (titles, token
counts, lists of models) is answered with something harmless. What it says is decided by the last
message that a person wrote, wherever it stands in what the program made of it:

    SAY(some words)             those words, one delta each
    SLOW(some words)            the same, half a second apart
    WRITE(name)                 a call of the program's own tool that writes a file, then a word
    RUN(command)                a call of the program's own tool that runs a command, then a word
    USE(name {"key": "value"})  a call of the offered tool whose name ends so, then a word

    async with CliModel() as model:
        ...  # programs that talk to model.url
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.support.model_server import (
    Asked,
    Call,
    Dialect,
    Reply,
    _anthropic_document,
    _anthropic_events,
    _openai_document,
    _openai_events,
)

_ORDER = re.compile(r"\b(SAY|SLOW|WRITE|RUN|USE)\(([^)]*)\)")
_WRITERS = {"write_file": "file_path", "write": "filePath", "Write": "file_path"}
"""Tools of known programs that write a file, with the name of their path argument."""
_RUNNERS = {"run_shell_command": "command", "bash": "command", "Bash": "command"}
"""Tools of known programs that run a command, with the name of its argument."""
_RUNNER = "exec_command"
"""Codex writes by commands, in a sandbox that it asks to leave."""
_OUT_OF_THE_SANDBOX = {"sandbox_permissions": "require_escalated", "justification": "to write it"}


@dataclass(frozen=True, slots=True)
class Said:
    """One entry of a conversation: who, what, and whether it is the result of a call."""

    role: str
    text: str
    is_result: bool = False


class CliModel:
    """Serves Anthropic messages, OpenAI chat completions and responses, Gemini's generateContent."""

    def __init__(self) -> None:
        self._runner: web.AppRunner | None = None
        self.port = 0
        self.orders: list[str] = []
        """What was ordered, turn by turn, calls' results not counted."""
        self.last_heard = ""
        """Everything that was in the last request with an order."""
        self._ordered = asyncio.Event()
        self.strange: list[str] = []
        """Paths that were asked for and are not served."""
        self.disconnects = 0
        self._answers = 0

    @property
    def url(self) -> str:
        """The address without any path."""
        return f"http://127.0.0.1:{self.port}"

    async def wait_order(self) -> None:
        """Return at the next order."""
        self._ordered.clear()
        await self._ordered.wait()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._openai)
        app.router.add_post("/v1/responses", self._responses)
        app.router.add_post("/v1/messages", self._anthropic)
        app.router.add_post("/v1/messages/count_tokens", self._count)
        app.router.add_post("/{version}/models/{call}", self._gemini)
        app.router.add_route("*", "/{rest:.*}", self._other)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.2
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    # -- requests ----------------------------------------------------------------------------------

    async def _other(self, request: web.Request) -> web.Response:
        self.strange.append(f"{request.method} {request.path}")
        return web.json_response({"error": {"message": "not served"}}, status=404)

    async def _count(self, request: web.Request) -> web.Response:
        return web.json_response({"input_tokens": 11})

    async def _openai(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        offered = [tool.get("function", {}).get("name", "") for tool in body.get("tools") or ()]
        reply = self._reply(_chat_entries(body.get("messages", [])), offered, json.dumps(body))
        return await self._answer("openai", request, body, reply)

    async def _anthropic(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        offered = [tool.get("name", "") for tool in body.get("tools") or ()]
        reply = self._reply(_chat_entries(body.get("messages", [])), offered, json.dumps(body))
        return await self._answer("anthropic", request, body, reply)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        offered = [name for tool in body.get("tools") or () for name in _names_in(tool)]
        reply = self._reply(_response_entries(body.get("input", [])), offered, json.dumps(body))
        return await self._stream(request, _response_events(reply), reply.every_s)

    async def _answer(
        self, dialect: Dialect, request: web.Request, body: dict[str, Any], reply: Reply
    ) -> web.StreamResponse:
        asked = Asked(dialect, request.path, {}, body)
        if not body.get("stream"):
            make = _openai_document if dialect == "openai" else _anthropic_document
            return web.json_response(make(asked, reply))
        events = (_openai_events if dialect == "openai" else _anthropic_events)(asked, reply)
        return await self._stream(request, events, reply.every_s)

    async def _gemini(self, request: web.Request) -> web.StreamResponse:
        kind = request.match_info["call"].rpartition(":")[2]
        body = await request.json()
        if kind == "countTokens":
            return web.json_response({"totalTokens": 11})
        declared = [each.get("functionDeclarations") or () for each in body.get("tools") or ()]
        offered = [function.get("name", "") for group in declared for function in group]
        wants_json = "json" in str((body.get("generationConfig") or {}).get("responseMimeType"))
        reply = self._reply(_gemini_entries(body.get("contents", [])), offered, json.dumps(body))
        if wants_json:
            reply = Reply("{}")
        if kind != "streamGenerateContent":
            parts = [part for chunk in _gemini_chunks(reply) for part in chunk]
            return web.json_response(_gemini_document(parts, is_last=True))
        return await self._stream(request, _gemini_events(reply), reply.every_s)

    async def _stream(
        self, request: web.Request, events: AsyncIterator[tuple[bytes, bool]], every_s: float
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        self._answers += 1
        number = self._answers
        try:
            await response.prepare(request)
            sent = 0
            async for chunk, is_delta in events:
                if is_delta and sent and every_s:
                    await asyncio.sleep(every_s)
                # Claude Code takes messages of one id for pieces of one message.
                await response.write(chunk.replace(b'"msg_scripted"', b'"msg_%d"' % number))
                sent += is_delta
            await response.write_eof()
        except (asyncio.CancelledError, ConnectionError):
            self.disconnects += 1
            raise
        return response

    # -- what it says ------------------------------------------------------------------------------

    def _reply(self, entries: list[Said], offered: list[str], body_text: str) -> Reply:
        """The last order of a person; after the result of a call, what that said."""
        word, argument, result = "", "", None
        for each in entries:
            if each.is_result:
                result = each.text
            elif found := _ORDER.findall(each.text):
                (word, argument), result = found[-1], None
        if result is not None:
            return Reply(f"it said: {result[:200]}")
        if not word:
            return Reply("nothing was ordered")
        self.orders.append(f"{word}({argument})")
        self.last_heard = body_text
        self._ordered.set()
        if word == "USE":
            wanted, _, given = argument.partition(" ")
            tool = next((name for name in offered if name.endswith(wanted)), "")
            if not tool:
                return Reply(f"no tool {wanted} among {offered}")
            # The order may stand in JSON, its quotes escaped.
            args = json.loads(given.replace('\\"', '"') or "{}")
            return Reply(calls=(Call(tool, args, f"call_{len(self.orders)}"),))
        if word == "RUN":
            tool = next((name for name in offered if name in (*_RUNNERS, _RUNNER)), "")
            if not tool:
                return Reply(f"no tool to run with among {offered}")
            args = {"cmd": argument, **_OUT_OF_THE_SANDBOX}
            if tool != _RUNNER:
                args = {_RUNNERS[tool]: argument, "description": "as it was ordered"}
            return Reply(calls=(Call(tool, args, f"call_{len(self.orders)}"),))
        if word == "WRITE":
            tool = next((name for name in offered if name in (*_WRITERS, _RUNNER)), "")
            if not tool:
                return Reply(f"no tool to write with among {offered}")
            if tool == _RUNNER:
                command = f"echo written > {shlex.quote(argument)}"
                args = {"cmd": command, **_OUT_OF_THE_SANDBOX}
            else:
                args = {_WRITERS[tool]: str(Path(argument)), "content": "written\n"}
            # An id that came before would be taken for the earlier call.
            return Reply(calls=(Call(tool, args, f"call_{len(self.orders)}"),))
        words = tuple(f"{each} " for each in argument.split())
        return Reply(words, every_s=0.5 if word == "SLOW" else 0.0)


def _chat_entries(messages: list[dict[str, Any]]) -> list[Said]:
    """OpenAI's and Anthropic's messages; only what people and calls said."""
    entries = []
    for message in messages:
        role, content = str(message.get("role")), message.get("content")
        if role not in {"user", "tool"}:
            continue
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        for block in blocks:
            is_result = role == "tool" or block.get("type") == "tool_result"
            inner = block.get("text") or block.get("content") or ""
            text = inner if isinstance(inner, str) else json.dumps(inner)
            entries.append(Said(role, text, is_result))
    return entries


def _names_in(tool: dict[str, Any]) -> list[str]:
    """The functions of a tool; those of a namespace with it before a slash."""
    name = str(tool.get("name", ""))
    if tool.get("type") != "namespace":
        return [name]
    return [f"{name}/{inner.get('name', '')}" for inner in tool.get("tools") or ()]


def _response_entries(items: list[dict[str, Any]]) -> list[Said]:
    """What people and calls said, of OpenAI's responses."""
    entries = []
    for item in items:
        if item.get("type") in {"function_call_output", "custom_tool_call_output"}:
            output = item.get("output")
            text = output if isinstance(output, str) else json.dumps(output)
            entries.append(Said("tool", text, is_result=True))
        elif item.get("role") == "user":
            content = item.get("content")
            blocks = content if isinstance(content, list) else [{"text": content}]
            entries += [Said("user", str(block.get("text") or "")) for block in blocks]
    return entries


async def _response_events(reply: Reply) -> AsyncIterator[tuple[bytes, bool]]:
    """One message or the calls, as events of OpenAI's responses."""

    def event(kind: str, **more: Any) -> bytes:
        data = json.dumps({"type": kind, **more})
        return f"event: {kind}\ndata: {data}\n\n".encode()

    yield event("response.created", response={"id": "resp_scripted"}), False
    text = "".join(reply.deltas)
    message: dict[str, Any] = {"type": "message", "id": "msg_scripted", "role": "assistant"}
    if text:
        empty = message | {"content": [], "status": "in_progress"}
        yield event("response.output_item.added", output_index=0, item=empty), False
        place = {"item_id": "msg_scripted", "output_index": 0, "content_index": 0}
        for delta in reply.deltas:
            yield event("response.output_text.delta", delta=delta, **place), True
        whole = message | {"content": [{"type": "output_text", "text": text}]}
        yield event("response.output_item.done", output_index=0, item=whole), False
    for index, call in enumerate(reply.calls):
        namespace, _, name = call.name.rpartition("/")
        item = {
            "type": "function_call",
            "id": f"fc_{call.call_id}",
            "call_id": call.call_id,
            "name": name,
            "arguments": json.dumps(call.args),
            **({"namespace": namespace} if namespace else {}),
        }
        yield event("response.output_item.done", output_index=index, item=item), True
    usage = {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }
    yield event("response.completed", response={"id": "resp_scripted", "usage": usage}), False


def _gemini_entries(contents: list[dict[str, Any]]) -> list[Said]:
    entries = []
    for content in contents:
        for part in content.get("parts", []) if content.get("role") != "model" else ():
            result = part.get("functionResponse")
            text = json.dumps(result["response"]) if result else str(part.get("text", ""))
            entries.append(Said("user", text, is_result=bool(result)))
    return entries


def _gemini_chunks(reply: Reply) -> list[list[dict[str, Any]]]:
    """The parts of each chunk."""
    calls = [{"functionCall": {"name": call.name, "args": call.args}} for call in reply.calls]
    return [*([{"text": text}] for text in reply.deltas), *([call] for call in calls)]


def _gemini_document(parts: list[dict[str, Any]], *, is_last: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    document: dict[str, Any] = {"candidates": [candidate], "modelVersion": "scripted"}
    if is_last:
        candidate["finishReason"] = "STOP"
        document["usageMetadata"] = {
            "promptTokenCount": 11,
            "candidatesTokenCount": 7,
            "totalTokenCount": 18,
        }
    return document


async def _gemini_events(reply: Reply) -> AsyncIterator[tuple[bytes, bool]]:
    chunks = _gemini_chunks(reply)
    for index, parts in enumerate(chunks):
        document = _gemini_document(parts, is_last=index == len(chunks) - 1)
        yield b"data: " + json.dumps(document).encode() + b"\r\n\r\n", True
