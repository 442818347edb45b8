"""The tools that the daemon gives to agents besides those of ``daemon.assembly.tool_pipeline``."""

from __future__ import annotations

from agentsup.agents.delegation import DelegationService, DelegationServices, Router
from agentsup.agents.delegation.tools import (
    delegation_tools,
    reminder_tools,
    spawning_tools,
    task_tools,
    team_tools,
)
from agentsup.agents.roles import LiveRoleRegistry
from agentsup.agents.tools import (
    mailbox_tools,
    peer_tools,
    restart_tool,
    shared_memory_tool,
)
from agentsup.agents.turn import TurnServices
from agentsup.daemon.assembly import memory
from agentsup.daemon.assembly.parts import Assembly, RunningParts
from agentsup.daemon.assembly.personas import DaemonOthers
from agentsup.daemon.assembly.tasks import DaemonTasks
from agentsup.model.tool import Tool


def daemon_tools(assembly: Assembly, running: RunningParts, work: DaemonTasks) -> tuple[Tool, ...]:
    """Tools over the daemon's services: other agents, shared knowledge, memory, delegation.

    Turn services are read when a tool needs them, because they are built from all tools.
    """
    boot, mail = assembly.boot, assembly.mail

    def turns() -> TurnServices:
        return assembly.agents().turns

    def roles() -> LiveRoleRegistry:
        return turns().roles.live_roles

    services = DelegationServices(
        runs=work.runs,
        database=boot.database,
        directory=mail.directory,
        others=DaemonOthers(boot, mail.current, running.fleet),
        roles=roles,
        hooks=lambda: turns().calls.pipeline.hooks,
        loads=mail.mailbox.context.loads,
        fan_out=lambda: mail.current().settings.limits.fan_out,
        redact=boot.redactor.text,
    )
    service = DelegationService(services, mail.tasks)
    mail.tasks.spawn(service.ends.watch_earlier(), name="run-ends")
    return (
        *peer_tools(mail.bus, mail.directory),
        shared_memory_tool(running.knowledge),
        restart_tool(lambda: turns().restarts),
        *mailbox_tools(mail.dispatcher, mail.history, mail.directory),
        *delegation_tools(service),
        *team_tools(service, Router(services, boot.clock), mail.dispatcher),
        *spawning_tools(service, boot.clock),
        *task_tools(service, lambda: work.hub),
        *reminder_tools(service, lambda: work.hub, boot.clock),
        *memory.remembering_tools(boot, mail.current),
    )
