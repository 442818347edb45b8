"""A message made ready to be stored: what can be computed before the writer's turn comes.

The writer is one thread for everyone, so ids, JSON and hashes are made outside it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agentsup.mailbox.rows import encode
from agentsup.mailbox.values import Desk
from agentsup.model.errors import BadRequest, TooLarge
from agentsup.model.message import DeliverTo, NewMessage
from agentsup.model.principal import Principal

__all__ = ["Draft", "Key", "check_size", "draft"]


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of the ledger: one input of one source. ``body_hash`` is empty for platforms."""

    source: str
    external_id: str
    body_hash: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """``new`` with its future id and its columns as JSON."""

    new: NewMessage
    message_id: str
    keys: tuple[Key, ...]
    parts: str
    principal: str
    deliver_to: str
    path: str


def draft(desk: Desk, new: NewMessage) -> Draft:
    """Prepare ``new``. Raises ``TooLarge``, and ``BadRequest`` for text that is no text."""
    parts = encode([part.to_json() for part in new.parts])
    check_size(parts, desk.limits.max_body_bytes)
    return Draft(
        new,
        desk.entropy.new_id("msg"),
        _keys(new, parts),
        parts,
        _encode_value(new.principal),
        _encode_value(new.deliver_to),
        encode(new.path) if new.path else "[]",
    )


@lru_cache(maxsize=1024)
def _encode_value(value: Principal | DeliverTo) -> str:
    """JSON of who asks and where the answer goes; the same few say most of what is said."""
    return encode(value.to_json())


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
        owner = f"key:{new.principal.kind.value}:{new.principal.subject}"
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
