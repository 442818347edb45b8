"""Views for people and tests: chats, messages with their history, drafts, typing, changes."""

from __future__ import annotations

from typing import Any

from agentsup.fakes.telegram.people import chat_of
from agentsup.fakes.telegram.refusals import bad
from agentsup.fakes.telegram.rules import LIMITS
from agentsup.fakes.telegram.world import Json, World

_SENSITIVE = frozenset({"token"})


def bots(world: World, query: Json) -> list[Json]:
    """The bots, without their tokens, with the count of waiting updates."""
    return [
        {name: value for name, value in bot.items() if name not in _SENSITIVE}
        | {"pending_updates": len(world.pending(bot))}
        for bot in world.journal.all("bot")
    ]


def users(world: World, query: Json) -> list[Json]:
    """The people."""
    return list(world.journal.all("user"))


def chats(world: World, query: Json) -> list[Json]:
    """The chats as stored, each with its last message."""
    found = []
    for chat in world.journal.all("chat"):
        numbers = range(chat["next_message_id"] - 1, 0, -1)
        last = next((one for one in (world.message(chat, n) for n in numbers) if one), None)
        found.append(chat | {"last_message": last["message"] if last else None})
    return found


def messages(world: World, query: Json) -> Json:
    """A chat as the person sees it now.

    ``messages`` are records: the Bot API message, ``by``, ``is_bot``, ``sent_ms``, ``history`` of
    earlier
    contents, ``deleted_ms``, ``reactions`` by user id, and as ``input`` what a bot asks of the person's
    input (a reply keyboard, its removal, a forced reply). ``drafts`` and ``action`` only while
    they show;
    ``all_drafts`` keeps every draft with its ``texts``. Parameters: chat or user and bot, ``after`` (a
    message id), ``deleted`` (also deleted ones), ``thread``.
    """
    chat = chat_of(world, query)
    after = int(query.get("after") or 0)
    thread = query.get("thread")
    with_deleted = str(query.get("deleted", "")).lower() in {"1", "true"}
    found = [
        record | {"history": world.history(record)}
        for record in world.messages(chat, after)
        if (with_deleted or record["deleted_ms"] is None)
        and (thread is None or record["message"].get("message_thread_id") == int(thread))
    ]
    now_ms = world.now_ms()
    drafts = [
        draft | {"texts": world.draft_texts(draft)}
        for draft in world.journal.all("draft")
        if draft["chat"] == chat["key"]
    ]
    action = world.journal.get("action", chat["key"])
    if action is not None and now_ms - action["at_ms"] > LIMITS["action_s"] * 1000:
        action = None
    return {
        "cursor": world.journal.cursor,
        "chat": chat,
        "messages": found,
        "drafts": [
            draft
            for draft in drafts
            if draft["is_shown"] and now_ms - draft["at_ms"] <= LIMITS["draft_s"] * 1000
        ],
        "all_drafts": drafts,
        "action": action,
    }


def callback(world: World, query: Json) -> Json:
    """A press by its id: its answer is null until the bot answers."""
    found = world.journal.get("query", str(query.get("id", "")))
    if found is None:
        raise bad(f"there is no press {query.get('id')!r}")
    return found


def files(world: World, query: Json) -> list[Json]:
    """All files; ``unique`` names one for the download route."""
    return list(world.journal.all("file"))


def changes(world: World, after: int, chat: str | None) -> list[Json]:
    """Changes later than ``after``, of one chat (by key) or of all.

    Those of bookkeeping (settings, counters, queued updates) are left out.
    """
    found: list[Json] = []
    for change in reversed(world.journal.changes):
        if change.number <= after:
            break
        if change.kind in {
            "setting",
            "update",
            "fault",
            "link",
            "violation",
            "draft_text",
            "history",
        }:
            continue
        document: Any = world.journal.get(change.kind, change.key) or {}
        where = document.get("chat", change.key if change.kind in {"chat", "action"} else None)
        if chat is None or where == chat:
            found.append(
                {
                    "number": change.number,
                    "kind": change.kind,
                    "key": change.key,
                    "chat": where,
                }
            )
    return found[::-1]
