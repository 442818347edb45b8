"""Choosing among the agents of a role, in the transaction that gives the work away.

Loads are read where the message is inserted, so many who choose at once spread evenly. The choice
itself is pure (``choice``); here are its facts, its record and what an earlier one has stored.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from agentsup.mailbox.bus import DirectoryEntry, check_may_send
from agentsup.mailbox.choice import Candidate, Choice, eligible, least_loaded
from agentsup.mailbox.letters import SHOWN, Sent
from agentsup.mailbox.reading import open_counts
from agentsup.mailbox.rows import encode, need_message
from agentsup.model.errors import BadRequest, LoopDetected, NoAgentForRole, NotFound
from agentsup.model.event import EventType
from agentsup.model.message import Accepted, NewMessage
from agentsup.store.database import Reader, Tx
from agentsup.store.events import append

__all__ = ["candidates_of", "choose", "known_sent", "members_of", "note_choice_tx"]

_LAST_SQL = """
SELECT j.value, (SELECT max(m.accepted_at, coalesce(m.finished_at, 0)) FROM messages m
  WHERE m.agent_id = j.value ORDER BY m.seq DESC LIMIT 1)
FROM json_each(?) j
"""


def candidates_of(
    entries: Sequence[DirectoryEntry],
    role: str,
    team: str,
    sender: DirectoryEntry | None,
    path: Sequence[str],
) -> tuple[Candidate, ...]:
    """Who may be given work of this role, with nothing said of loads yet. ``path`` has the agents
    that wait for this very work. Raises as ``Dispatcher.assign``."""
    wanted = role.casefold().strip()
    if not wanted:
        raise BadRequest("name a role", field="role")
    members = members_of(entries, team) if team else entries
    found = [each for each in members if each.role.casefold() == wanted]
    if not found:
        roles = sorted({each.role for each in entries if each.role})
        where = f" in team {team}" if team else ""
        raise NoAgentForRole(
            f"there is no agent with role {role!r}{where}. Roles: {', '.join(roles) or 'none'}",
            role=role,
            team=team,
            did_you_mean=_near(role, roles),
        )
    able = [each for each in found if not each.role_problem]
    if not able:
        raise NoAgentForRole(
            f"no agent with role {role!r} can work: {found[0].role_problem}", role=role, team=team
        )
    found, own = able, sender.agent_id if sender is not None else ""
    if sender is not None:
        allowed = [each for each in found if each.agent_id == own or _may_send(sender, each)]
        if not allowed:
            check_may_send(sender, found[0])
        found = allowed
    candidates = eligible(
        [Candidate(each.agent_id, each.name, is_up=each.is_up) for each in found], own, path
    )
    if not candidates:
        raise LoopDetected(
            f"every agent with role {role} already waits for this work; answer with what you know",
            role=role,
        )
    return candidates


def members_of(entries: Iterable[DirectoryEntry], team: str) -> list[DirectoryEntry]:
    """The members of a team. Raises ``NotFound`` for one that nobody is in."""
    everyone = list(entries)
    found = [each for each in everyone if each.team.casefold() == team.casefold().strip()]
    if not found:
        teams = sorted({each.team for each in everyone if each.team})
        raise NotFound(
            f"there is no team {team!r}. Teams: {', '.join(teams) or 'none'}",
            team=team,
            did_you_mean=_near(team, teams),
        )
    return found


def choose(reader: Reader, candidates: Sequence[Candidate]) -> Choice:
    """The choice by what is open now; idleness is looked up only among equals."""
    loads = open_counts(reader)
    least = min(loads.get(each.agent_id, 0) for each in candidates)
    tied = [each.agent_id for each in candidates if loads.get(each.agent_id, 0) == least]
    last: dict[str, int] = {}
    if len(tied) > 1:
        last = {row[0]: row[1] or 0 for row in reader.all(_LAST_SQL, (encode(tied),))}
    return least_loaded(
        [
            Candidate(
                each.agent_id,
                each.name,
                loads.get(each.agent_id, 0),
                last.get(each.agent_id, 0),
                each.is_up,
            )
            for each in candidates
        ]
    )


def note_choice_tx(
    tx: Tx,
    template: NewMessage,
    accepted: Accepted,
    choice: Choice,
    *,
    role: str,
    team: str,
    at: int,
) -> None:
    """Record who was chosen, among whom, and why."""
    shown = sorted(choice.considered, key=lambda each: (each.load, each.last_at, each.agent_id))
    append(
        tx,
        EventType.ROUTE_CHOSEN,
        at=at,
        agent_id=template.sender_agent_id,
        message_id=template.in_reply_to or accepted.message_id,
        data={
            "deed": "assign",
            "by": template.principal.label,
            "role": role,
            "team": team,
            "agent": choice.chosen.name,
            "sent_as": accepted.message_id,
            "reason": choice.reason,
            "candidates": [{"agent": each.name, "load": each.load} for each in shown[:SHOWN]],
            "considered": len(shown),
        },
    )


def known_sent(reader: Reader, message_id: str) -> Sent:
    """What an earlier request under the key has stored."""
    message = need_message(reader, message_id)
    name = reader.scalar("SELECT name FROM agents WHERE agent_id = ?", (message.agent_id,))
    return Sent(
        message_id,
        message.agent_id,
        name or message.agent_id,
        message.session_id,
        message.thread_id or message.root_id,
        duplicate=True,
    )


def _near(word: str, known: Sequence[str]) -> str | None:
    folded = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(word.casefold(), folded, n=1)
    return folded[close[0]] if close else None


def _may_send(sender: DirectoryEntry, target: DirectoryEntry) -> bool:
    allowed = sender.can_delegate_to
    return allowed is None or target.name.casefold() in {each.casefold() for each in allowed}
