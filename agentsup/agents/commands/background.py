"""Work in the background of a chat that is no task: how it reads, and how people end it."""

from __future__ import annotations

from collections.abc import Sequence

from agentsup.agents.commands.chat_services import CommandServices
from agentsup.agents.commands.task_texts import RESULT_CHARS, short_id
from agentsup.agents.commands.texts import one_line
from agentsup.catalogue import Words, words
from agentsup.mailbox import background
from agentsup.mailbox.notices import preview
from agentsup.model.control import BackgroundWork, Button, CommandContext, CommandReply
from agentsup.model.errors import Conflict, Forbidden, NotFound
from agentsup.model.message import TERMINAL, Message, State

__all__ = ["BackgroundList", "buttons", "lines"]

SHOWN = 5
LEAST_ID = 4
"""Characters of an id's end that stand for it."""
_STATES = {"queued": "queued", "leased": "running", "parked": "waiting"}
_LABEL = 24

Rows = tuple[tuple[Button, ...], ...]


class BackgroundList:
    """What goes on in the background of a conversation. Serves the commands."""

    def __init__(self, services: CommandServices) -> None:
        self._s = services

    async def all(self, context: CommandContext) -> tuple[BackgroundWork, ...]:
        """Work whose result comes into this chat, tasks among it, the oldest first."""
        place = background.Conversation(context.agent_id, context.channel, context.conversation)
        return await self._s.database.read(
            lambda reader: background.of_conversation(reader, place), name="command.background"
        )

    async def find(self, context: CommandContext, wanted: str) -> Message | None:
        """The message of such work by its id, or by the end of that where it goes on here; None
        where there is none. Raises ``Forbidden`` for work of another chat."""
        if not wanted.startswith("msg_"):
            if len(wanted) < LEAST_ID:
                return None
            found = [
                work.work_id
                for work in await self.all(context)
                if not work.is_task and work.work_id.endswith(wanted)
            ]
            if len(found) != 1:
                return None
            wanted = found[0]
        try:
            message = await self._s.mailbox.get(wanted)
        except NotFound:
            return None
        if not context.principal.is_operator and not _is_here(message, context):
            say = words(context.language)
            raise Forbidden(say("background.elsewhere", id=wanted), message_id=wanted)
        return message

    def show(self, message: Message, context: CommandContext, head: str = "") -> CommandReply:
        """One piece of work, with its result where it has ended."""
        say = words(context.language)
        entry = self._s.directory.by_id(message.agent_id)
        agent = entry.name if entry is not None else message.agent_id
        told = [
            *([head, ""] if head else []),
            preview(message.summary or message.text),
            f"{agent}: {_state(message, say)}",
        ]
        if message.state is State.DONE and message.result_text:
            text = message.result_text
            shown = text if len(text) <= RESULT_CHARS else text[: RESULT_CHARS - 1] + "…"
            told.append(say("tasks.result", text=shown))
        elif message.error_text:
            told.append(say("tasks.error", why=message.error_text))
        told.append(say("tasks.id", id=message.message_id))
        is_open = message.state not in TERMINAL
        acts = (_cancel(message.message_id, preview(message.summary or message.text, 60), say),)
        return CommandReply("\n".join(told), buttons=(acts,) if is_open else ())

    async def cancel(self, message: Message, context: CommandContext) -> CommandReply:
        """End it with all its processes. Raises ``Conflict`` where it has ended."""
        say = words(context.language)
        if message.state in TERMINAL:
            raise Conflict(
                say("cancel.ended", state=message.state.value), message_id=message.message_id
            )
        await self._s.control.cancel(message.message_id, context.principal)
        now = await self._s.mailbox.get(message.message_id)
        return self.show(now, context, say("tasks.cancelled"))


def lines(works: Sequence[BackgroundWork], say: Words) -> list[str]:
    """What goes on, with how to end each; nothing where nothing does."""
    if not works:
        return []
    told = [say.count("background.goes_on", len(works))]
    told += [
        "   "
        + say(
            "background.line",
            name=one_line(work.name, 60),
            agent=work.agent,
            state=say(f"task_state.{_STATES[work.state]}"),
            id=short_id(work.work_id),
        )
        for work in works[:SHOWN]
    ]
    if len(works) > SHOWN:
        told.append("   " + say("list.more", n=len(works) - SHOWN))
    return told


def buttons(works: Sequence[BackgroundWork], say: Words) -> Rows:
    """A button for each that ends it."""
    return tuple((_cancel(work.work_id, work.name, say),) for work in works[:SHOWN])


def _cancel(work_id: str, name: str, say: Words) -> Button:
    return Button(
        f"✖ {one_line(name, _LABEL)}",
        f"/task cancel {work_id}",
        once=True,
        confirm=say("confirm.cancel_work", name=one_line(name, 60)),
    )


def _state(message: Message, say: Words) -> str:
    if message.state is State.DONE and message.outcome is not None:
        word = "done" if message.outcome.value == "ok" else "failed"
    elif message.state is State.DEAD:
        word = "failed"
    else:
        word = _STATES.get(message.state.value, message.state.value)
    return say(f"task_state.{word}")


def _is_here(message: Message, context: CommandContext) -> bool:
    chat = background.final_chat(message.deliver_to)
    return chat is not None and (
        chat.agent_id or message.agent_id,
        chat.channel,
        chat.conversation,
    ) == (context.agent_id, context.channel, context.conversation)
