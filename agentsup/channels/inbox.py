"""Inbox: a person's text into an agent's mailbox, or a command that passes every queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from agentsup.catalogue import words
from agentsup.mailbox.bus import AgentDirectory, DirectoryEntry
from agentsup.mailbox.choices import answer_label
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.naming import chat_key
from agentsup.mailbox.notices import preview
from agentsup.mailbox.plain_answer import Said
from agentsup.model.control import Button, CommandContext, Commands
from agentsup.model.errors import BadRequest, Forbidden
from agentsup.model.event import Event, EventType
from agentsup.model.message import Accepted, DeliverTo, Kind, Lane, NewMessage, Part, text_parts
from agentsup.model.principal import PersonRole, Principal
from agentsup.model.question import Question
from agentsup.model.trace import child_of
from agentsup.store.database import Tx
from agentsup.store.events import EventLog

MAX_TEXT_BYTES = 256 * 1024
_QUESTION_CHARS = 120

HISTORY = (
    EventType.CHAT_IN,
    EventType.CHAT_EDITED,
    EventType.CHAT_OUT,
    EventType.QUESTION_CLOSED,
)
"""What a conversation's past consists of."""


@dataclass(frozen=True, slots=True)
class InboxReply:
    """``accepted``: the message is stored. ``command``: it was run, ``text`` is for the person."""

    kind: Literal["accepted", "command"]
    message: Accepted | None = None
    text: str = ""
    ok: bool = True
    code: str = ""
    buttons: tuple[tuple[Button, ...], ...] = ()
    """Commands that a channel with buttons offers below the text."""
    live: str = ""
    """The command that shows the reply anew, where what it shows changes by itself."""


class Inbox:
    """One for the daemon; every channel hands its texts here."""

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
        channel: str,
        conversation: str,
        text: str,
        principal: Principal,
        external_id: str,
        files: tuple[Part, ...] = (),
        language: str = "",
        has_buttons: bool = False,
        is_private: bool = False,
        is_shared: bool = False,
        also: Callable[[Tx, Accepted], None] | None = None,
    ) -> InboxReply:
        """Accept one text. ``external_id`` is the platform's id of it, for the ledger.

        ``files`` lie in the agent's workspace already; with them the text may be empty.
        ``language`` (of the person) and ``has_buttons`` are for the replies of commands. ``is_private``:
        a plain text answers what is open there. ``is_shared``: others read along. ``also``
        writes more into the transaction that accepts; it does not run for a command.

        Raises ``NotFound``, ``Gone``, ``Forbidden``, ``BadRequest``, ``Overloaded`` and
        ``StoreUnavailable``; then nothing was stored.
        """
        entry = self._permitted(agent_name, principal)
        if not text.strip() and not files:
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
        if not files and self._commands.is_command(text):
            context = CommandContext(
                entry.agent_id,
                entry.name,
                channel,
                conversation,
                principal,
                language=language,
                has_buttons=has_buttons,
                is_shared=is_shared,
                key=external_id and f"{channel}:{entry.agent_id}:{conversation}:{external_id}",
            )
            return await self._command(text, context)
        source = f"{channel}:{entry.agent_id}:{conversation}"
        if is_private and not files:
            said = Said(entry.agent_id, channel, conversation, text, principal, source, external_id)
            answered = await self._mailbox.answer_plain(said)
            if answered is not None:
                return InboxReply("command", text=taken(answered, language))
        accepted = await self._mailbox.accept(
            NewMessage(
                agent_id=entry.agent_id,
                session_key=chat_key(channel, conversation),
                parts=(*text_parts(text), *files) if text else files,
                principal=principal,
                kind=Kind.CHAT,
                lane=Lane.INTERACTIVE,
                deliver_to=DeliverTo(
                    "chat", agent_id=entry.agent_id, channel=channel, conversation=conversation
                ),
                traceparent=child_of("", self._hex_digits),
                source=source,
                external_id=external_id,
            ),
            also=also,
        )
        return InboxReply("accepted", message=accepted)

    async def _command(self, text: str, context: CommandContext) -> InboxReply:
        reply = await self._commands.run(text, context)
        return InboxReply(
            "command",
            text=reply.text,
            ok=reply.ok,
            code=reply.code,
            buttons=reply.buttons,
            live=reply.live,
        )

    async def check(self, agent_name: str, principal: Principal) -> None:
        """Whether a message would be taken now, for those who have work with it before.

        Raises what ``say`` raises for the person or a full queue.
        """
        entry = self._permitted(agent_name, principal)
        await self._mailbox.check_room(entry.agent_id)

    def _permitted(self, agent_name: str, principal: Principal) -> DirectoryEntry:
        entry = self._directory.lookup(agent_name)
        if principal.role < PersonRole.USER:
            raise Forbidden(f"{principal.label} may look but not write", agent=entry.name)
        return entry

    async def history(
        self, agent_name: str, channel: str, conversation: str, limit: int = 50
    ) -> list[Event]:
        """The latest chat events of a conversation, oldest first; how questions ended is among
        them."""
        entry = self._directory.lookup(agent_name)
        return await self._events.tail(
            agent_id=entry.agent_id,
            conversation=f"{channel}:{conversation}",
            types=HISTORY,
            limit=limit,
        )

    def resolve(self, agent_name: str) -> str:
        """The ``agent_id`` behind a name. Raises ``NotFound`` or ``Gone``."""
        return self._directory.lookup(agent_name).agent_id


def taken(question: Question, language: str) -> str:
    """Tells that a plain text was the answer to a question, and the way out where any text is."""
    say = words(language)
    if question.options:
        return say("press.answered", answer=answer_label(question, language))
    return say("answer.taken", question=preview(question.text, _QUESTION_CHARS))


__all__ = ["HISTORY", "Inbox", "InboxReply", "taken"]
