"""What of a question people are shown, and where: its card, the whole call, the second press.

A question is shown by parts of the outbox. The first is its card; where that has room for a part of
the call only, it offers to deny it and to show all of it, and the answers stand below the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from agentsup.catalogue import words
from agentsup.mailbox import choices, outbox
from agentsup.mailbox.rows import need_message
from agentsup.model.question import APPROVAL, Question, Seen, of_leave
from agentsup.store.database import Reader, Tx

__all__ = [
    "SEEN_SQL",
    "Stage",
    "Token",
    "body_of",
    "more_tx",
    "seen_in",
    "show_tx",
    "whole_text",
]

MESSAGE_CHARS = 7_000
"""A longer text goes to a chat as a file."""
CALL_FILE = "call.txt"
SEEN_SQL = (
    "(o.state IN ('delivered', 'unknown') OR o.begun_boot <> '' OR o.begun_at > 0"
    " OR o.progress > 0)"
)
"""Whether people may have seen a part ``o`` of the outbox: nobody can mean a question that still
waits for its delivery. Enough for a question, and too little for an approval (``seen_in``)."""
_ARRIVED_SQL = "o.state = 'delivered'"
_PRESSED_SQL = f"({_ARRIVED_SQL} OR (o.state = 'pending' AND o.doubts = 0 AND {SEEN_SQL}))"
"""The buttons that allow stand in the last piece of a part, and that leaves once the others have
surely arrived: whoever presses one has them all, also before the last is on record."""


class Stage(StrEnum):
    """Which part shows the question."""

    CARD = "card"
    WHOLE = "whole"
    """All of the call."""
    CONFIRM = "confirm"
    """What leave for every command means."""


class Token(StrEnum):
    """What a button means that is no answer yet; those of answers are their numbers."""

    SHOW_ALL = "all"
    CONFIRM = "sure"


def body_of(question: Question, stage: Stage = Stage.CARD, language: str = "") -> dict[str, Any]:
    """The body of a part that shows the question. ``options`` are what its buttons say, ``choices``
    what they mean (a number of the question's options, or a ``Token``)."""
    say = words(language)
    labels = choices.labels(question.kind, question.options, language)
    body: dict[str, Any] = {
        "question_id": question.question_id,
        "kind": question.kind,
        "text": question.text,
        "options": labels,
        "deadline_at": question.deadline_at,
        "who": question.who.value,
        "tool": of_leave(question.tool)[0],
    }
    if question.kind != APPROVAL:
        return body
    is_cut = bool(question.call.whole)
    offered = {str(number): label for number, label in enumerate(labels)}
    deny = next((n for n, each in enumerate(question.options) if each == choices.DENY), None)
    denial = {} if deny is None else {str(deny): labels[deny]}
    if stage is Stage.WHOLE:
        body |= _long(question.call.whole or question.text, say("approval.attached"))
        body["if_refused"] = say("approval.not_shown", id=question.question_id)
    elif stage is Stage.CONFIRM:
        body["text"] = say("approval.confirm", tool=of_leave(question.tool)[0])
        offered = {Token.CONFIRM.value: say("approval.sure"), **denial}
    elif is_cut:
        offered = {Token.SHOW_ALL.value: say("approval.show_all"), **denial}
    return body | {
        "options": [*offered.values()],
        "choices": [*offered],
        "offers": [[option, label] for option, label in zip(question.options, labels, strict=True)],
        "digest": question.call.digest,
        "stage": stage.value,
        "is_cut": is_cut,
        "is_whole": stage is Stage.WHOLE or not is_cut,
    }


def _long(text: str, instead: str) -> dict[str, Any]:
    if len(text) <= MESSAGE_CHARS:
        return {"text": text}
    return {"text": instead, "attached": {"name": CALL_FILE, "text": text}}


def whole_text(body: Mapping[str, Any]) -> str:
    """All that a part says, for places without files."""
    attached = body.get("attached") or {}
    return "\n\n".join(filter(None, (str(attached.get("text", "")), str(body.get("text") or ""))))


def show_tx(
    tx: Tx,
    question: Question,
    place: tuple[str, str, str],
    *,
    at: int,
    stage: Stage = Stage.CARD,
) -> None:
    """Show the question, or more of it, at a place: whose bot, channel and conversation."""
    message = need_message(tx, question.message_id)
    agent_id, channel, conversation = place
    outbox.add_tx(
        tx,
        message_id=question.message_id,
        agent_id=agent_id,
        session_id=question.session_id,
        channel=channel,
        conversation=conversation,
        kind="question",
        body=body_of(question, stage, message.principal.language),
        at=at,
    )


def more_tx(
    tx: Tx, question: Question, place: tuple[str, str, str], stage: Stage, *, at: int
) -> None:
    """Show more of an open question at a place: once, and again where that did not arrive."""
    _, channel, conversation = place
    where = "o.body ->> '$.stage' = ? AND o.state IN ('pending', 'delivered')"
    if not _is_shown(tx, question, channel, conversation, where, stage.value):
        show_tx(tx, question, place, at=at, stage=stage)


def seen_in(
    reader: Reader,
    question: Question,
    channel: str,
    conversation: str,
    *,
    is_pressed: bool = False,
) -> Seen:
    """What people of a conversation were surely shown of the call that a question is about.

    ``is_pressed``: the answer is a press of one of its buttons there.
    """

    def is_there(where: str) -> bool:
        return _is_shown(reader, question, channel, conversation, where)

    whole = "o.body ->> '$.is_whole' = 1"
    # A card that holds all of the call has its buttons at its own end.
    is_proof = is_pressed and not question.call.whole
    arrived = _PRESSED_SQL if is_pressed else _ARRIVED_SQL
    if is_proof or is_there(f"{whole} AND {arrived}"):
        return Seen(question.call.digest)
    return Seen(is_in_doubt=not question.call.whole or is_there(whole))


def _is_shown(
    reader: Reader, question: Question, channel: str, conversation: str, where: str, *values: str
) -> bool:
    return bool(
        reader.scalar(
            "SELECT 1 FROM outbox AS o WHERE o.message_id = ? AND o.kind = 'question'"  # noqa: S608 - constants
            " AND o.body ->> '$.question_id' = ? AND o.channel = ? AND o.conversation = ?"
            f" AND {where} LIMIT 1",
            (question.message_id, question.question_id, channel, conversation, *values),
        )
    )
