"""Background work of a chat that is not a task: its texts, and how people end it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.catalogue import LocalizedTexts, words
from agentsup.commands.dispatch import CommandServices
from agentsup.commands.texts import RESULT_CHARS, short_id
from agentsup.mailbox.delivery import preview
from agentsup.mailbox.mail import name_in
from agentsup.mailbox.queue import background
from agentsup.model.control import (
    BackgroundWork,
    CommandButton,
    CommandButtons,
    CommandContext,
    CommandReply,
)
from agentsup.model.errors import Conflict, Forbidden, NotFound
from agentsup.model.message import TERMINAL, Message, MessageState

SHOWN = 5
LEAST_ID = 4
"""The fewest last characters of an id that are accepted for it."""
_STATES = {"queued": "queued", "leased": "running", "parked": "waiting"}
_LABEL = 24


@dataclass(frozen=True, slots=True)
class BackgroundList:
    """The background work of a conversation, for the commands that show and end it."""

    s: CommandServices

    async def all(self, context: CommandContext) -> tuple[BackgroundWork, ...]:
        """The work whose result goes to this chat, tasks included, the oldest first."""
        return await self.s.database.read(
            background.of_conversation, *context.address, name="command.background"
        )

    async def find(self, context: CommandContext, wanted: str) -> Message | None:
        """The message of such work by its id, or by the end of the id if it is open in this chat;
        None if there is none. Raises ``Forbidden`` for work of another chat."""
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
            message = await self.s.mailbox.messages.get(wanted)
        except NotFound:
            return None
        if not context.principal.is_operator and not _is_here(message, context):
            say = words(context.language)
            raise Forbidden(say("background.elsewhere", id=wanted), message_id=wanted)
        return message

    def show(self, message: Message, context: CommandContext, head: str = "") -> CommandReply:
        """One piece of work, with its result if it has ended."""
        say = words(context.language)
        agent = name_in(self.s.directory, message.agent_id)
        parts = [
            *([head, ""] if head else []),
            preview(message.summary or message.text),
            f"{agent}: {_state(message, say)}",
        ]
        if message.state is MessageState.DONE and message.result_text:
            text = message.result_text
            shown = text if len(text) <= RESULT_CHARS else text[: RESULT_CHARS - 1] + "…"
            parts.append(say("tasks.result", text=shown))
        elif message.error_text:
            parts.append(say("tasks.error", why=message.error_text))
        parts.append(say("tasks.id", id=message.message_id))
        is_open = message.state not in TERMINAL
        acts = (_cancel(message.message_id, preview(message.summary or message.text, 60), say),)
        return CommandReply("\n".join(parts), buttons=(acts,) if is_open else ())

    async def cancel(self, message: Message, context: CommandContext) -> CommandReply:
        """Cancel the work and end its processes. Raises ``Conflict`` if it has ended already."""
        say = words(context.language)
        if message.state in TERMINAL:
            raise Conflict(
                say("cancel.ended", state=message.state.value), message_id=message.message_id
            )
        await self.s.control.cancel(message.message_id, context.principal)
        now = await self.s.mailbox.messages.get(message.message_id)
        return self.show(now, context, say("tasks.cancelled"))


def lines(works: Sequence[BackgroundWork], say: LocalizedTexts) -> list[str]:
    """The open work as lines of text, with its ids; empty if there is none."""
    if not works:
        return []
    text = [say.count("background.goes_on", len(works))]
    text += [
        "   "
        + say(
            "background.line",
            name=preview(work.name, 60),
            agent=work.agent,
            state=say(f"task_state.{_STATES[work.state]}"),
            id=short_id(work.work_id),
        )
        for work in works[:SHOWN]
    ]
    if len(works) > SHOWN:
        text.append("   " + say("list.more", n=len(works) - SHOWN))
    return text


def buttons(works: Sequence[BackgroundWork], say: LocalizedTexts) -> CommandButtons:
    """A button for each piece of work that ends it."""
    return tuple((_cancel(work.work_id, work.name, say),) for work in works[:SHOWN])


def _cancel(work_id: str, name: str, say: LocalizedTexts) -> CommandButton:
    return CommandButton(
        f"✖ {preview(name, _LABEL)}",
        f"/task cancel {work_id}",
        once=True,
        confirm=say("confirm.cancel_work", name=preview(name, 60)),
    )


def _state(message: Message, say: LocalizedTexts) -> str:
    if message.state is MessageState.DONE and message.outcome is not None:
        word = "done" if message.outcome.value == "ok" else "failed"
    elif message.state is MessageState.DEAD:
        word = "failed"
    else:
        word = _STATES.get(message.state.value, message.state.value)
    return say(f"task_state.{word}")


def _is_here(message: Message, context: CommandContext) -> bool:
    chat = background.final_chat(message.deliver_to)
    if chat is None:
        return False
    return (chat.agent_id or message.agent_id, chat.channel, chat.conversation) == context.address
