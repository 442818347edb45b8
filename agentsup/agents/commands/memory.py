"""``/memory``: the file that people keep for an agent, and what it remembers by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentsup.agents.commands import texts
from agentsup.agents.commands.chat_services import CommandServices
from agentsup.agents.commands.dispatch import Command, is_operator
from agentsup.agents.commands.pages import columns
from agentsup.agents.memory.entry import Entry, Owner, Scope, Seen
from agentsup.agents.memory.service import AgentMemory
from agentsup.agents.memory.telling import one_line
from agentsup.catalogue import Words, words
from agentsup.kit.terminal import clean
from agentsup.model.control import Button, CommandContext, CommandReply
from agentsup.model.errors import BadRequest, Forbidden, NotFound, NotSeen
from agentsup.model.principal import name_of_person

HEAD_CHARS = 1500
FILE_BYTES = 1024 * 1024
SHOWN = 10
PRUNE_BELOW = 0.1
"""What ``/memory prune`` drops, unless told otherwise: a fact of the usual confidence that nobody
has recalled is below it after seven months."""


class _MemoryCommand:
    """One command with verbs of its own. A person sees and changes what is remembered of their own
    work, and sees what is shared with all; an operator sees and changes everything, and
    where others read along what is their own."""

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
            case "share" if what:
                if not is_operator(context):
                    raise Forbidden(say("memory.sharers"))
                return await self._share(context, what, say)
            case "prune":
                if not is_operator(context):
                    raise Forbidden(say("memory.operators"))
                return await self._prune(context, what, say)
        raise BadRequest(say("memory.say"), field="memory")

    async def _overview(self, context: CommandContext, say: Words) -> CommandReply:
        path = self._s.memory_of(context.agent_name)
        text = await self._s.notes.read(path, FILE_BYTES)
        where = str(path) if context.principal.is_operator else path.name
        if text is not None:
            shown = text[:HEAD_CHARS].rstrip()
            lines = [where, "", shown or say("memory.empty")]
            if len(text) > len(shown):
                lines.append(say("memory.more", n=len(text) - len(shown)))
        else:
            lines = [say("memory.none", name=context.agent_name, path=where)]
        found, count = await self._memory.all_of(context.agent_id, _whose(context), limit=SHOWN)
        if not found:
            lines += ["", say("memory.nothing", name=context.agent_name)]
            return CommandReply("\n".join(lines))
        lines += ["", say.count("memory.entries", count), *(_line(each, say) for each in found)]
        if count > len(found):
            lines.append(say("list.more", n=count - len(found)))
        lines.append(say("memory.how"))
        return CommandReply("\n".join(lines), buttons=_each(found))

    async def _search(self, context: CommandContext, text: str, say: Words) -> CommandReply:
        person = _whose(context)
        owner = Owner(context.agent_id, person=person or "")
        found = await self._memory.search(owner, text, limit=SHOWN, own_only=person is None)
        found = [each for each in found if each.agent_id == context.agent_id]
        if not found:
            return CommandReply(say("memory.not_found", text=texts.one_line(text, 80)))
        return CommandReply(
            "\n".join(_line(each, say) for each in found), buttons=(*_each(found), _back(say))
        )

    async def _show(self, context: CommandContext, key: str, say: Words) -> CommandReply:
        found = await self._under_key(context, key, say)
        verb = "unpin" if all(entry.pinned for entry in found) else "pin"
        name = found[0].key
        asked = say("confirm.forget", name=name)
        acts = (
            Button(say(f"button.{verb}"), f"/memory {verb} {name}", once=True),
            Button(say("button.forget"), f"/memory forget {name}", once=True, confirm=asked),
        )
        text = "\n\n".join(_whole(entry, context, say) for entry in found)
        return CommandReply(text, buttons=(acts, *_sharing(found, say), _back(say)))

    async def _pin(
        self, context: CommandContext, key: str, say: Words, *, pinned: bool
    ) -> CommandReply:
        entry = (await self._under_key(context, key, say, shared=False))[0]
        await self._memory.pin(context.agent_id, entry.key, pinned=pinned, person=_whose(context))
        told = say("memory.pinned" if pinned else "memory.unpinned", name=entry.key)
        return CommandReply(told, buttons=(_back(say),))

    async def _forget(self, context: CommandContext, key: str, say: Words) -> CommandReply:
        entry = (await self._under_key(context, key, say, shared=False))[0]
        await self._memory.forget(context.agent_id, entry.key, person=_whose(context))
        return CommandReply(say("memory.forgotten", name=entry.key), buttons=(_back(say),))

    async def _share(self, context: CommandContext, what: str, say: Words) -> CommandReply:
        """What is named by its key alone is shown, not shared: whoever shares has seen what."""
        name, _, last = what.rpartition(" ")
        if not name or last.casefold() not in set(Scope):
            name, last = what, ""
        seen = Seen.parsed(name)
        if seen is None:
            shown = await self._show(context, name, say)
            told = say("memory.look_first")
            return replace(shown, text=f"{told}\n\n{shown.text}", ok=False, code="not_seen")
        try:
            scope = Scope(last.casefold()) if last else Scope.AGENT
            entry, is_replacing = await self._memory.share(
                context.agent_id, seen, scope, context.principal
            )
        except NotSeen as changed:
            told = say("memory.changed", name=changed.facts["key"])
            raise NotSeen(told, key=changed.facts["key"]) from None
        except NotFound:
            raise NotFound(say("memory.gone"), id=seen.memory_id) from None
        lines = [say("memory.shared", name=entry.key, scope=_scope(entry, say))]
        lines += [say("memory.replaced")] if is_replacing else []
        lines += ["", _whole(entry, context, say)]
        return CommandReply("\n".join(lines), buttons=(_back(say),))

    async def _prune(self, context: CommandContext, what: str, say: Words) -> CommandReply:
        try:
            below = float(what) if what else PRUNE_BELOW
        except ValueError:
            raise BadRequest(say("memory.say"), field="below") from None
        if not 0 <= below <= 1:
            raise BadRequest(say("memory.say"), field="below")
        count = await self._memory.prune(context.agent_id, below)
        return CommandReply(say.count("memory.pruned", count), buttons=(_back(say),))

    async def _under_key(
        self, context: CommandContext, key: str, say: Words, *, shared: bool = True
    ) -> Sequence[Entry]:
        try:
            return await self._memory.under_key(
                context.agent_id, key, _whose(context), shared=shared
            )
        except NotFound:
            told = say("memory.no_key", name=texts.one_line(key, 80))
            raise NotFound(told, key=key) from None


def memory_commands(services: CommandServices, memory: AgentMemory) -> tuple[Command, ...]:
    """``/memory``."""
    run = _MemoryCommand(services, memory)
    usage = (
        "[search TEXT | show KEY | pin KEY | unpin KEY | forget KEY | share KEY [SCOPE] | prune]"
    )
    return (Command("memory", usage, "what this agent remembers", run.run),)


def _whose(context: CommandContext) -> str | None:
    """Whose memories are shown and changed; None: everybody's, for an operator whom nobody watches."""
    sees_all = is_operator(context) and not context.is_shared
    return None if sees_all else context.principal.person


def _scope(entry: Entry, say: Words) -> str:
    """Whose work recalls it now."""
    scope = Scope.INSTANCE if entry.waits else entry.scope
    told = say(f"memory.scope.{scope.value}", person=name_of_person(entry.person))
    wish = say(f"memory.scope.{entry.scope.value}", person="")
    return say("memory.waits", now=told, wish=wish) if entry.waits else told


def _line(entry: Entry, say: Words, *, whole: bool = False) -> str:
    content = clean(entry.content) if whole else texts.one_line(entry.content, 120)
    waits = f" ({say('memory.to_share')})" if entry.waits else ""
    return f"{'★' if entry.pinned else '•'} {one_line(entry.key)}: {content}{waits}"


def _whole(entry: Entry, context: CommandContext, say: Words) -> str:
    """All of an entry, and for operators what names it as it is shown."""
    lines = [
        _line(entry, say, whole=True),
        say(
            "memory.facts",
            kind=entry.kind.value,
            scope=_scope(entry, say),
            confidence=f"{entry.confidence:g}",
            uses=entry.use_count,
        ),
    ]
    if entry.tags:
        lines.append(", ".join(f"#{tag}" for tag in entry.tags))
    if is_operator(context):
        lines.append(say("memory.how_to_share", seen=entry.seen))
    return "\n".join(lines)


def _sharing(found: Sequence[Entry], say: Words) -> tuple[tuple[Button, ...], ...]:
    """A button for each entry that waits to be shared, or is shared: that one as it is shown."""
    rows = []
    for entry in found:
        if entry.scope is Scope.INSTANCE:
            continue
        label, scope = ("share", entry.scope) if entry.waits else ("unshare", Scope.INSTANCE)
        named = say(f"button.{label}")
        if len(found) > 1:
            named = f"{named}: {texts.one_line(entry.content, 30)}"
        command = f"/memory share {entry.seen} {scope.value}"
        rows.append((Button(named, command, once=True, operator=True),))
    return tuple(rows)


def _each(found: Sequence[Entry]) -> tuple[tuple[Button, ...], ...]:
    labels = {entry.key: texts.one_line(entry.key, 40) for entry in found}
    return columns([Button(label, f"/memory show {key}") for key, label in labels.items()], 1)


def _back(say: Words) -> tuple[Button, ...]:
    return (Button(say("button.to_memory"), "/memory"),)
