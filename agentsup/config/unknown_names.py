"""Unknown names in an entry: a role, an agent, a tool or an engine's option that does not exist.

A missing role takes an agent's tools away, a misspelt tool is silently missing, and a misspelt option
fails each turn. They are noticed only when they do harm, so they are errors of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

from agentsup.config.crosscheck import LocateField
from agentsup.config.findings import ConfigFinding, KeyPath, Severity, did_you_mean
from agentsup.model.agent import AgentSpec
from agentsup.model.option_names import ALL, options_of
from agentsup.model.tool_names import OF_PROGRAMS, OURS

NO_PROGRAMS = frozenset({"llm", "scripted", "command"})
"""Engines without tools of their own."""
SCRIPTED = "scripted"
"""The engine that ignores options which it does not know."""
_MCP = "mcp:"


def unknown_names(
    specs: Iterable[AgentSpec], locate: LocateField, roles: Iterable[str]
) -> Iterator[ConfigFinding]:
    """A finding for each unknown name in ``role``, ``tools``, ``can_delegate_to`` and the options.

    ``roles`` are the names of all existing roles. A name that may belong to a tool server, or to a
    program's own tools, gives a warning: neither is known before it runs.
    """
    checked, by_role = list(specs), {role.casefold(): role for role in roles}
    names = {spec.name.casefold(): spec.name for spec in checked}
    for spec in checked:
        if spec.role and spec.role.casefold() not in by_role:
            hint = did_you_mean(spec.role, by_role.values())
            hint = hint or f"write roles/{spec.role}/AGENT.md, or leave the role out"
            text = f"there is no role {spec.role!r}, so {spec.name} would have no tools"
            yield locate(spec.name, ("role",)).finding(text, hint, Severity.ERROR)
        yield from _options(spec, locate)
        for index, pattern in enumerate(spec.tools or ()):
            yield from _tool(spec, locate, ("tools", index), pattern)
        for index, name in enumerate(spec.can_delegate_to or ()):
            if name.casefold() not in names | by_role:
                hint = did_you_mean(name, (names | by_role).values())
                text = f"there is neither an agent nor a role called {name!r} ({spec.name})"
                # That agent may have been removed; the name gives nobody more rights.
                yield locate(spec.name, ("can_delegate_to", index)).finding(text, hint)


def as_warnings(
    findings: Iterable[ConfigFinding], known: Iterable[ConfigFinding] | None
) -> Iterator[ConfigFinding]:
    """The findings, with errors that the present edit did not cause turned into warnings.

    ``known`` are the findings for the running set, by the present roles and tools: a role whose
    folder was removed must not refuse an edit of another agent. None at a start, which must not
    fail because of what an earlier version accepted.
    """
    messages: set[str] | None = None
    for finding in findings:
        if not finding.is_error:
            yield finding
            continue
        if known is not None and messages is None:
            messages = {one.message for one in known}  # evaluated only if there is an error
        is_known = messages is None or finding.message in messages
        yield replace(finding, severity=Severity.WARNING) if is_known else finding


def tool_problem(pattern: str) -> tuple[str, str | None] | None:
    """Why a pattern matches no tool of ours and no tool server, with a suggestion; None if it may
    match."""
    if pattern.startswith(_MCP) or _fits(pattern, OURS):
        return None
    return f"there is no tool {pattern!r}", did_you_mean(pattern, sorted(OURS))


def _options(spec: AgentSpec, locate: LocateField) -> Iterator[ConfigFinding]:
    """Options that the engine does not have: it would fail each message."""
    for field, engine, given in (
        ("engine_options", spec.engine, spec.engine_options),
        ("fallback_options", spec.fallback_engine or spec.engine, spec.fallback_options),
    ):
        known = options_of(engine)
        for key in sorted(given.keys() - known):
            at = locate(spec.name, (field, key))
            text = f"the engine {engine} has no option {key!r} ({spec.name})"
            if key in ALL and engine == SCRIPTED:
                continue
            hint = did_you_mean(key, sorted(known)) if key not in ALL else None
            hint = hint or f"it has {', '.join(sorted(known))}"
            yield at.finding(text, hint, Severity.ERROR)


def _tool(
    spec: AgentSpec, locate: LocateField, where: KeyPath, pattern: str
) -> Iterator[ConfigFinding]:
    if pattern.startswith(_MCP):
        server = pattern.removeprefix(_MCP).partition("/")[0]
        if not _fits(server, spec.mcp):
            text = f"{spec.name} has no tool server {server!r} in mcp"
            yield locate(spec.name, where).finding(text, did_you_mean(server, spec.mcp))
        return
    problem = tool_problem(pattern)
    if problem is None:
        return
    text, hint = f"{problem[0]} ({spec.name})", problem[1]
    severity = Severity.ERROR
    if spec.engine not in NO_PROGRAMS and may_be_a_programs(pattern):
        severity = Severity.WARNING
        text = f"{pattern!r} is no tool of ours; it counts for a coding agent's own ({spec.name})"
    yield locate(spec.name, where).finding(text, hint, severity)


def may_be_a_programs(name: str) -> bool:
    """Whether a coding agent may have a tool of this name: a known one, or one in their style."""
    return name.casefold() in OF_PROGRAMS or (name[:1].isupper() and "_" not in name)


def _fits(pattern: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)
