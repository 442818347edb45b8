"""`/messages`, `/threads`, `/dead` and `/questions`: the operator looks into the mailbox."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from agentsup.api import bodies, documents, privacy, shapes
from agentsup.api.access import Access
from agentsup.api.question_shapes import QuestionDocument, QuestionList
from agentsup.api.route import Call, Route, reply
from agentsup.api.web.shown import asked
from agentsup.mailbox import naming
from agentsup.mailbox.questions import list_for, places_of
from agentsup.model.errors import Forbidden, NotFound
from agentsup.model.message import Message, Priority, State
from agentsup.model.question import Question, Seen


class Reassigned(shapes.Replayed):
    """What a message given to another agent is now."""

    agent: str


def _agent_id(call: Call, name: str | None) -> str | None:
    """The id of an agent given by name or by id."""
    if not name:
        return None
    entry = call.deps.directory.by_id(name) or call.deps.directory.lookup(name)
    return entry.agent_id


async def _shown(call: Call, message_id: str) -> dict[str, Any]:
    message = await call.deps.mailbox.get(message_id)
    position: int | None = None
    eta_s: float | None = None
    waits_for: Question | None = None
    if message.state is State.QUEUED:
        found = await call.deps.mailbox.position(message_id)
        position, eta_s, waits_for = found.position, found.eta_s, found.waits_for
    names = await _names_of_removed(call, [message])
    return _document(
        call,
        message,
        position=position,
        eta_s=eta_s,
        waits_for=documents.waited_for(waits_for, call.language),
        **names.get(message.agent_id, {}),
    )


def _document(call: Call, message: Message, **more: Any) -> dict[str, Any]:
    """All of a message that the caller may see; nothing is added to it afterwards."""
    whole = {**documents.message(message, call.deps.directory), **more}
    return privacy.shown(call.by, message, whole)


async def _page(call: Call, found: Sequence[Message], limit: int, name: str) -> web.Response:
    page = found[:limit]
    names = await _names_of_removed(call, page)
    return reply(
        {
            name: [_document(call, each, **names.get(each.agent_id, {})) for each in page],
            "next_cursor": min(m.seq for m in page) if len(found) > limit else None,
        }
    )


async def _names_of_removed(call: Call, found: Sequence[Message]) -> dict[str, dict[str, str]]:
    """What agents that are no longer there were called, for their documents."""
    gone = {each.agent_id for each in found if call.deps.directory.by_id(each.agent_id) is None}
    if not gone:
        return {}
    rows = await call.deps.web.database.read(
        lambda reader: reader.all("SELECT agent_id, name FROM agents"), name="api.removed"
    )
    return {row["agent_id"]: {"agent": row["name"]} for row in rows if row["agent_id"] in gone}


async def listing(call: Call) -> web.Response:
    """Messages, newest first."""
    query: bodies.MessagesQuery = call.query
    found = await call.deps.mailbox.list(
        agent_id=_agent_id(call, query.agent),
        state=query.state,
        session_id=query.session,
        thread_id=query.thread,
        before_seq=query.cursor,
        removed=query.removed,
        limit=query.limit + 1,
    )
    return await _page(call, found, query.limit, "messages")


async def dead(call: Call) -> web.Response:
    """Dead-lettered messages, newest first."""
    query: bodies.DeadQuery = call.query
    found = await call.deps.mailbox.list(
        agent_id=_agent_id(call, query.agent),
        state=State.DEAD,
        before_seq=query.cursor,
        limit=query.limit + 1,
    )
    return await _page(call, found, query.limit, "dead")


async def show(call: Call) -> web.Response:
    """One message; while it waits, with its position."""
    return reply(await _shown(call, call.named("id")))


async def thread(call: Call) -> web.Response:
    """All messages of a thread, oldest first."""
    thread_id = call.named("id")
    found = await call.deps.mailbox.thread(thread_id)
    if not found:
        raise NotFound(f"there is no thread {thread_id}", thread_id=thread_id)
    return reply(
        {
            "thread_id": thread_id,
            "messages": [_document(call, message) for message in found],
        }
    )


async def cancel(call: Call) -> web.Response:
    """End a message before it is answered."""
    message_id = call.named("id")
    if not call.by.is_operator:
        privacy.check_own(call.by, await call.deps.mailbox.get(message_id))
    cancelled = await call.deps.mailbox.cancel(message_id, call.by)
    if cancelled.was is not State.QUEUED:
        await call.deps.abort_turn(message_id)
    return reply(await _shown(call, message_id))


async def reprioritize(call: Call) -> web.Response:
    """Give a queued message another priority."""
    message_id = call.named("id")
    body: bodies.ReprioritizeBody = call.body
    await call.deps.mailbox.reprioritise(message_id, Priority.parse(body.priority), call.by)
    return reply(await _shown(call, message_id))


async def replay(call: Call) -> web.Response:
    """Run an ended message once more, as a new message."""
    message_id = call.named("id")
    accepted = await call.deps.mailbox.replay(message_id, call.by)
    document = {"success": True, "message_id": accepted.message_id, "replay_of": message_id}
    return reply(document, 202)


async def reassign(call: Call) -> web.Response:
    """Give a message to another agent."""
    message_id = call.named("id")
    body: bodies.ReassignBody = call.body
    sent = await call.deps.post.reassign(message_id, body.to, call.by)
    document = {
        "success": True,
        "message_id": sent.message_id,
        "agent": sent.agent,
        "replay_of": message_id,
    }
    return reply(document, 202)


async def requeue(call: Call) -> web.Response:
    """Put a dead message back into its queue."""
    message_id = call.named("id")
    await call.deps.mailbox.requeue(message_id, call.by)
    return reply(await _shown(call, message_id))


async def drop(call: Call) -> web.Response:
    """Give a dead message up for good."""
    message_id = call.named("id")
    await call.deps.mailbox.drop(message_id, call.by)
    return reply(await _shown(call, message_id))


async def _is_asked(call: Call, question: Question) -> bool:
    """Whether it came of this person's work, or was asked where this person may write."""
    message = await call.deps.mailbox.get(question.message_id)
    places = await call.deps.web.database.read(
        lambda reader: places_of(reader, question), name="api.question_places"
    )
    to = message.deliver_to
    if to.kind == "chat":
        places.add((to.channel, to.conversation))
    is_here = any(naming.may_enter(call.by, *place) for place in places)
    return is_here or privacy.is_own(call.by, message)


async def questions(call: Call) -> web.Response:
    """Questions in one state; open ones unless told otherwise."""
    query: bodies.QuestionsQuery = call.query
    if call.by.is_operator:
        found = await call.deps.mailbox.questions(query.state, limit=query.limit)
    else:
        found = await call.deps.web.database.read(
            lambda reader: list_for(
                reader,
                query.state,
                call.by,
                channel=privacy.CHANNEL,
                conversation=naming.own_conversation(call.by),
                limit=query.limit,
            ),
            name="api.questions",
        )
    documents = await asked(
        found, call.deps.directory, call.language, with_blocks=call.session is not None
    )
    return reply({"questions": documents, "next_cursor": None})


async def question(call: Call) -> web.Response:
    """One question, with all of the call that it is about."""
    found = await _question(call)
    (document,) = await asked(
        [found], call.deps.directory, call.language, with_blocks=call.session is not None
    )
    return reply(document)


async def _question(call: Call) -> Question:
    """The question of the path. Raises ``Forbidden`` where this person has nothing to do with it."""
    found = await call.deps.mailbox.question(call.named("id"))
    if not call.by.is_operator and not await _is_asked(call, found):
        raise Forbidden(
            f"question {found.question_id} is not asked of you; an operator may answer it",
            question_id=found.question_id,
        )
    return found


async def answer(call: Call) -> web.Response:
    """Answer a question, once."""
    body: bodies.AnswerBody = call.body
    question_id = (await _question(call)).question_id
    args = "" if body.args is None else json.dumps(body.args)
    seen = Seen(body.digest, is_confirmed=body.confirm)
    answered = await call.deps.mailbox.answer(question_id, body.answer, call.by, args, seen)
    return reply(documents.question(answered, call.deps.directory, call.language))


ROUTES = (
    Route(
        "GET",
        "/messages",
        listing,
        "Messages, newest first",
        {200: shapes.MessageList},
        access=Access.LOOK,
        query=bodies.MessagesQuery,
        refusals=(404, 410),
    ),
    Route(
        "GET",
        "/messages/{id}",
        show,
        "One message; while it waits, with its position",
        {200: shapes.MessageShown},
        access=Access.LOOK,
        refusals=(404,),
    ),
    Route(
        "GET",
        "/threads/{id}",
        thread,
        "All messages of a thread, oldest first",
        {200: shapes.Thread},
        access=Access.LOOK,
        refusals=(404,),
    ),
    Route(
        "POST",
        "/messages/{id}/cancel",
        cancel,
        "End a message before it is answered",
        {200: shapes.MessageShown},
        access=Access.TALK,
        body=bodies.Nothing,
        body_optional=True,
        refusals=(404, 409),
    ),
    Route(
        "POST",
        "/messages/{id}/reprioritize",
        reprioritize,
        "Give a queued message another priority",
        {200: shapes.MessageShown},
        access=Access.STEER,
        body=bodies.ReprioritizeBody,
        refusals=(404, 409),
    ),
    Route(
        "POST",
        "/messages/{id}/replay",
        replay,
        "Run an ended message once more, as a new message",
        {202: shapes.Replayed},
        access=Access.STEER,
        body=bodies.Nothing,
        body_optional=True,
        takes_work=True,
        refusals=(404, 409, 429),
    ),
    Route(
        "POST",
        "/messages/{id}/reassign",
        reassign,
        "Give what waits for one agent, or is dead, to another",
        {202: Reassigned},
        access=Access.STEER,
        body=bodies.ReassignBody,
        takes_work=True,
        refusals=(404, 409, 410, 429),
    ),
    Route(
        "GET",
        "/dead",
        dead,
        "Dead-lettered messages, newest first",
        {200: shapes.DeadList},
        access=Access.LOOK,
        query=bodies.DeadQuery,
        refusals=(404, 410),
    ),
    Route(
        "POST",
        "/dead/{id}/requeue",
        requeue,
        "Put a dead message back into its queue",
        {200: shapes.MessageShown},
        access=Access.STEER,
        body=bodies.Nothing,
        body_optional=True,
        takes_work=True,
        refusals=(404, 409),
    ),
    Route(
        "POST",
        "/dead/{id}/drop",
        drop,
        "Give a dead message up for good",
        {200: shapes.MessageShown},
        access=Access.STEER,
        body=bodies.Nothing,
        body_optional=True,
        refusals=(404, 409),
    ),
    Route(
        "GET",
        "/questions",
        questions,
        "Questions in one state",
        {200: QuestionList},
        access=Access.LOOK,
        query=bodies.QuestionsQuery,
    ),
    Route(
        "GET",
        "/questions/{id}",
        question,
        "One question, with all of the call that waits for approval",
        {200: QuestionDocument},
        access=Access.LOOK,
        refusals=(404,),
    ),
    Route(
        "POST",
        "/questions/{id}/answer",
        answer,
        "Answer a question, once",
        {200: QuestionDocument},
        access=Access.TALK,
        body=bodies.AnswerBody,
        refusals=(404, 409),
    ),
)
