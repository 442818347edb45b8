"""Idempotency keys of requests that store several messages or choose their target themselves.

A repeated request must get the earlier result, not a new choice. So the key is looked up before
anything is decided, in the same transaction. ``mailbox.messages.keys.key_owner`` gives the owner of
a key; the entries are in the ledger like all others.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from agentsup.mailbox.messages.rows import encode
from agentsup.model.errors import Conflict
from agentsup.store import Reader, Tx

_LEDGER = """
INSERT INTO ledger (source, external_id, message_id, body_hash, at) VALUES (?, ?, ?, ?, ?)
"""


def digest_of(*facts: Any) -> str:
    """The hash by which two requests under one key are compared."""
    return hashlib.sha256(encode(facts).encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, slots=True)
class KnownKey:
    """The id of a key's message or task, and the digest of its request."""

    subject_id: str
    digest: str


def find(reader: Reader, owner: str, key: str) -> KnownKey | None:
    """Return the stored key, or None."""
    row = reader.one(
        "SELECT message_id, body_hash FROM ledger WHERE source = ? AND external_id = ?",
        (owner, key),
    )
    return None if row is None else KnownKey(*row)


def known(reader: Reader, owner: str, key: str, digest: str, **facts: str) -> str | None:
    """The id that the key stands for, or None.

    Raises ``Conflict`` if the ``digest`` differs; ``facts`` are added to it.
    """
    found = find(reader, owner, key) if key else None
    if found is None:
        return None
    if found.digest != digest:
        raise Conflict(
            f"the idempotency key {key!r} was used for another request ({found.subject_id}); "
            "use a fresh key, or repeat that request unchanged",
            **{"key": key, "message_id": found.subject_id, **facts},
        )
    return found.subject_id


def renew_tx(tx: Tx, owner: str, key: str, subject_id: str, digest: str, *, at: int) -> None:
    """Record that the key stands for ``subject_id`` now, whatever it stood for before."""
    tx.execute(
        f"{_LEDGER} ON CONFLICT DO UPDATE SET message_id = excluded.message_id, at = excluded.at",
        (owner, key, subject_id, digest, at),
    )


def enter_tx(tx: Tx, owner: str, key: str, subject_id: str, digest: str, *, at: int) -> bool:
    """Record that the key stands for ``subject_id``; False if it is empty or stands for another."""
    sql = f"{_LEDGER} ON CONFLICT DO NOTHING"
    return bool(key and tx.execute(sql, (owner, key, subject_id, digest, at)).rowcount)
