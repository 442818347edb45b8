"""``/mcp``: the running turn's tools for the program of its engine, by the Model Context Protocol.

Each request is one message, each answer one JSON document. Nothing is pushed, so there are no MCP
sessions and no streams. The token is the turn's, so a program may call what its agent may, as long
as the turn lasts. Every call goes through the turn's pipeline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal

from aiohttp import web
from pydantic import ConfigDict, Field

from agentsup.agents.turn import TurnEndpoint
from agentsup.api.documents.bodies import Body
from agentsup.api.documents.document import Document
from agentsup.api.http.access import Access, shown_token
from agentsup.api.http.route import Call, post, reply
from agentsup.model.errors import AgentsupError, BadRequest, NotReady, Unauthorised
from agentsup.model.tool import OUR_MCP_SERVER, Effect, Safety, Tool
from agentsup.model.tool_names import by_wire_name, wire_name

VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26")
"""Supported versions of the protocol, newest first."""

_METHOD_NOT_FOUND = -32601
_INVALID_PARAMS = -32602
_VERSION_HEADER = "MCP-Protocol-Version"


class RpcBody(Body):
    """A JSON-RPC message: a request, or with no `id` a notification, or an answer of the client's."""

    model_config = ConfigDict(strict=True, extra="ignore")
    jsonrpc: Literal["2.0"]
    id: Annotated[int | str | None, Field(description="absent in a notification")] = None
    method: Annotated[str | None, Field(max_length=200)] = None
    params: dict[str, Any] | None = None


class RpcReply(Document):
    """A JSON-RPC answer: `result`, or `error` with `code` and `message`."""

    jsonrpc: Literal["2.0"]
    id: int | str
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class _Refused(Exception):
    """Ends a request with an error of JSON-RPC, with this ``code`` and ``message``."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.document = {"code": code, "message": message}


_post = partial(
    post,
    answers={200: RpcReply, 202: "text/plain"},
    access=Access.RUN,
    refusals=(429,),
    headers={_VERSION_HEADER: f"one of {', '.join(VERSIONS)}"},
)


@_post("/mcp")
async def exchange(call: Call, body: RpcBody) -> web.StreamResponse | Document:
    """The running turn's tools, by the Model Context Protocol."""
    turn = _turn(call)
    params = body.params or {}
    if "id" not in body.model_fields_set or body.method is None:
        if body.method == "notifications/cancelled":
            turn.cancel(_key(params.get("requestId")))
        return web.Response(status=202)
    if body.id is None:
        raise BadRequest("field 'id': a request's id is a number or a text", field="id")
    if body.method != "initialize":
        _check_version(call.request.headers)
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": body.id}
    try:
        method = _METHODS.get(body.method)
        if method is None:
            raise _Refused(_METHOD_NOT_FOUND, f"there is no method {body.method!r} here")
        answer["result"] = await method(call, turn, body)
    except _Refused as refused:
        answer["error"] = refused.document
    return reply(answer)


@_post("/mcp/{token}")
async def exchange_by_path(call: Call, body: RpcBody) -> web.StreamResponse | Document:
    """The same with the token in the path, for programs that can't send a header."""
    return await exchange(call, body)


def _turn(call: Call) -> TurnEndpoint:
    token = shown_token(call.request.path, call.request.headers)
    turn = call.deps.served(token or "")
    if turn is None:
        raise Unauthorised("the turn that this token was made for has ended")
    return turn


def _check_version(headers: Mapping[str, str]) -> None:
    version = headers.get(_VERSION_HEADER)
    if version is not None and version not in VERSIONS:
        raise BadRequest(
            f"{_VERSION_HEADER} {version[:40]!r} is not spoken here, only {', '.join(VERSIONS)}",
            field=_VERSION_HEADER,
        )


def _key(request_id: Any) -> str:
    """The request's id as a key. It includes the type, so that "1" and 1 differ."""
    return f"{type(request_id).__name__}:{request_id}"


# -- methods ---------------------------------------------------------------------------------------


async def _initialize(call: Call, turn: TurnEndpoint, body: RpcBody) -> dict[str, Any]:
    wanted = (body.params or {}).get("protocolVersion")
    return {
        "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": OUR_MCP_SERVER, "version": call.deps.version},
        "instructions": (
            f"What you are given here as the agent {call.by.name}: other agents, memory, and what "
            "else your operator allows. A call that needs a person's approval waits for it."
        ),
    }


async def _ping(call: Call, turn: TurnEndpoint, body: RpcBody) -> dict[str, Any]:
    return {}


async def _list(call: Call, turn: TurnEndpoint, body: RpcBody) -> dict[str, Any]:
    if (body.params or {}).get("cursor") is not None:
        raise _Refused(_INVALID_PARAMS, "the list has one page; there is no cursor for another")
    return {"tools": [_shown(tool) for tool in turn.tools()]}


def _shown(tool: Tool) -> dict[str, Any]:
    return {
        "name": wire_name(tool.name),
        "description": tool.description,
        "inputSchema": tool.schema,
        "annotations": {
            "readOnlyHint": tool.effect is Effect.READ,
            "destructiveHint": tool.effect is not Effect.READ and tool.safety is Safety.DANGEROUS,
            "idempotentHint": tool.effect in (Effect.READ, Effect.IDEMPOTENT),
            "openWorldHint": tool.is_outside,
        },
    }


async def _call(call: Call, turn: TurnEndpoint, body: RpcBody) -> dict[str, Any]:
    params = body.params or {}
    name, args = params.get("name"), params.get("arguments")
    if not isinstance(name, str) or not name:
        raise _Refused(_INVALID_PARAMS, "params.name must be the name of a tool")
    if args is not None and not isinstance(args, dict):
        raise _Refused(_INVALID_PARAMS, "params.arguments must be an object")
    names = by_wire_name(tool.name for tool in turn.tools())
    try:
        result = await call.api.connections.wait(
            lambda: turn.call(names.get(name, name), args or {}, _key(body.id)), name="mcp"
        )
    except (Unauthorised, NotReady):
        raise
    except AgentsupError as error:
        # The turn gets the error too, and ends with it; the model reads the reason.
        return _result(f"the call could not be made: {error.message}", ok=False)
    return _result(result.text, ok=result.ok)


def _result(text: str, *, ok: bool) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": not ok}


_METHODS: Mapping[str, Callable[[Call, TurnEndpoint, RpcBody], Awaitable[dict[str, Any]]]] = {
    "initialize": _initialize,
    "ping": _ping,
    "tools/list": _list,
    "tools/call": _call,
}
