"""Idempotency keys of what is more than one message, or chooses its target itself.

A repetition must meet what was done before, not a fresh choice; so the key is looked up before
anything is decided, in the transaction of the deed. Whose a key is, ``naming.key_owner`` tells; the entries lie in the ledger like all others.
"""

from __future__ import annotations

import hashlib
from typing import Any

from agentsup.mailbox.accept import LEDGER_SQL
from agentsup.mailbox.rows import encode
from agentsup.model.errors import Conflict
from agentsup.store.database import Reader, Tx

__all__ = ["digest_of", "enter_tx", "known"]


def digest_of(*facts: Any) -> str:
    """What makes two requests under one key the same request."""
    return hashlib.sha256(encode(facts).encode("utf-8", "replace")).hexdigest()


def known(reader: Reader, owner: str, key: str, digest: str) -> str | None:
    """What the key stands for already, or None. Raises ``Conflict`` if it was used for another
    request."""
    if not key:
        return None
    row = reader.one(
        "SELECT message_id, body_hash FROM ledger WHERE source = ? AND external_id = ?",
        (owner, key),
    )
    if row is None:
        return None
    if row["body_hash"] != digest:
        raise Conflict(
            f"the idempotency key {key!r} was used for another request ({row['message_id']}); "
            "use a fresh key, or repeat that request unchanged",
            key=key,
            message_id=row["message_id"],
        )
    return str(row["message_id"])


def enter_tx(tx: Tx, owner: str, key: str, subject_id: str, digest: str, *, at: int) -> None:
    """Note what the key stands for from now on."""
    if key:
        tx.execute(LEDGER_SQL, (owner, key, subject_id, digest, at))
