"""What an agent may use at most: patterns over tool names. Pure."""

from __future__ import annotations

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
    """Why the call is beyond its agent's ceiling, or None."""
    patterns, allowed = call.patterns, call.role_patterns
    if call.origin is Origin.ENGINE:
        return None
    names = {call.name, call.own_name or call.name}
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
