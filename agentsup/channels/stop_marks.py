"""What a stop that was given elsewhere does to texts that a platform has given and nobody has read.

In the chat of a platform the order of its rows decides, so its own channel drops them (`stops`).
Everywhere else what is kept when the stop is written came before it: that is marked in the stop's
transaction, and dropped when its turn comes, also after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from agentsup.store.database import Reader, Tx

__all__ = ["is_marked", "mark_tx", "sharing"]

_KEPT: Final[Mapping[str, str]] = MappingProxyType(
    {"telegram": "updates", "matrix": "matrix_events"}
)
"""Channel to the table of what it was given."""


def mark_tx(tx: Tx, scope: str, given_in: str) -> None:
    """A stop is written: mark what nobody has read yet. ``scope``: all | agent:<agent_id> |
    session:<session_id>. ``given_in``: the channel that has dropped its own already, or empty."""
    for channel, table in _KEPT.items():
        if channel == given_in:
            continue
        tx.execute(
            f"DELETE FROM stop_marks WHERE channel = ? AND NOT EXISTS (SELECT 1 FROM {table} AS k"  # noqa: S608 - constants
            " WHERE k.row_id = stop_marks.row_id AND k.state = 'received')",
            (channel,),
        )
        tx.execute(
            "INSERT INTO stop_marks (channel, row_id, scope)"  # noqa: S608 - constants
            f" SELECT ?, row_id, ? FROM {table} WHERE state = 'received' ON CONFLICT DO NOTHING",
            (channel, scope),
        )


def is_marked(
    reader: Reader, channel: str, row_ids: Iterable[int], *, agent_id: str, conversation: str
) -> bool:
    """Whether one of those that this agent was given in that conversation was stopped elsewhere."""
    found = reader.scalar(
        "SELECT 1 FROM stop_marks WHERE channel = ?"
        " AND row_id IN (SELECT value FROM json_each(?))"
        " AND scope IN ('all', 'agent:' || ?, 'session:' || (SELECT session_id FROM pointers"
        " WHERE agent_id = ? AND key = ?)) LIMIT 1",
        (channel, json.dumps(list(row_ids)), agent_id, agent_id, f"chat:{channel}:{conversation}"),
    )
    return found is not None


def sharing(reader: Reader, agent_id: str, channel: str, conversation: str) -> frozenset[str]:
    """The other conversations of that agent and channel that are in the same session."""
    prefix = f"chat:{channel}:"
    rows = reader.all(
        "SELECT substr(other.key, ?) FROM pointers AS here JOIN pointers AS other"
        " ON other.agent_id = here.agent_id AND other.session_id = here.session_id"
        " WHERE here.agent_id = ? AND here.key = ? AND other.key <> here.key"
        " AND substr(other.key, 1, ?) = ?",
        (len(prefix) + 1, agent_id, prefix + conversation, len(prefix), prefix),
    )
    return frozenset(str(row[0]) for row in rows)
