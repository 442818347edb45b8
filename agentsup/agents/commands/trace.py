"""``/trace``: the way of a request through the agents, and what each turn did on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from agentsup.agents.commands import texts
from agentsup.agents.commands.chat_services import CommandServices
from agentsup.agents.commands.dispatch import Command
from agentsup.catalogue import words
from agentsup.model.control import CommandContext, CommandReply
from agentsup.model.errors import Forbidden, NotFound
from agentsup.model.message import Message
from agentsup.model.trace import SpanKind, trace_id
from agentsup.observe.traces import reading
from agentsup.observe.traces.reading import SpanNode

SHOWN = 30
"""Messages of one request."""
PIECES = 12
"""Pieces of one turn."""
_TOLD = (SpanKind.ENGINE, SpanKind.TOOL, SpanKind.PERSON, SpanKind.ROUTE)


def _is_theirs(context: CommandContext, root: Message) -> bool:
    """Whether all of it began with this person's own words, or with what was said in this chat."""
    to, by = root.deliver_to, context.principal
    is_here = (to.agent_id, to.channel, to.conversation) == (
        context.agent_id,
        context.channel,
        context.conversation,
    )
    return is_here or (root.principal.kind, root.principal.subject) == (by.kind, by.subject)


class _Trace:
    def __init__(self, services: CommandServices, flush: Callable[[], Awaitable[None]]) -> None:
        self._s = services
        self._flush = flush

    async def run(self, context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        start = await self._start_of(context, rest.split(maxsplit=1)[0] if rest else "")
        messages = await self._s.mailbox.thread(start.root_id)
        if not context.principal.is_operator and not _is_theirs(context, messages[0]):
            raise Forbidden(say("trace.foreign", id=start.message_id))
        by_id = {str(m.message_id): m for m in messages}
        pieces = await self._pieces(messages[:SHOWN])
        lines = []
        for message in messages[:SHOWN]:
            depth = _depth(message, by_id)
            name = self._name(message.agent_id)
            lines.append(texts.step(message, name, depth, since_ms=messages[0].accepted_at))
            own = pieces.get(message.message_id, [])
            lines += [f"{'   ' * (depth + 1)}{texts.piece(span, say)}" for span in own[:PIECES]]
            if len(own) > PIECES:
                lines.append("   " * (depth + 1) + say("list.more", n=len(own) - PIECES))
        if len(messages) > SHOWN:
            lines.append(say("list.more", n=len(messages) - SHOWN))
        return CommandReply("\n".join(lines))

    async def _pieces(self, messages: Sequence[Message]) -> dict[str, list[SpanNode]]:
        """What the turns did, by message; only of these messages, whoever else shares the trace."""
        await self._flush()
        wanted = {message.message_id for message in messages}
        traces = {trace_id(message.traceparent) for message in messages} - {""}
        found: dict[str, list[SpanNode]] = {}
        for trace in sorted(traces):
            tree = await self._s.database.read(
                lambda reader, trace=trace: reading.tree(reader, trace),  # type: ignore[misc]  # bound at once
                name="command.trace",
            )
            for span in tree.spans if tree is not None else ():
                if span.kind in _TOLD and span.message_id in wanted:
                    found.setdefault(span.message_id, []).append(span)
        return found

    async def _start_of(self, context: CommandContext, wanted: str) -> Message:
        """The message named, by its id or trace id, or the latest of this chat."""
        if wanted.startswith("msg_"):
            return await self._s.mailbox.get(wanted)
        wanted = "" if wanted.casefold() == reading.LAST else wanted
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


def trace_commands(
    services: CommandServices, flush: Callable[[], Awaitable[None]]
) -> tuple[Command, ...]:
    """``/trace``; ``flush`` writes what is known of turns by now."""
    run = _Trace(services, flush)
    about = "the way of a request through the agents"
    return (Command("trace", "[MESSAGE_ID | last]", about, run.run),)


def _depth(message: Message, by_id: dict[str, Message]) -> int:
    depth, parent = 0, by_id.get(message.in_reply_to)
    while parent is not None and depth < 10:
        depth, parent = depth + 1, by_id.get(parent.in_reply_to)
    return depth
