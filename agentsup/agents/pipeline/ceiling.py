"""What an agent may use at most: patterns over tool names. Pure."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase

from agentsup.model.hook import CallFacts, Origin
from agentsup.model.tool import Tool


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of the patterns (``fs_*``, ``mcp:github/*``) fits the name, case and all."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_offered(
    tool: Tool, patterns: tuple[str, ...] | None, role_patterns: tuple[str, ...] | None = None
) -> bool:
    """Whether an agent with these bounds (None: there is none) is offered the tool. Its role only
    narrows what its own patterns give."""
    if role_patterns is not None and not matches(tool.name, role_patterns):
        return False
    if patterns is None:
        return not tool.is_optional
    if tool.is_essential:
        return bool(patterns)
    return matches(tool.name, patterns)


def beyond(call: CallFacts) -> str | None:
    """Why the call is beyond its agent's ceiling, or that of those for whom it works, or None."""
    if call.origin is Origin.ENGINE:
        return None
    own = _beyond(call)
    for each in () if own is not None else call.callers:
        asked = replace(
            call,
            agent_name=each.name,
            patterns=each.patterns,
            role=each.role,
            role_patterns=each.role_patterns,
        )
        why = _beyond(asked)
        if why is not None:
            return f"{why}, for whom this is done"
    return own


def _beyond(call: CallFacts) -> str | None:
    patterns, allowed = call.patterns, call.role_patterns
    names = {call.name, call.own_name or call.name}
    if allowed == ():
        return f"{call.agent_name} has no tools, for there is no usable role {call.role}"
    if allowed is not None and not any(matches(name, allowed) for name in names):
        return f"{call.own_name or call.name} is beyond the role {call.role}"
    if call.is_essential and patterns != ():
        return None
    if patterns is None:
        if call.is_optional:
            return f"{call.name} must be named in the tools of {call.agent_name} first"
        return None
    if any(matches(name, patterns) for name in names):
        return None
    return f"{call.own_name or call.name} is not among the tools of {call.agent_name}"
