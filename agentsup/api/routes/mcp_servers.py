"""The tool servers of an agent, and their states."""

from __future__ import annotations

from pydantic import Field

from agentsup.api.documents.document import Document
from agentsup.api.http.access import Access
from agentsup.api.http.route import Call, get


class McpServerDocument(Document):
    name: str
    type: str = Field(description="stdio or http")
    target: str = Field(description="its program or address, without arguments and secrets")
    state: str = Field(
        description="starting, running, backoff, not_signed_in, stopping, stopped, failed or disabled"
    )
    since: int | None = Field(description="milliseconds since 1970")
    tools: list[str] = Field(description="mcp:SERVER/TOOL")
    error: str = Field(description="why it does not run")
    next_retry_at: int | None
    restarts: int
    notes: list[str] = Field(description="tools that were left out, and the like")


class McpServerList(Document):
    agent: str
    servers: list[McpServerDocument]


@get("/agents/{name}/mcp", access=Access.OPERATOR, refusals=(404, 410))
async def servers(call: Call) -> McpServerList:
    """The tool servers of an agent, and how they are."""
    return McpServerList.model_construct(**call.deps.mcp(call.named("name")))
