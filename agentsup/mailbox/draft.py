"""A message made ready to be stored: what can be computed before the writer's turn comes.

The writer is one thread for everyone, so ids, JSON and hashes are made outside it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agentsup.mailbox.naming import key_owner
from agentsup.mailbox.rows import encode, encode_value
from agentsup.mailbox.values import Desk
from agentsup.model.errors import BadRequest, TooLarge
from agentsup.model.message import Kind, Lane, NewMessage, Part, Priority, text_of

__all__ = ["Draft", "Key", "check_size", "draft"]


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of the ledger: one input of one source. ``body_hash`` is empty for platforms."""

    source: str
    external_id: str
    body_hash: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """``new`` with its future id, its columns as JSON, and what the event of its acceptance tells."""

    new: NewMessage
    message_id: str
    keys: tuple[Key, ...]
    parts: str
    principal: str
    deliver_to: str
    path: str
    facts: str


def draft(desk: Desk, new: NewMessage) -> Draft:
    """Prepare ``new``. Raises ``TooLarge``, and ``BadRequest`` for text that is no text."""
    texts = [encode(part.text) if part.type == "text" else "" for part in new.parts]
    parts = f"[{','.join(map(_part, new.parts, texts))}]"
    check_size(parts, desk.limits.max_body_bytes)
    return Draft(
        new,
        desk.entropy.new_id("msg"),
        _keys(new, parts),
        parts,
        encode_value(new.principal),
        encode_value(new.deliver_to),
        encode(new.path) if new.path else "[]",
        _facts(new, texts),
    )


def _part(part: Part, text: str) -> str:
    """JSON of a part, ``text`` being that of its text."""
    return f'{{"type":"text","text":{text}}}' if text else encode(part.to_json())


def _facts(new: NewMessage, texts: list[str]) -> str:
    """JSON of what is told of the acceptance; of a text in a chat also what was said."""
    begun = _begin_facts(new.kind, new.lane, new.priority, new.principal.label)
    if new.kind is not Kind.CHAT or new.deliver_to.kind != "chat":
        return f"{begun}}}"
    text = texts[0] if len(texts) == 1 and texts[0] else encode(text_of(new.parts))
    files = [part.name or part.path for part in new.parts if part.type == "file"]
    # By its own id a client knows its text again, in another tab and after a reload too.
    return (
        f'{begun},"text":{text},"files":{encode(files) if files else "[]"},'
        f'"say_id":{encode(new.external_id)}}}'
    )


@lru_cache(maxsize=1024)
def _begin_facts(kind: Kind, lane: Lane, priority: Priority, label: str) -> str:
    """The facts that few messages differ in, as JSON without its last brace."""
    facts = {"kind": kind.value, "lane": lane.value, "priority": int(priority), "from": label}
    return encode(facts)[:-1]


def check_size(text: str, limit: int) -> None:
    """Compare the bytes of ``text``; half a surrogate pair has none and can't be stored.

    Raises ``TooLarge`` and ``BadRequest``.
    """
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise BadRequest(
            "the text holds half of a character (a lone surrogate), which can't be stored or "
            "sent; remove it",
            field="message",
        ) from None
    if size > limit:
        raise TooLarge(
            f"the message has {size} bytes, the most accepted are {limit}; send a file instead",
            size=size,
            limit=limit,
        )


def _keys(new: NewMessage, parts: str) -> tuple[Key, ...]:
    keys = []
    if new.source and new.external_id:
        keys.append(Key(new.source, new.external_id))
    if new.idempotency_key:
        owner = key_owner("key", new.principal, new.person)
        keys.append(Key(owner, new.idempotency_key, _body_hash(new, parts)))
    return tuple(keys)


def _body_hash(new: NewMessage, parts: str) -> str:
    """What makes two requests under one key the same request."""
    body: dict[str, Any] = {
        "agent": new.agent_id,
        "kind": new.kind.value,
        "session": new.session_key,
        "new_session": new.new_session,
        "thread": new.thread_id,
        "parts": parts,
        "priority": int(new.priority),
        "summary": new.summary,
        "silent": new.silent,
    }
    return hashlib.sha256(encode(body).encode("utf-8", "replace")).hexdigest()
