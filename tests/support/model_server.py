"""A model provider on the loopback: OpenAI chat completions and Anthropic messages, scripted.

It is strict: a request that a real provider would refuse (no key, no model, a tool result without
its call) is answered 400 and kept in ``violations``. It records what it was asked and notices when
a client goes away.

    async with ModelServer([Reply("Hello")]) as server:
        ...  # a client of server.base_url
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Literal, Self

from aiohttp import web

Dialect = Literal["openai", "anthropic"]
HANGS: Final = object()
"""In the place of a document: the server never answers."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that the model makes."""

    name: str
    args: dict[str, Any] = field(default_factory=dict)
    call_id: str = ""
    raw_args: str | None = None
    """Sent instead of ``args``, to be wrong on purpose."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. ``text`` is sent as one delta, or as many as it has items, ``every_s`` apart.

    ``status`` other than 200 sends an error document instead. ``hang_after`` and ``cut_after`` are
    numbers of deltas after which nothing more comes, or the connection is torn down.
    """

    text: str | tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    every_s: float = 0.0
    input_tokens: int = 11
    output_tokens: int = 7
    status: int = 200
    error: str = "scripted failure"
    error_code: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    hang_after: int | None = None
    cut_after: int | None = None
    finish: str | None = ""
    """The provider's word for the end, instead of the usual one; None: it says none."""
    has_usage: bool = True
    """Whether the usage of the whole comes after the answer."""
    cache_read: int = 0
    cache_write: int = 0
    """Of ``input_tokens``, those of the provider's cache."""
    same_index: bool = False
    """Whether all calls of the message have the index 0, as some servers send them."""
    call_pieces: int = 1
    """In how many deltas the arguments of a call come."""
    chunks: tuple[dict[str, Any] | str, ...] = ()
    """Of OpenAI's dialect: sent in place of the answer; a text as it stands, an object as a chunk."""

    @property
    def deltas(self) -> tuple[str, ...]:
        if isinstance(self.text, str):
            return (self.text,) if self.text else ()
        return self.text


@dataclass(frozen=True, slots=True)
class Asked:
    """One recorded request."""

    dialect: Dialect
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: dict[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.body.get("messages", [])
        return messages


def without_time(text: str) -> str:
    """A message as it was said: each turn adds the time."""
    return text.partition("\n\n[Now: ")[0]


Script = Sequence[Reply] | Callable[[Asked], Reply]


class ModelServer:
    """Serves ``script``: replies in order, or a function from the request to the reply."""

    def __init__(
        self,
        script: Script = (),
        *,
        models: Sequence[str] = (),
        key: str = "",
        documents: Mapping[str, Any] | None = None,
    ) -> None:
        """``models``: the only ones that it has, which it lists; ``key``: the only one it accepts;
        ``documents``: what else it serves, by path."""
        self.documents = dict(documents or {})
        self.read: list[str] = []
        """The paths of the documents that were asked for."""
        self._choose: Callable[[Asked], Reply] | None = script if callable(script) else None
        self._replies: list[Reply] = [] if callable(script) else list(script)
        self.models, self._key = tuple(models), key
        self.lists = 0
        """How often the list of models was asked for."""
        self._runner: web.AppRunner | None = None
        self._is_closing = False
        self._changed = asyncio.Event()
        self.asked: list[Asked] = []
        self.violations: list[str] = []
        self.disconnects = 0
        self.port = 0

    @property
    def base_url(self) -> str:
        """For OpenAI clients."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def anthropic_url(self) -> str:
        """For Anthropic clients, which add ``/v1`` themselves."""
        return f"http://127.0.0.1:{self.port}"

    def add(self, *replies: Reply) -> None:
        """Append to the script."""
        self._replies.extend(replies)

    async def wait_asked(self, count: int) -> None:
        """Return once ``count`` requests have come in."""
        await self._until(lambda: len(self.asked) >= count)

    async def wait_read(self, path: str) -> None:
        """Return once the document at ``path`` was asked for."""
        await self._until(lambda: path in self.read)

    async def wait_disconnects(self, count: int) -> None:
        """Return once ``count`` clients went away before their answer was complete."""
        await self._until(lambda: self.disconnects >= count)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._openai)
        app.router.add_post("/v1/messages", self._anthropic)
        app.router.add_get("/v1/models", self._listed)
        app.router.add_route("*", "/{rest:.*}", self._document)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.2
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_closing = True
        if self._runner is not None:
            await self._runner.cleanup()

    # -- inside ------------------------------------------------------------------------------------

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def _listed(self, request: web.Request) -> web.StreamResponse:
        dialect: Dialect = "anthropic" if "anthropic-version" in request.headers else "openai"
        self.lists += 1
        if refused := self._key_refused(dialect, request.headers):
            return refused
        if "/v1/models" in self.documents:
            return await self._document(request)
        return web.json_response({"object": "list", "data": [{"id": name} for name in self.models]})

    async def _document(self, request: web.Request) -> web.StreamResponse:
        self.read.append(request.path)
        self._changed.set()
        found = self.documents.get(request.path)
        if found is None:
            raise web.HTTPNotFound
        if found is HANGS:
            await asyncio.Event().wait()
        return web.json_response(found)

    def _key_refused(self, dialect: Dialect, headers: Mapping[str, str]) -> web.Response | None:
        """As real providers do it, with the key in the refusal."""
        given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if not self._key or given == self._key:
            return None
        return _error(dialect, Reply(status=401, error=f"Incorrect API key provided: {given}"))

    async def _openai(self, request: web.Request) -> web.StreamResponse:
        return await self._serve("openai", request)

    async def _anthropic(self, request: web.Request) -> web.StreamResponse:
        return await self._serve("anthropic", request)

    async def _serve(self, dialect: Dialect, request: web.Request) -> web.StreamResponse:
        asked = Asked(
            dialect,
            request.path,
            {k.lower(): v for k, v in request.headers.items()},
            await request.json(),
        )
        self.asked.append(asked)
        self._changed.set()
        found = next(iter(_faults(asked)), None)
        if found is not None:
            self.violations.append(found)
            return _error(dialect, Reply(status=400, error=found))
        if refused := self._key_refused(dialect, asked.headers):
            return refused
        if self.models and asked.body["model"] not in self.models:
            return _error(
                dialect, Reply(status=404, error="no such model", error_code="model_not_found")
            )
        if self._choose is not None:
            reply = self._choose(asked)
        elif self._replies:
            reply = self._replies.pop(0)
        else:
            self.violations.append("a request came after the end of the script")
            reply = Reply(status=500, error="the script is at its end")
        if reply.status != 200:
            return _error(dialect, reply)
        try:
            if asked.body.get("stream"):
                return await self._stream(dialect, asked, reply, request)
            await self._pauses(reply)
            make = _openai_document if dialect == "openai" else _anthropic_document
            return web.json_response(make(asked, reply))
        except (asyncio.CancelledError, ConnectionError):
            if not self._is_closing:
                self.disconnects += 1
                self._changed.set()
            raise

    async def _pauses(self, reply: Reply) -> None:
        if reply.hang_after is not None:
            await asyncio.Event().wait()
        await asyncio.sleep(reply.every_s * max(0, len(reply.deltas) - 1))

    async def _stream(
        self, dialect: Dialect, asked: Asked, reply: Reply, request: web.Request
    ) -> web.StreamResponse:
        if reply.hang_after == 0:
            await asyncio.Event().wait()
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        await response.prepare(request)
        make = _openai_events if dialect == "openai" else _anthropic_events
        sent = 0
        async for chunk, is_delta in make(asked, reply):
            if is_delta and reply.cut_after == sent:
                assert request.transport is not None
                request.transport.abort()
                return response
            if is_delta and reply.hang_after == sent:
                await asyncio.Event().wait()
            if is_delta and sent and reply.every_s:
                await asyncio.sleep(reply.every_s)
            await response.write(chunk)
            sent += is_delta
        await response.write_eof()
        return response


# -- what is refused -----------------------------------------------------------------------------------


def _faults(asked: Asked) -> Iterable[str]:
    """What a real provider would refuse about this request."""
    body = asked.body
    key = asked.headers.get("authorization", "").removeprefix("Bearer ")
    if asked.dialect == "anthropic":
        # Its clients moved from the one header to the other; both are taken.
        key = key or asked.headers.get("x-api-key", "")
    if not key:
        yield "no API key in the headers"
    if not body.get("model"):
        yield "model is missing"
    if not asked.messages:
        yield "messages is empty"
    if asked.dialect == "anthropic" and not body.get("max_tokens"):
        yield "max_tokens is missing"
    names = [_tool_name(tool) for tool in body.get("tools", [])]
    if len(names) != len(set(names)):
        yield f"tools have the same name: {names}"
    if asked.dialect == "openai" and len(names) > 128:
        yield "Invalid 'tools': array too long, maximum 128"
    for tool in body.get("tools", []):
        schema = tool.get("function", tool).get("parameters", tool.get("input_schema", {}))
        if {"oneOf", "anyOf", "allOf", "enum", "not"} & set(schema) or schema.get(
            "type"
        ) != "object":
            yield f"Invalid schema for function '{_tool_name(tool)}'"
    yield from (_openai_order if asked.dialect == "openai" else _anthropic_order)(asked.messages)


def _tool_name(tool: dict[str, Any]) -> str:
    name: str = tool.get("function", tool).get("name", "")
    return name


def _openai_order(messages: list[dict[str, Any]]) -> Iterable[str]:
    """Each tool call is answered at once, by exactly one tool message."""
    waiting: list[str] = []
    for message in messages:
        role = message.get("role")
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                yield f"tool message for {message.get('tool_call_id')!r} without a call before it"
            else:
                waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            yield f"tool calls {waiting} have no result"
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
        if role == "assistant" and not waiting and not str(message.get("content") or "").strip():
            yield "text content must be non-empty"
        if role not in {"system", "developer", "user", "assistant"}:
            yield f"unknown role {role!r}"
    if waiting:
        yield f"tool calls {waiting} have no result"


def _anthropic_order(messages: list[dict[str, Any]]) -> Iterable[str]:
    """Roles are user and assistant; the message after a tool_use begins with its results."""
    waiting: set[str] = set()
    for message in messages:
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        results = {b["tool_use_id"] for b in blocks if b.get("type") == "tool_result"}
        if results != waiting:
            yield f"tool results {sorted(results)} do not answer the calls {sorted(waiting)}"
        waiting = {b["id"] for b in blocks if b.get("type") == "tool_use"}
        texts = [b["text"] for b in blocks if b.get("type") == "text"] or [content or ""]
        if any(isinstance(text, str) and not text.strip() for text in texts) and not waiting:
            yield "text content blocks must be non-empty"
        if message.get("role") not in {"user", "assistant"}:
            yield f"unknown role {message.get('role')!r}"


def _error(dialect: Dialect, reply: Reply) -> web.Response:
    kinds = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
    kind = kinds.get(reply.status, "api_error")
    detail: dict[str, Any] = {"message": reply.error, "type": kind}
    if dialect == "openai":
        detail |= {"code": reply.error_code or None, "param": None}
        document: dict[str, Any] = {"error": detail}
    else:
        document = {"type": "error", "error": detail}
    return web.json_response(document, status=reply.status, headers=dict(reply.headers))


# -- OpenAI ----------------------------------------------------------------------------------------


def _call_id(call: Call, index: int, asked: Asked) -> str:
    return call.call_id or f"call_{len(asked.messages)}_{index}"


def _arguments(call: Call) -> str:
    return call.raw_args if call.raw_args is not None else json.dumps(call.args)


def _openai_calls(asked: Asked, reply: Reply) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "id": _call_id(call, index, asked),
            "type": "function",
            "function": {"name": call.name, "arguments": _arguments(call)},
        }
        for index, call in enumerate(reply.calls)
    ]


def _openai_usage(reply: Reply) -> dict[str, Any]:
    total = reply.input_tokens + reply.output_tokens
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": total,
        "prompt_tokens_details": {"cached_tokens": reply.cache_read},
    }


def _openai_document(asked: Asked, reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(reply.deltas) or None}
    if reply.calls:
        message["tool_calls"] = _openai_calls(asked, reply)
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": reply.finish or ("tool_calls" if reply.calls else "stop"),
        "logprobs": None,
    }
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1_800_000_000,
        "model": asked.body["model"],
        "choices": [choice],
        "usage": _openai_usage(reply),
    }


async def _openai_events(asked: Asked, reply: Reply) -> AsyncIterator[tuple[bytes, bool]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return _openai_sse(asked, {"choices": [choice]})

    for each in reply.chunks:
        yield (each.encode() if isinstance(each, str) else _openai_sse(asked, each)), False
    if reply.chunks:
        return
    yield chunk({"role": "assistant", "content": ""}), False
    for text in reply.deltas:
        yield chunk({"content": text}), True
    for call in _openai_calls(asked, reply):
        for piece in _openai_pieces(call, reply):
            yield chunk({"tool_calls": [piece]}), True
    if not reply.deltas and not reply.calls and (reply.cut_after, reply.hang_after) != (None, None):
        yield b"", True
    if reply.finish is not None:
        yield chunk({}, reply.finish or ("tool_calls" if reply.calls else "stop")), False
    if reply.has_usage and (asked.body.get("stream_options") or {}).get("include_usage"):
        yield _openai_sse(asked, {"choices": [], "usage": _openai_usage(reply)}), False
    yield b"data: [DONE]\n\n", False


def _openai_pieces(call: dict[str, Any], reply: Reply) -> Iterable[dict[str, Any]]:
    """The deltas of one call: id and name come with the first."""
    index = 0 if reply.same_index else call["index"]
    arguments = call["function"]["arguments"]
    size = max(1, -(-len(arguments) // reply.call_pieces))
    for at in range(0, max(1, len(arguments)), size):
        if not at:
            function = {**call["function"], "arguments": arguments[:size]}
            yield {**call, "index": index, "function": function}
        else:
            yield {"index": index, "function": {"arguments": arguments[at : at + size]}}


def _openai_sse(asked: Asked, more: dict[str, Any]) -> bytes:
    data = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 1_800_000_000,
        "model": asked.body["model"],
        **more,
    }
    return b"data: " + json.dumps(data).encode() + b"\n\n"


# -- Anthropic -------------------------------------------------------------------------------------


def _anthropic_content(asked: Asked, reply: Reply) -> list[dict[str, Any]]:
    text = "".join(reply.deltas)
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [
        {
            "type": "tool_use",
            "id": _call_id(call, index, asked),
            "name": call.name,
            "input": call.args,
        }
        for index, call in enumerate(reply.calls)
    ]
    return blocks


def _anthropic_document(asked: Asked, reply: Reply) -> dict[str, Any]:
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": asked.body["model"],
        "content": _anthropic_content(asked, reply),
        "stop_reason": "tool_use" if reply.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens},
    }


async def _anthropic_events(asked: Asked, reply: Reply) -> AsyncIterator[tuple[bytes, bool]]:
    def event(kind: str, **data: Any) -> bytes:
        body = json.dumps({"type": kind, **data})
        return f"event: {kind}\ndata: {body}\n\n".encode()

    start = _anthropic_document(asked, reply) | {"content": [], "stop_reason": None}
    cached = {
        "cache_read_input_tokens": reply.cache_read,
        "cache_creation_input_tokens": reply.cache_write,
    }
    fresh = reply.input_tokens - reply.cache_read - reply.cache_write
    start["usage"] = {"input_tokens": fresh, "output_tokens": 1, **cached}
    yield event("message_start", message=start), False
    index = 0
    if reply.deltas:
        empty = {"type": "text", "text": ""}
        yield event("content_block_start", index=index, content_block=empty), False
        for text in reply.deltas:
            delta = {"type": "text_delta", "text": text}
            yield event("content_block_delta", index=index, delta=delta), True
        yield event("content_block_stop", index=index), False
        index += 1
    for block in (b for b in _anthropic_content(asked, reply) if b["type"] == "tool_use"):
        opened: dict[str, Any] = {**block, "input": {}}
        yield event("content_block_start", index=index, content_block=opened), False
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield event("content_block_delta", index=index, delta=delta), True
        yield event("content_block_stop", index=index), False
        index += 1
    reason = reply.finish or ("tool_use" if reply.calls else "end_turn")
    usage = {"output_tokens": reply.output_tokens}
    if reply.finish is not None:
        end = {"stop_reason": reason, "stop_sequence": None}
        yield event("message_delta", delta=end, usage=usage), False
    yield event("message_stop"), False
