"""Requests of strangers to be let in, as rows: made in bounds, decided once.

A row is kept after its end, so that the bounds count over restarts. Times are wall ms. A row from the
future, left by a clock that was set back, counts for the bounds of a day and can't be used.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from agentsup.kit.entropy import Entropy
from agentsup.kit.text import visible
from agentsup.model.event import EventType
from agentsup.model.pairing import ALPHABET, CODE_CHARS, OPEN_MS, PairingRequest, Stranger
from agentsup.store import Reader, Retention, Tx, append

OPEN_PER_AGENT: Final = 10
OPEN_PER_PERSON: Final = 3
"""Open requests of one platform user at all agents."""
PER_PERSON: Final = 3
"""Requests of one platform user to one agent within a day."""
PER_AGENT: Final = 50
"""Requests to one agent within a day."""
DAY_MS: Final = 86_400_000
REFUSED_MS: Final = 30 * DAY_MS
"""Time in which a refused stranger gets no further code from that agent."""
_NAME_CHARS: Final = 40
_COLUMNS: Final = "code, agent_id, channel, user_id, name, conversation, language, asked_at"


def ask_tx(
    tx: Tx, agent_id: str, stranger: Stranger, code: str, *, at: int
) -> PairingRequest | None:
    """Store a request; None if there is an open one already, or a bound is reached."""
    # Of a clock that was set back by more than a day; they would hold up everybody until then.
    future = (at + DAY_MS,)
    tx.execute("DELETE FROM pairings WHERE asked_at > ? AND state <> 'refused'", future)
    tx.execute("UPDATE pairings SET asked_at = ? WHERE asked_at > ?", (at - DAY_MS, *future))
    mine = (stranger.channel, stranger.user_id)
    rows = tx.all(
        "SELECT agent_id, channel, user_id, asked_at, state FROM pairings"
        " WHERE asked_at > ? AND (agent_id = ? OR (channel = ? AND user_id = ?))",
        (at - REFUSED_MS, agent_id, *mine),
    )
    at_agent = [row for row in rows if row["agent_id"] == agent_id]
    of_person = [row for row in rows if (row["channel"], row["user_id"]) == mine]
    here = [row for row in of_person if row["agent_id"] == agent_id]
    today = sum(row["asked_at"] > at - DAY_MS for row in at_agent)
    is_over = (
        any(row["state"] == "refused" for row in here)
        or any(_is_open(row, at) for row in here)
        or sum(row["asked_at"] > at - DAY_MS for row in here) >= PER_PERSON
        or today >= PER_AGENT
        or sum(_is_open(row, at) for row in at_agent) >= OPEN_PER_AGENT
        or sum(_is_open(row, at) for row in of_person) >= OPEN_PER_PERSON
    )
    if is_over:
        return None
    tx.execute(
        f"INSERT INTO pairings ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - constants
        (code, agent_id, *mine, stranger.name, stranger.conversation, stranger.language, at),
    )
    data = {"channel": stranger.channel, "id": stranger.user_id}
    append(tx, EventType.STRANGER_ASKED, at=at, agent_id=agent_id, data=data)
    return PairingRequest(code, agent_id, stranger, at)


def open_requests(reader: Reader, *, at: int) -> tuple[PairingRequest, ...]:
    """The requests that may be decided now, oldest first."""
    rows = reader.all(
        f"SELECT {_COLUMNS} FROM pairings WHERE state = 'open' AND asked_at > ?"  # noqa: S608
        " ORDER BY asked_at, pairing_id",
        (at - OPEN_MS,),
    )
    found = (PairingRequest(row[0], row[1], Stranger(*tuple(row)[2:7]), row[7]) for row in rows)
    return tuple(each for each in found if each.is_open(at))


def decide_tx(tx: Tx, code: str, state: str, *, by: str, at: int) -> bool:
    """End an open request as ``admitted`` or ``refused``; False if it was decided before."""
    cursor = tx.execute(
        "UPDATE pairings SET state = ?, decided_at = ?, decided_by = ?"
        " WHERE code = ? AND state = 'open'",
        (state, at, by, code),
    )
    return cursor.rowcount > 0


def new_code(entropy: Entropy) -> str:
    """A code that nobody can guess: 40 random bits."""
    digest = hashlib.sha256(entropy.token().encode()).digest()
    return "".join(ALPHABET[byte % len(ALPHABET)] for byte in digest[:CODE_CHARS])


def shown_name(name: str) -> str:
    """A name that a stranger chose, short, with all of it visible, and without quotes that could
    end it where it is quoted."""
    plain = " ".join(visible(" ".join(name.split())).split())
    return re.sub(r"[“”„\"<>]", "'", plain)[:_NAME_CHARS]


def retention_rules() -> tuple[Retention, ...]:
    """Rows are of use as long as a refusal holds."""
    return (Retention("pairings", "asked_at < :cutoff", REFUSED_MS, key="pairing_id"),)


def _is_open(row: Any, at: int) -> bool:
    asked_at: int = row["asked_at"]
    return row["state"] == "open" and asked_at <= at < asked_at + OPEN_MS
