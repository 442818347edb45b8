"""Chats of OpenClaw: transcripts as JSON lines, and since 2026.9 in the database of each agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from agentsup.cli.moving.foreign_home import ChatLine
from agentsup.cli.moving.gathered import MOST_CHATS, Gathered
from agentsup.cli.moving.values import chat_lines, chat_of, look, mapping, parsed, text_of

_KINDS: Final = ("direct", "dm", "group", "channel")


def read_chats(found: Gathered, names: Mapping[str, str]) -> None:
    """The chats of each agent, by its id there."""
    for there, name in names.items():
        folder = f"agents/{there}/sessions"
        index = mapping(found.source.json(f"{folder}/sessions.json"))
        for key, entry in list(index.items())[:MOST_CHATS]:
            session = text_of(look(entry, "sessionId"), 100)
            if session and "/" not in session and not _is_inner(key):
                lines = _lines(found.source.json_lines(f"{folder}/{session}.jsonl"))
                _add(found, name, key, entry, lines)
        database = f"agents/{there}/agent/openclaw-agent.sqlite"
        if found.source.has(database):
            _read_stored(found, database, name)


def _read_stored(found: Gathered, database: str, name: str) -> None:
    nodes = found.source.rows(
        database,
        "SELECT session_key, current_session_id, entry_json FROM session_nodes",
        MOST_CHATS,
    )
    wanted = {row["current_session_id"]: row for row in nodes if not _is_inner(row["session_key"])}
    events: dict[str, list[Mapping[str, Any]]] = {}
    for row in found.source.rows(
        database, "SELECT session_id, event_json FROM transcript_events ORDER BY session_id, seq"
    ):
        if row["session_id"] in wanted:
            events.setdefault(row["session_id"], []).append(parsed(row["event_json"]))
    for session, row in wanted.items():
        key, lines = text_of(row["session_key"]), _lines(events.get(session, ()))
        _add(found, name, key, parsed(row["entry_json"]), lines)


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


def _add(found: Gathered, name: str, key: str, entry: object, lines: tuple[ChatLine, ...]) -> None:
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
    found.chat(name, key, lines, title, to)
