"""Rows of messages and questions as values, and the JSON in their columns."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from agentsup.model.errors import NotFound
from agentsup.model.message import (
    DeliverTo,
    LaneName,
    Message,
    MessageKind,
    MessageOutcome,
    MessageState,
    Part,
    Priority,
)
from agentsup.model.principal import Principal
from agentsup.model.question import (
    AnswerableBy,
    AskedCall,
    ClosedReason,
    Decision,
    Question,
    QuestionState,
    parse_permission_key,
)
from agentsup.store import Reader, from_row

OPEN_SQL = "state IN ('queued', 'leased', 'parked')"
"""Written out like the condition of the partial indexes, which SQLite uses only on this match."""


def of_open_message(table: str) -> str:
    """Return SQL that is true for the rows of ``table`` whose message has not ended."""
    return (
        f"EXISTS (SELECT 1 FROM messages m WHERE m.message_id = {table}.message_id"  # noqa: S608 - constants
        f" AND m.{OPEN_SQL})"
    )


FOLLOWING_SQL = "kind IN ('reply', 'task')"
"""Likewise, for messages that are looked up by ``in_reply_to``."""

IN_SESSION_SQL = (
    "agent_id = (SELECT agent_id FROM sessions WHERE session_id = ?) AND session_id = ?"
)
"""Rows of one session, found by the indexes that start with the agent; takes the id twice."""

HOLDS_SQL = "(state = 'leased' OR (state = 'parked' AND seq NOT IN set_aside))"
"""Whether a row of ``messages`` holds its session, so that no other message of it may run."""

_FEW = 1_024

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encode(value: Any) -> str:
    """Compact JSON."""
    return _encoder.encode(value)


@lru_cache(_FEW)
def encode_value(value: Principal | DeliverTo) -> str:
    """JSON of a principal or target. It is cached, because most messages have the same few."""
    return encode(value.to_json())


@lru_cache(_FEW)
def principal_of(column: str) -> Principal:
    """The principal, from its column."""
    return Principal.from_json(json.loads(column))


@lru_cache(_FEW)
def deliver_to_of(column: str) -> DeliverTo:
    """The target of the result, from its column."""
    return DeliverTo.from_json(json.loads(column))


def message_of(row: Any) -> Message:
    """A whole row of ``messages`` as a value."""
    return from_row(
        Message,
        row,
        kind=MessageKind(row["kind"]),
        lane=LaneName(row["lane"]),
        priority=Priority(row["priority"]),
        state=MessageState(row["state"]),
        outcome=None if row["outcome"] is None else MessageOutcome(row["outcome"]),
        parts=tuple(Part.from_json(part) for part in json.loads(row["parts"])),
        principal=principal_of(row["principal"]),
        deliver_to=deliver_to_of(row["deliver_to"]),
        path=() if row["path"] == "[]" else tuple(json.loads(row["path"])),
        silent=bool(row["silent"]),
        epochs={} if row["epochs"] == "{}" else json.loads(row["epochs"]),
    )


def find_message(reader: Reader, message_id: str) -> Message | None:
    """The message, or None."""
    return reader.value(message_of, "SELECT * FROM messages WHERE message_id = ?", (message_id,))


def need_message(reader: Reader, message_id: str) -> Message:
    """The message. Raises ``NotFound``."""
    message = find_message(reader, message_id)
    if message is None:
        raise NotFound(
            f"there is no message {message_id}; it may be older than what is kept",
            message_id=message_id,
        )
    return message


def state_of(reader: Reader, message_id: str) -> MessageState | None:
    """The state of the message; None if there is none."""
    state = reader.scalar("SELECT state FROM messages WHERE message_id = ?", (message_id,))
    return None if state is None else MessageState(state)


def is_asked(reader: Reader, message_id: str) -> bool:
    """Whether a question about the message is open."""
    sql = "SELECT 1 FROM questions WHERE message_id = ? AND state = 'open' LIMIT 1"
    return bool(reader.scalar(sql, (message_id,)))


def question_of(row: Any) -> Question:
    """A row of ``questions`` as a value."""
    tool, version = parse_permission_key(row["tool"])
    return from_row(
        Question,
        row,
        options=tuple(json.loads(row["options"])),
        state=QuestionState(row["state"]),
        answer_text=row["answer"],
        who=AnswerableBy(row["who"]),
        tool=tool,
        version=version,
        call=AskedCall(row["call"], row["digest"], row["whole"]),
        decision=Decision(row["decision"]) if row["decision"] else None,
        closed_reason=ClosedReason(row["closed_reason"]) if row["closed_reason"] else None,
    )


def find_question(reader: Reader, question_id: str) -> Question:
    """The question. Raises ``NotFound``."""
    sql = "SELECT * FROM questions WHERE question_id = ?"
    question = reader.value(question_of, sql, (question_id,))
    if question is None:
        raise NotFound(f"there is no question {question_id}", question_id=question_id)
    return question


def is_scheduled(reader: Reader, message_id: str) -> bool:
    """Whether the message is a run that a schedule has started."""
    return bool(
        reader.scalar("SELECT 1 FROM runs WHERE run_id = ? AND kind = 'slot'", (message_id,))
    )


def tasks_of(reader: Reader, messages: Iterable[Message]) -> dict[str, str]:
    """The task of each run among the messages; empty for a run of its own."""
    runs = [message.message_id for message in messages if message.kind is MessageKind.TASK]
    rows = reader.all(
        "SELECT run_id, task_id FROM runs WHERE run_id IN (SELECT value FROM json_each(?))",
        (encode(runs),),
    )
    return {row["run_id"]: row["task_id"] for row in rows}
