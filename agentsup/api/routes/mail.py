"""``/mail``: the mail of an agent, and which of it is read. For operators."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from agentsup.api.documents import bodies
from agentsup.api.documents.document import Document, page_of
from agentsup.api.documents.messages import MessageDocument
from agentsup.api.http.access import Access
from agentsup.api.http.route import Call, get, post
from agentsup.model.errors import BadRequest

MOST = 100


class MailQuery(bodies.PageQuery):
    """Whose mail, and which page of it, newest first."""

    agent: Annotated[str, Field(max_length=200, description="name or id of the agent; needed")] = ""
    unread: bool = False
    limit: Annotated[int, Field(ge=1, le=MOST)] = 50


class ReadBody(bodies.Body):
    """What is to be marked as read."""

    agent: Annotated[bodies.Text, Field(max_length=200, description="name or id of the agent")]
    message_ids: Annotated[list[str] | None, Field(min_length=1, max_length=MOST)] = None
    all: bool = Field(False, description="everything that is unread, in place of message_ids")

    @model_validator(mode="after")
    def _either(self) -> ReadBody:
        if self.all == (self.message_ids is not None):
            raise ValueError("give either message_ids or all")
        return self


class MailDocument(MessageDocument):
    read_at: int | None = Field(description="since when it is read; null: it is not")


class MailList(Document):
    mail: list[MailDocument]
    unread: int = Field(description="how much mail of the agent is unread, in all")
    next_cursor: int | None


class Marked(Document):
    success: bool
    marked: int = Field(description="how many were not marked before")
    unread: int


@get("/mail", access=Access.STEER, refusals=(404, 410))
async def listing(call: Call, query: MailQuery) -> MailList:
    """What agents sent an agent, newest first, and what of it is read.

    Listing it marks nothing as read.
    """
    directory, agent_mail = call.deps.directory, call.deps.mail
    if not query.agent:
        raise BadRequest("query parameter 'agent': say whose mail", field="agent")
    agent_id = (directory.by_id(query.agent) or directory.lookup(query.agent)).agent_id
    found = await agent_mail.history(
        agent_id, limit=query.limit + 1, before=query.cursor, unread_only=query.unread
    )
    page, cursor = page_of(found, query.limit, lambda last: last.message.seq)
    mail = [MailDocument.of(each.message, directory, read_at=each.read_at) for each in page]
    unread = (await agent_mail.unread_counts((agent_id,))).get(agent_id, 0)
    return MailList.model_construct(mail=mail, unread=unread, next_cursor=cursor)


@post("/mail/read", access=Access.STEER, refusals=(404, 410))
async def read(call: Call, body: ReadBody) -> Marked:
    """Mark mail of an agent as read."""
    directory, agent_mail = call.deps.directory, call.deps.mail
    agent_id = (directory.by_id(body.agent) or directory.lookup(body.agent)).agent_id
    if body.message_ids is None:
        marked = await agent_mail.mark_all_read(agent_id)
    else:
        marked = await agent_mail.mark_read(agent_id, body.message_ids)
    unread = (await agent_mail.unread_counts((agent_id,))).get(agent_id, 0)
    return Marked.model_construct(success=True, marked=marked, unread=unread)
