"""Choosing among the agents of a role, in the transaction that inserts the message.

The loads are in memory and include what the same commit has inserted before, so that simultaneous
choices spread evenly. The same candidates always give the same choice: by load, then by idle time,
then by id. So a person can check it against the recorded one.
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from agentsup.mailbox.mail.directory import DirectoryEntry, check_may_send, may_send
from agentsup.mailbox.mail.values import SHOWN, SentMail
from agentsup.mailbox.messages.loads import AgentLoads
from agentsup.mailbox.messages.rows import need_message
from agentsup.model.errors import BadRequest, LoopDetected, NoAgentForRole, NotFound
from agentsup.model.event import EventType
from agentsup.model.message import Accepted, NewMessage
from agentsup.store import Reader, Tx, append, name_of


@dataclass(frozen=True, slots=True)
class LoadCandidate:
    """An agent that could do the work.

    ``load`` is the number of its open messages, ``last_at`` (wall ms) when it last got or finished
    one.
    """

    agent_id: str
    name: str
    load: int = 0
    last_at: int = 0


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """The chosen agent, all candidates, and the reason in a few words."""

    chosen: LoadCandidate
    reason: str
    considered: tuple[LoadCandidate, ...]


def eligible(
    candidates: Iterable[DirectoryEntry], sender_id: str, busy_with_it: Collection[str]
) -> tuple[DirectoryEntry, ...]:
    """The candidates that may be chosen.

    Agents that wait for this very work (``busy_with_it``) may not; the sender may only if there is
    no other, an agent that is down only if all are.
    """
    apart = [each for each in candidates if each.agent_id not in busy_with_it]
    others = [each for each in apart if each.agent_id != sender_id] or apart
    return tuple([each for each in others if each.is_up] or others)


def least_loaded(candidates: Sequence[LoadCandidate]) -> AgentChoice:
    """The least loaded candidate; among equals the one idle longest, then the first by id.

    Raises ``ValueError`` if there are no candidates.
    """
    least = min(each.load for each in candidates)
    tied = [each for each in candidates if each.load == least]
    chosen = min(tied, key=lambda each: (each.last_at, each.agent_id))
    if len(candidates) == 1:
        reason = "the only one"
    elif len(tied) == 1:
        reason = f"least loaded, {chosen.load} open"
    elif sum(each.last_at == chosen.last_at for each in tied) == 1:
        reason = f"least loaded, {chosen.load} open, and idle longest"
    else:
        reason = f"least loaded, {chosen.load} open, and first by id among equals"
    return AgentChoice(chosen, reason, tuple(candidates))


def candidates_of(
    entries: Sequence[DirectoryEntry],
    role: str,
    team: str,
    sender: DirectoryEntry | None,
    path: Sequence[str],
) -> tuple[DirectoryEntry, ...]:
    """The agents that may get work of this role.

    ``path`` has the agents that wait for this very work. Raises as ``Dispatcher.assign``.
    """
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
        allowed = [each for each in found if each.agent_id == own or may_send(sender, each)]
        if not allowed:
            check_may_send(sender, found[0])
        found = allowed
    candidates = eligible(found, own, path)
    if not candidates:
        raise LoopDetected(
            f"every agent with role {role} already waits for this work; answer with what you know",
            role=role,
        )
    return candidates


def members_of(entries: Iterable[DirectoryEntry], team: str) -> list[DirectoryEntry]:
    """The members of a team. Raises ``NotFound`` for a team without members."""
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


def choose(loads: AgentLoads, candidates: Sequence[DirectoryEntry]) -> AgentChoice:
    """Choose by the number of open messages now, and by idle time among equals."""
    count, last_at = loads.open.get, loads.last_at.get
    return least_loaded(
        [
            LoadCandidate(
                each.agent_id, each.name, count(each.agent_id, 0), last_at(each.agent_id, 0)
            )
            for each in candidates
        ]
    )


def note_choice_tx(
    tx: Tx,
    template: NewMessage,
    accepted: Accepted,
    choice: AgentChoice,
    *,
    role: str,
    team: str,
    at: int,
) -> None:
    """Record who was chosen, among whom, and why."""
    shown = heapq.nsmallest(
        SHOWN, choice.considered, key=lambda each: (each.load, each.last_at, each.agent_id)
    )
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
            "candidates": [{"agent": each.name, "load": each.load} for each in shown],
            "considered": len(shown),
        },
    )


def known_sent(reader: Reader, message_id: str) -> SentMail:
    """The result for a message that an earlier request under the key has stored."""
    message = need_message(reader, message_id)
    return SentMail(
        message_id,
        message.agent_id,
        name_of(reader, message.agent_id),
        message.session_id,
        message.thread_id or message.root_id,
        duplicate=True,
    )


def _near(word: str, known: Sequence[str]) -> str | None:
    folded = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(word.casefold(), folded, n=1)
    return folded[close[0]] if close else None
