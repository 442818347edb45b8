"""Parses and runs chat commands, with lists in pages. Commands bypass every queue; a plain word is
never a command."""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from agentsup.agents.memory import NotesFiles
from agentsup.catalogue import LocalizedTexts, load, words
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox import Mailbox
from agentsup.mailbox.mail import AgentDirectory
from agentsup.mailbox.messages import chat_key
from agentsup.model.control import (
    CommandButton,
    CommandButtons,
    CommandContext,
    CommandInfo,
    CommandReply,
    Control,
)
from agentsup.model.errors import AgentsupError
from agentsup.model.message import DeliverTo
from agentsup.model.principal import PersonRole
from agentsup.store import Database

COMMON: Final = ("new", "stop", "status", "task", "agents", "help")
"""The commands that a beginner needs, explained first."""

GROUPS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "help.talk": ("answer", "skip", "say", "question", "cancel", "again"),
        "help.chats": ("start", "new", "sessions", "session", "memory", "role", "route"),
        "help.tasks": ("task", "tasks", "remind", "stop", "interrupt", "stop_all"),
        "help.agents": (
            *("agents", "agent_start", "agent_stop", "agent_restart", "agent_diff"),
            *("model", "effort", "set", "mcp", "approvals", "pair", "hooks"),
        ),
        "help.trouble": ("help", "status", "cost", "failed", "trace", "restart"),
    }
)
"""Every command by what people want. A group is named by its heading's key in the catalogue."""


ALL: Final = "all"
"""The word with which ``/help`` explains every command."""
_EARLIER: Final = {"dead": "failed"}
"""The current name of a command by its earlier one, which old buttons still send."""

_COMMAND = re.compile(r"^[/!]([A-Za-z][A-Za-z0-9_]*)(?:@\S+)?(?:\s+(.*))?$", re.DOTALL)
T = TypeVar("T")
_MARK = "#"


@dataclass(frozen=True, slots=True)
class Command:
    """One command. ``usage`` shows the arguments; ``operator`` requires that role, ``main_only``
    the chat of the main agent."""

    name: str
    usage: str
    help: str
    run: Callable[[CommandContext, str], Awaitable[CommandReply]]
    main_only: bool = False
    operator: bool = False


class ChatCommands:
    """Implements ``model.control.Commands`` over a table of commands."""

    def __init__(
        self,
        commands: tuple[Command, ...],
        main_agent_id: Callable[[], str],
        keep_own_session: Callable[[str, str], Awaitable[bool]] | None = None,
    ) -> None:
        """``keep_own_session`` is the mailbox's: a command applies to the session to which a
        message of the same chat would go."""
        self._keep_own_session = keep_own_session
        self._main_agent_id = main_agent_id
        help_command = Command("help", "[NAME | all]", "what commands there are", self._help)
        self._table = {c.name: c for c in (*commands, help_command)}

    def is_command(self, text: str) -> bool:
        """Whether the text has the form of a command (known or not)."""
        return _COMMAND.match(text.strip()) is not None

    async def run(self, text: str, context: CommandContext) -> CommandReply:
        """Run the command. Refusals and errors become a reply with ``ok`` False."""
        match = _COMMAND.match(text.strip())
        if match is None:
            return CommandReply(words(context.language)("help.no_command"), ok=False)
        name, rest = match.group(1).casefold(), (match.group(2) or "").strip()
        name = _EARLIER.get(name, name)
        command = self._table.get(name)
        if command is None or not self._offered(command, context.agent_id):
            return self._unknown(name, context)
        if command.operator and not is_operator(context):
            role = context.principal.role.name.lower()
            refusal = words(context.language)("help.operators", name=name, role=role)
            return CommandReply(refusal, ok=False, code="forbidden")
        try:
            returned = await self._returned(context)
            reply = await command.run(context, rest)
        except AgentsupError as error:
            return CommandReply(error.message, ok=False, code=error.code)
        return replace(reply, text=f"{returned}\n{reply.text}") if returned else reply

    async def _returned(self, context: CommandContext) -> str:
        """A sentence if the chat went back to its own session, else empty."""
        keep = self._keep_own_session
        if keep is None or not await keep(context.agent_id, key_of(context)):
            return ""
        return words(context.language)("session.returned")

    def offered(self, agent_id: str, language: str = "") -> tuple[CommandInfo, ...]:
        """The commands of that agent's chat, sorted by name, in ``language`` if that is known."""
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
        known = [info.name for info in self.offered(context.agent_id)]
        near = difflib.get_close_matches(name, known, n=1)
        if name in self._table:
            refusal = say("help.main_only", name=name)
        elif near:
            refusal = say("help.unknown_near", name=name, near=near[0])
        else:
            refusal = say("help.unknown", name=name)
        return CommandReply(refusal, ok=False, code="not_found")

    async def _help(self, context: CommandContext, rest: str) -> CommandReply:
        """The common commands with their meaning and the names of all; ``all``: every meaning."""
        wanted = rest.lstrip("/").casefold()
        say = words(context.language)
        known = {info.name: info for info in self.offered(context.agent_id, context.language)}
        if wanted in known:
            return CommandReply(_row(known[wanted]))
        if wanted and wanted != ALL:
            return self._unknown(wanted, context)
        blocks = [] if wanted else [_block(say("help.common"), known, COMMON)]
        grouped = [name for names in GROUPS.values() for name in names]
        others = [name for name in known if name not in grouped]
        for heading, names in (*GROUPS.items(), ("help.others", others)):
            offered = [name for name in names if name in known]
            if not offered:
                continue
            if wanted:
                blocks.append(_block(say(heading), known, offered))
            else:
                commands = " ".join(f"/{name}" for name in offered)
                blocks.append(f"{say(heading)}: {commands}")
        last = [] if wanted else [say("help.more")]
        return CommandReply("\n".join([*blocks, *last, say("help.anything_else")]))


def _block(heading: str, known: Mapping[str, CommandInfo], names: Iterable[str]) -> str:
    """A heading, and a row for each of these commands that is known."""
    return "\n".join([heading, *(_row(known[name]) for name in names if name in known)])


def _row(info: CommandInfo) -> str:
    usage = f" {info.usage}" if info.usage else ""
    return f"/{info.name}{usage} - {info.help}"


def key_of(context: CommandContext) -> str:
    """The key of the session of the chat in which the command was given."""
    return chat_key(context.channel, context.conversation)


def chat_of(context: CommandContext) -> DeliverTo:
    """The chat in which the command was given, as the target of a result."""
    agent_id, channel, conversation = context.address
    return DeliverTo("chat", agent_id=agent_id, channel=channel, conversation=conversation)


def is_operator(context: CommandContext) -> bool:
    """Whether the person who gave the command has the operator's rights."""
    return context.principal.is_operator or context.principal.role >= PersonRole.OPERATOR


@dataclass(frozen=True, slots=True)
class CommandServices:
    """The services that chat commands use."""

    control: Control
    mailbox: Mailbox
    database: Database
    directory: AgentDirectory
    clock: Clock
    entropy: Entropy
    memory_of: Callable[[str], Path]
    """The path of an agent's MEMORY.md, by the agent's name."""
    notes: NotesFiles = field(default_factory=NotesFiles)
    """Reads that file."""


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """Some items of a list. ``number`` counts from 1, ``first`` is the index of the first item."""

    items: tuple[T, ...]
    number: int
    count: int
    first: int
    total: int

    def heading(self, say: LocalizedTexts) -> str:
        """The range of items on this page, or empty if it is the whole list."""
        if self.count == 1:
            return ""
        last = self.first + len(self.items)
        return say("list.range", first=self.first + 1, last=last, total=self.total)


def wanted_page(rest: str) -> int | None:
    """The number of the page named by ``#3``; 1 for an empty text, None for any other."""
    if not rest:
        return 1
    number = rest.removeprefix(_MARK)
    if rest.startswith(_MARK) and number.isdecimal() and len(number) < 6:
        return max(1, int(number))
    return None


def page_of(items: Sequence[T], number: int, size: int) -> ListPage[T]:
    """The page ``number``, or the last one if the list has become shorter."""
    count = max(1, -(-len(items) // size))
    number = min(max(1, number), count)
    first = (number - 1) * size
    return ListPage(tuple(items[first : first + size]), number, count, first, len(items))


def turning(page: ListPage[T], command: str) -> CommandButtons:
    """The row of buttons to other pages; no row for a single page."""
    if page.count == 1:
        return ()
    row = []
    if page.number > 1:
        row.append(CommandButton("‹", f"{command} {_MARK}{page.number - 1}"))
    row.append(CommandButton(f"{page.number} / {page.count}", f"{command} {_MARK}{page.number}"))
    if page.number < page.count:
        row.append(CommandButton("›", f"{command} {_MARK}{page.number + 1}"))
    return (tuple(row),)


def columns(buttons: Sequence[CommandButton], width: int) -> CommandButtons:
    """Buttons in rows of at most ``width``."""
    return tuple(tuple(buttons[i : i + width]) for i in range(0, len(buttons), width))
