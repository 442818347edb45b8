"""Makes a history one that every provider takes: nothing blank, no call without its result.

It is used when a history is saved and when one is read, so that old sessions are corrected, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from agentsup.engines.clean import clean, clean_value
from agentsup.engines.llm.answers import is_blank
from agentsup.engines.thoughts import answer_of


def replayable(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages without what a provider may refuse, and without thoughts in texts."""
    paired = call_ids(messages) & _results(messages)
    sound: list[ModelMessage] = []
    message: Any
    for message in messages:
        parts: list[Any] = []
        for part in message.parts:
            parts += _sound_parts(part, paired)
        if not parts and _was_rejected(message) and sound and not _has_calls(sound[-1]):
            del sound[-1]  # the answer that was asked for again
        if parts:
            # A history is read and saved in each turn; what is sound is passed on as it is.
            same = len(parts) == len(message.parts) and all(map(_is, parts, message.parts))
            sound.append(message if same else replace(message, parts=parts))
    return sound


def _was_rejected(message: ModelMessage) -> bool:
    """Whether a message is no more than the word that an answer could not be used."""
    return any(isinstance(part, RetryFeedbackPart) for part in message.parts)


def _has_calls(message: ModelMessage) -> bool:
    is_answer = isinstance(message, ModelResponse)
    return not is_answer or any(isinstance(part, ToolCallPart) for part in message.parts)


def _is(one: object, other: object) -> bool:
    return one is other


def _sound_parts(part: Any, paired: set[str]) -> Iterable[Any]:
    """Return the part as it may stay; nothing if it may not."""
    match part:
        case RetryFeedbackPart():
            return ()
        case ToolCallPart():
            return (part,) if part.tool_call_id in paired else ()
        case ToolReturnPart():
            if part.tool_call_id not in paired:
                return ()
            content = clean_value(part.content)
            return (part,) if content == part.content else (replace(part, content=content),)
        case UserPromptPart(content=str(text)):
            return _with(part, text, clean(text))
        case TextPart(content=text):
            return _with(part, text, answer_of(clean(text)))
    return () if is_blank(part) else (part,)


def _with(part: Any, before: str, after: str) -> Iterable[Any]:
    if not after.strip():
        return ()
    return (part,) if after == before else (replace(part, content=after),)


def call_ids(messages: Sequence[ModelMessage]) -> set[str]:
    """Return the ids of all calls in the messages."""
    return {
        part.tool_call_id
        for message in messages
        if isinstance(message, ModelResponse)
        for part in message.parts
        if isinstance(part, ToolCallPart)
    }


def _results(messages: Sequence[ModelMessage]) -> set[str]:
    return {
        part.tool_call_id
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    }
