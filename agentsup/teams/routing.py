"""Who is given work that needs a capability: ranked, each place with its reason. Pure.

More of what is needed comes first, then less load, then a fresher heartbeat (in bands, so that a
second more or less decides nothing), then who was there earlier. The same candidates always give
the same ranking, so a person can check it against what was recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

FRESH_S, STALE_S = 10.0, 30.0
"""A heartbeat as old as this, in seconds, ends the first band, and the second one."""


class Match(StrEnum):
    """How much of what is needed a candidate must have."""

    ANY = "any"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An agent that might do the work. ``load`` is how many messages are open with it;
    ``heartbeat_age_s`` None: nothing was heard of it; ``registered_at`` is wall ms;
    ``breaker_wait_s`` is how long it is left alone after failures; ``why_not`` says why it is out
    of the question whatever it has."""

    agent_id: str
    name: str
    capabilities: tuple[str, ...] = ()
    load: int = 0
    heartbeat_age_s: float | None = 0.0
    registered_at: int = 0
    breaker_wait_s: float = 0.0
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """A candidate in its place, with the reason in a few words."""

    agent_id: str
    name: str
    reason: str
    load: int = 0


@dataclass(frozen=True, slots=True)
class Ranking:
    """Who is asked, one after the other, and who is not."""

    ranked: tuple[Place, ...]
    out: tuple[Place, ...]

    def to_json(self) -> dict[str, Any]:
        """As it is recorded and shown."""
        return {
            "candidates": [_row(place) for place in self.ranked],
            "out": [_row(place) for place in self.out],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Ranking:
        """What was recorded."""
        ranked, out = ([_place(row) for row in data[key]] for key in ("candidates", "out"))
        return cls(tuple(ranked), tuple(out))


def rank(needs: Iterable[str], candidates: Iterable[Candidate], match: Match) -> Ranking:
    """Rank those who have ``all`` or ``any`` of what is needed; names are compared without case."""
    wanted = tuple(dict.fromkeys(need.casefold().strip() for need in needs))
    inside: list[tuple[tuple[Any, ...], Candidate, tuple[str, ...]]] = []
    out: list[Place] = []
    for each in candidates:
        own = {capability.casefold().strip() for capability in each.capabilities}
        has = tuple(need for need in wanted if need in own)
        why = _why_not(each, wanted, has, match)
        if why:
            out.append(Place(each.agent_id, each.name, why, each.load))
            continue
        band = heartbeat_band(each.heartbeat_age_s)
        order = (-len(has), each.load, band, each.registered_at, each.name, each.agent_id)
        inside.append((order, each, has))
    inside.sort(key=lambda one: one[0])
    ranked = [
        Place(each.agent_id, each.name, _reason(each, has, len(wanted)), each.load)
        for _, each, has in inside
    ]
    return Ranking(tuple(ranked), tuple(sorted(out, key=lambda place: place.name)))


def heartbeat_band(age_s: float | None) -> int:
    """0 for a fresh heartbeat, 1 for one that is getting old, 2 for an old one or none."""
    if age_s is None or age_s > STALE_S:
        return 2
    return 0 if age_s <= FRESH_S else 1


def _why_not(each: Candidate, wanted: tuple[str, ...], has: tuple[str, ...], match: Match) -> str:
    if each.why_not:
        return each.why_not
    missing = [need for need in wanted if need not in has]
    if wanted and (not has or (match is Match.ALL and missing)):
        return f"can't do {', '.join(missing)}"
    if each.breaker_wait_s > 0:
        return f"failed several times in a row and is left alone for {each.breaker_wait_s:.0f} s"
    return ""


def _reason(each: Candidate, has: tuple[str, ...], wanted: int) -> str:
    parts = [f"{len(has)} of {wanted} ({', '.join(has)})"] if wanted else []
    parts.append(f"{each.load} open")
    band = heartbeat_band(each.heartbeat_age_s)
    if band:
        age_s = each.heartbeat_age_s
        parts.append("no heartbeat" if age_s is None else f"heartbeat {age_s:.0f} s old")
    return ", ".join(parts)


def _row(place: Place) -> dict[str, Any]:
    return {
        "agent_id": place.agent_id,
        "agent": place.name,
        "reason": place.reason,
        "load": place.load,
    }


def _place(row: dict[str, Any]) -> Place:
    return Place(row["agent_id"], row["agent"], row["reason"], row["load"])
