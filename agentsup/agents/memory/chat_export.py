"""Chats as texts that people and programs keep: Markdown and JSON, a piece at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from agentsup.mailbox.messages import ConversationSession
from agentsup.store import Reader

_PAGE = 500
_MADE_FOR = "agentsup-chats"
_FORMAT = 1


class ChatForm(StrEnum):
    """The format of exported chats."""

    MARKDOWN = "md"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class ExportedSession:
    """One session with its agent's name, and the conversation in which it was begun."""

    session: ConversationSession
    agent: str
    channel: str
    conversation: str


def entries(reader: Reader, session_id: str, after: int) -> list[dict[str, Any]]:
    """The next entries of a session's transcript after the one with that id, oldest first."""
    rows = reader.all(
        "SELECT entry_id, role, text, parts, at FROM transcript"
        " WHERE session_id = ? AND entry_id > ? ORDER BY entry_id LIMIT ?",
        (session_id, after, _PAGE),
    )
    return [
        {
            "id": row["entry_id"],
            "at": row["at"],
            "role": row["role"],
            "text": row["text"],
            "files": [
                str(part.get("name") or part.get("path") or "")
                for part in json.loads(row["parts"])
                if part.get("type") == "file"
            ],
        }
        for row in rows
    ]


def pieces(
    reader: Reader, sessions: list[ExportedSession], form: ChatForm, *, at_ms: int
) -> Iterator[str]:
    """The text of the sessions, in pieces of bounded size."""
    if form is ChatForm.MARKDOWN:
        for each in sessions:
            yield _heading(each)
            for entry in _all_entries(reader, each.session.session_id):
                yield _paragraph(entry, each.agent)
        return
    yield json.dumps({"made_for": _MADE_FOR, "format": _FORMAT, "made_at": at_ms})[:-1]
    yield ', "chats": ['
    for number, each in enumerate(sessions):
        yield (",\n" if number else "\n") + json.dumps(_facts(each), ensure_ascii=False)[:-1]
        yield ', "entries": ['
        for count, entry in enumerate(_all_entries(reader, each.session.session_id)):
            yield (",\n  " if count else "\n  ") + json.dumps(entry, ensure_ascii=False)
        yield "]}"
    yield "]}\n"


def _all_entries(reader: Reader, session_id: str) -> Iterator[dict[str, Any]]:
    after = 0
    while page := entries(reader, session_id, after):
        yield from page
        after = page[-1]["id"]


def _facts(each: ExportedSession) -> dict[str, Any]:
    return {
        "agent": each.agent,
        "channel": each.channel,
        "conversation": each.conversation,
        "session": each.session.session_id,
        "title": each.session.title,
        "created_at": each.session.created_at,
        "updated_at": each.session.updated_at,
    }


def _heading(each: ExportedSession) -> str:
    title = " ".join(each.session.title.split())
    name = f"{each.agent}: {title}" if title else each.agent
    where = f"{each.channel} {each.conversation}" if each.channel else each.conversation
    return f"# {name}\n\n{where}, begun {_time(each.session.created_at)}\n\n"


def _paragraph(entry: dict[str, Any], agent: str) -> str:
    who = {"user": "You", "assistant": agent}.get(entry["role"], "Note")
    files = "".join(f"\n\n(file: {name})" for name in entry["files"])
    return f"**{who}**, {_time(entry['at'])}\n\n{entry['text'].rstrip()}{files}\n\n"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
