"""The tools that the daemon itself gives to agents, beside those of its calls' own making."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentsup.agents.knowledge import SharedKnowledge
from agentsup.agents.tools import peer_tools, restart_tool, shared_memory_tool
from agentsup.agents.turn_services import TurnServices
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon import remembering
from agentsup.daemon.delegating import handing_on_tools
from agentsup.daemon.fleet import Fleet
from agentsup.daemon.ground import Ground
from agentsup.daemon.post import DaemonPost
from agentsup.daemon.tasks import DaemonTasks
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.bus import InterAgentBus
from agentsup.model.tool import Tool
from agentsup.model.trace import Tracer


@dataclass(frozen=True, slots=True)
class Means:
    """What tools work with."""

    bus: InterAgentBus
    fleet: Fleet
    knowledge: SharedKnowledge
    work: DaemonTasks
    tracer: Tracer
    post: DaemonPost
    tasks: TaskOwner
    turns: Callable[[], TurnServices]
    """What turns rest on; made of all tools, so after them."""


def given_tools(
    ground: Ground, current: Callable[[], ConfigSnapshot], means: Means
) -> tuple[Tool, ...]:
    """Tools over the daemon's services: other agents, shared knowledge, memory, work handed on."""
    return (
        *peer_tools(means.bus, ground.roster, means.fleet, means.tracer),
        shared_memory_tool(means.knowledge),
        restart_tool(lambda: means.turns().restarts),
        *means.post.tools(means.fleet, means.tracer),
        *handing_on_tools(
            ground,
            current,
            dispatcher=means.post.dispatcher,
            fleet=means.fleet,
            work=means.work,
            tracer=means.tracer,
            tasks=means.tasks,
            turns=means.turns,
        ),
        *remembering.remembering_tools(ground, current),
    )
