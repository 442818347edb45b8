"""What a model is told about handing work on: of the tools that it is offered, and no others. Pure."""

from __future__ import annotations

from collections.abc import Iterable

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


def about(offered: Iterable[str]) -> str:
    """A line for each of the tools; empty where none of them is offered."""
    names = set(offered)
    lines = [f"- {name} {about}." for name, about in _ABOUT.items() if name in names]
    return "\n".join([_HEAD, *lines]) if lines else ""
