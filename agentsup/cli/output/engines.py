"""Lines about engines of agents: the daemon's own reasons, never a guess."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


def engine_notes(agents: Iterable[Mapping[str, Any]]) -> list[str]:
    """One line per reason why engines are worse than what the files name: the agents, and why."""
    found: dict[str, list[str]] = {}
    for one in agents:
        if problem := one.get("engine_problem"):
            found.setdefault(problem, []).append(one["name"])
    return [f"{', '.join(names)}: {problem}" for problem, names in found.items()]


@dataclass(frozen=True, slots=True)
class LostEngine:
    """An agent whose engine was better before a restart."""

    agent: str
    before: str
    now: str
    reason: str

    def __str__(self) -> str:
        now = "can't now" if self.now == self.before else f"now with {self.now}"
        return f"{self.agent} thought with {self.before} before, and {now}: {self.reason}"


def lost_engines(
    before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]
) -> list[LostEngine]:
    """The agents whose engine had no problem ``before`` and has one ``now``."""
    earlier = {one["name"]: one for one in before if not one.get("engine_problem")}
    return [
        LostEngine(one["name"], _engine(earlier[one["name"]]), _engine(one), one["engine_problem"])
        for one in now
        if one.get("engine_problem") and one["name"] in earlier
    ]


def _engine(one: Mapping[str, Any]) -> str:
    from agentsup.model.agent import OFFLINE  # not for every short command

    if one["engine"] == OFFLINE:
        return "the offline engine"
    return f"{one['engine']} and {one['model']}" if one["model"] else str(one["engine"])
