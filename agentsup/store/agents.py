"""The table of agents: their ids and names, also of those that were removed.

The daemon's roster decides what is in it; all others ask for names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentsup.store.transaction import Reader, Tx


def name_of(reader: Reader, agent_id: str) -> str:
    """The agent's name; its id if the name isn't stored."""
    return str(reader.scalar("SELECT name FROM agents WHERE agent_id = ?", (agent_id,)) or agent_id)


def names(reader: Reader) -> dict[str, str]:
    """Agent id to name, of all agents that there were."""
    return {row[0]: row[1] for row in reader.all("SELECT agent_id, name FROM agents")}


def created_at(reader: Reader) -> dict[str, int]:
    """Agent id to the wall time (ms) at which the agent was first declared."""
    return {row[0]: row[1] for row in reader.all("SELECT agent_id, created_at FROM agents")}


def is_removed(reader: Reader, agent_id: str) -> bool:
    """Whether there was such an agent, and it is not declared any more."""
    found = reader.scalar("SELECT 1 FROM agents WHERE agent_id = ? AND present = 0", (agent_id,))
    return bool(found)


def all_rows(reader: Reader) -> Sequence[Any]:
    """All rows, for the roster."""
    return reader.all("SELECT * FROM agents")


def put_tx(
    tx: Tx, agent_id: str, name: str, *, desired: str, is_present: bool, overrides: str, at: int
) -> None:
    """Insert an agent, or set its fields; ``overrides`` is JSON, ``at`` the wall time in ms."""
    tx.execute(
        "INSERT INTO agents (agent_id, name, desired, present, overrides, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (agent_id) DO UPDATE SET"
        " name = excluded.name, desired = excluded.desired, present = excluded.present,"
        " overrides = excluded.overrides,"
        " removed_at = CASE WHEN excluded.present = 1 THEN NULL ELSE ? END",
        (agent_id, name, desired, int(is_present), overrides, at, at),
    )
