"""``/hooks``: the stages that every tool call passes now."""

from __future__ import annotations

from agentsup.agents.pipeline import Hooks
from agentsup.catalogue import words
from agentsup.commands.dispatch import Command
from agentsup.model.control import CommandContext, CommandReply
from agentsup.model.hook import Hook


def hook_commands(hooks: Hooks) -> tuple[Command, ...]:
    """The command, over the live registry."""

    async def show(context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)

        def line(row: Hook) -> str:
            state = say("hooks.on") if row.is_on else say("hooks.off")
            if row.is_fixed:
                state = say("hooks.fixed")
            return f"{row.phase} › {row.name} ({state}): {row.about}"

        lines = [say("hooks.head"), *map(line, hooks.rows())]
        unknown = hooks.unknown_switches()
        if unknown:
            lines.append(say("hooks.unknown", names=", ".join(unknown)))
        return CommandReply("\n".join(lines))

    about = "the stages that every call of a tool passes"
    return (Command("hooks", "", about, show, operator=True),)
