"""Rows of the table ``grants``, listed and revoked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentsup.approvals import patterns
from agentsup.approvals.rules import grant_id
from agentsup.kit.clock import Clock
from agentsup.mailbox.messages import MailboxContext
from agentsup.model.errors import Conflict, NotFound
from agentsup.model.event import EventType
from agentsup.model.principal import Principal
from agentsup.model.question import Question, parse_permission_key
from agentsup.store import Database, Reader, Retention, Tx, append, from_row, values_of

MOST_PATTERNS = 100
"""The most grants by pattern that an agent has; the one that was not used for longest makes room."""
_UNUSED_MS = 365 * 86_400_000
_OPEN_RUN = (
    "EXISTS (SELECT 1 FROM messages AS m WHERE m.message_id = g.message_id"
    " AND m.state IN ('queued', 'leased', 'parked'))"
)
_IN_TIME = (
    "g.revoked_at IS NULL AND (g.until_at IS NULL OR (g.until_at > :now AND g.granted_at <= :now))"
    f" AND (g.pattern = '' OR COALESCE(g.last_used_at, g.granted_at) > :now - {_UNUSED_MS})"
)
_STANDS = f"{_IN_TIME} AND (g.scope = 'always' OR {_OPEN_RUN})"


@dataclass(frozen=True, slots=True)
class Grant:
    """A lasting approval of a tool: ``scope`` is run (of one message) or always (of an agent).

    If somebody else may change the tool, the grant is valid only for that ``version`` of it.
    """

    grant_id: str
    agent_id: str
    tool: str
    scope: str
    message_id: str
    granted_by: str
    granted_at: int
    version: str = ""
    pattern: str = ""
    """The command lines that it covers; empty: all calls of the tool."""
    workspace: str = ""
    """The directory in which it covers them; empty: any."""
    person: str | None = None
    """For whose work it covers them (``Principal.person``); None: for anybody's."""
    until_at: int | None = None
    """When it ends (ms, wall time), unless it is revoked before."""
    last_used_at: int | None = None
    uses: int = 0
    """Number of calls that it has allowed."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The facts about a call that a grant is checked against: ``permission`` of an agent, in a run,
    for a person's work, and for commands in a ``workspace``. ``now`` is the later one of wall and
    steady time (ms)."""

    agent_id: str
    permission: str
    message_id: str
    person: str
    workspace: str
    now: int


def time_of(ctx: MailboxContext) -> int:
    """The time (ms) by which grants end: a clock that is set back makes none last longer."""
    return max(ctx.clock.now_ms(), ctx.steady.now_ms())


def _grant(row: Any) -> Grant:
    tool, version = parse_permission_key(row["tool"])
    return from_row(Grant, row, tool=tool, version=version)


def active_grant(reader: Reader, usage: Usage, covers: Callable[[str], bool]) -> Grant | None:
    """The active grant for a call, or None. ``covers``: whether a pattern covers it."""
    found = reader.values(
        _grant,
        f"SELECT g.* FROM grants AS g WHERE {_IN_TIME} AND g.agent_id = :agent_id"  # noqa: S608 - constants
        " AND g.tool = :permission AND (g.scope = 'always' OR g.message_id = :message_id)"
        " AND (g.person IS NULL OR g.person = :person)"
        " AND g.workspace IN ('', :workspace) ORDER BY g.scope, g.pattern",
        values_of(usage),
    )
    return next((one for one in found if not one.pattern or covers(one.pattern)), None)


def use_tx(tx: Tx, usage: Usage, call_id: str, covers: Callable[[str], bool]) -> Grant | None:
    """Count a call that a grant allows; None if no grant stands for it any more.

    A call that is decided once more after a kill counts once.
    """
    found = active_grant(tx, usage, covers)
    if found is not None:
        tx.execute(
            "UPDATE grants SET last_used_at = ?, uses = uses + (last_call <> ?), last_call = ?"
            " WHERE grant_id = ?",
            (usage.now, call_id, call_id, found.grant_id),
        )
    return found


@dataclass(frozen=True, slots=True)
class GrantTerms:
    """The terms of a new grant: all calls of a tool, or those of a ``pattern`` (see ``Grant``)."""

    scope: str
    pattern: str = ""
    workspace: str = ""
    person: str | None = None
    until_at: int | None = None


def grant_tx(tx: Tx, question: Question, terms: GrantTerms, by: Principal, at: int) -> None:
    """Store the grant of an answer, under the run's own id; an older answer changes nothing."""
    given = grant_id(question.message_id, question.permission, terms.pattern)
    row = values_of(terms) | {
        "grant_id": given,
        "agent_id": question.agent_id,
        "tool": question.permission,
        "message_id": question.message_id,
        "question_id": question.question_id,
        "granted_by": by.label,
        "granted_at": at,
    }
    tx.execute(
        f"INSERT INTO grants ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})"  # noqa: S608 - names of ours
        " ON CONFLICT (grant_id) DO UPDATE SET"
        " scope = excluded.scope, question_id = excluded.question_id,"
        " granted_by = excluded.granted_by, granted_at = excluded.granted_at,"
        " workspace = excluded.workspace, person = excluded.person,"
        " until_at = excluded.until_at, revoked_by = '', revoked_at = NULL"
        " WHERE excluded.question_id > grants.question_id",
        row,
    )
    _tell(tx, EventType.GRANT_GIVEN, question.agent_id, question.message_id, at, given, by)
    tx.execute(
        "UPDATE grants SET revoked_at = :at, revoked_by = 'too many' WHERE grant_id IN ("
        "SELECT g.grant_id FROM grants AS g WHERE g.agent_id = :agent AND g.revoked_at IS NULL"
        " AND g.pattern <> '' AND g.scope = 'always' AND g.grant_id <> :given"
        " ORDER BY COALESCE(g.last_used_at, g.granted_at) DESC LIMIT -1 OFFSET :most)",
        {"at": at, "agent": question.agent_id, "given": given, "most": MOST_PATTERNS - 1},
    )


def retention_rules() -> tuple[Retention, ...]:
    """Remove grants for a run, and revoked and ended ones, after 30 days."""
    old = "granted_at < :cutoff AND (scope = 'run' OR revoked_at < :cutoff OR until_at < :cutoff)"
    return (Retention("grants", old, 30 * 86_400_000, key="grant_id"),)


class Grants:
    """Lists active grants and revokes them, for people."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def all(self, agent_id: str | None = None) -> Sequence[Grant]:
        """Active grants, newest first; of one agent, or of all."""

        def read(reader: Reader) -> list[Grant]:
            found = reader.values(
                _grant,
                f"SELECT g.* FROM grants AS g WHERE {_STANDS}"  # noqa: S608 - a constant
                " AND (:agent IS NULL OR g.agent_id = :agent)"
                " ORDER BY g.granted_at DESC, g.grant_id",
                {"agent": agent_id, "now": self._clock.now_ms()},
            )
            return [one for one in found if not one.pattern or patterns.holds(one.pattern)]

        return await self._database.read(read, name="approvals.list")

    async def revoke(self, given: str, by: Principal, agent_id: str | None = None) -> Grant:
        """Revoke a grant: the next call of that tool is asked about again.

        Raises ``NotFound`` (there is none with that id, or it is another agent's) and ``Conflict``
        (it was revoked before).
        """

        def step(tx: Tx) -> Grant:
            row = tx.one("SELECT * FROM grants WHERE grant_id = ?", (given,))
            if row is None or (agent_id is not None and row["agent_id"] != agent_id):
                raise NotFound(f"there is no grant {given}; list those in force", grant_id=given)
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
            return _grant(row)

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
