"""The earlier events and the sessions of a conversation of the page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from aiohttp import hdrs, web

from agentsup.agents.memory import ChatForm, ExportedSession, chat_export, first_words
from agentsup.api.documents import bodies
from agentsup.api.documents.blocks import finished_chars
from agentsup.api.documents.messages import asked, shown
from agentsup.api.documents.web import (
    FinishedBlocks,
    HistoryDocument,
    SessionChanged,
    SessionList,
    SessionShown,
)
from agentsup.api.http import privacy
from agentsup.api.http.access import Access
from agentsup.api.http.route import Call, get, post
from agentsup.channels.core.receiving import HISTORY
from agentsup.mailbox.delivery import preview
from agentsup.mailbox.mail import DirectoryEntry
from agentsup.mailbox.messages import ConversationSession, keys, sessions
from agentsup.model.errors import TooLarge
from agentsup.model.message import MessageState
from agentsup.model.question import QuestionState
from agentsup.store import Reader

_SESSIONS = 200
_QUESTIONS = 500
_TITLE = 60
"""The most characters of a title that is made of a session's first words."""
_MAX_EXPORT: Final = 32 * 1024 * 1024


@get("/web/history", access=Access.LOOK, refusals=(404, 410))
async def history(call: Call, query: bodies.HistoryQuery) -> HistoryDocument:
    """Earlier events of a conversation in the page."""
    entry = _entered(call, query.agent, query.conversation)
    session = query.session or ""
    found = await call.deps.events.tail(
        agent_id=entry.agent_id,
        conversation=f"{privacy.CHANNEL}:{query.conversation}",
        types=HISTORY,
        limit=query.limit + 1,
        before_seq=query.before,
        session_id=session,
        beside=await begun_in(call, session),
    )
    page = found[-query.limit :]
    events = await shown(page, call.deps.web.blocks, call.language)
    return HistoryDocument(events=events, more=len(found) > query.limit)


@post("/web/blocks", access=Access.LOOK)
async def finished_blocks(call: Call, body: bodies.GrowingTextBody) -> FinishedBlocks:
    """The finished paragraphs of an answer that is being written, as blocks."""
    text = body.text[: finished_chars(body.text)]
    (blocks,) = await call.deps.web.blocks.all([(f"page:{call.by.subject}", text)])
    return FinishedBlocks(blocks=blocks, units=len(text.encode("utf-16-le", "surrogatepass")) // 2)


@get("/web/sessions", access=Access.LOOK, refusals=(404, 410))
async def session_list(call: Call, query: bodies.ConversationQuery) -> SessionList:
    """Sessions of an agent, and which one a conversation is in."""
    entry = _entered(call, query.agent, query.conversation)
    current = await current_session(call, entry, privacy.CHANNEL, query.conversation)
    own = keys.chat_key(privacy.CHANNEL, keys.own_conversation(call.by))
    within = "" if call.by.is_operator else own

    def read(reader: Reader) -> list[ConversationSession]:
        found = sessions.list_of(
            reader, entry.agent_id, within=within, without=keys.OF_TASKS, limit=_SESSIONS
        )
        began = first_words(reader, [one.session_id for one in found if not one.title])
        titles = (one.title or preview(began.get(one.session_id, ""), _TITLE) for one in found)
        return [replace(one, title=title) for one, title in zip(found, titles, strict=True)]

    found = await call.deps.database.read(read, name="web.sessions")
    listed = [SessionShown.of(one, current) for one in found]
    return SessionList(current=current, sessions=listed)


@get("/web/export", "application/octet-stream", access=Access.LOOK, refusals=(404, 410, 413))
async def export(call: Call, query: bodies.ExportQuery) -> web.Response:
    """All sessions of a conversation of the page as one file, Markdown or JSON."""
    entry = _entered(call, query.agent, query.conversation)
    key, now = keys.chat_key(privacy.CHANNEL, query.conversation), call.deps.clock.now_ms()
    form = ChatForm(query.format)

    def read(reader: Reader) -> bytes:
        found = sessions.list_of(reader, entry.agent_id, key=key, limit=_SESSIONS)
        exported = [
            ExportedSession(each, entry.name, privacy.CHANNEL, query.conversation)
            for each in reversed(found)
        ]
        text = bytearray()
        for piece in chat_export.pieces(reader, exported, form, at_ms=now):
            text += piece.encode("utf-8", "replace")
            if len(text) > _MAX_EXPORT:
                raise TooLarge(
                    f"this conversation has more than {_MAX_EXPORT >> 20} MB; an operator can write "
                    "it with `agentsup export chats`",
                    limit=_MAX_EXPORT,
                )
        return bytes(text)

    body = await call.deps.database.read(read, name="web.export")
    disposition = f'attachment; filename="chat.{form.value}"'
    return web.Response(
        body=body,
        content_type="application/octet-stream",
        headers={hdrs.CONTENT_DISPOSITION: disposition, hdrs.CACHE_CONTROL: "private, no-store"},
    )


@post("/web/sessions", access=Access.TALK, refusals=(404, 410))
async def new_session(call: Call, body: bodies.NewSessionBody) -> SessionChanged:
    """Begin a fresh session in a conversation."""
    entry = _entered(call, body.agent, body.conversation)
    now, entropy = call.deps.clock.now_ms(), call.deps.entropy
    key = keys.chat_key(privacy.CHANNEL, body.conversation)
    session_id = await call.deps.database.write(
        lambda tx: sessions.new_tx(
            tx, entry.agent_id, key, at=now, entropy=entropy, title=body.title
        ),
        name="web.new_session",
    )
    return await _changed(call, entry, session_id)


@post("/web/sessions/switch", access=Access.TALK, refusals=(404, 410))
async def switch_session(call: Call, body: bodies.SwitchSessionBody) -> SessionChanged:
    """Go on with another session in a conversation."""
    entry = _entered(call, body.agent, body.conversation)
    wanted = await _find(call, entry, body.session)
    privacy.check_sees(call.by, *keys.chat_of_key(wanted.key))
    key = keys.chat_key(privacy.CHANNEL, body.conversation)
    await call.deps.database.write(
        sessions.point_tx, entry.agent_id, key, wanted.session_id, name="mailbox.point"
    )
    return await _changed(call, entry, wanted.session_id)


@post("/web/sessions/rename", access=Access.TALK, refusals=(404, 410))
async def rename_session(call: Call, body: bodies.RenameSessionBody) -> SessionChanged:
    """Give a session another title."""
    entry = _entered(call, body.agent, body.conversation)
    wanted = await _find(call, entry, body.session)
    privacy.check_sees(call.by, *keys.chat_of_key(wanted.key))
    await call.deps.database.write(
        lambda tx: sessions.rename_tx(tx, wanted.session_id, body.title.strip()),
        name="web.rename_session",
    )
    return await _changed(call, entry, wanted.session_id)


async def greeting(call: Call, entry: DirectoryEntry, conversation: str) -> dict[str, Any]:
    """The page's first document of a conversation, besides the history."""
    deps = call.deps
    found = []
    for question in await deps.mailbox.questions.list(QuestionState.OPEN, limit=_QUESTIONS):
        if question.agent_id == entry.agent_id:
            message = await deps.mailbox.messages.get(question.message_id)
            to = message.deliver_to
            is_here = (to.channel, to.conversation) == (privacy.CHANNEL, conversation)
            # A turn that waits for an approval inside a tool call keeps its lease meanwhile.
            if is_here and message.state in (MessageState.PARKED, MessageState.LEASED):
                found.append(question)
    offered = deps.web.offered(entry.agent_id, call.language)
    return {
        "questions": await asked(found, deps.directory, call.language, deps.web.blocks),
        "commands": [
            {"name": one.name, "usage": one.usage, "help": one.help, "operator": one.operator}
            for one in offered
            if call.by.is_operator or not one.operator
        ],
        "session_id": await current_session(call, entry, privacy.CHANNEL, conversation),
        "terminal_session": await _terminal_session(call, entry),
    }


async def begun_in(call: Call, session_id: str) -> str:
    """The conversation in which a session was begun; empty if this person may not read there."""
    if not session_id:
        return ""
    key = await call.deps.database.read(sessions.key_of, session_id, name="web.begun_in")
    channel, conversation = keys.chat_of_key(key)
    may = keys.may_enter(call.by, channel, conversation)
    return f"{channel}:{conversation}" if channel and may else ""


async def _terminal_session(call: Call, entry: DirectoryEntry) -> str:
    """The session of the terminal's chat, which operators share; empty for others."""
    if not call.by.is_operator:
        return ""
    return await current_session(call, entry, keys.CONSOLE, keys.OPERATORS_CONVERSATION)


async def current_session(
    call: Call, entry: DirectoryEntry, channel: str, conversation: str
) -> str:
    """The session that a conversation is in, or empty."""
    key = keys.chat_key(channel, conversation)
    found = await call.deps.database.read(
        sessions.current, entry.agent_id, key, name="mailbox.current_session"
    )
    return found or ""


def _entered(call: Call, agent: str, conversation: str) -> DirectoryEntry:
    entry = call.deps.directory.lookup(agent)
    privacy.check_enter(call.by, privacy.CHANNEL, conversation)
    return entry


async def _find(call: Call, entry: DirectoryEntry, session_id: str) -> ConversationSession:
    return await call.deps.database.read(
        lambda reader: sessions.find(reader, session_id, agent_id=entry.agent_id),
        name="web.session",
    )


async def _changed(call: Call, entry: DirectoryEntry, session_id: str) -> SessionChanged:
    found = await _find(call, entry, session_id)
    shown_now = SessionShown.of(found, session_id)
    return SessionChanged(success=True, session=shown_now)
