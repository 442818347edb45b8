"""``/memory``: the file that people write for an agent, and the entries of its own memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from agentsup.agents.memory import (
    AgentMemory,
    MemoryEntry,
    MemoryOwner,
    MemoryScope,
    PersonKey,
    ShownEntry,
    one_line,
)
from agentsup.catalogue import LocalizedTexts, words
from agentsup.commands.dispatch import Command, CommandServices, columns, is_operator
from agentsup.kit.terminal import clean
from agentsup.mailbox.delivery import preview
from agentsup.model.control import CommandButton, CommandButtons, CommandContext, CommandReply
from agentsup.model.errors import BadRequest, Forbidden, NotFound, NotSeen
from agentsup.model.principal import name_of_person

HEAD_CHARS = 1500
FILE_BYTES = 1024 * 1024
SHOWN = 10
PRUNE_BELOW = 0.1
"""The weight below which ``/memory prune`` drops entries by default: a fact of the usual confidence
that nobody has recalled is below it after seven months."""
_DONE = {"pin": "memory.pinned", "unpin": "memory.unpinned", "forget": "memory.forgotten"}


@dataclass(frozen=True, slots=True)
class _MemoryCommand:
    """One command with verbs of its own. A person sees and changes the memories of their own work,
    and sees those that are shared with all. An operator sees and changes everything; in a chat with
    other readers, only what any person would."""

    s: CommandServices
    memory: AgentMemory

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
            case ("pin" | "unpin" | "forget") as change if what:
                return await self._change(context, change, what, say)
            case "share" if what:
                if not is_operator(context):
                    raise Forbidden(say("memory.sharers"))
                return await self._share(context, what, say)
            case "prune":
                if not is_operator(context):
                    raise Forbidden(say("memory.operators"))
                return await self._prune(context, what, say)
        raise BadRequest(say("memory.say"), field="memory")

    async def _overview(self, context: CommandContext, say: LocalizedTexts) -> CommandReply:
        path = self.s.memory_of(context.agent_name)
        text = await self.s.notes.read(path, FILE_BYTES)
        where = str(path) if context.principal.is_operator else path.name
        if text is not None:
            shown = text[:HEAD_CHARS].rstrip()
            lines = [where, "", shown or say("memory.empty")]
            if len(text) > len(shown):
                lines.append(say("memory.more", n=len(text) - len(shown)))
        else:
            lines = [say("memory.none", name=context.agent_name, path=where)]
        found, count = await self.memory.all_of(context.agent_id, _whose(context), limit=SHOWN)
        if not found:
            lines += ["", say("memory.nothing", name=context.agent_name)]
            return CommandReply("\n".join(lines))
        lines += ["", say.count("memory.entries", count), *(_line(each, say) for each in found)]
        if count > len(found):
            lines.append(say("list.more", n=count - len(found)))
        lines.append(say("memory.how"))
        return CommandReply("\n".join(lines), buttons=_each(found))

    async def _search(
        self, context: CommandContext, text: str, say: LocalizedTexts
    ) -> CommandReply:
        person = _whose(context)
        owner = MemoryOwner(context.agent_id, person=person or "")
        found = await self.memory.search(owner, text, limit=SHOWN, own_only=person is None)
        found = [each for each in found if each.agent_id == context.agent_id]
        if not found:
            return CommandReply(say("memory.not_found", text=preview(text, 80)))
        return CommandReply(
            "\n".join(_line(each, say) for each in found), buttons=(*_each(found), _back(say))
        )

    async def _show(self, context: CommandContext, key: str, say: LocalizedTexts) -> CommandReply:
        found = await self._under_key(context, key, say)
        text = "\n\n".join(_whole(entry, context, say) for entry in found)
        acts = _acts([entry for entry in found if _may_change(context, entry)], say)
        return CommandReply(text, buttons=(*acts, *_sharing(found, say), _back(say)))

    async def _change(
        self, context: CommandContext, verb: str, what: str, say: LocalizedTexts
    ) -> CommandReply:
        """Pin, unpin or forget one entry as it was shown, or the person's own entry under a key. If
        only others have entries under that key, they are shown and not changed."""
        which: ShownEntry | PersonKey | None = ShownEntry.parsed(what)
        if which is None:
            found = await self._under_key(context, what, say)
            if not any(_may_change(context, entry) for entry in found):
                raise _no_key(what, say)
            whose = context.principal.person
            key = next((entry.key for entry in found if entry.person == whose), None)
            if key is None:
                return await self._look_first(context, what, say)
            which = PersonKey(whose, key)
        agent_id, only = context.agent_id, _whose(context)
        with _translated_changes(say):
            if verb == "forget":
                changed = await self.memory.forget(agent_id, which, only=only)
            else:
                pinned = verb == "pin"
                changed = await self.memory.pin(agent_id, which, pinned=pinned, only=only)
        if not changed:
            raise _no_key(what, say)
        return CommandReply(say(_DONE[verb], name=changed[0].key), buttons=(_back(say),))

    async def _look_first(
        self, context: CommandContext, key: str, say: LocalizedTexts
    ) -> CommandReply:
        shown = await self._show(context, key, say)
        text = say("memory.look_first")
        return replace(shown, text=f"{text}\n\n{shown.text}", ok=False, code="not_seen")

    async def _share(self, context: CommandContext, what: str, say: LocalizedTexts) -> CommandReply:
        """Share an entry as it was shown. For a key alone its entries are shown and not shared."""
        name, _, last = what.rpartition(" ")
        if not name or last.casefold() not in set(MemoryScope):
            name, last = what, ""
        seen = ShownEntry.parsed(name)
        if seen is None:
            return await self._look_first(context, name, say)
        scope = MemoryScope(last.casefold()) if last else MemoryScope.AGENT
        with _translated_changes(say):
            entry, is_replacing = await self.memory.share(
                context.agent_id, seen, scope, context.principal
            )
        lines = [say("memory.shared", name=entry.key, scope=_scope(entry, say))]
        lines += [say("memory.replaced")] if is_replacing else []
        lines += ["", _whole(entry, context, say)]
        return CommandReply("\n".join(lines), buttons=(_back(say),))

    async def _prune(self, context: CommandContext, what: str, say: LocalizedTexts) -> CommandReply:
        try:
            below = float(what) if what else PRUNE_BELOW
        except ValueError:
            raise BadRequest(say("memory.say"), field="below") from None
        if not 0 <= below <= 1:
            raise BadRequest(say("memory.say"), field="below")
        count = await self.memory.prune(context.agent_id, below, person=_whose(context))
        return CommandReply(say.count("memory.pruned", count), buttons=(_back(say),))

    async def _under_key(
        self, context: CommandContext, key: str, say: LocalizedTexts
    ) -> Sequence[MemoryEntry]:
        try:
            return await self.memory.under_key(context.agent_id, key, _whose(context))
        except NotFound:
            raise _no_key(key, say) from None


def memory_commands(services: CommandServices, memory: AgentMemory) -> tuple[Command, ...]:
    """The command ``/memory``."""
    run = _MemoryCommand(services, memory)
    usage = (
        "[search TEXT | show KEY | pin KEY | unpin KEY | forget KEY | share KEY [SCOPE] | prune]"
    )
    return (Command("memory", usage, "what this agent remembers", run.run),)


def _whose(context: CommandContext) -> str | None:
    """The person whose memories are shown and changed; None: everybody's, for an operator in
    private."""
    sees_all = is_operator(context) and not context.is_shared
    return None if sees_all else context.principal.person


def _may_change(context: CommandContext, entry: MemoryEntry) -> bool:
    return _whose(context) in (None, entry.person)


def _no_key(key: str, say: LocalizedTexts) -> NotFound:
    return NotFound(say("memory.no_key", name=preview(key, 80)), key=key)


@contextmanager
def _translated_changes(say: LocalizedTexts) -> Iterator[None]:
    """Translate the errors about an entry that has changed since it was shown, or is gone."""
    try:
        yield
    except NotSeen as changed:
        text = say("memory.changed", name=changed.facts["key"])
        raise NotSeen(text, key=changed.facts["key"]) from None
    except NotFound:
        raise NotFound(say("memory.gone")) from None


def _scope(entry: MemoryEntry, say: LocalizedTexts) -> str:
    """The text that says in whose work the entry is recalled."""
    scope = MemoryScope.INSTANCE if entry.waits else entry.scope
    text = say(f"memory.scope.{scope.value}", person=name_of_person(entry.person))
    wish = say(f"memory.scope.{entry.scope.value}", person="")
    return say("memory.waits", now=text, wish=wish) if entry.waits else text


def _line(entry: MemoryEntry, say: LocalizedTexts, *, whole: bool = False) -> str:
    content = clean(entry.content) if whole else preview(entry.content, 120)
    waits = f" ({say('memory.to_share')})" if entry.waits else ""
    return f"{'★' if entry.pinned else '•'} {one_line(entry.key)}: {content}{waits}"


def _whole(entry: MemoryEntry, context: CommandContext, say: LocalizedTexts) -> str:
    """All of an entry, and for operators the token that names it as shown."""
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
        lines.append(say("memory.how_to_name", seen=entry.seen))
    return "\n".join(lines)


def _acts(found: Sequence[MemoryEntry], say: LocalizedTexts) -> CommandButtons:
    """Buttons to pin and to forget each entry as it is shown."""
    rows = []
    for entry in found:
        which = f": {preview(entry.content, 30)}" if len(found) > 1 else ""
        verb = "unpin" if entry.pinned else "pin"
        asked = say("confirm.forget", name=entry.key)
        rows.append(
            (
                CommandButton(
                    f"{say(f'button.{verb}')}{which}", f"/memory {verb} {entry.seen}", once=True
                ),
                CommandButton(
                    f"{say('button.forget')}{which}",
                    f"/memory forget {entry.seen}",
                    once=True,
                    confirm=asked,
                ),
            )
        )
    return tuple(rows)


def _sharing(found: Sequence[MemoryEntry], say: LocalizedTexts) -> CommandButtons:
    """A button for each entry that waits to be shared or is shared, which acts on it as shown."""
    rows = []
    for entry in found:
        if entry.scope is MemoryScope.INSTANCE:
            continue
        label, scope = ("share", entry.scope) if entry.waits else ("unshare", MemoryScope.INSTANCE)
        named = say(f"button.{label}")
        if len(found) > 1:
            named = f"{named}: {preview(entry.content, 30)}"
        command = f"/memory share {entry.seen} {scope.value}"
        rows.append((CommandButton(named, command, once=True, operator=True),))
    return tuple(rows)


def _each(found: Sequence[MemoryEntry]) -> CommandButtons:
    labels = {entry.key: preview(entry.key, 40) for entry in found}
    return columns(
        [CommandButton(label, f"/memory show {key}") for key, label in labels.items()], 1
    )


def _back(say: LocalizedTexts) -> tuple[CommandButton, ...]:
    return (CommandButton(say("button.to_memory"), "/memory"),)
