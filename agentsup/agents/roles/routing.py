"""Finds the role that fits a text, and the role of each tool, with the reasons. Pure: it counts
matching words, and the same roles, tools and texts always give the same result."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from agentsup.agents.pipeline.ceiling import matches
from agentsup.agents.roles.role import ESSENTIAL, MatchRule, Role, order_of, prefix_pattern

MAX_CHARS = 20_000
"""Characters of a text that are read."""
KEYWORD, PHRASE, CAPABILITY, TOOL, EXAMPLE, CANNOT = 2, 3, 2, 4, 3, -6
URL = "<url>"
_URL = re.compile(r"\bhttps?://\S+|\bwww\.\S+", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_ENDINGS = ("", "s", "es", "d", "ed", "ing")
_NAME = re.compile(r"[\w:/.-]+")
UNMATCHED = ""
_WORDS = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Sign:
    """One reason for or against a role: ``keyword``, ``tool``, ``rule`` and so on."""

    kind: str
    text: str
    points: int


@dataclass(frozen=True, slots=True)
class Score:
    """The points of one role, and the signs that gave them."""

    role: str
    points: int
    signs: tuple[Sign, ...]


@dataclass(frozen=True, slots=True)
class RoleMatch:
    """All roles with a sign, the best first.

    ``complexity`` is none (answer directly), simple (one role fits), compound (two) or complex
    (three or more: plan first).
    """

    scores: tuple[Score, ...]
    complexity: str

    @property
    def best(self) -> str:
        """The name of the best role, or empty if no role has points."""
        return self.scores[0].role if self.scores and self.scores[0].points > 0 else ""

    def to_json(self) -> dict[str, Any]:
        """The route as the API shows it."""
        return {
            "role": self.best,
            "complexity": self.complexity,
            "scores": [asdict(score) for score in self.scores],
        }


def route(text: str, roles: Iterable[Role], tools: Iterable[str]) -> RoleMatch:
    """Count the signs of each role in ``text``. For equal points the order of the roles decides."""
    matched = _MatchedWords.of(text[:MAX_CHARS])
    known = frozenset(tools)
    found: list[tuple[int, tuple[int, int, str], Score]] = []
    for role in roles:
        signs = tuple(_signs(role, matched, known))
        if signs:
            points = sum(sign.points for sign in signs)
            found.append((-points, order_of(role), Score(role.name, points, signs)))
    found.sort(key=lambda each: each[:2])
    scores = tuple(score for _, _, score in found)
    best = scores[0].points if scores else 0
    # A role counts from a third of the best one's points: a word in passing makes no plan.
    fields = sum(1 for score in scores if score.points > 0 and 3 * score.points >= best)
    names = ("none", "simple", "compound", "complex")
    return RoleMatch(scores, names[min(fields, 3)])


@dataclass(frozen=True, slots=True)
class _MatchedWords:
    """The words of a text, split once."""

    words: tuple[str, ...]
    forms: frozenset[str]
    names: frozenset[str]
    has_url: bool

    @classmethod
    def of(cls, text: str) -> _MatchedWords:
        bare = _URL.sub(" ", text).casefold()
        words = tuple(_WORD.findall(bare))
        return cls(words, frozenset(words), frozenset(_NAME.findall(bare)), bool(_URL.search(text)))

    def has(self, sign: str) -> bool:
        """Whether the text has a word (in its regular forms) or a phrase (word by word)."""
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


def _signs(role: Role, matched: _MatchedWords, tools: frozenset[str]) -> Iterable[Sign]:
    for name in sorted(tools):
        if name.casefold() in matched.names and role.allows(name):
            yield Sign("tool", name, TOOL)
    for each in role.keywords:
        if matched.has(each):
            yield Sign("keyword", each, PHRASE if " " in each else KEYWORD)
    for each in role.capabilities:
        if matched.has(each):
            yield Sign("capability", each, CAPABILITY)
    for each in role.example_requests:
        if _is_like(each, matched):
            yield Sign("example", each, EXAMPLE)
    for rule in role.disambiguation:
        if _applies(rule, matched):
            yield Sign("rule", _rule_text(rule), rule.points)
    for each in role.cannot_do:
        if matched.has(each):
            yield Sign("cannot_do", each, CANNOT)


def _is_like(example: str, matched: _MatchedWords) -> bool:
    """Whether the text has at least two thirds of the example's words."""
    words = set(_WORD.findall(example.casefold()))
    return len(words) >= 2 and 3 * len(words & matched.forms) >= 2 * len(words)


def _applies(rule: MatchRule, matched: _MatchedWords) -> bool:
    return (
        any(map(matched.has, rule.any))
        and all(map(matched.has, rule.also))
        and not any(map(matched.has, rule.unless))
    )


def _rule_text(rule: MatchRule) -> str:
    parts = ["/".join(rule.any)]
    parts += [f"with {each}" for each in rule.also]
    parts += [f"without {each}" for each in rule.unless]
    return " ".join(parts)


@dataclass(frozen=True, slots=True)
class AssignedTools:
    """One tool, its role (empty: none), and the reason (``prefix fs_``)."""

    tool: str
    role: str
    why: str


def partition(roles: Iterable[Role], tools: Iterable[str]) -> tuple[AssignedTools, ...]:
    """Assign each tool to the first role that matches it, of those whose ceiling allows it.

    A role matches by a prefix of the tool's name, else by a keyword, else by a capability that is a
    word of the name. The essential tools belong to every role and are not in the result.
    """
    ordered = sorted(roles, key=order_of)
    return tuple(_assign(name, ordered) for name in sorted(set(tools)) if name not in ESSENTIAL)


def _assign(tool: str, ordered: list[Role]) -> AssignedTools:
    able = [role for role in ordered if role.allows(tool)]
    own = tool.rpartition("/")[2] if tool.startswith("mcp:") else tool
    for role in able:
        for prefix in role.prefixes:
            if matches(own, (prefix_pattern(prefix),)) or matches(tool, (prefix_pattern(prefix),)):
                return AssignedTools(tool, role.name, f"prefix {prefix}")
    words = set(_WORDS.split(tool.casefold())) - {"mcp"}
    for kind in ("keyword", "capability"):
        for role in able:
            for sign in role.keywords if kind == "keyword" else role.capabilities:
                if sign.casefold() in words:
                    return AssignedTools(tool, role.name, f"{kind} {sign}")
    return AssignedTools(tool, UNMATCHED, "")
