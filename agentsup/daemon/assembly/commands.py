"""The assembly of all agents' chat commands."""

from __future__ import annotations

from functools import partial

from agentsup.agents.memory import NotesFiles
from agentsup.approvals import Grants
from agentsup.commands import (
    ChatCommands,
    CommandServices,
    approval_commands,
    chat_commands,
    cost_commands,
    hook_commands,
    main_commands,
    mcp_commands,
    memory_commands,
    pairing_command,
    remind_command,
    restart_command,
    role_commands,
    task_commands,
    trace_commands,
)
from agentsup.daemon.assembly.memory import agent_memory
from agentsup.daemon.assembly.parts import AgentParts, MailParts
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.mailbox.messages import sessions
from agentsup.model.agent import MAIN
from agentsup.model.control import Control
from agentsup.model.managed_bots import BotMaker
from agentsup.model.pairing import Pairing


def chat_commands_of(
    boot_context: BootContext,
    control: Control,
    mail: MailParts,
    agents: AgentParts,
    pairing: Pairing,
    bots: BotMaker,
) -> ChatCommands:
    """Every command of every chat."""
    given = CommandServices(
        control,
        mail.mailbox,
        boot_context.database,
        mail.directory,
        boot_context.clock,
        boot_context.entropy,
        boot_context.home.memory,
        NotesFiles(boot_context.files),
    )
    return ChatCommands(
        (
            *chat_commands(given),
            *trace_commands(given),
            *memory_commands(given, agent_memory(boot_context)),
            *hook_commands(agents.calls.pipeline.hooks),
            *role_commands(given, agents.roles.live_roles),
            *cost_commands(agents.spending.report.document),
            *mcp_commands(agents.mcp.document, boot_context.clock),
            *task_commands(given, agents.tasks.hub),
            remind_command(given, agents.tasks.hub),
            *approval_commands(
                Grants(boot_context.database, boot_context.clock), boot_context.roster.name_of
            ),
            restart_command(control),
            pairing_command(pairing, boot_context.clock),
            *main_commands(given, mail.dispatcher.reassign, bots),
        ),
        lambda: boot_context.roster.entry(MAIN).agent_id,
        partial(sessions.keep_own, boot_context.database, mail.mailbox.context),
    )
