"""The only module that imports the protocol's library: messages to and from an agent's process.

The library manages the connection: ids, pending requests, one task for each request of the agent.
Updates do not go through it, so that they keep their order and a slow reader slows the agent.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from acp.connection import Connection
from acp.exceptions import RequestError
from acp.meta import AGENT_METHODS, CLIENT_METHODS, PROTOCOL_VERSION
from acp.schema import (
    AuthenticateRequest,
    CancelNotification,
    ClientCapabilities,
    EnvVariable,
    FileSystemCapabilities,
    HttpHeader,
    HttpMcpServer,
    ImageContentBlock,
    Implementation,
    InitializeRequest,
    LoadSessionRequest,
    McpServerStdio,
    NewSessionRequest,
    PromptRequest,
    ResumeSessionRequest,
    SetSessionConfigOptionSelectRequest,
    SetSessionModeRequest,
    SseMcpServer,
    TextContentBlock,
)
from pydantic import BaseModel

from agentsup.engines.acp.refusal import AgentRefused
from agentsup.engines.clean import as_dict, json_object
from agentsup.engines.failures import OutputUnreadable
from agentsup.engines.process import EngineProcess
from agentsup.kit.log import get_logger
from agentsup.model.errors import EngineFailed

_log = get_logger(__name__)

McpServer = HttpMcpServer | SseMcpServer | McpServerStdio
_MOST_GARBAGE = 1000
_PERMISSION = CLIENT_METHODS["session_request_permission"]
_UPDATE = CLIENT_METHODS["session_update"]

Update = Callable[[dict[str, Any]], Awaitable[None]]
Meta = Mapping[str, Any]
Ask = Callable[[dict[str, Any]], Awaitable[str | None]]


class Wire:
    """A connection to an agent's running process; ``close`` it before the process."""

    def __init__(
        self, child: EngineProcess, version: str, *, on_update: Update, on_permission: Ask
    ) -> None:
        """``on_update`` gets each update in order and is waited for; ``on_permission`` gets a
        request's parameters and returns the id of the chosen option, or None for cancelled."""
        self._transport = _ChildTransport(child, on_update)
        self._on_permission = on_permission
        self._version = version
        self._child = child
        self._connection = Connection(self._handle, self._transport)

    async def initialize(self) -> dict[str, Any]:
        """Agree on the protocol and return what the agent can do. Raises ``OutputUnreadable`` if it
        speaks another version."""
        # No files and no terminals are offered: the agent has its own, and asks for permission.
        able = ClientCapabilities(fs=FileSystemCapabilities(), terminal=False)
        me = Implementation(name="agentsup", version=self._version)
        request = InitializeRequest(
            protocol_version=PROTOCOL_VERSION, client_capabilities=able, client_info=me
        )
        answer = await self._request("initialize", request)
        if answer.get("protocolVersion") != PROTOCOL_VERSION:
            raise OutputUnreadable(
                f"{self._child.name} speaks version {answer.get('protocolVersion')} of the Agent "
                f"Client Protocol, not {PROTOCOL_VERSION}"
            )
        return answer

    async def authenticate(self, method: str) -> None:
        """Sign in by ``method``."""
        await self._request("authenticate", AuthenticateRequest(method_id=method))

    async def new_session(self, cwd: str, servers: list[McpServer], meta: Meta) -> dict[str, Any]:
        """Open a new session; its id is ``sessionId`` of the answer. ``meta`` is data that only
        this agent understands."""
        request = NewSessionRequest(cwd=cwd, mcp_servers=list(servers), field_meta=_given(meta))
        answer = await self._request("session_new", request)
        if not isinstance(answer.get("sessionId"), str):
            raise OutputUnreadable(f"{self._child.name} opened a session without an id")
        return answer

    async def reopen_session(
        self, cwd: str, key: str, servers: list[McpServer], meta: Meta, *, replays: bool
    ) -> dict[str, Any]:
        """Open an earlier session; if it ``replays``, it comes as updates before the answer."""
        kind = LoadSessionRequest if replays else ResumeSessionRequest
        request = kind(cwd=cwd, mcp_servers=list(servers), session_id=key, field_meta=_given(meta))
        return await self._request("session_load" if replays else "session_resume", request)

    async def set_option(self, session_id: str, option_id: str, value: str) -> dict[str, Any]:
        """Set an option of the session, such as its model; return the options as they are then."""
        request = SetSessionConfigOptionSelectRequest(
            session_id=session_id, config_id=option_id, value=value
        )
        return await self._request("session_set_config_option", request)

    async def set_mode(self, session_id: str, mode_id: str) -> None:
        """Set the mode of a session, one of those it offers."""
        request = SetSessionModeRequest(session_id=session_id, mode_id=mode_id)
        await self._request("session_set_mode", request)

    async def prompt(
        self, session_id: str, text: str, pictures: Sequence[bytes] = ()
    ) -> dict[str, Any]:
        """Run a turn on a text and JPEG pictures; the answer has ``stopReason``."""
        blocks: list[Any] = [TextContentBlock(type="text", text=text)]
        for each in pictures:
            data = b64encode(each).decode()
            blocks.append(ImageContentBlock(type="image", data=data, mime_type="image/jpeg"))
        return await self._request(
            "session_prompt", PromptRequest(session_id=session_id, prompt=blocks)
        )

    async def cancel(self, session_id: str) -> None:
        """Ask for the end of the running turn; its prompt is answered later."""
        params = _json(CancelNotification(session_id=session_id))
        await self._connection.send_notification(AGENT_METHODS["session_cancel"], params)

    async def close(self) -> None:
        """End the connection and what waits on it."""
        await self._connection.close()

    # -- inside ------------------------------------------------------------------------------------

    async def _request(self, method: str, params: BaseModel) -> dict[str, Any]:
        try:
            answer = await self._connection.send_request(AGENT_METHODS[method], _json(params))
        except RequestError as error:
            raise AgentRefused(error.code, str(error), error.data) from error
        except ConnectionError:
            if self._transport.failure is not None:
                raise self._transport.failure from None
            raise await self._child.ended() from None
        return as_dict(answer)

    async def _handle(self, method: str, params: Any, is_notification: bool) -> Any:
        if is_notification:
            return None
        if method != _PERMISSION or not isinstance(params, dict):
            raise RequestError.method_not_found(method)
        option_id = await self._on_permission(params)
        if option_id is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": option_id}}


class _ChildTransport:
    """The library's transport over an engine process; implements ``acp``'s ``Transport``."""

    def __init__(self, child: EngineProcess, on_update: Update) -> None:
        self._child = child
        self._lines = child.lines()
        self._on_update = on_update
        self._garbage = 0
        self.failure: EngineFailed | None = None
        """Why nothing more is received, unless it is the normal end of the output."""

    async def send(self, message: dict[str, Any]) -> None:
        await self._child.write(json.dumps(message).encode() + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        try:
            async for line in self._lines:
                message = self._read(line)
                if message is None:
                    continue
                if message.get("method") == _UPDATE:
                    await self._on_update(as_dict(message.get("params")))
                    continue
                return message
        except EngineFailed as error:
            self.failure = error
        return None

    async def close(self) -> None:
        """The process manager closes the pipes."""

    def _read(self, line: bytes) -> dict[str, Any] | None:
        """Return a message, or None for another line, as some agents print to their output."""
        message = json_object(line)
        if message is not None:
            return message
        if line.strip():
            self._garbage += 1
            _log.debug(f"{self._child.name} wrote a line that is no message")
        if self._garbage > _MOST_GARBAGE:
            raise OutputUnreadable(
                f"{self._child.name} does not speak the Agent Client Protocol: it wrote "
                f"{self._garbage} lines that are no messages",
                program=self._child.name,
            )
        return None


def mcp_servers(
    given: Mapping[str, Mapping[str, Any]], able: Mapping[str, Any]
) -> tuple[list[McpServer], list[str]]:
    """The servers to hand to an agent whose ``mcpCapabilities`` are ``able``, and the names of
    those it can't use."""
    servers: list[McpServer] = []
    left_out: list[str] = []
    for name, each in given.items():
        kind = each.get("type", "stdio")
        headers = [HttpHeader(name=k, value=v) for k, v in (each.get("headers") or {}).items()]
        if kind == "stdio":
            env = [EnvVariable(name=k, value=v) for k, v in (each.get("env") or {}).items()]
            args = list(each.get("args") or ())
            servers.append(McpServerStdio(name=name, command=each["command"], args=args, env=env))
        elif kind == "http" and able.get("http"):
            servers.append(HttpMcpServer(type="http", name=name, url=each["url"], headers=headers))
        elif kind == "sse" and able.get("sse"):
            servers.append(SseMcpServer(type="sse", name=name, url=each["url"], headers=headers))
        else:
            left_out.append(name)
    return servers, left_out


def _given(meta: Meta) -> dict[str, Any] | None:
    return dict(meta) or None


def _json(model: BaseModel) -> dict[str, Any]:
    body: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return body
