"""``/memory``: the file that people keep for an agent, and what it remembers by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentsup.agents.commands import texts
from agentsup.agents.commands.chat import CommandServices
from agentsup.agents.commands.dispatch import Command, is_operator
from agentsup.agents.commands.pages import columns
from agentsup.agents.memory.entry import Entry, Owner
from agentsup.agents.memory.notes_file import read_notes
from agentsup.agents.memory.service import AgentMemory
from agentsup.agents.memory.telling import one_line
from agentsup.catalogue import Words, words
from agentsup.model.control import Button, CommandContext, CommandReply
from agentsup.model.errors import BadRequest, Forbidden, NotFound

HEAD_CHARS = 1500
FILE_BYTES = 1024 * 1024
SHOWN = 10
PRUNE_BELOW = 0.1
"""What ``/memory prune`` drops, unless told otherwise: a fact of the usual confidence that nobody
has recalled is below it after seven months."""


class _MemoryCommand:
    """One command with verbs of its own; whoever may write in the chat may change what it shows."""

    def __init__(self, services: CommandServices, memory: AgentMemory) -> None:
        self._s = services
        self._memory = memory

    async def run(self, context: CommandContext, rest: str) -> CommandReply:
        verb, _, what = rest.partition(" ")
        what = what.strip()
        say = words(context.language)
        match verb.casefold():
            case "":
                return await self._overview(context, say)
            case "search" if what:
                return await self._search(context, what, say)
            case "show" if what:
                return await self._show(context, what, say)
            case ("pin" | "unpin") as pins if what:
                return await self._pin(context, what, say, pinned=pins == "pin")
            case "forget" if what:
                return await self._forget(context, what, say)
            case "prune":
                if not is_operator(context):
                    raise Forbidden(say("memory.operators"))
                return await self._prune(context, what, say)
        raise BadRequest(say("memory.say"), field="memory")

    async def _overview(self, context: CommandContext, say: Words) -> CommandReply:
        path = self._s.memory_of(context.agent_name)
        text = await asyncio.to_thread(read_notes, path, FILE_BYTES)
        where = str(path) if context.principal.is_operator else path.name
        exists = bool(text) or await asyncio.to_thread(path.is_file)
        if exists:
            shown = text[:HEAD_CHARS].rstrip()
            lines = [where, "", shown or say("memory.empty")]
            if len(text) > len(shown):
                lines.append(say("memory.more", n=len(text) - len(shown)))
        else:
            lines = [say("memory.none", name=context.agent_name, path=where)]
        found, count = await self._memory.all_of(context.agent_id, limit=SHOWN)
        if not found:
            lines += ["", say("memory.nothing", name=context.agent_name)]
            return CommandReply("\n".join(lines))
        lines += ["", say.count("memory.entries", count), *map(_line, found)]
        if count > len(found):
            lines.append(say("list.more", n=count - len(found)))
        lines.append(say("memory.how"))
        return CommandReply("\n".join(lines), buttons=_each(found))

    async def _search(self, context: CommandContext, text: str, say: Words) -> CommandReply:
        found = await self._memory.search(Owner(context.agent_id), text, limit=SHOWN, own_only=True)
        if not found:
            return CommandReply(say("memory.not_found", text=texts.one_line(text, 80)))
        return CommandReply("\n".join(map(_line, found)), buttons=(*_each(found), _back(say)))

    async def _show(self, context: CommandContext, key: str, say: Words) -> CommandReply:
        found = await self._under_key(context, key, say)
        parts = [
            "\n".join(
                (
                    _line(entry, whole=True),
                    say(
                        "memory.facts",
                        kind=entry.kind.value,
                        scope=entry.scope.value,
                        confidence=f"{entry.confidence:g}",
                        uses=entry.use_count,
                    ),
                    *([", ".join(f"#{tag}" for tag in entry.tags)] if entry.tags else []),
                )
            )
            for entry in found
        ]
        verb = "unpin" if all(entry.pinned for entry in found) else "pin"
        name = found[0].key
        asked = say("confirm.forget", name=name)
        acts = (
            Button(say(f"button.{verb}"), f"/memory {verb} {name}", once=True),
            Button(say("button.forget"), f"/memory forget {name}", once=True, confirm=asked),
        )
        return CommandReply("\n\n".join(parts), buttons=(acts, _back(say)))

    async def _pin(
        self, context: CommandContext, key: str, say: Words, *, pinned: bool
    ) -> CommandReply:
        entry = (await self._under_key(context, key, say))[0]
        await self._memory.pin(context.agent_id, entry.key, pinned=pinned)
        told = say("memory.pinned" if pinned else "memory.unpinned", name=entry.key)
        return CommandReply(told, buttons=(_back(say),))

    async def _forget(self, context: CommandContext, key: str, say: Words) -> CommandReply:
        entry = (await self._under_key(context, key, say))[0]
        await self._memory.forget(context.agent_id, entry.key)
        return CommandReply(say("memory.forgotten", name=entry.key), buttons=(_back(say),))

    async def _prune(self, context: CommandContext, what: str, say: Words) -> CommandReply:
        try:
            below = float(what) if what else PRUNE_BELOW
        except ValueError:
            raise BadRequest(say("memory.say"), field="below") from None
        if not 0 <= below <= 1:
            raise BadRequest(say("memory.say"), field="below")
        count = await self._memory.prune(context.agent_id, below)
        return CommandReply(say.count("memory.pruned", count), buttons=(_back(say),))

    async def _under_key(self, context: CommandContext, key: str, say: Words) -> Sequence[Entry]:
        try:
            return await self._memory.under_key(context.agent_id, key)
        except NotFound:
            told = say("memory.no_key", name=texts.one_line(key, 80))
            raise NotFound(told, key=key) from None


def memory_commands(services: CommandServices, memory: AgentMemory) -> tuple[Command, ...]:
    """``/memory``."""
    run = _MemoryCommand(services, memory)
    usage = "[search TEXT | show KEY | pin KEY | unpin KEY | forget KEY | prune]"
    return (Command("memory", usage, "what this agent remembers", run.run),)


def _line(entry: Entry, *, whole: bool = False) -> str:
    content = entry.content if whole else texts.one_line(entry.content, 120)
    return f"{'★' if entry.pinned else '•'} {one_line(entry.key)}: {content}"


def _each(found: Sequence[Entry]) -> tuple[tuple[Button, ...], ...]:
    labels = {entry.key: texts.one_line(entry.key, 40) for entry in found}
    return columns([Button(label, f"/memory show {key}") for key, label in labels.items()], 1)


def _back(say: Words) -> tuple[Button, ...]:
    return (Button(say("button.to_memory"), "/memory"),)
