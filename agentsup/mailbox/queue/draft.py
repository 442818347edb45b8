"""Preparing a message for the store: ids, JSON and hashes.

They are computed outside the writer, because all share its one thread.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from agentsup.mailbox.messages.keys import key_owner
from agentsup.mailbox.messages.rows import encode, encode_value
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.model.errors import BadRequest, TooLarge
from agentsup.model.message import MessageKind, NewMessage, text_of


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
    parts = encode([part.to_json() for part in new.parts])
    check_size(parts, ctx.limits.max_body_bytes)
    return PreparedMessage(
        new,
        ctx.entropy.new_id("msg"),
        _keys(new, parts),
        parts,
        encode_value(new.principal),
        encode_value(new.deliver_to),
        encode(new.path) if new.path else "[]",
        encode(_facts(new)),
    )


def _facts(new: NewMessage) -> dict[str, Any]:
    """The acceptance event's data; for a text in a chat, with the text."""
    facts: dict[str, Any] = {
        "kind": new.kind.value,
        "lane": new.lane.value,
        "priority": int(new.priority),
        "from": new.principal.label,
    }
    if new.kind is MessageKind.CHAT and new.deliver_to.kind == "chat":
        facts["text"] = text_of(new.parts)
        facts["files"] = [part.name or part.path for part in new.parts if part.type == "file"]
        # A client recognises its text by its own id, in another tab and after a reload too.
        facts["say_id"] = new.external_id
    return facts


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
