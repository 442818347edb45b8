"""``/restart``: exit code 42 by command. In main's chat the daemon begins anew, elsewhere the agent."""

from __future__ import annotations

from agentsup.agents.commands import texts
from agentsup.agents.commands.dispatch import Command
from agentsup.catalogue import words
from agentsup.model.control import CommandContext, CommandReply, Control
from agentsup.model.errors import Forbidden
from agentsup.supervision.policy import REBUILD_CODE


class _Restart:
    def __init__(self, control: Control) -> None:
        self._control = control

    async def run(self, context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        here = await self._control.agent(context.agent_name)
        name = rest.split(maxsplit=1)[0] if rest else here.name
        if name.casefold() != here.name.casefold() and not here.is_main:
            raise Forbidden(say("restart.not_from_here", agent=here.name))
        wanted = await self._control.agent(name)
        if wanted.is_main:
            # What a turn or a command has begun is ended, or goes on afterwards; so does this one.
            await self._control.exit(REBUILD_CODE, context.principal)
            return CommandReply(say("restart.daemon"))
        view = await self._control.restart_agent(wanted.name, context.principal)
        state = texts.state(view.status, say)
        return CommandReply(say("agent.rebuilt", name=view.name, state=state))


def restart_command(control: Control) -> Command:
    """The command; only an operator may give it."""
    run = _Restart(control).run
    return Command(
        "restart", "[NAME]", "begin anew; in main's chat: the daemon", run, operator=True
    )
