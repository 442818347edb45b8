"""The conversation as the model library keeps it: built from the transcript, kept, trimmed.

After a turn the messages are handed to the stack as opaque state; with them a later turn sees tool
calls and results too, which the transcript has not. State that can't be read is no error: the
transcript is used instead.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)

from agentsup.engines.failures import CheckpointUnusable
from agentsup.model.engine import HistoryItem, Segment

_log = logging.getLogger(__name__)

MAX_STATE_BYTES = 512 * 1024
"""The oldest turns are dropped beyond this; the transcript keeps them."""
_VERSION = 1


def messages_before(segment: Segment) -> list[ModelMessage]:
    """What was said before this message."""
    if segment.engine_state is not None:
        try:
            data = json.loads(segment.engine_state)
            if data["engine"] == "llm" and data["v"] == _VERSION:
                return ModelMessagesTypeAdapter.validate_python(data["messages"])
        except (ValueError, KeyError, TypeError):
            _log.warning(
                "the model's own state of session %s can't be read; its transcript is used",
                segment.session_id,
            )
    return [_message(item) for item in segment.history]


def _message(item: HistoryItem) -> ModelMessage:
    if item.role == "assistant":
        return ModelResponse(parts=[TextPart(item.text)])
    text = item.text if item.role == "user" else f"[note] {item.text}"
    return ModelRequest(parts=[UserPromptPart(text)])


def dump(messages: Sequence[ModelMessage]) -> bytes | None:
    """State to keep for the next turn of the session: whole turns, the newest, within the limit.

    None where the last turn alone is over it: the transcript has to do then.
    """
    turns: list[list[ModelMessage]] = []
    for message in messages:
        if _begins_turn(message) or not turns:
            turns.append([])
        turns[-1].append(_bare(message))
    kept: list[bytes] = []
    size = 0
    for turn in reversed(turns):
        raw = ModelMessagesTypeAdapter.dump_json(turn)
        size += len(raw)
        if size > MAX_STATE_BYTES:
            break
        kept.append(raw[1:-1])
    if not kept:
        return None
    head = f'{{"engine":"llm","v":{_VERSION},"messages":['.encode()
    return head + b",".join(reversed(kept)) + b"]}"


def _begins_turn(message: ModelMessage) -> bool:
    return isinstance(message, ModelRequest) and any(
        isinstance(part, UserPromptPart) for part in message.parts
    )


def _bare(message: ModelMessage) -> ModelMessage:
    """Without the standing instructions, which each turn brings anew."""
    if isinstance(message, ModelRequest) and message.instructions is not None:
        return replace(message, instructions=None)
    return message


@dataclass(frozen=True, slots=True)
class Thawed:
    """What a checkpoint held: the messages, results of calls that the model asked for, the ids of
    those to be made again, and the text said so far."""

    messages: list[ModelMessage]
    answers: dict[str, str]
    again: tuple[str, ...]
    text: str
    names: dict[str, str]
    """What we call the tools that are to be called again, by what the model calls them."""


def freeze(
    messages: Sequence[ModelMessage],
    answers: dict[str, str],
    ask_id: str,
    text: str,
    again: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
) -> bytes:
    """A checkpoint: the run so far, the question that waits (if it is the model's own), the answers
    of the others, and the calls that wait for leave, with the ``names`` of their tools."""
    dumped = ModelMessagesTypeAdapter.dump_python([_bare(m) for m in messages], mode="json")
    data = {
        "engine": "llm",
        "v": _VERSION,
        "messages": dumped,
        "answers": answers,
        "ask_id": ask_id,
        "text": text,
        "again": list(again),
        "names": dict(names or {}),
    }
    return json.dumps(data).encode()


def thaw(checkpoint: bytes, answer: str | None) -> Thawed:
    """What ``freeze`` kept, the answer put in its place. Raises ``EngineFailed``."""
    try:
        data = json.loads(checkpoint)
        messages = ModelMessagesTypeAdapter.validate_python(data["messages"])
        answers: dict[str, str] = dict(data["answers"])
        given = answer if answer is not None else "(no answer was given in time)"
        if data["ask_id"]:
            answers[str(data["ask_id"])] = given
        again = tuple(map(str, data.get("again", ())))
        names = {str(form): str(name) for form, name in data.get("names", {}).items()}
        return Thawed(messages, answers, again, str(data["text"]), names)
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise CheckpointUnusable(
            "what this turn had worked out before its question can't be read any more; send the "
            "message again"
        ) from error
