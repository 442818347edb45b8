"""Ranks the agents for work that needs capabilities, each with its reason. Pure.

More of the needed capabilities come first, then less load, then a fresher heartbeat (in bands, so
that a second more or less decides nothing), then the earlier registration. The same snapshot always
gives the same ranking, so a person can check it against the record.

A set of agents is an integer with a bit for each of them, in the order of registration; so a choice
among a hundred agents is a few operations on integers, and only the record needs all reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Self

FRESH_S, STALE_S = 10.0, 30.0
"""The greatest ages of a heartbeat, in seconds, in the first and in the second band."""


class Match(StrEnum):
    """The share of the needed capabilities that a candidate must have."""

    ANY = "any"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An agent that might do the work.

    ``heartbeat_age_s`` is None if it never sent one. ``registered_at`` is wall time in ms.
    ``why_not`` is the reason why it can't get any work, or empty.
    """

    agent_id: str
    name: str
    capabilities: tuple[str, ...] = ()
    heartbeat_age_s: float | None = 0.0
    registered_at: int = 0
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Agents with their indexes, in the order that decides last. Made by ``of``."""

    agents: tuple[Candidate, ...]
    bands: tuple[int, ...]
    able: Mapping[str, int]
    """Capability to the number of candidates that have it."""
    abilities: tuple[frozenset[str], ...]
    bits: Mapping[str, int]
    """An agent's own bit, by its id."""
    by_name: tuple[int, ...]

    @classmethod
    def of(cls, agents: Iterable[Candidate]) -> Self:
        """The index of these agents."""
        ordered = sorted(agents, key=lambda each: (each.registered_at, each.name, each.agent_id))
        able: dict[str, int] = {}
        abilities = []
        for number, each in enumerate(ordered):
            own = frozenset(capability.casefold().strip() for capability in each.capabilities)
            abilities.append(own)
            for capability in own:
                able[capability] = able.get(capability, 0) | 1 << number
        return cls(
            tuple(ordered),
            tuple(heartbeat_band(each.heartbeat_age_s) for each in ordered),
            able,
            tuple(abilities),
            {each.agent_id: 1 << number for number, each in enumerate(ordered)},
            tuple(sorted(range(len(ordered)), key=lambda number: ordered[number].name)),
        )


@dataclass(frozen=True, slots=True)
class RouteSnapshot:
    """The candidates at one instant. Made by ``of``."""

    candidates: Candidates
    loads: tuple[int, ...]
    waits_s: Mapping[str, float]
    levels: tuple[int, ...]
    """Those that may get work: first the least load with the freshest heartbeat."""

    @classmethod
    def of(
        cls, candidates: Candidates, loads: Mapping[str, int], waits_s: Mapping[str, float]
    ) -> Self:
        """``loads`` are the numbers of open messages by agent, ``waits_s`` how long agents get no
        work after failures."""
        levels: dict[tuple[int, int], int] = {}
        found, bit = [], 1
        for each, band in zip(candidates.agents, candidates.bands, strict=True):
            load = loads.get(each.agent_id, 0)
            found.append(load)
            if not each.why_not and each.agent_id not in waits_s:
                levels[load, band] = levels.get((load, band), 0) | bit
            bit <<= 1
        ordered = tuple(levels[level] for level in sorted(levels))
        return cls(candidates, tuple(found), waits_s, ordered)


@dataclass(frozen=True, slots=True)
class RouteQuery:
    """The needs of some work: ``needs`` in lower case, each once (``of``).

    ``asker`` is the agent that gives it, which is neither asked nor listed, ``barred`` why others
    can't get work from it.
    """

    needs: tuple[str, ...]
    match: Match
    asker: str = ""
    barred: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, needs: Iterable[str], match: Match, **more: Any) -> Self:
        """A query for needs as they were written; case is ignored."""
        return cls(tuple(dict.fromkeys(need.casefold().strip() for need in needs)), match, **more)


class RankedAgent(NamedTuple):
    """A ranked or excluded agent by its name, with the reason in a few words."""

    agent_id: str
    agent: str
    reason: str
    load: int = 0


@dataclass(frozen=True, slots=True)
class Ranking:
    """The agents to ask, the best first, and those that are excluded (``out``)."""

    ranked: tuple[RankedAgent, ...]
    out: tuple[RankedAgent, ...]

    def to_json(self) -> dict[str, Any]:
        """The ranking as it is recorded and shown."""
        return {"candidates": _rows(self.ranked), "out": _rows(self.out)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Ranking:
        """The ranking from its recorded form."""
        ranked, out = ([RankedAgent(**row) for row in data[key]] for key in ("candidates", "out"))
        return cls(tuple(ranked), tuple(out))


def best(query: RouteQuery, snapshot: RouteSnapshot) -> Candidate | None:
    """The agent that gets the work: the first of ``rank``, without its reasons."""
    for group in _groups(query, snapshot):
        return snapshot.candidates.agents[(group & -group).bit_length() - 1]
    return None


def rank(query: RouteQuery, snapshot: RouteSnapshot) -> Ranking:
    """All agents that have, by the query's ``match``, any or all of the needs, and who is out."""
    candidates, loads = snapshot.candidates, snapshot.loads
    agents = candidates.agents
    wanted = frozenset(query.needs)
    reasons: dict[tuple[frozenset[str], int, float | None], str] = {}
    ranked: list[RankedAgent] = []
    inside = candidates.bits.get(query.asker, 0)
    for group in _groups(query, snapshot):
        inside |= group
        for number in _numbers(group):
            each, load = agents[number], loads[number]
            state = (candidates.abilities[number] & wanted, load, each.heartbeat_age_s)
            reason = reasons.get(state)
            if reason is None:
                reason = reasons[state] = _reason(query, *state)
            ranked.append(RankedAgent(each.agent_id, each.name, reason, load))
    lacks: dict[frozenset[str], str] = {}
    out: list[RankedAgent] = []
    for number in candidates.by_name:
        if inside >> number & 1:
            continue
        each, has = agents[number], candidates.abilities[number] & wanted
        why = each.why_not or query.barred.get(each.agent_id, "")
        if not why:
            lack = lacks.get(has)
            if lack is None:
                lack = lacks[has] = _lack(query, has)
            why = lack or _left_alone(snapshot.waits_s[each.agent_id])
        out.append(RankedAgent(each.agent_id, each.name, why, loads[number]))
    return Ranking(tuple(ranked), tuple(out))


def heartbeat_band(age_s: float | None) -> int:
    """0 for a fresh heartbeat, 1 for one that is getting old, 2 for an old one or none."""
    if age_s is None or age_s > STALE_S:
        return 2
    return 0 if age_s <= FRESH_S else 1


def _groups(query: RouteQuery, snapshot: RouteSnapshot) -> Iterator[int]:
    """The agents that may get the work, in groups of equals, the best group first."""
    candidates, most = snapshot.candidates, len(query.needs)
    excluded = candidates.bits.get(query.asker, 0)
    for agent_id in query.barred:
        excluded |= candidates.bits.get(agent_id, 0)
    having = [~excluded]  # by number of needs: who has at least so many of them
    for need in query.needs:
        able = candidates.able.get(need, 0)
        having.append(0)
        if able:
            for count in range(len(having) - 1, 0, -1):
                having[count] |= having[count - 1] & able
    fewest = most if query.match is Match.ALL else min(1, most)
    better = 0
    for count in range(most, fewest - 1, -1):
        exactly = having[count] & ~better
        better |= having[count]
        if exactly:
            for level in snapshot.levels:
                if group := level & exactly:
                    yield group


def _numbers(group: int) -> Iterator[int]:
    while group:
        lowest = group & -group
        group ^= lowest
        yield lowest.bit_length() - 1


def _rows(agents: Iterable[RankedAgent]) -> list[dict[str, Any]]:
    return [
        {"agent_id": each.agent_id, "agent": each.agent, "reason": each.reason, "load": each.load}
        for each in agents
    ]


def _lack(query: RouteQuery, has: frozenset[str]) -> str:
    """The reason why an agent can't be asked; empty if it can."""
    missing = [need for need in query.needs if need not in has]
    if query.needs and (not has or (query.match is Match.ALL and missing)):
        return f"can't do {', '.join(missing)}"
    return ""


def _left_alone(wait_s: float) -> str:
    return f"failed several times in a row and is left alone for {wait_s:.0f} s"


def _reason(query: RouteQuery, has: frozenset[str], load: int, age_s: float | None) -> str:
    parts = []
    if query.needs:
        own = ", ".join(need for need in query.needs if need in has)
        parts.append(f"{len(has)} of {len(query.needs)} ({own})")
    parts.append(f"{load} open")
    if heartbeat_band(age_s):
        parts.append("no heartbeat" if age_s is None else f"heartbeat {age_s:.0f} s old")
    return ", ".join(parts)
