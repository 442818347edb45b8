"""Which role a text is for, and why. Pure: signs are counted, nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agentsup.agents.roles.role import Role, Rule, order_of

MAX_CHARS = 20_000
"""As much of a text is read."""
KEYWORD, PHRASE, CAPABILITY, TOOL, EXAMPLE, CANNOT = 2, 3, 2, 4, 3, -6
URL = "<url>"
_URL = re.compile(r"\bhttps?://\S+|\bwww\.\S+", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_ENDINGS = ("", "s", "es", "d", "ed", "ing")
_NAME = re.compile(r"[\w:/.-]+")


@dataclass(frozen=True, slots=True)
class Sign:
    """One reason for or against a role: ``keyword``, ``tool``, ``rule`` and so on."""

    kind: str
    text: str
    points: int


@dataclass(frozen=True, slots=True)
class Score:
    """What speaks for one role."""

    role: str
    points: int
    signs: tuple[Sign, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """All roles with a sign, the best first. ``complexity``: none (answer directly), simple (one
    field), compound (two) or complex (three or more: a plan comes first)."""

    scores: tuple[Score, ...]
    complexity: str

    @property
    def best(self) -> str:
        """The role, or empty where none has a claim."""
        return self.scores[0].role if self.scores and self.scores[0].points > 0 else ""

    def to_json(self) -> dict[str, Any]:
        """The route as the API shows it."""
        return {
            "role": self.best,
            "complexity": self.complexity,
            "scores": [
                {
                    "role": score.role,
                    "points": score.points,
                    "signs": [
                        {"kind": sign.kind, "text": sign.text, "points": sign.points}
                        for sign in score.signs
                    ],
                }
                for score in self.scores
            ],
        }


def route(text: str, roles: Iterable[Role], tools: Iterable[str]) -> Route:
    """Count the signs of each role in ``text``. Equal points: the order of the roles decides."""
    heard = _Heard.of(text[:MAX_CHARS])
    known = frozenset(tools)
    found: list[tuple[int, tuple[int, int, str], Score]] = []
    for role in roles:
        signs = tuple(_signs(role, heard, known))
        if signs:
            points = sum(sign.points for sign in signs)
            found.append((-points, order_of(role), Score(role.name, points, signs)))
    found.sort(key=lambda each: each[:2])
    scores = tuple(score for _, _, score in found)
    best = scores[0].points if scores else 0
    # A field counts from a third of what the best one has: a word in passing makes no plan.
    fields = sum(1 for score in scores if score.points > 0 and 3 * score.points >= best)
    names = ("none", "simple", "compound", "complex")
    return Route(scores, names[min(fields, 3)])


@dataclass(frozen=True, slots=True)
class _Heard:
    """A text taken apart once."""

    words: tuple[str, ...]
    forms: frozenset[str]
    names: frozenset[str]
    has_url: bool

    @classmethod
    def of(cls, text: str) -> _Heard:
        bare = _URL.sub(" ", text).casefold()
        words = tuple(_WORD.findall(bare))
        return cls(words, frozenset(words), frozenset(_NAME.findall(bare)), bool(_URL.search(text)))

    def has(self, sign: str) -> bool:
        """Whether a word (in its plain forms) or a phrase (word by word) stands in the text."""
        if sign == URL:
            return self.has_url
        wanted = _WORD.findall(sign.casefold())
        if len(wanted) == 1:
            word = wanted[0]
            stems = {word + ending for ending in _ENDINGS}
            if word.endswith("e"):
                stems |= {word[:-1] + "ing"}
            return not stems.isdisjoint(self.forms)
        return bool(wanted) and any(
            list(self.words[i : i + len(wanted)]) == wanted for i in range(len(self.words))
        )


def _signs(role: Role, heard: _Heard, tools: frozenset[str]) -> Iterable[Sign]:
    for name in sorted(tools):
        if name.casefold() in heard.names and role.allows(name):
            yield Sign("tool", name, TOOL)
    for each in role.keywords:
        if heard.has(each):
            yield Sign("keyword", each, PHRASE if " " in each else KEYWORD)
    for each in role.capabilities:
        if heard.has(each):
            yield Sign("capability", each, CAPABILITY)
    for each in role.example_requests:
        if _is_like(each, heard):
            yield Sign("example", each, EXAMPLE)
    for rule in role.disambiguation:
        if _applies(rule, heard):
            yield Sign("rule", _told(rule), rule.points)
    for each in role.cannot_do:
        if heard.has(each):
            yield Sign("cannot_do", each, CANNOT)


def _is_like(example: str, heard: _Heard) -> bool:
    """Whether two thirds of the example's words stand in the text."""
    words = set(_WORD.findall(example.casefold()))
    return len(words) >= 2 and 3 * len(words & heard.forms) >= 2 * len(words)


def _applies(rule: Rule, heard: _Heard) -> bool:
    return (
        any(map(heard.has, rule.any))
        and all(map(heard.has, rule.also))
        and not any(map(heard.has, rule.unless))
    )


def _told(rule: Rule) -> str:
    parts = ["/".join(rule.any)]
    parts += [f"with {each}" for each in rule.also]
    parts += [f"without {each}" for each in rule.unless]
    return " ".join(parts)
