"""``/hooks`` shows the stages of tool calls. ``/restart`` rebuilds an agent, or restarts the daemon
from main's chat. ``/mcp`` shows the agent's tool servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentsup.agents.pipeline import Hooks
from agentsup.catalogue import LocalizedTexts, words
from agentsup.commands import texts
from agentsup.commands.dispatch import Command, is_operator
from agentsup.kit.clock import Clock
from agentsup.model.control import CommandContext, CommandReply, Control
from agentsup.model.errors import Forbidden
from agentsup.model.hook import Hook
from agentsup.supervision import REBUILD_CODE


def hook_commands(hooks: Hooks) -> tuple[Command, ...]:
    """The command ``/hooks``; ``hooks`` is the registry of the pipeline."""

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


def restart_command(control: Control) -> Command:
    """The command ``/restart``, for operators only."""

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


SHOWN_TOOLS = 30


def mcp_commands(document: Callable[[str], dict[str, Any]], clock: Clock) -> tuple[Command, ...]:
    """The command ``/mcp``. ``document(agent)`` returns the servers of an agent by its name."""

    async def show(context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        may_see = is_operator(context)
        found = document(context.agent_name)["servers"]
        wanted = rest.strip()
        if wanted:
            found = [one for one in found if one["name"].casefold() == wanted.casefold()]
            if not found:
                return CommandReply(say("mcp.unknown", name=wanted), ok=False, code="not_found")
        if not found:
            return CommandReply(say("mcp.none", name=context.agent_name))
        now = clock.now_ms()
        blocks = [_server(one, now, say, tools=bool(wanted), errors=may_see) for one in found]
        return CommandReply("\n".join(blocks))

    return (Command("mcp", "[SERVER]", "the agent's tool servers and their states", show),)


def _server(
    one: dict[str, Any], now: int, say: LocalizedTexts, *, tools: bool, errors: bool
) -> str:
    head = say(
        "mcp.server", name=one["name"], type=one["type"], state=one["state"].replace("_", " ")
    )
    if one["since"] is not None:
        head += " " + say("mcp.since", seconds=max(0, (now - one["since"]) // 1000))
    lines = [f"{head}; {say.count('mcp.tools', len(one['tools']))}"]
    if tools:
        lines += [f"   {name}" for name in one["tools"][:SHOWN_TOOLS]]
        if len(one["tools"]) > SHOWN_TOOLS:
            lines.append(f"   {say('mcp.more', n=len(one['tools']) - SHOWN_TOOLS)}")
    if errors:
        # Errors may have a program's own output, and only an operator can repair the server.
        lines += [f"   {say('mcp.error', error=one['error'])}"] if one["error"] else []
        lines += [f"   {note}" for note in one["notes"]]
        if one["next_retry_at"] is not None:
            seconds = max(0, (one["next_retry_at"] - now) // 1000)
            lines.append(f"   {say('mcp.retry', seconds=seconds)}")
    return "\n".join(lines)
