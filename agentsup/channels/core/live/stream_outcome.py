"""The outcome of a placeholder (a message in which an answer was streamed), from the store."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agentsup.mailbox.delivery import answer_of
from agentsup.mailbox.messages import find_message
from agentsup.model.channel import OutboxState
from agentsup.model.message import MessageOutcome, MessageState
from agentsup.store import Reader


class StreamFate(StrEnum):
    """The next action on a placeholder."""

    OPEN = "open"
    """The turn runs, or will run again: wait."""
    PARKED = "parked"
    """The turn waits for a person, and its text so far is not the answer: delete the message."""
    ANSWERING = "answering"
    """The answer is being delivered and will replace the text: wait."""
    ANSWERED = "answered"
    """The answer has replaced the text: only remove the row."""
    UNCERTAIN = "uncertain"
    """The outcome of the answer's edit is unknown: repeat the edit, which does no harm."""
    STOPPED = "stopped"
    """A person stopped the turn: keep the text, and append that it was stopped."""
    BROKEN = "broken"
    """The turn failed for good, and a notice says why: keep the text, and append that it ended."""
    SILENT = "silent"
    """There is no answer for people: delete the message."""


@dataclass(frozen=True, slots=True)
class StreamOutcome:
    """The outcome of a stream, with the data to bring it about.

    ``text``: the whole answer, if there is one. ``platform_ids``: the messages that hold it.
    ``language``: the person's language, if it is known.
    """

    fate: StreamFate
    text: str = ""
    platform_ids: tuple[str, ...] = ()
    language: str = ""

    def is_in(self, platform_id: int | str) -> bool:
        """Whether that message holds a piece of the answer."""
        return str(platform_id) in self.platform_ids


def outcome_of(reader: Reader, message_id: str) -> StreamOutcome:
    """Read from the store what becomes of the placeholder of a message."""
    message = find_message(reader, message_id)
    language = "" if message is None else message.principal.language
    state = None if message is None else message.state
    if state in _BY_STATE:
        return StreamOutcome(_BY_STATE[state], language=language)
    if message is not None and message.outcome is MessageOutcome.FAILED:
        return StreamOutcome(StreamFate.BROKEN, language=language)
    answer = answer_of(reader, message_id)
    if answer is None:
        return StreamOutcome(StreamFate.SILENT)
    fate = _BY_ANSWER.get(answer.state, StreamFate.SILENT)
    return StreamOutcome(fate, str(answer.body.get("text", "")), answer.platform_ids)


_BY_STATE: dict[MessageState | None, StreamFate] = {
    MessageState.QUEUED: StreamFate.OPEN,
    MessageState.LEASED: StreamFate.OPEN,
    MessageState.PARKED: StreamFate.PARKED,
    MessageState.CANCELLED: StreamFate.STOPPED,
    MessageState.DEAD: StreamFate.BROKEN,
}
_BY_ANSWER = {
    OutboxState.PENDING: StreamFate.ANSWERING,
    OutboxState.DELIVERED: StreamFate.ANSWERED,
    OutboxState.UNKNOWN: StreamFate.UNCERTAIN,
}


def is_delivered_here(reader: Reader, message_id: str, agent_id: str, conversation: str) -> bool:
    """Whether the answer of a message is delivered to ``conversation`` through ``agent_id``'s own bot.

    ``conversation`` is ``<channel>:<name>``. A silent delivery does not count.
    """
    message = find_message(reader, message_id)
    if message is None:
        return False
    to = message.deliver_to
    return (
        to.kind == "chat"
        and not to.silent
        and (to.agent_id or message.agent_id) == agent_id
        and f"{to.channel}:{to.conversation}" == conversation
    )
