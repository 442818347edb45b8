"""The roles that there are, and which of them a text is for."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from pydantic import Field

from agentsup.api.access import Access
from agentsup.api.bodies import Body, Text
from agentsup.api.route import Call, Route, reply
from agentsup.api.shapes import Document
from agentsup.model.errors import NotReady


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


async def roles(call: Call) -> web.Response:
    """Every role, from its file and the live registry of tools."""
    if call.deps.roles is None:
        raise NotReady("this listener has no roles", retry_after_s=3600)
    return reply(dict(await call.deps.roles.document()))


async def route(call: Call) -> web.Response:
    """Which role a text is for, and every sign that was counted."""
    if call.deps.roles is None:
        raise NotReady("this listener has no roles", retry_after_s=3600)
    return reply(dict(await call.deps.roles.route_document(call.body.text)))


ROUTES = (
    Route("GET", "/roles", roles, "Every role with its tools", {200: RoleList}),
    Route(
        "POST",
        "/route",
        route,
        "Which role a text is for, and why",
        {200: RouteDocument},
        body=RouteBody,
        access=Access.OPERATOR,
    ),
)
