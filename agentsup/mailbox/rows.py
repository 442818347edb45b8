"""Rows to values and back: the only place that knows how a message lies in its table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agentsup.model.errors import NotFound
from agentsup.model.ids import AgentId, MessageId, SessionId
from agentsup.model.message import DeliverTo, Kind, Lane, Message, Outcome, Part, Priority, State
from agentsup.model.principal import Principal
from agentsup.model.question import AskedCall, Question, QuestionState, Who, of_leave
from agentsup.store.database import Reader

__all__ = [
    "FOLLOWING_SQL",
    "HOLDS_SQL",
    "IN_SESSION_SQL",
    "OPEN_SQL",
    "deliver_to_of",
    "encode",
    "encode_value",
    "find_message",
    "find_question",
    "message_of",
    "need_message",
    "principal_of",
]

OPEN_SQL = "state IN ('queued', 'leased', 'parked')"
"""Written out like the condition of the partial indexes, which SQLite uses only on this match."""

FOLLOWING_SQL = "kind IN ('reply', 'task')"
"""Likewise: messages that are found by the one they follow."""

IN_SESSION_SQL = (
    "agent_id = (SELECT agent_id FROM sessions WHERE session_id = ?) AND session_id = ?"
)
"""Rows of one session, found by the indexes that start with the agent; takes the id twice."""

HOLDS_SQL = "(state = 'leased' OR (state = 'parked' AND seq NOT IN set_aside))"
"""Whether a row of ``messages`` lets no other of its session run."""

_FEW = 1_024

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encode(value: Any) -> str:
    """Compact JSON."""
    return _encoder.encode(value)


@lru_cache(_FEW)
def encode_value(value: Principal | DeliverTo) -> str:
    """JSON of who asks and where the answer goes; the same few say most of what is said."""
    return encode(value.to_json())


@lru_cache(_FEW)
def principal_of(column: str) -> Principal:
    """Who it is for, from its column."""
    return Principal.from_json(json.loads(column))


@lru_cache(_FEW)
def deliver_to_of(column: str) -> DeliverTo:
    """Where the result goes, from its column."""
    return DeliverTo.from_json(json.loads(column))


def message_of(row: Mapping[str, Any]) -> Message:
    """A whole row of `messages` as a value."""
    outcome = row["outcome"]
    return Message(
        message_id=MessageId(row["message_id"]),
        seq=row["seq"],
        agent_id=AgentId(row["agent_id"]),
        session_id=SessionId(row["session_id"]),
        kind=Kind(row["kind"]),
        lane=Lane(row["lane"]),
        priority=Priority(row["priority"]),
        state=State(row["state"]),
        outcome=None if outcome is None else Outcome(outcome),
        parts=tuple(Part.from_json(part) for part in json.loads(row["parts"])),
        principal=principal_of(row["principal"]),
        deliver_to=deliver_to_of(row["deliver_to"]),
        in_reply_to=row["in_reply_to"],
        thread_id=row["thread_id"],
        root_id=row["root_id"],
        path=() if row["path"] == "[]" else tuple(json.loads(row["path"])),
        traceparent=row["traceparent"],
        sender_agent_id=row["sender_agent_id"],
        accepted_at=row["accepted_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        expires_at=row["expires_at"],
        not_before=row["not_before"],
        attempts=row["attempts"],
        crashes=row["crashes"],
        fence=row["fence"],
        result_text=row["result_text"],
        error_code=row["error_code"],
        error_text=row["error_text"],
        replay_of=row["replay_of"],
        silent=bool(row["silent"]),
        summary=row["summary"],
        epochs={} if row["epochs"] == "{}" else json.loads(row["epochs"]),
        person=row["person"],
    )


def find_message(reader: Reader, message_id: str) -> Message | None:
    """The message, or None."""
    row = reader.one("SELECT * FROM messages WHERE message_id = ?", (message_id,))
    return None if row is None else message_of(row)  # type: ignore[arg-type]  # Row is a mapping in all but name


def need_message(reader: Reader, message_id: str) -> Message:
    """The message. Raises ``NotFound``."""
    message = find_message(reader, message_id)
    if message is None:
        raise NotFound(
            f"there is no message {message_id}; it may be older than what is kept",
            message_id=message_id,
        )
    return message


def question_of(row: Mapping[str, Any]) -> Question:
    """A row of `questions` as a value."""
    tool, version = of_leave(row["tool"])
    return Question(
        question_id=row["question_id"],
        agent_id=row["agent_id"],
        session_id=row["session_id"],
        message_id=row["message_id"],
        kind=row["kind"],
        text=row["text"],
        options=tuple(json.loads(row["options"])),
        state=QuestionState(row["state"]),
        answer=row["answer"],
        asked_at=row["asked_at"],
        deadline_at=row["deadline_at"],
        answered_at=row["answered_at"],
        answered_by=row["answered_by"],
        who=Who(row["who"]),
        call_id=row["call_id"],
        tool=tool,
        args=row["args"],
        version=version,
        put_as=row["put_as"],
        call=AskedCall(row["call"], row["digest"], row["whole"]),
    )


def find_question(reader: Reader, question_id: str) -> Question:
    """The question. Raises ``NotFound``."""
    row = reader.one("SELECT * FROM questions WHERE question_id = ?", (question_id,))
    if row is None:
        raise NotFound(f"there is no question {question_id}", question_id=question_id)
    return question_of(row)  # type: ignore[arg-type]  # as in find_message
