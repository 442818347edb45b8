"""`/mail`: what agents sent an agent, what of it is read, and marks of it. For operators."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from pydantic import Field, model_validator

from agentsup.api import bodies, documents, shapes
from agentsup.api.access import Access
from agentsup.api.route import Call, Route, reply
from agentsup.model.errors import BadRequest

MOST = 100


class MailQuery(bodies.Query):
    """Whose mail, and which page of it, newest first."""

    agent: Annotated[str, Field(max_length=200, description="name or id of the agent; needed")] = ""
    unread: bool = False
    limit: Annotated[int, Field(ge=1, le=MOST)] = 50
    cursor: Annotated[
        int | None,
        Field(ge=1, le=bodies.MAX_NUMBER, description="`next_cursor` of the page before"),
    ] = None


class ReadBody(bodies.Body):
    """What is to be marked as read."""

    agent: Annotated[bodies.Text, Field(max_length=200, description="name or id of the agent")]
    message_ids: Annotated[list[str] | None, Field(min_length=1, max_length=MOST)] = None
    all: Annotated[
        bool, Field(description="everything that is unread, in place of message_ids")
    ] = False

    @model_validator(mode="after")
    def _either(self) -> ReadBody:
        if self.all == (self.message_ids is not None):
            raise ValueError("give either message_ids or all")
        return self


class LetterDocument(shapes.MessageDocument):
    read_at: int | None = Field(description="since when it is read; null: it is not")


class MailList(shapes.Document):
    mail: list[LetterDocument]
    unread: int = Field(description="letters of the agent that are unread, all of them")
    next_cursor: int | None


class Marked(shapes.Document):
    success: bool
    marked: int = Field(description="how many were not marked before")
    unread: int


async def listing(call: Call) -> web.Response:
    """Letters of an agent. Looking marks nothing."""
    query: MailQuery = call.query
    directory, letters = call.deps.directory, call.deps.letters
    if not query.agent:
        raise BadRequest("query parameter 'agent': say whose mail", field="agent")
    agent_id = (directory.by_id(query.agent) or directory.lookup(query.agent)).agent_id
    found = await letters.history(
        agent_id, limit=query.limit + 1, before=query.cursor, unread_only=query.unread
    )
    page = found[: query.limit]
    mail = [
        {**documents.message(each.message, directory), "read_at": each.read_at} for each in page
    ]
    unread = (await letters.unread_counts((agent_id,))).get(agent_id, 0)
    more = page[-1].message.seq if len(found) > query.limit else None
    return reply({"mail": mail, "unread": unread, "next_cursor": more})


async def read(call: Call) -> web.Response:
    """Mark letters of an agent as read: those that are named, or all."""
    body: ReadBody = call.body
    directory, letters = call.deps.directory, call.deps.letters
    agent_id = (directory.by_id(body.agent) or directory.lookup(body.agent)).agent_id
    if body.message_ids is None:
        marked = await letters.mark_all_read(agent_id)
    else:
        marked = await letters.mark_read(agent_id, body.message_ids)
    unread = (await letters.unread_counts((agent_id,))).get(agent_id, 0)
    return reply({"success": True, "marked": marked, "unread": unread})


ROUTES = (
    Route(
        "GET",
        "/mail",
        listing,
        "What agents sent an agent, newest first, and what of it is read",
        {200: MailList},
        access=Access.STEER,
        query=MailQuery,
        refusals=(404, 410),
    ),
    Route(
        "POST",
        "/mail/read",
        read,
        "Mark mail of an agent as read",
        {200: Marked},
        access=Access.STEER,
        body=ReadBody,
        refusals=(404, 410),
    ),
)
