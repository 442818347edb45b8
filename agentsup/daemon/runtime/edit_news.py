"""Texts about an applied edit: the change in one line, and notes for the operator. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from agentsup.config import ChangePlan, ConfigSnapshot

_AGENTS: Final = 8
_FIELDS: Final = 4
"""The largest number of fields that are named; a line must stay one."""


def edited_line(plan: ChangePlan) -> str:
    """The line about an edit and the agents that are rebuilt for it; empty for none of it.

    Removed agents and settings that wait for a restart have sentences of their own (``news_of``).
    """
    rebuilt, enabled = set(plan.rebuild), plan.enabled
    agents = [f"+ {name}" for name in plan.added]
    for name, changes in plan.changed.items():
        what = "goes on"
        if name in enabled:
            what = "starts" if enabled[name] else "stops"
        elif name in rebuilt:
            what = "is rebuilt when its turns have ended"
        agents.append(f"~ {name} ({_some([*changes], _FIELDS)}; {what})")
    live = [field for field in plan.settings if field not in plan.needs_restart]
    parts = [*_cut(agents, _AGENTS), *_cut(live, _FIELDS)]
    if not parts:
        return ""
    others = " No other agent was touched." if agents else ""
    return f"Edit applied: {', '.join(parts)}.{others}"


def _some(names: Sequence[str], most: int) -> str:
    return ", ".join(_cut(names, most))


def _cut(names: Sequence[str], most: int) -> list[str]:
    more = len(names) - most
    return [*names[:most], *([f"{more} more"] if more > 0 else [])]


def news_of(plan: ChangePlan, before: ConfigSnapshot, now: ConfigSnapshot) -> Iterator[str]:
    """Texts for an operator about an applied edit: removed agents, settings that need a restart,
    and new warnings."""
    if plan.removed:
        who = ", ".join(plan.removed)
        yield f"Removed: {who}. Memory and mail are kept for when they are declared again."
    if plan.needs_restart:
        fields = ", ".join(plan.needs_restart)
        yield f"Edited: {fields}. It takes effect when the daemon is restarted (`agentsup restart`)."
    known = {(each.path, each.field, each.message) for each in before.warnings}
    new = [w for w in now.warnings if (w.path, w.field, w.message) not in known]
    if new:
        yield "\n".join(("The configuration needs a look:", *map(str, new)))
