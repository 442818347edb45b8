"""In whose place a session's turns are done, and on whose behalf: read from the store at each turn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.store.database import Reader, Tx

_MOST = 8
"""Sessions looked at upwards; runs are not as deep as this."""

_SQL = f"""
WITH RECURSIVE up(session_id, height) AS (
    SELECT ?, 0
    UNION ALL
    SELECT p.parent_session_id, up.height + 1 FROM up
    JOIN session_parents p ON p.session_id = up.session_id WHERE up.height < {_MOST}
)
SELECT coalesce(o.agent_id, s.agent_id, '') AS agent_id, o.agent_id AS persona, r.role,
    t.patterns
FROM up
LEFT JOIN sessions s ON s.session_id = up.session_id
LEFT JOIN session_personas o ON o.session_id = up.session_id
LEFT JOIN session_roles r ON r.session_id = up.session_id
LEFT JOIN session_tools t ON t.session_id = up.session_id
ORDER BY up.height
"""  # noqa: S608 - a constant


@dataclass(frozen=True, slots=True)
class Caller:
    """Who works in a session: an agent, and the role the session was put in (empty: in none; None:
    in its agent's)."""

    agent_id: str
    role: str | None = None
    tools: tuple[str, ...] | None = None
    """What the session was bounded to when it was begun."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is on record of a session. ``persona`` is the agent in whose place its turns are done
    (empty: its own); ``callers`` are those who had the work begun, the nearest first."""

    persona: str = ""
    role: str | None = None
    tools: tuple[str, ...] | None = None
    callers: tuple[Caller, ...] = ()


def standing_of(reader: Reader, session_id: str) -> Standing:
    """The standing of a session now."""
    own, *above = reader.all(_SQL, (session_id,))
    return Standing(
        own["persona"] or "",
        own["role"],
        _patterns(own["patterns"]),
        tuple(Caller(row["agent_id"], row["role"], _patterns(row["patterns"])) for row in above),
    )


def bound_tx(tx: Tx, session_id: str, tools: Sequence[str]) -> None:
    """Let the session use no more than these patterns over tools."""
    tx.execute(
        "INSERT INTO session_tools VALUES (?, ?) ON CONFLICT DO NOTHING",
        (session_id, json.dumps(list(tools))),
    )


def stand_in_tx(tx: Tx, session_id: str, agent_id: str) -> None:
    """Let the session's turns be done in the place of that agent."""
    tx.execute(
        "INSERT INTO session_personas VALUES (?, ?) ON CONFLICT DO NOTHING", (session_id, agent_id)
    )


def _patterns(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(json.loads(text))


def stricter_mode(own: str | None, callers: list[str | None]) -> str | None:
    """The permission mode of work done for others: as careful as the most careful of them."""
    modes = [own, *callers]
    if "plan" in modes:
        return "plan"
    careful = [mode for mode in modes if mode != "bypassPermissions"]
    return own if not careful or own != "bypassPermissions" else careful[0]
