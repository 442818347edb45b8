"""The ceiling of an agent: patterns of the tool names that it may use. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache

from agentsup.model.hook import CallFacts, CallOrigin, Reach
from agentsup.model.tool import Tool


@lru_cache(maxsize=4096)  # each turn asks it of each role and each tool
def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a pattern (``fs_*``, ``mcp:github/*``) matches the name, case-sensitively."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_offered(
    tool: Tool, patterns: tuple[str, ...] | None, role_patterns: tuple[str, ...] | None = None
) -> bool:
    """Whether an agent with these patterns (None: not limited) is offered the tool. Its role only
    narrows its own patterns."""
    if role_patterns is not None and not matches(tool.name, role_patterns):
        return False
    if patterns is None:
        return not tool.is_optional
    if tool.is_essential:
        return bool(patterns)
    return matches(tool.name, patterns)


def beyond(call: CallFacts) -> str | None:
    """Why the call is beyond the ceiling of its agent or of a caller, or None."""
    if call.origin is CallOrigin.ENGINE:
        return None
    own = _beyond(call, Reach(call.agent_name, call.patterns, call.role, call.role_patterns))
    for each in () if own is not None else call.callers:
        why = _beyond(call, each)
        if why is not None:
            return f"{why}, for whom this is done"
    return own


def _beyond(call: CallFacts, reach: Reach) -> str | None:
    patterns, allowed = reach.patterns, reach.role_patterns
    names = {call.name, call.own_name or call.name}
    if allowed == ():
        return f"{reach.name} has no tools, for there is no usable role {reach.role}"
    if allowed is not None and not any(matches(name, allowed) for name in names):
        return f"{call.own_name or call.name} is beyond the role {reach.role}"
    if call.is_essential and patterns != ():
        return None
    if patterns is None:
        if call.is_optional:
            return f"{call.name} must be named in the tools of {reach.name} first"
        return None
    if any(matches(name, patterns) for name in names):
        return None
    return f"{call.own_name or call.name} is not among the tools of {reach.name}"
