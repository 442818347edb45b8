"""Reads an AGENT.md: front matter in YAML between two lines of ``---``, then the instruction.

A file with an error is not used at all. Every finding has the path and the line.
"""

from __future__ import annotations

from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, Field, ValidationError

from agentsup.agents.roles.role import (
    MAX_CHARS,
    NONE,
    MatchRule,
    Role,
    RoleSource,
    RoleStatus,
    prefix_pattern,
)
from agentsup.config import KeyPath, Report, Strict, raise_errors
from agentsup.model.errors import ConfigError, ConfigErrors
from agentsup.model.name import BUILTIN_ROLES, name_problem

FENCE = "---"

_MAX_NODES = 5_000


def _name(text: str) -> str:
    if text in BUILTIN_ROLES:  # ``name_problem`` refuses one of them, as agents may not have it
        return text
    if problem := name_problem(text):
        raise ValueError(problem)
    if text.casefold() == NONE:
        raise ValueError(f"{text!r} is reserved: it means no role")
    return text


def _prefix(text: str) -> str:
    if prefix_pattern(text) == "*":
        raise ValueError("a prefix of nothing would take every tool; max_tools: ['*'] allows all")
    return text


_Text = Annotated[str, Field(max_length=2000)]
_Word = Annotated[str, Field(min_length=1, max_length=200, pattern=r"\S")]
_Words = Annotated[list[_Word], Field(max_length=200)]


class _RuleBlock(Strict):
    any: Annotated[_Words, Field(min_length=1)]
    also: _Words = Field(default_factory=list)
    unless: _Words = Field(default_factory=list)
    points: Annotated[int, Field(ge=-20, le=20)] = 5


class _Front(Strict):
    name: Annotated[str, AfterValidator(_name)]
    description: _Text = ""
    status: Annotated[RoleStatus, Field(strict=False)] = RoleStatus.ACTIVE
    prefixes: list[Annotated[_Word, AfterValidator(_prefix)]] = Field(default_factory=list)
    keywords: _Words = Field(default_factory=list)
    capabilities: _Words = Field(default_factory=list)
    accepts: _Text = ""
    returns: _Text = ""
    cannot_do: _Words = Field(default_factory=list)
    example_requests: _Words = Field(default_factory=list)
    disambiguation: Annotated[list[_RuleBlock], Field(max_length=100)] = Field(default_factory=list)
    always_include: bool = False
    session_isolation: bool = False
    max_tools: _Words | None = None
    priority: Annotated[int, Field(ge=0, le=1000)] = 50


def parse_role(text: str, path: str, *, source: RoleSource = RoleSource.USER) -> Role:
    """The role that ``text`` declares. Raises ``ConfigErrors``, each with path and line."""
    lines = text.removeprefix("\ufeff").splitlines()
    problem = Report(path, lambda where: (1, 1))
    ends = [i for i, line in enumerate(lines) if line.rstrip() == FENCE][:2]
    if len(text) > MAX_CHARS:
        problem.error((), f"the file has {len(text)} characters; at most {MAX_CHARS} are read")
    elif not lines or ends[:1] != [0]:
        problem.error((), f"front matter is missing: the first line must be {FENCE}")
    elif len(ends) == 1:
        problem.error((), f"the front matter does not end: a line {FENCE} is missing after it")
    raise_errors(problem.findings)
    front = _checked("\n".join(lines[1 : ends[1]]), path)
    given = _values(front)
    given["description"] = " ".join(front.description.split())
    rules = tuple(MatchRule(**_values(each)) for each in front.disambiguation)
    given["disambiguation"] = rules
    instruction = "\n".join(lines[ends[1] + 1 :]).strip()
    return Role(**given, instruction=instruction, source=source, path=path)


def _values(block: Strict) -> dict[str, Any]:
    """The values of a block, with tuples for its lists."""
    return {name: tuple(each) if isinstance(each, list) else each for name, each in block}


def _checked(text: str, path: str) -> _Front:
    """Check the front matter, whose first line is the second line of the file."""
    report, values = _loaded(text, path)
    if not isinstance(values, dict):
        report.error((), "the front matter must be keys with values, such as name: reviewer")
        raise_errors(report.findings)
    try:
        return _Front.model_validate(values)
    except ValidationError as error:
        report.invalid(
            error.errors(include_url=False, include_input=True),
            known=lambda loc: _RuleBlock.model_fields if loc else _Front.model_fields,
        )
        raise_errors(report.findings)
        raise AssertionError("an invalid front matter has findings") from error


def _loaded(text: str, path: str) -> tuple[Report, Any]:
    """The values of a YAML text, and a report that knows their lines."""
    here = (2, 1)
    try:
        lines = _LineNumbers(yaml.compose(text, Loader=yaml.SafeLoader))
        report = Report(path, lines.locate)
        lines.report_odd(report)
        raise_errors(report.findings)
        return report, yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        problem = error.problem or error.context or ""
        if error.problem_mark is not None:
            here = (error.problem_mark.line + 2, error.problem_mark.column + 1)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = type(error).__name__
    raise ConfigErrors(
        (ConfigError(f"this is not YAML: {problem}", path=path, line=here[0], column=here[1]),)
    )


class _LineNumbers:
    """Line and column of each value in a front matter."""

    def __init__(self, root: yaml.Node | None) -> None:
        self._positions: dict[KeyPath, tuple[int, int]] = {(): (2, 1)}
        self._odd: list[tuple[KeyPath, int, int, str]] = []
        waiting: list[tuple[KeyPath, Any]] = [((), root)] if root is not None else []
        seen = 0
        while waiting and seen < _MAX_NODES:
            where, node = waiting.pop()
            seen += 1
            if isinstance(node, yaml.MappingNode):
                keys: set[str] = set()
                for key, value in node.value:
                    name = str(key.value)
                    at = (key.start_mark.line + 2, key.start_mark.column + 1)
                    if not isinstance(key, yaml.ScalarNode) or name == "<<":
                        self._odd.append((where, *at, "this is no plain key"))
                        continue
                    if name in keys:
                        self._odd.append(((*where, name), *at, f"the key {name!r} is here twice"))
                    keys.add(name)
                    self._positions[(*where, name)] = at
                    waiting.append(((*where, name), value))
            elif isinstance(node, yaml.SequenceNode):
                for index, value in enumerate(node.value):
                    mark = value.start_mark
                    self._positions[(*where, index)] = (mark.line + 2, mark.column + 1)
                    waiting.append(((*where, index), value))
        if waiting:
            self._odd.append(((), 2, 1, "the front matter is too large, or refers to itself"))

    def report_odd(self, report: Report) -> None:
        """Report what YAML allows and a role does not: repeated keys, keys that are no text."""
        for where, line, column, message in self._odd:
            report.error(where, message, at=(line, column))

    def locate(self, where: KeyPath) -> tuple[int | None, int | None]:
        """Line and column of a value, or of its nearest parent."""
        while where and where not in self._positions:
            where = where[:-1]
        return self._positions.get(where, (2, 1))
