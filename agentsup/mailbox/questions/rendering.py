"""Questions as people see them: the card, the whole call, and a confirmation.

A question is shown by parts of the outbox. The first is its card. If the card has room for a part
of the call only, its buttons are to deny it and to show all of it; the other answers follow the
whole call.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from agentsup.catalogue import LocalizedTexts, words
from agentsup.kit.text import visible
from agentsup.mailbox.delivery import outbox
from agentsup.mailbox.messages import answer_options
from agentsup.mailbox.messages.rows import need_message, question_of
from agentsup.model.question import APPROVAL, GrantEnd, Question, SeenCall, parse_permission_key
from agentsup.store import Reader, Tx

MESSAGE_CHARS = 7_000
"""A longer text goes to a chat as a file."""
CALL_FILE = "call.txt"
SEEN_SQL = (
    "(o.state IN ('delivered', 'unknown') OR o.begun_boot <> '' OR o.begun_at > 0"
    " OR o.progress > 0)"
)
"""Whether people may have seen a part ``o`` of the outbox: nobody can answer a question that waits
for its delivery. It is enough for a question, but too little for an approval (``seen_in``)."""
_ARRIVED_SQL = "o.state = 'delivered'"
_PRESSED_SQL = f"({_ARRIVED_SQL} OR (o.state = 'pending' AND o.doubts = 0 AND {SEEN_SQL}))"
"""Whether a pressed button proves that a part was shown. The buttons that allow a call are in the
last piece of its part, which is sent only after all others have surely arrived; so a person who
presses one has all pieces, even if the last is not recorded as delivered yet."""


class Stage(StrEnum):
    """The content of a part of the outbox that belongs to a question."""

    CARD = "card"
    WHOLE = "whole"
    """The whole call."""
    CONFIRM = "confirm"
    """A confirmation that explains an approval of every command."""
    TERM = "term"
    """The scope of a pattern, with the answers that choose its end."""


class Token(StrEnum):
    """The meaning of a button that is not an answer; an answer's button has the option's number."""

    SHOW_ALL = "all"
    CONFIRM = "sure"


def term_choice(number: int, end: GrantEnd) -> str:
    """The meaning of a button that grants the pattern of that option until ``end``."""
    return f"{number}.{end.value}"


def term_chosen(question: Question, meaning: str) -> str | None:
    """The answer that ``term_choice`` stands for, or None."""
    number, _, end = meaning.partition(".")
    index = int(number) if number.isdecimal() and len(number) < 3 else -1
    if not 0 <= index < len(question.options) or end not in {*GrantEnd}:
        return None
    option = question.options[index]
    if not answer_options.needs_end(option):
        return None
    pattern = answer_options.pattern_end(option)[0]
    return answer_options.pattern_option(pattern, GrantEnd(end))


def body_of(
    question: Question, stage: Stage = Stage.CARD, language: str = "", option: str = ""
) -> dict[str, Any]:
    """The body of a part that shows the question; at ``Stage.TERM`` the pattern of ``option``.

    ``options`` are the labels of its buttons, ``choices`` their meanings (the number of an option,
    a ``Token`` or a ``term_choice``).
    """
    say = words(language)
    labels = answer_options.labels(question.kind, question.options, language)
    body: dict[str, Any] = {
        "question_id": question.question_id,
        "kind": question.kind,
        "text": question.text,
        "options": labels,
        "deadline_at": question.deadline_at,
        "who": question.who.value,
        "tool": parse_permission_key(question.tool)[0],
    }
    if question.kind != APPROVAL:
        return body
    is_cut = bool(question.call.whole)
    offered = {str(number): label for number, label in enumerate(labels)}
    deny = next((n for n, each in enumerate(question.options) if each == answer_options.DENY), None)
    denial = {} if deny is None else {str(deny): labels[deny]}
    if stage is Stage.WHOLE:
        body |= _long(question.call.whole or question.text, say("approval.attached"))
        body["if_refused"] = say("approval.not_shown", id=question.question_id)
    elif stage is Stage.CONFIRM:
        body["text"] = say("approval.confirm", tool=parse_permission_key(question.tool)[0])
        offered = {Token.CONFIRM.value: say("approval.sure"), **denial}
    elif stage is Stage.TERM:
        body["text"] = _term_text(question, option, say)
        number = question.options.index(option)
        answers = zip(GrantEnd, answer_options.ends_of(option), strict=True)
        named = [
            (end, answer_options.worded(question.kind, each, language)) for end, each in answers
        ]
        offered = {**{term_choice(number, end): label for end, label in named}, **denial}
    elif is_cut:
        offered = {Token.SHOW_ALL.value: say("approval.show_all"), **denial}
    return body | {
        "options": [*offered.values()],
        "choices": [*offered],
        "offers": [[option, label] for option, label in zip(question.options, labels, strict=True)],
        "digest": question.call.digest,
        "stage": _named(stage, option),
        "is_cut": is_cut,
        "is_whole": stage is Stage.WHOLE or not is_cut,
    }


def _named(stage: Stage, option: str) -> str:
    return f"{stage.value}:{option}" if option else stage.value


def _term_text(question: Question, option: str, say: LocalizedTexts) -> str:
    """The text with the scope of a grant by the pattern of ``option``, so that nothing wider is
    given."""
    pattern = answer_options.pattern_end(option)[0]
    document = json.loads(question.call.document) if question.call.document else {}
    where = visible(str(document.get("workspace", ""))) or "?"
    covered = "approval.term_wide" if pattern.endswith(" *") else "approval.term_exact"
    return say("approval.term", call=f"```\n{pattern}\n```", where=where, covered=say(covered))


def _long(text: str, instead: str) -> dict[str, Any]:
    if len(text) <= MESSAGE_CHARS:
        return {"text": text}
    return {"text": instead, "attached": {"name": CALL_FILE, "text": text}}


def show_tx(
    tx: Tx,
    question: Question,
    address: tuple[str, str, str],
    *,
    at: int,
    stage: Stage = Stage.CARD,
    option: str = "",
) -> None:
    """Show the question, or more of it. ``address``: the bot's agent id, channel, conversation."""
    message = need_message(tx, question.message_id)
    agent_id, channel, conversation = address
    outbox.add_tx(
        tx,
        message_id=question.message_id,
        agent_id=agent_id,
        channel=channel,
        conversation=conversation,
        kind="question",
        body=body_of(question, stage, message.principal.language, option),
        at=at,
    )


def more_tx(
    tx: Tx,
    question: Question,
    address: tuple[str, str, str],
    stage: Stage,
    *,
    at: int,
    option: str = "",
) -> None:
    """Show more of an open question, unless that stage was delivered there or is pending."""
    _, channel, conversation = address
    where = "o.body ->> '$.stage' = ? AND o.state IN ('pending', 'delivered')"
    if not _is_shown(tx, question, channel, conversation, where, _named(stage, option)):
        show_tx(tx, question, address, at=at, stage=stage, option=option)


def seen_in(
    reader: Reader,
    question: Question,
    channel: str,
    conversation: str,
    *,
    is_pressed: bool = False,
) -> SeenCall:
    """The call of a question, as far as people of a conversation have surely seen it.

    ``is_pressed``: the answer is a press of one of its buttons there.
    """

    def is_there(where: str) -> bool:
        return _is_shown(reader, question, channel, conversation, where)

    whole = "o.body ->> '$.is_whole' = 1"
    # If the card has the whole call, its buttons are at its end, so a press proves that it arrived.
    is_proof = is_pressed and not question.call.whole
    arrived = _PRESSED_SQL if is_pressed else _ARRIVED_SQL
    if is_proof or is_there(f"{whole} AND {arrived}"):
        return SeenCall(question.call.digest)
    return SeenCall(is_in_doubt=not question.call.whole or is_there(whole))


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


_SHOWN = (
    "o.kind = 'question' AND o.agent_id = ? AND o.channel = ? AND o.conversation = ?"
    f" AND o.body ->> '$.question_id' = q.question_id AND {SEEN_SQL}"
)


def asked_in(reader: Reader, agent_id: str, channel: str, conversation: str) -> list[Question]:
    """The agent's open questions that people of this conversation may have seen, oldest first."""
    return reader.values(
        question_of,
        "SELECT DISTINCT q.* FROM questions AS q JOIN outbox AS o ON o.message_id = q.message_id"  # noqa: S608  # a constant
        f" WHERE q.state = 'open' AND {_SHOWN} ORDER BY q.question_id",
        (agent_id, channel, conversation),
    )


def conversations_of(reader: Reader, question: Question) -> set[tuple[str, str]]:
    """The channels and conversations in which that question was queued for people."""
    rows = reader.all(
        "SELECT channel, conversation FROM outbox WHERE message_id = ? AND kind = 'question'"
        " AND body ->> '$.question_id' = ?",
        (question.message_id, question.question_id),
    )
    return {(row["channel"], row["conversation"]) for row in rows}


def was_asked_in(
    reader: Reader, question_id: str, agent_id: str, channel: str, conversation: str
) -> bool:
    """Whether that question, open or not, was shown in this conversation."""
    return bool(
        reader.scalar(
            "SELECT 1 FROM questions AS q JOIN outbox AS o ON o.message_id = q.message_id"  # noqa: S608  # a constant
            f" WHERE q.question_id = ? AND {_SHOWN} LIMIT 1",
            (question_id, agent_id, channel, conversation),
        )
    )
