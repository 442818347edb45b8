"""The tool servers of an agent, and how they are."""

from __future__ import annotations

from aiohttp import web
from pydantic import Field

from agentsup.api.access import Access
from agentsup.api.route import Call, Route, reply
from agentsup.api.shapes import Document
from agentsup.model.errors import NotReady


class McpServerDocument(Document):
    name: str
    type: str = Field(description="stdio or http")
    target: str = Field(description="its program or address, without arguments and secrets")
    state: str = Field(
        description="starting, running, backoff, stopping, stopped, failed or disabled"
    )
    since: int | None = Field(description="milliseconds since 1970")
    tools: list[str] = Field(description="mcp:SERVER/TOOL")
    error: str = Field(description="why it ended last")
    next_retry_at: int | None
    restarts: int
    notes: list[str] = Field(description="tools that were left out, and the like")


class McpServerList(Document):
    agent: str
    servers: list[McpServerDocument]


async def servers(call: Call) -> web.Response:
    """The tool servers that the agent's entry names."""
    if call.deps.mcp is None:
        raise NotReady("this listener has no tool servers", retry_after_s=3600)
    return reply(dict(call.deps.mcp(call.named("name"))))


ROUTES = (
    Route(
        "GET",
        "/agents/{name}/mcp",
        servers,
        "The tool servers of an agent, and how they are",
        {200: McpServerList},
        access=Access.OPERATOR,
        refusals=(404, 410),
    ),
)
