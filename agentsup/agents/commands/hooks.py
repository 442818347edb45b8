"""``/hooks``: the stages that every call of a tool passes, as they are now."""

from __future__ import annotations

from agentsup.agents.commands.dispatch import Command
from agentsup.agents.pipeline.hooks import HookRow, Hooks
from agentsup.catalogue import words
from agentsup.model.control import CommandContext, CommandReply


def hook_commands(hooks: Hooks) -> tuple[Command, ...]:
    """The command, over the live registry."""

    async def show(context: CommandContext, rest: str) -> CommandReply:
        del rest
        say = words(context.language)

        def line(row: HookRow) -> str:
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
