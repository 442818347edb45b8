"""What becomes of a message in which an answer was streamed, as far as the store can say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agentsup.model.channel import OutboxState
from agentsup.model.message import State
from agentsup.store.database import Reader

__all__ = ["Fate", "Outcome", "fate_of", "is_shown_here"]


class Fate(StrEnum):
    """What becomes of a message in which an answer was streamed."""

    OPEN = "open"
    """The turn runs, or will run again: wait."""
    PARKED = "parked"
    """The turn waits for a person; what it said so far is not its answer: remove."""
    ANSWERING = "answering"
    """The answer is on its way and takes its place: wait."""
    ANSWERED = "answered"
    """The answer has taken its place: forget."""
    UNCERTAIN = "uncertain"
    """The answer may or may not have taken its place: put it there, which does no harm twice."""
    STOPPED = "stopped"
    """A person ended the turn: keep what was said, and say so."""
    BROKEN = "broken"
    """The turn failed for good; a notice says why."""
    SILENT = "silent"
    """There is no answer for people: remove."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``text``: the whole answer, where there is one; ``platform_ids``: the messages it became;
    ``language``: what the person reads, if it is known."""

    fate: Fate
    text: str = ""
    platform_ids: tuple[str, ...] = ()
    language: str = ""

    def is_in(self, platform_id: int | str) -> bool:
        """Whether that message holds a piece of the answer."""
        return str(platform_id) in self.platform_ids


def fate_of(reader: Reader, message_id: str) -> Outcome:
    """What the store says of a streamed message."""
    row = reader.one(
        "SELECT state, outcome, principal ->> '$.language' AS language FROM messages"
        " WHERE message_id = ?",
        (message_id,),
    )
    language = "" if row is None else row["language"] or ""
    state = None if row is None else State(row["state"])
    if state in _BY_STATE:
        return Outcome(_BY_STATE[state], language=language)
    if row is not None and row["outcome"] == "failed":
        return Outcome(Fate.BROKEN, language=language)
    # Repeats that a person asked for come later and are messages of their own.
    answer = reader.one(
        "SELECT state, body, platform_ids FROM outbox WHERE message_id = ? AND kind = 'answer'"
        " ORDER BY outbox_id LIMIT 1",
        (message_id,),
    )
    if answer is None:
        return Outcome(Fate.SILENT)
    fate = _BY_ANSWER.get(OutboxState(answer["state"]), Fate.SILENT)
    text = str(json.loads(answer["body"]).get("text", ""))
    return Outcome(fate, text, tuple(str(each) for each in json.loads(answer["platform_ids"])))


_BY_STATE: dict[State | None, Fate] = {
    State.QUEUED: Fate.OPEN,
    State.LEASED: Fate.OPEN,
    State.PARKED: Fate.PARKED,
    State.CANCELLED: Fate.STOPPED,
    State.DEAD: Fate.BROKEN,
}
_BY_ANSWER = {
    OutboxState.PENDING: Fate.ANSWERING,
    OutboxState.DELIVERED: Fate.ANSWERED,
    OutboxState.UNKNOWN: Fate.UNCERTAIN,
}


def is_shown_here(reader: Reader, message_id: str, agent_id: str, place: str) -> bool:
    """Whether the answer of a message goes to ``place`` (``<channel>:<conversation>``) through
    ``agent_id``'s own bot, for all to see."""
    row = reader.one(
        "SELECT agent_id, deliver_to FROM messages WHERE message_id = ?", (message_id,)
    )
    if row is None:
        return False
    to: dict[str, Any] = json.loads(row["deliver_to"])
    return (
        to.get("kind") == "chat"
        and not to.get("silent")
        and (to.get("agent_id") or row["agent_id"]) == agent_id
        and f"{to.get('channel')}:{to.get('conversation')}" == place
    )
