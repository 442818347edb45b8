"""``/restart``: exit code 42 by command, for the daemon in main's chat, elsewhere for the agent."""

from __future__ import annotations

from agentsup.catalogue import words
from agentsup.commands import texts
from agentsup.commands.dispatch import Command
from agentsup.model.control import CommandContext, CommandReply, Control
from agentsup.model.errors import Forbidden
from agentsup.supervision import REBUILD_CODE


def restart_command(control: Control) -> Command:
    """The command; only an operator may give it."""

    async def run(context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        here = await control.agent(context.agent_name)
        name = rest.split(maxsplit=1)[0] if rest else here.name
        if name.casefold() != here.name.casefold() and not here.is_main:
            raise Forbidden(say("restart.not_from_here", agent=here.name))
        wanted = await control.agent(name)
        if wanted.is_main:
            # Turns and commands in progress, this one included, end first or continue afterwards.
            await control.exit(REBUILD_CODE, context.principal)
            return CommandReply(say("restart.daemon"))
        view = await control.restart_agent(wanted.name, context.principal)
        state = texts.state(view.status, say)
        return CommandReply(say("agent.rebuilt", name=view.name, state=state))

    about = "rebuild this agent; in main's chat: restart the daemon"
    return Command("restart", "[NAME]", about, run, operator=True)
