"""Parsing and running a chat command. Commands pass every queue; a plain word is never one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agentsup.catalogue import load, words
from agentsup.model.control import CommandContext, CommandInfo, CommandReply
from agentsup.model.errors import AgentsupError
from agentsup.model.principal import PersonRole

_COMMAND = re.compile(r"^[/!]([A-Za-z][A-Za-z0-9_]*)(?:@\S+)?(?:\s+(.*))?$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """One command. ``usage`` is what follows its name; ``operator`` asks for that role."""

    name: str
    usage: str
    help: str
    run: Callable[[CommandContext, str], Awaitable[CommandReply]]
    main_only: bool = False
    operator: bool = False


class ChatCommands:
    """Implements ``model.control.Commands`` over a table of commands."""

    def __init__(self, commands: tuple[Command, ...], main_agent_id: Callable[[], str]) -> None:
        self._main_agent_id = main_agent_id
        help_command = Command("help", "", "this list", self._help)
        self._table = {c.name: c for c in (*commands, help_command)}

    def is_command(self, text: str) -> bool:
        """Whether the text starts like a command (known or not)."""
        return _COMMAND.match(text.strip()) is not None

    async def run(self, text: str, context: CommandContext) -> CommandReply:
        """Run it; refusals and errors become a reply with ``ok`` False."""
        match = _COMMAND.match(text.strip())
        if match is None:
            return CommandReply(words(context.language)("help.no_command"), ok=False)
        name, rest = match.group(1).casefold(), (match.group(2) or "").strip()
        command = self._table.get(name)
        if command is None or not self._offered(command, context.agent_id):
            return self._unknown(name, context)
        if command.operator and not is_operator(context):
            role = context.principal.role.name.lower()
            told = words(context.language)("help.operators", name=name, role=role)
            return CommandReply(told, ok=False, code="forbidden")
        try:
            return await command.run(context, rest)
        except AgentsupError as error:
            return CommandReply(error.message, ok=False, code=error.code)

    def names(self, context: CommandContext) -> tuple[str, ...]:
        """The commands offered in this chat, for completion."""
        return tuple(info.name for info in self.offered(context.agent_id))

    def offered(self, agent_id: str, language: str = "") -> tuple[CommandInfo, ...]:
        """The commands of that agent's chat by name, in the person's language if it is known."""
        return tuple(
            CommandInfo(
                name,
                command.usage,
                load().command(name, language) or command.help,
                command.operator,
            )
            for name, command in sorted(self._table.items())
            if self._offered(command, agent_id)
        )

    def _offered(self, command: Command, agent_id: str) -> bool:
        return not command.main_only or agent_id == self._main_agent_id()

    def _unknown(self, name: str, context: CommandContext) -> CommandReply:
        say = words(context.language)
        near = difflib.get_close_matches(name, self.names(context), n=1)
        if name in self._table:
            told = say("help.main_only", name=name)
        elif near:
            told = say("help.unknown_near", name=name, near=near[0])
        else:
            told = say("help.unknown", name=name)
        return CommandReply(told, ok=False, code="not_found")

    async def _help(self, context: CommandContext, rest: str) -> CommandReply:
        wanted = rest.lstrip("/").casefold()
        rows = []
        for info in self.offered(context.agent_id, context.language):
            if wanted and info.name != wanted:
                continue
            usage = f" {info.usage}" if info.usage else ""
            rows.append(f"/{info.name}{usage} - {info.help}")
        if not rows:
            return self._unknown(wanted, context)
        if not wanted:
            rows.append(words(context.language)("help.anything_else"))
        return CommandReply("\n".join(rows))


def is_operator(context: CommandContext) -> bool:
    """Whether whoever gave the command has the operator's rights."""
    return context.principal.is_operator or context.principal.role >= PersonRole.OPERATOR
