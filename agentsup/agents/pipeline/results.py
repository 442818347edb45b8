"""Large results: kept for a while, shown in pages."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.model.errors import NotFound
from agentsup.model.hook import CallFacts
from agentsup.store.database import Database, Reader, Tx
from agentsup.store.retention import Retention

MAX_RESULT_CHARS = 2_000_000
"""A result is kept up to here."""
MAX_AGENT_CHARS = 32_000_000
"""Kept of one agent in all; its oldest results go first."""
_KEPT = (
    "SELECT name, call_id, substr(text, ?, ?) AS piece, chars, is_outside FROM results"
    " WHERE result_id = ? AND agent_id = ? AND session_id = ?"
)
_ANSWER = (
    "SELECT 'answer' AS name, m.message_id AS call_id, substr(m.result_text, ?, ?) AS piece,"
    " length(m.result_text) AS chars, 0 AS is_outside FROM messages m"
    " JOIN messages p ON p.message_id = m.in_reply_to"
    " WHERE m.message_id = ? AND m.state = 'done' AND p.agent_id = ? AND p.session_id = ?"
)
KEEP_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of a stored result. ``next_offset`` is None at its end."""

    name: str
    call_id: str
    text: str
    chars: int
    next_offset: int | None
    is_outside: bool


def retention_rules() -> tuple[Retention, ...]:
    """Seven days, then they go."""
    return (Retention("results", "at < :cutoff", KEEP_MS, key="result_id"),)


class Results:
    """The table ``results``: each belongs to the session in which it was made."""

    def __init__(self, database: Database, clock: Clock, entropy: Entropy) -> None:
        self._database = database
        self._clock = clock
        self._entropy = entropy

    async def keep(self, call: CallFacts, text: str) -> str:
        """Store ``text`` (its first 2,000,000 characters) and return its reference."""
        result_id = self._entropy.new_id("res")
        kept = await asyncio.to_thread(_storable, text)
        at = self._clock.now_ms()

        def write(tx: Tx) -> None:
            _make_room(tx, call.agent_id, len(kept))
            tx.execute(
                "INSERT INTO results (result_id, agent_id, session_id, message_id, call_id, name,"
                " text, chars, is_outside, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    result_id,
                    call.agent_id,
                    call.session_id,
                    call.message_id,
                    call.call_id,
                    call.own_name or call.name,
                    kept,
                    len(kept),
                    int(call.is_outside),
                    at,
                ),
            )

        await self._database.write(write, name="results.keep")
        return result_id

    async def page(
        self, result_id: str, *, agent_id: str, session_id: str, offset: int, limit: int
    ) -> Page:
        """Characters ``offset`` to ``offset + limit`` of a stored result, or of the answer to a
        message that this session has sent (by its id). Raises ``NotFound``, also for another
        agent's or session's result."""

        def read(reader: Reader) -> Page:
            sql = _ANSWER if result_id.startswith("msg_") else _KEPT
            row = reader.one(sql, (offset + 1, limit, result_id, agent_id, session_id))
            if row is None:
                raise NotFound(
                    f"there is no stored result {result_id} in this session; results are kept for "
                    "seven days, the newest of each agent",
                    result_id=result_id,
                )
            end = offset + len(row["piece"])
            return Page(
                row["name"],
                row["call_id"],
                row["piece"],
                row["chars"],
                end if end < row["chars"] else None,
                bool(row["is_outside"]),
            )

        return await self._database.read(read, name="results.page")


def _storable(text: str) -> str:
    """What the store takes: valid UTF-8 without NUL (SQL would count characters only up to it)."""
    cut = text[:MAX_RESULT_CHARS]
    return cut.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def _make_room(tx: Tx, agent_id: str, wanted: int) -> None:
    total = int(
        tx.scalar("SELECT coalesce(sum(chars), 0) FROM results WHERE agent_id = ?", (agent_id,))
    )
    while total + wanted > MAX_AGENT_CHARS:
        oldest = tx.one(
            "SELECT result_id, chars FROM results WHERE agent_id = ? ORDER BY at, result_id LIMIT 1",
            (agent_id,),
        )
        if oldest is None:
            return
        tx.execute("DELETE FROM results WHERE result_id = ?", (oldest["result_id"],))
        total -= int(oldest["chars"])
