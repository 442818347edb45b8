"""The chat commands of all agents, put together."""

from __future__ import annotations

from agentsup.agents.commands import ChatCommands
from agentsup.agents.commands.approvals import approval_commands
from agentsup.agents.commands.chat import chat_commands
from agentsup.agents.commands.chat_services import CommandServices
from agentsup.agents.commands.cost import cost_commands
from agentsup.agents.commands.hooks import hook_commands
from agentsup.agents.commands.main_chat import main_commands
from agentsup.agents.commands.mcp import mcp_commands
from agentsup.agents.commands.memory import memory_commands
from agentsup.agents.commands.restart import restart_command
from agentsup.agents.commands.roles import role_commands
from agentsup.agents.commands.tasks import task_commands
from agentsup.agents.commands.trace import trace_commands
from agentsup.agents.host import HostServices
from agentsup.agents.memory.notes_file import NotesFiles
from agentsup.approvals.grants import Grants
from agentsup.daemon.ground import Ground
from agentsup.daemon.mcp import DaemonMcp
from agentsup.daemon.remembering import agent_memory
from agentsup.daemon.roles import DaemonRoles
from agentsup.daemon.spending import DaemonSpending
from agentsup.daemon.tracing import DaemonTraces
from agentsup.mailbox.dispatcher import Dispatcher
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.agent import MAIN
from agentsup.model.control import Control
from agentsup.tasks.hub import TaskHub


def chat_commands_of(
    ground: Ground,
    control: Control,
    mailbox: Mailbox,
    calls: HostServices,
    roles: DaemonRoles,
    mcp: DaemonMcp,
    spending: DaemonSpending,
    traces: DaemonTraces,
    tasks: TaskHub | None = None,
    post: Dispatcher | None = None,
) -> ChatCommands:
    """Every command of every chat. ``tasks`` None: they are switched off."""
    given = CommandServices(
        control,
        mailbox,
        ground.database,
        ground.roster,
        ground.clock,
        ground.entropy,
        ground.home.memory,
        NotesFiles(ground.files),
    )
    return ChatCommands(
        (
            *chat_commands(given),
            *trace_commands(given, traces.flush),
            *memory_commands(given, agent_memory(ground)),
            *hook_commands(calls.pipeline.hooks),
            *role_commands(given, roles.shelf),
            *cost_commands(spending.desk.document),
            *mcp_commands(mcp.document, ground.clock),
            *task_commands(given, tasks),
            *approval_commands(Grants(ground.database, ground.clock), ground.roster.name_of),
            restart_command(control),
            *main_commands(given, post.reassign if post is not None else None),
        ),
        lambda: ground.roster.entry(MAIN).agent_id,
    )
