"""The persona of a session and the callers above it, read from the store at each turn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.mailbox.messages import ChosenModel
from agentsup.store import Reader, Tx

_MOST = 8
"""Parent sessions that are read at most; runs are never nested so deep."""

_SQL = f"""
WITH RECURSIVE up(session_id, height) AS (
    SELECT ?, 0
    UNION ALL
    SELECT p.parent_session_id, up.height + 1 FROM up
    JOIN session_parents p ON p.session_id = up.session_id WHERE up.height < {_MOST}
)
SELECT coalesce(o.agent_id, s.agent_id, '') AS agent_id, o.agent_id AS persona, r.role,
    t.patterns, m.key, m.model, m.service, m.notified
FROM up
LEFT JOIN sessions s ON s.session_id = up.session_id
LEFT JOIN session_personas o ON o.session_id = up.session_id
LEFT JOIN session_roles r ON r.session_id = up.session_id
LEFT JOIN session_tools t ON t.session_id = up.session_id
LEFT JOIN chat_models m ON up.height = 0 AND m.agent_id = s.agent_id AND m.key = (
    SELECT max(key) FROM chat_models WHERE agent_id = s.agent_id AND key IN (?, ?)
)
ORDER BY up.height
"""  # noqa: S608 - a constant


@dataclass(frozen=True, slots=True)
class SessionActor:
    """The agent that works in a session, and the session's role (empty: none; None: the agent's
    own)."""

    agent_id: str
    role: str | None = None
    tools: tuple[str, ...] | None = None
    """The tool patterns to which the session is limited, if it is."""


@dataclass(frozen=True, slots=True)
class SessionIdentity:
    """The recorded identity of a session. ``persona`` is the id of the agent that does its turns
    (empty: the session's own agent); ``callers`` had the work started, the nearest first."""

    persona: str = ""
    role: str | None = None
    tools: tuple[str, ...] | None = None
    callers: tuple[SessionActor, ...] = ()
    chosen: ChosenModel | None = None
    """The model that was chosen for the chat of the turn."""


def identity_of(
    reader: Reader, session_id: str, chat: tuple[str, str] = ("", "")
) -> SessionIdentity:
    """The current identity of a session.

    ``chat`` has the keys of the turn's chat (``chat_models.keys_of_turn``); a topic's key is longer
    than that of its chat, and goes first.
    """
    own, *above = reader.all(_SQL, (session_id, *chat))
    chosen = None
    if own["model"] is not None:
        chosen = ChosenModel(own["key"], own["model"], own["service"], notified=own["notified"])
    return SessionIdentity(
        own["persona"] or "",
        own["role"],
        _patterns(own["patterns"]),
        tuple(
            SessionActor(row["agent_id"], row["role"], _patterns(row["patterns"])) for row in above
        ),
        chosen,
    )


def limit_tools_tx(tx: Tx, session_id: str, tools: Sequence[str]) -> None:
    """Limit the session to these patterns of tool names. A later call does not change them."""
    tx.execute(
        "INSERT INTO session_tools VALUES (?, ?) ON CONFLICT DO NOTHING",
        (session_id, json.dumps(list(tools))),
    )


def _patterns(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(json.loads(text))


def stricter_mode(own: str | None, callers: list[str | None]) -> str | None:
    """The permission mode of work that is done for others: the strictest mode of all of them."""
    modes = [own, *callers]
    if "plan" in modes:
        return "plan"
    careful = [mode for mode in modes if mode != "bypassPermissions"]
    return own if not careful or own != "bypassPermissions" else careful[0]
