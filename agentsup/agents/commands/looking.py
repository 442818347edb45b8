"""Commands that only look: the way of a request through the agents."""

from __future__ import annotations

from agentsup.agents.commands import texts
from agentsup.agents.commands.chat import CommandServices
from agentsup.agents.commands.dispatch import Command
from agentsup.catalogue import words
from agentsup.model.control import CommandContext, CommandReply
from agentsup.model.errors import Forbidden, NotFound
from agentsup.model.message import Message

SHOWN = 30


def _is_theirs(context: CommandContext, root: Message) -> bool:
    """Whether all of it began with this person's own words, or with what was said in this chat."""
    to, by = root.deliver_to, context.principal
    is_here = (to.agent_id, to.channel, to.conversation) == (
        context.agent_id,
        context.channel,
        context.conversation,
    )
    return is_here or (root.principal.kind, root.principal.subject) == (by.kind, by.subject)


class _Looking:
    def __init__(self, services: CommandServices) -> None:
        self._s = services

    async def trace(self, context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        start = await self._start_of(context, rest.split(maxsplit=1)[0] if rest else "")
        messages = await self._s.mailbox.thread(start.root_id)
        if not context.principal.is_operator and not _is_theirs(context, messages[0]):
            raise Forbidden(say("trace.foreign", id=start.message_id))
        by_id = {str(m.message_id): m for m in messages}
        lines = [
            texts.step(
                m, self._name(m.agent_id), _depth(m, by_id), since_ms=messages[0].accepted_at
            )
            for m in messages[:SHOWN]
        ]
        if len(messages) > SHOWN:
            lines.append(say("list.more", n=len(messages) - SHOWN))
        return CommandReply("\n".join(lines))

    async def _start_of(self, context: CommandContext, wanted: str) -> Message:
        """The message named, by its id or trace id, or the latest of this chat."""
        if wanted.startswith("msg_"):
            return await self._s.mailbox.get(wanted)
        found = await self._s.mailbox.list(agent_id=context.agent_id, limit=200)
        key = f"{context.channel}:{context.conversation}"
        for message in found:
            to = message.deliver_to
            if wanted:
                if message.traceparent[3:35] == wanted:
                    return message
            elif to.kind == "chat" and f"{to.channel}:{to.conversation}" == key:
                return message
        say = words(context.language)
        raise NotFound(say("trace.no_trace", trace=wanted) if wanted else say("trace.no_message"))

    def _name(self, agent_id: str) -> str:
        entry = self._s.directory.by_id(agent_id)
        return entry.name if entry is not None else agent_id


def looking_commands(services: CommandServices) -> tuple[Command, ...]:
    """``/trace``."""
    run = _Looking(services)
    return (Command("trace", "[ID]", "the way of a request through the agents", run.trace),)


def _depth(message: Message, by_id: dict[str, Message]) -> int:
    depth, parent = 0, by_id.get(message.in_reply_to)
    while parent is not None and depth < 10:
        depth, parent = depth + 1, by_id.get(parent.in_reply_to)
    return depth
