"""Names in an entry that mean nothing: a role, an agent or a tool that there is not.

A role that is missing takes an agent's tools away, and a misspelt tool is simply not there; neither
is seen before it hurts, so both are errors of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

from agentsup.config.crosscheck import Placed
from agentsup.config.findings import Finding, KeyPath, Severity, did_you_mean
from agentsup.model.agent import AgentSpec
from agentsup.model.tool_names import OF_PROGRAMS, OURS

__all__ = ["as_warnings", "may_be_a_programs", "tool_problem", "unknown_names"]

NO_PROGRAMS = frozenset({"llm", "scripted", "command"})
"""Engines that bring no tools of their own along."""
_MCP = "mcp:"


def unknown_names(
    specs: Iterable[AgentSpec], place: Placed, roles: Iterable[str]
) -> Iterator[Finding]:
    """A finding for each name in `role`, `tools` and `can_delegate_to` that there is not.

    `roles` are the names of all that there are. What may belong to a tool server, or to a program's
    own tools, is a warning: neither is known before it runs.
    """
    checked, by_role = list(specs), {role.casefold(): role for role in roles}
    names = {spec.name.casefold(): spec.name for spec in checked}
    for spec in checked:
        if spec.role and spec.role.casefold() not in by_role:
            hint = did_you_mean(spec.role, by_role.values())
            hint = hint or f"write roles/{spec.role}/AGENT.md, or leave the role out"
            text = f"there is no role {spec.role!r}, so {spec.name} would have no tools"
            yield _finding(spec, place, ("role",), text, hint)
        for index, pattern in enumerate(spec.tools or ()):
            yield from _tool(spec, place, ("tools", index), pattern)
        for index, name in enumerate(spec.can_delegate_to or ()):
            if name.casefold() not in names | by_role:
                hint = did_you_mean(name, (names | by_role).values())
                text = f"there is neither an agent nor a role called {name!r} ({spec.name})"
                # Whom it names may have been removed; nobody gets more rights by it.
                at = ("can_delegate_to", index)
                yield _finding(spec, place, at, text, hint, Severity.WARNING)


def as_warnings(findings: Iterable[Finding], known: Iterable[Finding] | None) -> Iterator[Finding]:
    """The same, with those errors as warnings that the writer of an edit has not made.

    `known` are the findings for the set that runs already, by the roles and tools there are now: a
    role whose folder has gone must not refuse an edit of another agent. None at a start, which must
    not fail for what an earlier version let pass.
    """
    messages = None if known is None else {finding.message for finding in known}
    for finding in findings:
        is_known = messages is None or finding.message in messages
        yield replace(finding, severity=Severity.WARNING) if is_known else finding


def tool_problem(pattern: str) -> tuple[str, str | None] | None:
    """Why no tool of ours, and no tool server, can be meant by a pattern, with a suggestion; None if
    one can."""
    if pattern.startswith(_MCP) or _fits(pattern, OURS):
        return None
    return f"there is no tool {pattern!r}", did_you_mean(pattern, sorted(OURS))


def _tool(spec: AgentSpec, place: Placed, where: KeyPath, pattern: str) -> Iterator[Finding]:
    if pattern.startswith(_MCP):
        server = pattern.removeprefix(_MCP).partition("/")[0]
        if not _fits(server, spec.mcp):
            text = f"{spec.name} has no tool server {server!r} in mcp"
            yield _finding(
                spec, place, where, text, did_you_mean(server, spec.mcp), Severity.WARNING
            )
        return
    problem = tool_problem(pattern)
    if problem is None:
        return
    text, hint = f"{problem[0]} ({spec.name})", problem[1]
    severity = Severity.ERROR
    if spec.engine not in NO_PROGRAMS and may_be_a_programs(pattern):
        severity = Severity.WARNING
        text = f"{pattern!r} is no tool of ours; it counts for a coding agent's own ({spec.name})"
    yield _finding(spec, place, where, text, hint, severity)


def may_be_a_programs(name: str) -> bool:
    """As coding agents call their tools: a name of theirs that is known, or one in their manner."""
    return name.casefold() in OF_PROGRAMS or (name[:1].isupper() and "_" not in name)


def _fits(pattern: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _finding(
    spec: AgentSpec,
    place: Placed,
    where: KeyPath,
    message: str,
    hint: str | None,
    severity: Severity = Severity.ERROR,
) -> Finding:
    at = place(spec.name, where)
    return Finding(severity, message, at.path, at.line, at.column, at.field, hint)
