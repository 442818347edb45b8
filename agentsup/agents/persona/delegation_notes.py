"""The part of a prompt about delegation. It names only tools that the model is offered. Pure."""

from __future__ import annotations

from functools import lru_cache

MAX_ROLES, ROLE_CHARS = 12, 80
"""The largest number of roles that are named, and of characters shown of each description."""
_IN_ROLES = frozenset({"delegate_task", "task_create", "agent_spawn", "mixture_of_agents"})
_HEAD = "Work can be handed on; whoever gets it sees only what you write to them:"
_ABOUT = {
    "delegate_task": "has a task done for you in the place of another agent or in a role, on your "
    "budget, and brings back the answer",
    "task_create": "begins a task that goes on in the background, now, later or again and again; its "
    "result comes as a message",
    "agent_spawn": "starts a run that you look after with agent_wait, agent_steer and agent_stop",
    "route_to_agent": "gives work to the agent that fits it best",
    "dispatch_team": "gives work to several agents at once and brings back all answers",
    "mixture_of_agents": "puts one question to several agents",
    "broadcast_to_agents": "tells or asks all of them",
}
TOOLS = tuple(_ABOUT)
"""The tools that the notes explain."""


@lru_cache(maxsize=256)  # each turn asks, for a few kinds of agents
def delegation_notes(offered: tuple[str, ...], roles: tuple[tuple[str, str], ...] = ()) -> str:
    """A line for each offered tool, then the roles in which work can be done.

    ``roles`` are names and descriptions. Empty if no tool of delegation is offered.
    """
    names = set(offered)
    lines = [f"- {name} {about}." for name, about in _ABOUT.items() if name in names]
    if roles and names & _IN_ROLES:
        described = [
            f"{name} ({_short(about)})" if about else name for name, about in roles[:MAX_ROLES]
        ]
        more = f", and {len(roles) - MAX_ROLES} more" if len(roles) > MAX_ROLES else ""
        lines.append(f"Roles that it can be done in: {'; '.join(described)}{more}.")
    return "\n".join([_HEAD, *lines]) if lines else ""


def _short(text: str) -> str:
    return text.rstrip(".") if len(text) <= ROLE_CHARS else text[: ROLE_CHARS - 1] + "…"
