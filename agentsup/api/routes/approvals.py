"""``/approvals``: grants for calls, for the operator."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agentsup.api.documents.bodies import Body, OptionalName, Query
from agentsup.api.documents.document import Document, DoneDocument
from agentsup.api.http.route import Call, get, post
from agentsup.approvals import Grant
from agentsup.mailbox.mail import name_in


class ApprovalsQuery(Query):
    """Of which agent; without it of all."""

    agent: OptionalName = None


class RevokeBody(Body):
    """The grant to revoke."""

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
    workspace: str = Field(description="the directory in which the pattern holds; empty: any")
    person: str | None = Field(description="for whose work the pattern holds; null: anybody's")
    until_at: int | None = Field(description="when it ends by itself; null: when it is revoked")
    last_used_at: int | None = Field(description="when it last allowed a call")
    uses: int = Field(description="how many calls it has allowed")


class GrantList(Document):
    approvals: list[GrantDocument]


class GrantRevoked(DoneDocument):
    approval: GrantDocument


def _document(call: Call, grant: Grant) -> GrantDocument:
    agent = name_in(call.deps.directory, grant.agent_id)
    return GrantDocument.from_value(grant, id=grant.grant_id, agent=agent)


@get("/approvals", refusals=(404, 410))
async def listing(call: Call, query: ApprovalsQuery) -> GrantList:
    """Calls that need not be asked about."""
    name = query.agent
    agent_id = call.deps.directory.lookup(name).agent_id if name is not None else None
    found = await call.deps.grants.all(agent_id)
    return GrantList(approvals=[_document(call, grant) for grant in found])


@post("/approvals/revoke", refusals=(404, 409))
async def revoke(call: Call, body: RevokeBody) -> GrantRevoked:
    """Revoke a grant."""
    taken = await call.deps.grants.revoke(body.id, call.by)
    return GrantRevoked(success=True, approval=_document(call, taken))
