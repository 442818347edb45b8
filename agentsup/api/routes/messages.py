"""``/messages``, ``/threads``, ``/dead``, ``/questions`` and ``/mail``: the contents of the mailbox."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, model_validator

from agentsup.api.documents import bodies
from agentsup.api.documents.blocks import Blocks
from agentsup.api.documents.document import Document, page_of
from agentsup.api.documents.messages import (
    FailedMessageList,
    MessageDocument,
    MessageList,
    MessageShown,
    QuestionDocument,
    QuestionList,
    Replayed,
    Thread,
    asked,
    waited_for,
)
from agentsup.api.http import privacy
from agentsup.api.http.access import Access
from agentsup.api.http.route import Call, get, post
from agentsup.mailbox.messages import keys
from agentsup.mailbox.questions import conversations_of, list_for
from agentsup.model.errors import BadRequest, Forbidden, NotFound
from agentsup.model.message import Message, MessageState, Priority
from agentsup.model.question import Question, SeenCall
from agentsup.store import names


class Reassigned(Replayed):
    """The message that was made for the other agent."""

    agent: str


async def _shown(call: Call) -> MessageShown:
    """The message that the path names, as it is now."""
    message_id = call.named("id")
    message = await call.deps.mailbox.messages.get(message_id)
    position: int | None = None
    eta_s: float | None = None
    waits_for: Question | None = None
    if message.state is MessageState.QUEUED:
        found = await call.deps.mailbox.messages.position(message_id)
        position, eta_s, waits_for = found.position, found.eta_s, found.waits_for
    whole = MessageShown.of(
        message,
        call.deps.directory,
        position=position,
        eta_s=eta_s,
        waits_for=waited_for(waits_for, call.language),
        **(await _names_of_removed(call, [message])).get(message.agent_id, {}),
    )
    return privacy.shown(call.by, message, whole)


def _document(call: Call, message: Message, **members: Any) -> MessageDocument:
    """The members of a message that the caller may see; none may be added afterwards."""
    whole = MessageDocument.of(message, call.deps.directory, **members)
    return privacy.shown(call.by, message, whole)


async def _page(
    call: Call, found: Sequence[Message], limit: int
) -> tuple[list[MessageDocument], int | None]:
    """The documents of a page, and the cursor of the next one."""
    page, cursor = page_of(found, limit, lambda last: last.seq)
    removed = await _names_of_removed(call, page)
    documents = [_document(call, each, **removed.get(each.agent_id, {})) for each in page]
    return documents, cursor


async def _names_of_removed(call: Call, found: Sequence[Message]) -> dict[str, dict[str, str]]:
    """The names of removed agents by agent id, as a member for their messages' documents."""
    gone = {each.agent_id for each in found if call.deps.directory.by_id(each.agent_id) is None}
    if not gone:
        return {}
    known = await call.deps.database.read(names, name="api.removed")
    return {agent_id: {"agent": name} for agent_id, name in known.items() if agent_id in gone}


@get("/messages", access=Access.LOOK, refusals=(404, 410))
async def listing(call: Call, query: bodies.MessagesQuery) -> MessageList:
    """Messages, newest first."""
    found = await call.deps.mailbox.messages.list(
        agent_id=call.agent_id(query.agent),
        state=query.state,
        session_id=query.session,
        thread_id=query.thread,
        before_seq=query.cursor,
        removed=query.removed,
        limit=query.limit + 1,
    )
    documents, cursor = await _page(call, found, query.limit)
    return MessageList(messages=documents, next_cursor=cursor)


@get("/dead", access=Access.LOOK, refusals=(404, 410))
async def failed(call: Call, query: bodies.FailedMessagesQuery) -> FailedMessageList:
    """Failed messages, newest first."""
    found = await call.deps.mailbox.messages.list(
        agent_id=call.agent_id(query.agent),
        state=MessageState.DEAD,
        before_seq=query.cursor,
        limit=query.limit + 1,
    )
    documents, cursor = await _page(call, found, query.limit)
    return FailedMessageList(dead=documents, next_cursor=cursor)


@get("/messages/{id}", access=Access.LOOK, refusals=(404,))
async def show(call: Call) -> MessageShown:
    """One message; while it waits, with its position."""
    return await _shown(call)


@get("/threads/{id}", access=Access.LOOK, refusals=(404,))
async def thread(call: Call) -> Thread:
    """All messages of a thread, oldest first."""
    thread_id = call.named("id")
    found = await call.deps.mailbox.messages.thread(thread_id)
    if not found:
        raise NotFound(f"there is no thread {thread_id}", thread_id=thread_id)
    messages = [_document(call, message) for message in found]
    return Thread(thread_id=thread_id, messages=messages)


@post("/messages/{id}/cancel", access=Access.TALK, refusals=(404, 409))
async def cancel(call: Call) -> MessageShown:
    """End a message before it is answered."""
    message_id = call.named("id")
    if not call.by.is_operator:
        privacy.check_own(call.by, await call.deps.mailbox.messages.get(message_id))
    cancelled = await call.deps.mailbox.control.cancel(message_id, call.by)
    if cancelled.was is not MessageState.QUEUED:
        await call.deps.abort_turn(message_id)
    return await _shown(call)


@post("/messages/{id}/reprioritize", access=Access.STEER, refusals=(404, 409))
async def reprioritize(call: Call, body: bodies.ReprioritizeBody) -> MessageShown:
    """Give a queued message another priority."""
    priority = Priority.parse(body.priority)
    await call.deps.mailbox.queue.reprioritise(call.named("id"), priority)
    return await _shown(call)


@post("/messages/{id}/replay", 202, access=Access.STEER, takes_work=True, refusals=(404, 409, 429))
async def replay(call: Call) -> Replayed:
    """Run an ended message once more, as a new message."""
    message_id = call.named("id")
    accepted = await call.deps.mailbox.failed.replay(message_id, call.by)
    return Replayed.from_value(accepted, success=True, replay_of=message_id)


@post(
    "/messages/{id}/reassign",
    202,
    access=Access.STEER,
    takes_work=True,
    refusals=(404, 409, 410, 429),
)
async def reassign(call: Call, body: bodies.ReassignBody) -> Reassigned:
    """Give a queued or failed message of one agent to another."""
    message_id = call.named("id")
    sent = await call.deps.dispatcher.reassign(message_id, body.to, call.by)
    return Reassigned.from_value(sent, success=True, replay_of=message_id)


@post("/dead/{id}/requeue", access=Access.STEER, takes_work=True, refusals=(404, 409))
async def requeue(call: Call) -> MessageShown:
    """Put a failed message back into its queue."""
    await call.deps.mailbox.failed.requeue(call.named("id"), call.by)
    return await _shown(call)


@post("/dead/{id}/drop", access=Access.STEER, refusals=(404, 409))
async def drop(call: Call) -> MessageShown:
    """Give a failed message up for good."""
    await call.deps.mailbox.failed.drop(call.named("id"), call.by)
    return await _shown(call)


async def _is_asked(call: Call, question: Question) -> bool:
    """Whether the question came from this person's message, or was asked where they may write."""
    message = await call.deps.mailbox.messages.get(question.message_id)
    conversations = await call.deps.database.read(
        conversations_of, question, name="api.question_places"
    )
    to = message.deliver_to
    if to.kind == "chat":
        conversations.add((to.channel, to.conversation))
    is_here = any(keys.may_enter(call.by, *conversation) for conversation in conversations)
    return is_here or privacy.is_own(call.by, message)


@get("/questions", access=Access.LOOK)
async def questions(call: Call, query: bodies.QuestionsQuery) -> QuestionList:
    """Questions in one state."""
    if call.by.is_operator:
        found = await call.deps.mailbox.questions.list(query.state, limit=query.limit)
    else:
        found = await call.deps.database.read(
            lambda reader: list_for(
                reader,
                query.state,
                call.by,
                channel=privacy.CHANNEL,
                conversation=keys.own_conversation(call.by),
                limit=query.limit,
            ),
            name="api.questions",
        )
    documents = await asked(found, call.deps.directory, call.language, _blocks(call))
    return QuestionList(questions=documents, next_cursor=None)


@get("/questions/{id}", access=Access.LOOK, refusals=(404,))
async def question(call: Call) -> QuestionDocument:
    """One question, with all of the call that waits for approval."""
    found = await _question(call)
    (document,) = await asked([found], call.deps.directory, call.language, _blocks(call))
    return document


def _blocks(call: Call) -> Blocks | None:
    """The parser of blocks for the page; None for other clients, which do not show blocks."""
    return None if call.session is None else call.deps.web.blocks


async def _question(call: Call) -> Question:
    """The question that the path names. Raises ``Forbidden`` if it does not concern the caller."""
    found = await call.deps.mailbox.questions.get(call.named("id"))
    if not call.by.is_operator and not await _is_asked(call, found):
        raise Forbidden(
            f"question {found.question_id} is not asked of you; an operator may answer it",
            question_id=found.question_id,
        )
    return found


@post("/questions/{id}/answer", access=Access.TALK, refusals=(404, 409))
async def answer(call: Call, body: bodies.AnswerBody) -> QuestionDocument:
    """Answer a question, once."""
    question_id = (await _question(call)).question_id
    args = "" if body.args is None else json.dumps(body.args)
    seen = SeenCall(body.digest, is_confirmed=body.confirm)
    answered = await call.deps.mailbox.questions.answer(
        question_id, body.answer, call.by, args, seen
    )
    return QuestionDocument.of(answered, call.deps.directory, call.language)


MOST = 100


class MailQuery(bodies.PageQuery):
    """One page of an agent's mail, newest first."""

    agent: Annotated[str, Field(max_length=200, description="name or id of the agent; needed")] = ""
    unread: bool = False
    limit: Annotated[int, Field(ge=1, le=MOST)] = 50


class ReadBody(bodies.Body):
    """The mail to mark as read."""

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
async def mail_listing(call: Call, query: MailQuery) -> MailList:
    """List the mail of an agent, newest first, with the time when each was read.

    Listing it marks nothing as read.
    """
    directory, agent_mail = call.deps.directory, call.deps.mail
    agent_id = call.agent_id(query.agent)
    if agent_id is None:
        raise BadRequest("query parameter 'agent': say whose mail", field="agent")
    found = await agent_mail.history(
        agent_id, limit=query.limit + 1, before=query.cursor, unread_only=query.unread
    )
    page, cursor = page_of(found, query.limit, lambda last: last.message.seq)
    mail = [MailDocument.of(each.message, directory, read_at=each.read_at) for each in page]
    unread = (await agent_mail.unread_counts((agent_id,))).get(agent_id, 0)
    return MailList(mail=mail, unread=unread, next_cursor=cursor)


@post("/mail/read", access=Access.STEER, refusals=(404, 410))
async def read(call: Call, body: ReadBody) -> Marked:
    """Mark mail of an agent as read."""
    agent_mail = call.deps.mail
    agent_id = call.agent_id(body.agent) or ""
    if body.message_ids is None:
        marked = await agent_mail.mark_all_read(agent_id)
    else:
        marked = await agent_mail.mark_read(agent_id, body.message_ids)
    unread = (await agent_mail.unread_counts((agent_id,))).get(agent_id, 0)
    return Marked(success=True, marked=marked, unread=unread)
