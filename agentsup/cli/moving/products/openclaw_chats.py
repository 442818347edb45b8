"""Chats of OpenClaw: transcripts as JSON lines, and since 2026.9 in the database of each agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from agentsup.cli.moving.foreign_home import ChatLine, ForeignChat
from agentsup.cli.moving.source import SourceFolder
from agentsup.cli.moving.values import chat_lines, chat_of, look, mapping, parsed, text_of

_MOST_CHATS: Final = 500
_KINDS: Final = ("direct", "dm", "group", "channel")


def chats(source: SourceFolder, names: Mapping[str, str]) -> Iterable[ForeignChat]:
    for there, name in names.items():
        folder = f"agents/{there}/sessions"
        index = mapping(source.json(f"{folder}/sessions.json"))
        for key, entry in list(index.items())[:_MOST_CHATS]:
            session = text_of(look(entry, "sessionId"), 100)
            if session and "/" not in session and not _is_inner(key):
                lines = _lines(source.json_lines(f"{folder}/{session}.jsonl"))
                yield from _chat(name, key, entry, lines)
        database = f"agents/{there}/agent/openclaw-agent.sqlite"
        if source.has(database):
            yield from _stored_chats(source, database, name)


def _stored_chats(source: SourceFolder, database: str, name: str) -> Iterable[ForeignChat]:
    nodes = source.rows(
        database,
        "SELECT session_key, current_session_id, entry_json FROM session_nodes",
        _MOST_CHATS,
    )
    wanted = {row["current_session_id"]: row for row in nodes if not _is_inner(row["session_key"])}
    events: dict[str, list[Mapping[str, Any]]] = {}
    for row in source.rows(
        database, "SELECT session_id, event_json FROM transcript_events ORDER BY session_id, seq"
    ):
        if row["session_id"] in wanted:
            events.setdefault(row["session_id"], []).append(parsed(row["event_json"]))
    for session, row in wanted.items():
        lines = _lines(events.get(session, ()))
        yield from _chat(name, text_of(row["session_key"]), parsed(row["entry_json"]), lines)


def _is_inner(key: object) -> bool:
    """Whether a session is no chat: of a schedule, a hook or a sub-agent."""
    parts = text_of(key).split(":")
    return any(each in ("cron", "hook", "subagent", "explicit", "acp") for each in parts)


def _lines(records: Iterable[Mapping[str, Any]]) -> tuple[ChatLine, ...]:
    said = [
        (each, mapping(each.get("message"))) for each in records if each.get("type") == "message"
    ]
    return chat_lines(
        (m.get("role"), m.get("content"), m.get("timestamp") or each.get("timestamp"))
        for each, m in said
    )


def _chat(name: str, key: str, entry: object, lines: tuple[ChatLine, ...]) -> Iterable[ForeignChat]:
    if not lines:
        return
    parts = key.split(":")
    to = ("", "")
    for channel in ("telegram", "matrix"):
        if channel in parts:
            # An account may stand before the kind of the chat.
            rest = parts[parts.index(channel) + 1 :]
            begin = next((at for at, part in enumerate(rest) if part in _KINDS), 0)
            to = chat_of(channel, ":".join(rest[begin:]).removeprefix("channel:"))
    for last in (entry, look(entry, "deliveryContext")):
        if to == ("", ""):
            channel = text_of(look(last, "lastChannel") or look(last, "channel"), 50)
            to = chat_of(channel, text_of(look(last, "lastTo") or look(last, "to"), 300))
    title = text_of(look(entry, "displayName") or look(entry, "label"), 200) or key
    yield ForeignChat(name, key, lines, title, *to)
