"""Requests and answers of tool servers where the MCP library's view is not ours. For ``wire`` only.

The library turns a status of HTTP into an error that looks like the server's own, and it refuses a
whole page of tools or a whole result for one part that is malformed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpx2
import mcp_types as types
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types.methods import validate_server_result
from pydantic import TypeAdapter, ValidationError

from agentsup.agents.mcp.failures import NotSignedIn, ServerUnavailable, SessionGone
from agentsup.agents.mcp.offered import MAX_LISTED, Hints, ListedTool, clean, joined, readable
from agentsup.kit.outbound.httpx_client import BoundedClient
from agentsup.kit.outbound.limits import exceeded
from agentsup.kit.tasks import CooperativeYield

GONE = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
"""Statuses with which servers refuse a session that they do not know."""
_ERROR_CHARS = 2_000


def begun(result: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to ``initialize``: what a server need not say about itself is filled in."""
    info = result.get("serverInfo")
    given = info if isinstance(info, dict) else {}
    texts = {key: value for key, value in given.items() if isinstance(value, str)}
    made = {**result, "serverInfo": {"name": "unnamed", "version": "unknown", **texts}}
    if not isinstance(result.get("capabilities"), dict):
        made["capabilities"] = {}
    return made


def called(result: Mapping[str, Any], is_block: Callable[[Any], bool]) -> dict[str, Any]:
    """The result of a call, whose work is done: a part that can't be read costs itself.

    ``is_block`` says whether a part is one that the library reads.
    """
    if result.get("resultType", "complete") != "complete" or "task" in result:
        return dict(result)  # a form of its own, which the library judges
    content = result.get("content")
    if isinstance(content, str | dict):
        content = [content]
    elif content is None and result:
        content = [] if "structuredContent" in result else [dict(result)]
    if not isinstance(content, list):
        return dict(result)
    made = {**result, "content": [each if is_block(each) else _as_text(each) for each in content]}
    if not isinstance(made.get("isError", False), bool):
        made["isError"] = bool(made["isError"])
    if not isinstance(made.get("structuredContent", {}), dict):
        made["structuredContent"] = {"value": made["structuredContent"]}
    return made


def _as_text(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        text = part
    elif isinstance(part, dict) and isinstance(part.get("text"), str):
        text = part["text"]
    elif isinstance(part, dict) and isinstance(part.get("type"), str) and "data" in part:
        text = f"[{part['type'][:40]}, not shown]"
    else:
        text = json.dumps(part, ensure_ascii=False)
    return {"type": "text", "text": text}


_LIST = "tools/list"
_BLOCK: TypeAdapter[Any] = TypeAdapter(types.ContentBlock)
_ANSWERS = (types.METHOD_NOT_FOUND, types.INVALID_PARAMS, types.PARSE_ERROR)
"""Errors of the protocol that a server may send with a status of 400 or 404."""
_OURS = ("Connection closed", "SSE stream")
"""The beginnings of errors that the library makes itself with the code ``CONNECTION_CLOSED``."""
_NO_MESSAGE = ("Unexpected content type", "server answered a request with 202", "Redirect to ")
"""The beginnings of the library's own errors for a page, nothing, or a redirect in place of a
message."""
_LIBRARYS = "Not Found"
"""The library's own word for a plain 404, with the code ``METHOD_NOT_FOUND``."""


class StatusRefused(Exception):
    """The server's address answered with a status, and not with a message of the protocol."""

    def __init__(self, status: int, text: str) -> None:
        """``text``: the library's words where there is no error of HTTP, and else nothing of use."""
        super().__init__(status)
        self.status = status
        self.text = text if text.startswith(_NO_MESSAGE) else ""


class NotSent(Exception):
    """No connection could be made, so the server has not seen the request."""


class NoAnswer(Exception):
    """The connection ended before the answer."""


@dataclass(slots=True)
class _Exchange:
    status: int | None = None
    is_unsent: bool = False


_exchange: ContextVar[_Exchange | None] = ContextVar("mcp_exchange", default=None)
"""The request that is being sent. The library posts it in a task with the caller's context."""


class NotingClient(BoundedClient):
    """A client that notes how each request of the protocol was answered."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        exchange = _exchange.get() if request.method == "POST" else None
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            if exchange is not None:
                exchange.is_unsent = True
            raise
        if exchange is not None:
            exchange.status = response.status_code
        return response


class Dispatcher(JSONRPCDispatcher[TransportContext]):
    """The library's dispatcher, with the errors of the transport told apart from the server's."""

    def __init__(self, incoming: Any, outgoing: Any) -> None:
        super().__init__(incoming, outgoing)
        self.version: str | None = None
        self.unfit: list[ListedTool] = []
        """The tools of the pages that were listed since this was cleared, that can't be read."""

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        **related: Any,
    ) -> dict[str, Any]:
        """Send a request. Raises ``StatusRefused``, ``NotSent``, ``NoAnswer``, and ``MCPError``
        for an error of the server alone."""
        exchange = _Exchange()
        token = _exchange.set(exchange)
        try:
            result = await super().send_raw_request(method, params, opts, **related)
        except MCPError as error:
            if exchange.is_unsent:
                raise NotSent from None
            if exchange.status is not None and _is_status(exchange.status, error):
                raise StatusRefused(exchange.status, error.message) from None
            is_closed = error.code == types.CONNECTION_CLOSED
            if is_closed and error.message.startswith(_OURS):
                raise NoAnswer(error.message) from None
            raise
        finally:
            _exchange.reset(token)
        match method:
            case "initialize":
                return begun(result)
            case "tools/call":
                return called(result, is_block)
        if method == _LIST and isinstance(result.get("tools"), list):
            result["tools"] = await self._fit(result)
        return result

    async def _fit(self, page: dict[str, Any]) -> list[dict[str, Any]]:
        """The tools of a page that the library can read; the others are noted as unfit."""
        found: list[dict[str, Any]] = []
        for each in page["tools"][:MAX_LISTED]:
            tool = readable(each)
            if isinstance(tool, ListedTool):
                self.unfit.append(tool)
            else:
                found.append(tool)
        if self._accepts(page, found):
            return found
        accepted, turns = [], CooperativeYield()
        for tool in found:
            await turns.rest()
            if self._accepts(page, [tool]):
                accepted.append(tool)
            else:
                self.unfit.append(ListedTool(tool["name"], problem="is no tool of the protocol"))
        return accepted

    def _accepts(self, page: dict[str, Any], tools: list[dict[str, Any]]) -> bool:
        try:
            whole = {**page, "tools": tools}
            validate_server_result(_LIST, self.version or types.LATEST_PROTOCOL_VERSION, whole)
            types.ListToolsResult.model_validate(whole, by_name=False)
        except (ValidationError, ValueError, KeyError):
            return not tools  # a page that is no page without tools, either, is refused as a whole
        return True


def is_block(part: Any) -> bool:
    """Whether a part of a result is one that the library reads."""
    try:
        _BLOCK.validate_python(part, by_name=False)
    except ValidationError:
        return False
    return True


def _is_status(status: int, error: MCPError) -> bool:
    if error.code == types.INVALID_REQUEST and error.message.startswith(_NO_MESSAGE):
        return True
    if status in (400, 404) and error.message != _LIBRARYS:
        # A server may answer so with an error of the protocol; "no such session" is none.
        return error.code not in _ANSWERS
    return status >= 400


def listed_tool(tool: types.Tool) -> ListedTool:
    """A tool of the library as ours."""
    hints = tool.annotations
    return ListedTool(
        tool.name,
        tool.description or tool.title or "",
        dict(tool.input_schema),
        Hints()
        if hints is None
        else Hints(hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint),
    )


def text_of(result: types.CallToolResult) -> str:
    """The text of a result, with its structured content where that is not the same."""
    parts = [_block(block) for block in result.content]
    structured = result.structured_content
    if structured is not None and not _repeats(parts, structured):
        parts.append(json.dumps(structured, ensure_ascii=False))
    return joined(parts)


def _repeats(parts: list[str], structured: dict[str, Any]) -> bool:
    """Whether texts say what the structured content does: as the same JSON, or as the one value that
    servers put into an object for this."""
    if structured.keys() == {"result"} and any(parts):
        return True
    for part in parts:
        try:
            if json.loads(part) == structured:
                return True
        except (ValueError, RecursionError):
            continue
    return False


def _block(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            return f"[{block.type} {clean(block.mime_type)[:80]}, not shown]"
        case types.ResourceLink():
            return f"[link {clean(block.name)[:200]}: {clean(str(block.uri))[:2000]}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return resource.text
        case _:
            return f"[{block.type}, not shown]"


def unavailable(server: str, refused: StatusRefused, outcome: str = "") -> ServerUnavailable:
    """The failure for a status in place of an answer. With an ``outcome`` it is for a model, and
    has no text that the server wrote."""
    status, text = refused.status, one_line(refused.text)
    after = f", {outcome}" if outcome else f": {text}" if text else ""
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return NotSignedIn(
            f"{server} is not signed in: it answered {named_status(status)}{after}; the operator can give "
            "a valid token in its headers"
        )
    kind = SessionGone if status in GONE and not outcome else ServerUnavailable
    return kind(f"{server} answered {named_status(status)}{after}")


def named_status(status: int) -> str:
    """A status of HTTP with its phrase."""
    try:
        return f"{status} ({HTTPStatus(status).phrase})"
    except ValueError:
        return str(status)


def why_ended(error: BaseException) -> str:
    """Why a connection ended, in a few words."""
    if isinstance(error, NoAnswer):
        return one_line(str(error))
    over = exceeded(error)
    return over.text if over is not None else type(error).__name__


def one_line(text: str) -> str:
    """The server's words in one line."""
    return " ".join(clean(text).split())[:_ERROR_CHARS]
