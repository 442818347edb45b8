"""A conversation of the page beyond its socket: what was said earlier, and its sessions."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from agentsup.api import bodies, privacy, shapes
from agentsup.api.access import Access
from agentsup.api.route import Call, Route, reply
from agentsup.api.web.shown import asked, shown
from agentsup.channels.inbox import HISTORY
from agentsup.mailbox import naming, sessions
from agentsup.mailbox.bus import DirectoryEntry
from agentsup.mailbox.sessions import Session
from agentsup.model.message import State
from agentsup.model.question import QuestionState

_SESSIONS = 200
_QUESTIONS = 500


async def history(call: Call) -> web.Response:
    """Earlier events of a conversation."""
    query: bodies.HistoryQuery = call.query
    entry = _entered(call, query.agent, query.conversation)
    found = await call.deps.events.tail(
        agent_id=entry.agent_id,
        conversation=f"{privacy.CHANNEL}:{query.conversation}",
        types=HISTORY,
        limit=query.limit + 1,
        before_seq=query.before,
        session_id=query.session or "",
    )
    page = found[-query.limit :]
    return reply(
        {
            "events": await shown(page, call.language),
            "more": len(found) > query.limit,
        }
    )


async def session_list(call: Call) -> web.Response:
    """The sessions of an agent, and which one a conversation is in."""
    query: bodies.PlaceQuery = call.query
    entry = _entered(call, query.agent, query.conversation)
    current = await current_session(call, entry, privacy.CHANNEL, query.conversation)
    own = naming.chat_key(privacy.CHANNEL, naming.own_conversation(call.by))
    found = await call.deps.web.database.read(
        lambda reader: sessions.list_of(
            reader,
            entry.agent_id,
            place="" if call.by.is_operator else own,
            limit=_SESSIONS,
        ),
        name="web.sessions",
    )
    return reply({"current": current, "sessions": [_session(one, current) for one in found]})


async def new_session(call: Call) -> web.Response:
    """Begin a fresh session; the earlier one stays."""
    body: bodies.NewSessionBody = call.body
    entry = _entered(call, body.agent, body.conversation)
    now, entropy = call.deps.clock.now_ms(), call.deps.entropy
    key = naming.chat_key(privacy.CHANNEL, body.conversation)
    session_id = await call.deps.web.database.write(
        lambda tx: sessions.new_tx(
            tx, entry.agent_id, key, at=now, entropy=entropy, title=body.title
        ),
        name="web.new_session",
    )
    return await _changed(call, entry, session_id)


async def switch_session(call: Call) -> web.Response:
    """Go on with another session."""
    body: bodies.SwitchSessionBody = call.body
    entry = _entered(call, body.agent, body.conversation)
    wanted = await _find(call, entry, body.session)
    if not _may_use(call, wanted):
        privacy.check_sees(call.by, *naming.chat_of_key(wanted.key))
    key = naming.chat_key(privacy.CHANNEL, body.conversation)
    await call.deps.mailbox.point(entry.agent_id, key, wanted.session_id)
    return await _changed(call, entry, wanted.session_id)


async def greeting(call: Call, entry: DirectoryEntry, conversation: str) -> dict[str, Any]:
    """What the page is told of a conversation when it enters, beside what was said."""
    deps = call.deps
    found = []
    for question in await deps.mailbox.questions(QuestionState.OPEN, limit=_QUESTIONS):
        if question.agent_id == entry.agent_id:
            message = await deps.mailbox.get(question.message_id)
            to = message.deliver_to
            is_here = (to.channel, to.conversation) == (privacy.CHANNEL, conversation)
            # A turn that waits for leave in the middle of a call is at work meanwhile.
            if is_here and message.state in (State.PARKED, State.LEASED):
                found.append(question)
    offered = deps.web.offered(entry.agent_id, call.language)
    return {
        "questions": await asked(found, deps.directory, call.language),
        "commands": [
            {"name": one.name, "usage": one.usage, "help": one.help, "operator": one.operator}
            for one in offered
            if call.by.is_operator or not one.operator
        ],
        "session_id": await current_session(call, entry, privacy.CHANNEL, conversation),
    }


async def current_session(
    call: Call, entry: DirectoryEntry, channel: str, conversation: str
) -> str:
    """The session that a conversation is in, or empty."""
    key = naming.chat_key(channel, conversation)
    return await call.deps.mailbox.current_session(entry.agent_id, key) or ""


def _entered(call: Call, agent: str, conversation: str) -> DirectoryEntry:
    entry = call.deps.directory.lookup(agent)
    privacy.check_enter(call.by, privacy.CHANNEL, conversation)
    return entry


def _may_use(call: Call, session: Session) -> bool:
    return naming.may_enter(call.by, *naming.chat_of_key(session.key))


async def _find(call: Call, entry: DirectoryEntry, session_id: str) -> Session:
    return await call.deps.web.database.read(
        lambda reader: sessions.find(reader, session_id, agent_id=entry.agent_id),
        name="web.session",
    )


async def _changed(call: Call, entry: DirectoryEntry, session_id: str) -> web.Response:
    found = await _find(call, entry, session_id)
    return reply({"success": True, "session": _session(found, session_id)})


def _session(session: Session, current: str) -> dict[str, Any]:
    return {
        "id": session.session_id,
        "title": session.title,
        "key": session.key,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "is_current": session.session_id == current,
    }


ROUTES = (
    Route(
        "GET",
        "/web/history",
        history,
        "Earlier events of a conversation in the page",
        {200: shapes.History},
        access=Access.LOOK,
        query=bodies.HistoryQuery,
        refusals=(404, 410),
    ),
    Route(
        "GET",
        "/web/sessions",
        session_list,
        "Sessions of an agent, and which one a conversation is in",
        {200: shapes.SessionList},
        access=Access.LOOK,
        query=bodies.PlaceQuery,
        refusals=(404, 410),
    ),
    Route(
        "POST",
        "/web/sessions",
        new_session,
        "Begin a fresh session in a conversation",
        {200: shapes.SessionChanged},
        access=Access.TALK,
        body=bodies.NewSessionBody,
        refusals=(404, 410),
    ),
    Route(
        "POST",
        "/web/sessions/switch",
        switch_session,
        "Go on with another session in a conversation",
        {200: shapes.SessionChanged},
        access=Access.TALK,
        body=bodies.SwitchSessionBody,
        refusals=(404, 410),
    ),
)
