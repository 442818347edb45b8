"""Large results: stored for seven days and shown in pages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from agentsup.kit.clock import Clock
from agentsup.kit.compute import compute
from agentsup.kit.entropy import Entropy
from agentsup.mailbox.queue import answer_piece
from agentsup.model.errors import NotFound
from agentsup.model.hook import CallFacts
from agentsup.store import Database, Reader, Retention, Tx

MAX_RESULT_CHARS = 2_000_000
"""The rest of a longer result is not stored."""
MAX_AGENT_CHARS = 32_000_000
"""The most that is stored of one agent; its oldest results are removed first."""
_STORED_SQL = (
    "SELECT name, call_id, substr(text, ?, ?) AS piece, chars, is_outside FROM results"
    " WHERE result_id = ? AND agent_id = ? AND session_id = ?"
)
KEEP_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class ResultPage:
    """A piece of a stored result. ``next_offset`` is None at its end."""

    name: str
    call_id: str
    text: str
    chars: int
    next_offset: int | None
    is_outside: bool


def retention_rules() -> tuple[Retention, ...]:
    """Remove results after seven days."""
    return (Retention("results", "at < :cutoff", KEEP_MS, key="result_id"),)


class ResultStore:
    """The table ``results``. Each row belongs to the session in which the call was made."""

    def __init__(self, database: Database, clock: Clock, entropy: Entropy) -> None:
        self._database = database
        self._clock = clock
        self._entropy = entropy

    async def keep(self, call: CallFacts, text: str) -> str:
        """Store ``text`` (its first 2,000,000 characters) and return its reference."""
        result_id = self._entropy.new_id("res")
        stored = await compute(partial(_storable, text), key=call.agent_id)
        at = self._clock.now_ms()

        def write(tx: Tx) -> None:
            _make_room(tx, call.agent_id, len(stored))
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
                    stored,
                    len(stored),
                    int(call.is_outside),
                    at,
                ),
            )

        await self._database.write(write, name="results.keep")
        return result_id

    async def page(
        self, result_id: str, *, agent_id: str, session_id: str, offset: int, limit: int
    ) -> ResultPage:
        """Characters ``offset`` to ``offset + limit`` of a stored result, or of the answer to a
        message that this session has sent (by its id). Raises ``NotFound``, also for another
        agent's or session's result."""

        def read(reader: Reader) -> ResultPage:
            find = (offset + 1, limit, result_id, agent_id, session_id)
            is_answer = result_id.startswith("msg_")
            row = answer_piece(reader, *find) if is_answer else stored_piece(reader, *find)
            if row is None:
                raise NotFound(
                    f"there is no stored result {result_id} in this session; results are kept for "
                    "seven days, the newest of each agent",
                    result_id=result_id,
                )
            end = offset + len(row["piece"])
            return ResultPage(
                row["name"],
                row["call_id"],
                row["piece"],
                row["chars"],
                end if end < row["chars"] else None,
                bool(row["is_outside"]),
            )

        return await self._database.read(read, name="results.page")


def stored_piece(
    reader: Reader, start: int, chars: int, result_id: str, agent_id: str, session_id: str
) -> Any:
    """A piece of a result that the session of the agent has stored, or None. The row is that of
    ``answer_piece``."""
    return reader.one(_STORED_SQL, (start, chars, result_id, agent_id, session_id))


def _storable(text: str) -> str:
    """``text`` cut and made valid UTF-8 without NUL (SQL would count characters only up to it)."""
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
