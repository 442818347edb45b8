"""``/mcp``: the agent's own tool servers and their states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentsup.catalogue import LocalizedTexts, words
from agentsup.commands.dispatch import Command, is_operator
from agentsup.kit.clock import Clock
from agentsup.model.control import CommandContext, CommandReply

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
