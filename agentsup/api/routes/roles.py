"""``/roles`` and ``/route``: the roles, and which role a text is for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agentsup.api.documents.bodies import Body, Text
from agentsup.api.documents.document import Document
from agentsup.api.http.access import Access
from agentsup.api.http.route import Call, get, post


class RoleDocument(Document):
    name: str
    source: str = Field(description="builtin or user")
    status: str = Field(description="active, disabled or draft")
    description: str
    ceiling: list[str] = Field(description="patterns over names of tools")
    path: str
    served: bool = Field(description="there are tools for it, and it is active")
    tools: list[str] = Field(description="what it answers for")


class RoleList(Document):
    roles: list[RoleDocument]
    essential: list[str] = Field(description="inside every role's ceiling")
    unmatched: list[str] = Field(description="tools that no role answers for")
    findings: list[str] = Field(description="files that are not used as they stand")


class SignDocument(Document):
    kind: str
    text: str
    points: int


class ScoreDocument(Document):
    role: str
    points: int
    signs: list[SignDocument]


class RouteDocument(Document):
    role: str = Field(description="empty: none of them")
    complexity: str = Field(description="none, simple, compound or complex")
    scores: list[ScoreDocument]


class RouteBody(Body):
    """A text that should find its role."""

    text: Annotated[Text, Field(max_length=20_000)]


@get("/roles")
async def roles(call: Call) -> RoleList:
    """Every role with its tools."""
    return RoleList(**await call.deps.roles.document())


@post("/route", access=Access.OPERATOR)
async def route(call: Call, body: RouteBody) -> RouteDocument:
    """Which role a text is for, and why."""
    return RouteDocument(**(await call.deps.roles.route(body.text)).to_json())
