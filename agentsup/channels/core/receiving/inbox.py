"""The way of a person's text into an agent's mailbox; commands pass every queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from agentsup.catalogue import words
from agentsup.mailbox import Mailbox
from agentsup.mailbox.delivery import preview
from agentsup.mailbox.mail import AgentDirectory, DirectoryEntry
from agentsup.mailbox.messages import answer_label, chat_key
from agentsup.mailbox.questions import PlainAnswer
from agentsup.model.control import CommandContext, CommandReply, Commands
from agentsup.model.errors import BadRequest, Forbidden
from agentsup.model.event import Event, EventType
from agentsup.model.message import (
    Accepted,
    DeliverTo,
    LaneName,
    MessageKind,
    NewMessage,
    Part,
    text_parts,
)
from agentsup.model.principal import PersonRole, Principal
from agentsup.model.question import Question
from agentsup.model.trace import child_of
from agentsup.store import EventLog, Tx

MAX_TEXT_BYTES = 256 * 1024
_QUESTION_CHARS = 120

HISTORY = (
    EventType.CHAT_IN,
    EventType.CHAT_EDITED,
    EventType.CHAT_OUT,
    EventType.QUESTION_CLOSED,
)
"""The events that make up the history of a conversation."""


@dataclass(frozen=True, slots=True)
class InboxReply(CommandReply):
    """The result of ``Inbox.say``: the reply to a command, or ``message`` was stored.

    A text that answered a question is replied to like a command.
    """

    text: str = ""
    message: Accepted | None = None


@dataclass(frozen=True, slots=True)
class ChatOrigin:
    """The conversation in which a text was said."""

    channel: str
    conversation: str
    has_buttons: bool = False
    """Replies of commands may have buttons."""
    is_private: bool = False
    """A plain text may answer an open question."""
    is_shared: bool = False
    """Other people read along."""


class Inbox:
    """Accepts the texts of all channels; there is one per daemon."""

    def __init__(
        self,
        *,
        mailbox: Mailbox,
        events: EventLog,
        directory: AgentDirectory,
        commands: Commands,
        hex_digits: Callable[[int], str],
    ) -> None:
        self._mailbox = mailbox
        self._events = events
        self._directory = directory
        self._commands = commands
        self._hex_digits = hex_digits

    async def say(
        self,
        *,
        agent_name: str,
        where: ChatOrigin,
        text: str,
        principal: Principal,
        external_id: str,
        files: tuple[Part, ...] = (),
        also: Callable[[Tx, Accepted], None] | None = None,
    ) -> InboxReply:
        """Accept one text. ``external_id`` is the platform's id of it, for the ledger.

        ``files`` are in the agent's workspace already; with them the text may be empty. Replies of
        commands are in the language of ``principal``. ``also`` writes more in the transaction that
        accepts the message, not for a command.

        Raises ``NotFound``, ``Gone``, ``Forbidden``, ``BadRequest``, ``Overloaded`` and
        ``StoreUnavailable``; then nothing was stored.
        """
        entry = self._permitted(agent_name, principal)
        _check_text(text, is_needed=not files)
        channel, conversation = where.channel, where.conversation
        source = f"{channel}:{entry.agent_id}:{conversation}"
        if not files and self._commands.is_command(text):
            context = CommandContext(
                entry.agent_id,
                entry.name,
                channel,
                conversation,
                principal,
                language=principal.language,
                has_buttons=where.has_buttons,
                is_shared=where.is_shared,
                key=external_id and f"{source}:{external_id}",
            )
            return await self._command(text, context)
        if where.is_private and not files:
            said = PlainAnswer(
                entry.agent_id, channel, conversation, text, principal, source, external_id
            )
            answered = await self._mailbox.questions.answer_plain(said)
            if answered is not None:
                return InboxReply(answer_taken_note(answered, principal.language))
        accepted = await self._mailbox.queue.accept(
            NewMessage(
                agent_id=entry.agent_id,
                session_key=chat_key(channel, conversation),
                parts=(*text_parts(text), *files) if text else files,
                principal=principal,
                kind=MessageKind.CHAT,
                lane=LaneName.INTERACTIVE,
                deliver_to=DeliverTo(
                    "chat", agent_id=entry.agent_id, channel=channel, conversation=conversation
                ),
                traceparent=child_of("", self._hex_digits),
                source=source,
                external_id=external_id,
            ),
            also=also,
        )
        return InboxReply(message=accepted)

    async def _command(self, text: str, context: CommandContext) -> InboxReply:
        reply = await self._commands.run(text, context)
        return InboxReply(**{each.name: getattr(reply, each.name) for each in fields(reply)})

    async def check(self, agent_name: str, principal: Principal) -> None:
        """Check whether a message would be accepted now, before work such as a download.

        Raises what ``say`` raises for the person or a full queue.
        """
        entry = self._permitted(agent_name, principal)
        await self._mailbox.queue.check_room(entry.agent_id)

    def _permitted(self, agent_name: str, principal: Principal) -> DirectoryEntry:
        entry = self._directory.lookup(agent_name)
        if principal.role < PersonRole.USER:
            raise Forbidden(f"{principal.label} may look but not write", agent=entry.name)
        return entry

    async def history(
        self,
        agent_name: str,
        channel: str,
        conversation: str,
        limit: int = 50,
        *,
        session_id: str = "",
        beside: str = "",
    ) -> list[Event]:
        """Return the latest chat events of a conversation, oldest first, with ends of questions;
        those of a session, if given, also from the conversation ``beside``."""
        entry = self._directory.lookup(agent_name)
        return await self._events.tail(
            agent_id=entry.agent_id,
            conversation=f"{channel}:{conversation}",
            types=HISTORY,
            limit=limit,
            session_id=session_id,
            beside=beside,
        )


def _check_text(text: str, *, is_needed: bool) -> None:
    """Raise ``BadRequest`` for a text that can't be taken."""
    if is_needed and not text.strip():
        raise BadRequest("the text is empty", field="text")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadRequest(
            "the text holds half of a character (a lone surrogate); remove it and send again",
            field="text",
        ) from None
    if size > MAX_TEXT_BYTES:
        raise BadRequest(
            f"the text is over {MAX_TEXT_BYTES // 1024} KiB; send it as a file", field="text"
        )


def answer_taken_note(question: Question, language: str) -> str:
    """Return the reply that a plain text was taken as the answer to a question."""
    say = words(language)
    if question.options:
        return say("press.answered", answer=answer_label(question, language))
    return say("answer.used", question=preview(question.text, _QUESTION_CHARS))
