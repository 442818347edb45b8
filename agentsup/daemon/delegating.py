"""Handing work on in this daemon: the tools for it, over its services."""

from __future__ import annotations

from collections.abc import Callable

from agentsup.agents.delegation.desk import DelegationDesk, DelegationServices
from agentsup.agents.delegation.routes import Router
from agentsup.agents.roles.book import RoleShelf
from agentsup.agents.tools.delegation import delegation_tools
from agentsup.agents.tools.spawning import spawning_tools
from agentsup.agents.tools.tasks import task_tools
from agentsup.agents.tools.teams import team_tools
from agentsup.agents.turn_services import TurnServices
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon.fleet import Fleet
from agentsup.daemon.ground import Ground
from agentsup.daemon.personas import DaemonOthers
from agentsup.daemon.tasks import DaemonTasks
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.dispatcher import Dispatcher
from agentsup.model.tool import Tool
from agentsup.model.trace import Tracer


def handing_on_tools(
    ground: Ground,
    current: Callable[[], ConfigSnapshot],
    *,
    dispatcher: Dispatcher,
    fleet: Fleet,
    work: DaemonTasks,
    tracer: Tracer,
    tasks: TaskOwner,
    turns: Callable[[], TurnServices],
) -> tuple[Tool, ...]:
    """The tools with which agents hand work on. ``turns`` is asked when it is needed: it is made
    later, of all tools."""

    def shelf() -> RoleShelf:
        roles = turns().roles
        assert roles is not None, "every daemon has roles"
        return roles.shelf

    services = DelegationServices(
        runs=work.runs,
        database=ground.database,
        directory=ground.roster,
        askers=fleet,
        others=DaemonOthers(ground, current, fleet),
        roles=shelf,
        hooks=lambda: turns().calls.pipeline.hooks,
        fan_out=lambda: current().settings.limits.fan_out,
        redact=ground.redactor.text,
        tracer=tracer,
    )
    desk = DelegationDesk(services, tasks)
    tasks.spawn(desk.ends.attend_earlier(), name="run-ends")
    return (
        *delegation_tools(desk),
        *team_tools(desk, Router(services, ground.clock), dispatcher),
        *spawning_tools(desk, ground.clock),
        *task_tools(desk, lambda: work.hub),
    )
