"""Leave that stands: rows of the table ``grants``, listed and taken back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsup.approvals import patterns
from agentsup.approvals.rules import grant_id
from agentsup.kit.clock import Clock
from agentsup.model.errors import Conflict, NotFound
from agentsup.model.event import EventType
from agentsup.model.principal import Principal
from agentsup.model.question import Question, of_leave
from agentsup.store.database import Database, Reader, Tx
from agentsup.store.events import append
from agentsup.store.retention import Retention

_OPEN_RUN = (
    "EXISTS (SELECT 1 FROM messages AS m WHERE m.message_id = g.message_id"
    " AND m.state IN ('queued', 'leased', 'parked'))"
)
_STANDS = f"g.revoked_at IS NULL AND (g.scope = 'always' OR {_OPEN_RUN})"


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave for a tool: ``scope`` run (of one message) or always (of an agent).

    Leave for a tool of somebody else's holds for the form that it had (``version``)."""

    grant_id: str
    agent_id: str
    tool: str
    scope: str
    message_id: str
    granted_by: str
    granted_at: int
    version: str = ""
    pattern: str = ""
    """Of which command lines; empty: whatever the tool does."""


def _grant(row: Mapping[str, Any]) -> Grant:
    tool, version = of_leave(row["tool"])
    return Grant(
        row["grant_id"],
        row["agent_id"],
        tool,
        row["scope"],
        row["message_id"],
        row["granted_by"],
        row["granted_at"],
        version,
        row["pattern"],
    )


def standing(
    reader: Reader, agent_id: str, leave: str, message_id: str, covers: Callable[[str], bool]
) -> Grant | None:
    """The grant that a call of this run has without being asked about; ``leave`` is what it takes,
    ``covers`` says whether a pattern fits it."""
    rows = reader.all(
        "SELECT * FROM grants WHERE revoked_at IS NULL AND agent_id = ? AND tool = ?"
        " AND (scope = 'always' OR message_id = ?) ORDER BY scope, pattern",
        (agent_id, leave, message_id),
    )
    found = (_grant(row) for row in rows)  # type: ignore[arg-type]  # Row is a mapping in all but name
    return next((one for one in found if not one.pattern or covers(one.pattern)), None)


def give_tx(
    tx: Tx, question: Question, scope: str, by: Principal, at: int, pattern: str = ""
) -> None:
    """Write down what an answer gave, under the run's own id; an older answer changes nothing."""
    given = grant_id(question.message_id, question.leave, pattern)
    tx.execute(
        "INSERT INTO grants (grant_id, agent_id, tool, scope, message_id, question_id, granted_by,"
        " granted_at, pattern) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (grant_id) DO UPDATE SET"
        " scope = excluded.scope, question_id = excluded.question_id,"
        " granted_by = excluded.granted_by, granted_at = excluded.granted_at,"
        " revoked_by = '', revoked_at = NULL WHERE excluded.question_id > grants.question_id",
        (
            given,
            question.agent_id,
            question.leave,
            scope,
            question.message_id,
            question.question_id,
            by.label,
            at,
            pattern,
        ),
    )
    _tell(tx, EventType.GRANT_GIVEN, question.agent_id, question.message_id, at, given, by)


def retention_rules() -> tuple[Retention, ...]:
    """Leave for a run that is long over, and what was taken back long ago, go."""
    old = "granted_at < :cutoff AND (scope = 'run' OR revoked_at < :cutoff)"
    return (Retention("grants", old, 30 * 86_400_000, key="grant_id"),)


class Grants:
    """What stands, for people who look at it and take it back."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def all(self, agent_id: str | None = None) -> Sequence[Grant]:
        """Leave that stands, newest first; of one agent, or of all."""

        def read(reader: Reader) -> list[Grant]:
            rows = reader.all(
                f"SELECT g.* FROM grants AS g WHERE {_STANDS}"  # noqa: S608 - a constant
                " AND (?1 IS NULL OR g.agent_id = ?1) ORDER BY g.granted_at DESC, g.grant_id",
                (agent_id,),
            )
            found = [_grant(row) for row in rows]  # type: ignore[arg-type]  # as above
            return [one for one in found if not one.pattern or patterns.holds(one.pattern)]

        return await self._database.read(read, name="approvals.list")

    async def revoke(self, given: str, by: Principal, agent_id: str | None = None) -> Grant:
        """Take leave back: the next call of that tool is asked about again.

        Raises ``NotFound`` (there is none of that id, or it is another agent's) and ``Conflict``
        (it was taken back before).
        """

        def step(tx: Tx) -> Grant:
            row = tx.one("SELECT * FROM grants WHERE grant_id = ?", (given,))
            if row is None or (agent_id is not None and row["agent_id"] != agent_id):
                raise NotFound(f"there is no grant {given}; list those that stand", grant_id=given)
            if row["revoked_at"] is not None:
                raise Conflict(
                    f"{given} was taken back before by {row['revoked_by']}", grant_id=given
                )
            at = self._clock.now_ms()
            tx.execute(
                "UPDATE grants SET revoked_at = ?, revoked_by = ? WHERE grant_id = ?",
                (at, by.label, given),
            )
            _tell(tx, EventType.GRANT_REVOKED, row["agent_id"], row["message_id"], at, given, by)
            return _grant(row)  # type: ignore[arg-type]  # as above

        return await self._database.write(step, name="approvals.revoke")


def _tell(
    tx: Tx,
    event: EventType,
    agent_id: str,
    message_id: str,
    at: int,
    given: str,
    by: Principal,
) -> None:
    append(
        tx,
        event,
        at=at,
        agent_id=agent_id,
        message_id=message_id,
        data={"grant_id": given, "by": by.label},
    )
