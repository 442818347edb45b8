"""Preparing a message for the store: ids, JSON and hashes.

They are computed outside the writer, because all share its one thread.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agentsup.mailbox.messages.keys import key_owner
from agentsup.mailbox.messages.rows import encode, encode_value
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.model.errors import BadRequest, TooLarge
from agentsup.model.message import LaneName, MessageKind, NewMessage, Part, Priority, text_of


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of the ledger: one input of one source. ``body_hash`` is empty for platforms."""

    source: str
    external_id: str
    body_hash: str = ""


@dataclass(frozen=True, slots=True)
class PreparedMessage:
    """``new`` with its future id, its columns as JSON, and the data of its acceptance event."""

    new: NewMessage
    message_id: str
    keys: tuple[Key, ...]
    parts: str
    principal: str
    deliver_to: str
    path: str
    facts: str


def draft(ctx: MailboxContext, new: NewMessage) -> PreparedMessage:
    """Prepare ``new``. Raises ``TooLarge``, and ``BadRequest`` for text that can't be stored."""
    texts = [encode(part.text) if part.type == "text" else "" for part in new.parts]
    parts = f"[{','.join(map(_part, new.parts, texts))}]"
    check_size(parts, ctx.limits.max_body_bytes)
    return PreparedMessage(
        new,
        ctx.entropy.new_id("msg"),
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
    """JSON of the acceptance event's data; for a text in a chat, with the text."""
    begun = _begin_facts(new.kind, new.lane, new.priority, new.principal.label)
    if new.kind is not MessageKind.CHAT or new.deliver_to.kind != "chat":
        return f"{begun}}}"
    text = texts[0] if len(texts) == 1 and texts[0] else encode(text_of(new.parts))
    files = [part.name or part.path for part in new.parts if part.type == "file"]
    # A client recognises its text by its own id, in another tab and after a reload too.
    return (
        f'{begun},"text":{text},"files":{encode(files) if files else "[]"},'
        f'"say_id":{encode(new.external_id)}}}'
    )


@lru_cache(maxsize=1024)
def _begin_facts(kind: MessageKind, lane: LaneName, priority: Priority, label: str) -> str:
    """The data in which few messages differ, as JSON without its last brace."""
    facts = {"kind": kind.value, "lane": lane.value, "priority": int(priority), "from": label}
    return encode(facts)[:-1]


def check_size(text: str, limit: int) -> None:
    """Check the size of ``text`` in UTF-8 bytes.

    Raises ``TooLarge``, and ``BadRequest`` for a lone surrogate, which can't be encoded.
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
        owner = key_owner("key", new.key_by or new.principal, new.person)
        keys.append(Key(owner, new.idempotency_key, _body_hash(new, parts)))
    return tuple(keys)


def _body_hash(new: NewMessage, parts: str) -> str:
    """The hash by which two requests under one key are compared."""
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
