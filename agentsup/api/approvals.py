"""`/approvals`: leave that stands for calls, for the operator."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import Field

from agentsup.api.bodies import Body, Query
from agentsup.api.documents import name_of
from agentsup.api.route import Call, Route, reply
from agentsup.api.shapes import Document
from agentsup.approvals.grants import Grant, Grants


class ApprovalsQuery(Query):
    """Of which agent; without it of all."""

    agent: Annotated[str | None, Field(max_length=200)] = None


class RevokeBody(Body):
    """What to take back."""

    id: Annotated[str, Field(min_length=1, max_length=1000)]


class GrantDocument(Document):
    id: str
    agent: str
    agent_id: str
    tool: str
    scope: Literal["run", "always"] = Field(description="of one message, or of the agent for good")
    message_id: str = Field(description="the message whose call it was given for")
    granted_by: str
    granted_at: int
    pattern: str = Field(description="of which command lines; empty: whatever the tool does")


class GrantList(Document):
    approvals: list[GrantDocument]


class GrantRevoked(Document):
    success: Literal[True]
    approval: GrantDocument


def _document(call: Call, grant: Grant) -> dict[str, Any]:
    return {
        "id": grant.grant_id,
        "agent": name_of(call.deps.directory, grant.agent_id),
        "agent_id": grant.agent_id,
        "tool": grant.tool,
        "scope": grant.scope,
        "message_id": grant.message_id,
        "granted_by": grant.granted_by,
        "granted_at": grant.granted_at,
        "pattern": grant.pattern,
    }


def _grants(call: Call) -> Grants:
    return Grants(call.deps.web.database, call.deps.clock)


async def listing(call: Call) -> web.Response:
    """What need not be asked about."""
    name = call.query.agent
    agent_id = call.deps.directory.lookup(name).agent_id if name is not None else None
    found = await _grants(call).all(agent_id)
    return reply({"approvals": [_document(call, grant) for grant in found]})


async def revoke(call: Call) -> web.Response:
    """Take leave back: the tool is asked about again."""
    taken = await _grants(call).revoke(call.body.id, call.by)
    return reply({"success": True, "approval": _document(call, taken)})


ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/approvals",
        listing,
        "Calls that need not be asked about",
        {200: GrantList},
        query=ApprovalsQuery,
        refusals=(404, 410),
    ),
    Route(
        "POST",
        "/approvals/revoke",
        revoke,
        "Take leave for calls back",
        {200: GrantRevoked},
        body=RevokeBody,
        refusals=(404, 409),
    ),
)
