"""The conversation in the model library's form: built from the transcript, saved, trimmed.

After a turn the messages are given to the stack as opaque state. With them a later turn also sees
tool calls and results, which the transcript does not have. State that can't be read is no error:
the transcript is used instead. What a provider may refuse (a blank, a call without its result) is
left out of both, so that old sessions are corrected, too.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, Field
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    RetryFeedbackPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from agentsup.engines.clean import clean, clean_value
from agentsup.engines.failures import CheckpointUnusable
from agentsup.engines.llm.answers import is_blank
from agentsup.engines.thoughts import answer_of
from agentsup.kit.log import get_logger
from agentsup.model.engine import HistoryItem, Segment, unseen

_log = get_logger(__name__)

MAX_STATE_BYTES = 512 * 1024
"""The oldest turns are dropped beyond this; the transcript keeps them."""
MAX_PICTURE_BYTES = 320 * 1024
"""The newest pictures are kept in the state up to this size, for questions about them in later
turns; of older ones only the path is kept. In the state a third is added by base64."""
BLIND = (
    "This agent's model is not shown pictures (engine_options.pictures is false); it only has the "
    "names of the files."
)
MAY_BE_BLIND = (
    "The message had pictures: if this model can't see, set engine_options.pictures to false"
)
MAY_BE_HISTORY = "If it is about what was said before, begin a new conversation with /new"
_VERSION = 1
Prompt = str | Sequence[UserContent]


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
            same = len(parts) == len(message.parts) and all(map(operator.is_, parts, message.parts))
            sound.append(message if same else replace(message, parts=parts))
    return sound


def _was_rejected(message: ModelMessage) -> bool:
    """Whether a message is no more than the word that an answer could not be used."""
    return any(isinstance(part, RetryFeedbackPart) for part in message.parts)


def _has_calls(message: ModelMessage) -> bool:
    is_answer = isinstance(message, ModelResponse)
    return not is_answer or any(isinstance(part, ToolCallPart) for part in message.parts)


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


def prompt_of(segment: Segment, *, sees: bool) -> Prompt:
    """Return what the model reads of the message, and the pictures that it sees."""
    text = (segment.prompt or segment.text) + _block(segment.recalled)
    if not segment.pictures:
        return text
    if not sees:
        return "\n".join([text, *(unseen(picture.path) for picture in segment.pictures)])
    content: list[UserContent] = [text]
    for picture in segment.pictures:
        content += [
            f"[picture {picture.path}:]",
            BinaryContent(picture.data, media_type="image/jpeg"),
        ]
    return content


def alternating(
    messages: Sequence[ModelMessage], prompt: Prompt
) -> tuple[list[ModelMessage], Prompt]:
    """Return messages and prompt with what is said in a row as one message: chat templates of some
    models refuse two messages of the person without an answer between them."""
    sound: list[ModelMessage] = []
    for message in messages:
        said, before = _said(message), _said(sound[-1]) if sound else ""
        if said and before:
            sound[-1] = ModelRequest([UserPromptPart(f"{before}\n\n{said}")])
        else:
            sound.append(message)
    before = _said(sound[-1]) if sound else ""
    if not before:
        return sound, prompt
    first, *others = [prompt] if isinstance(prompt, str) else prompt
    text = f"{before}\n\n{first}"
    return sound[:-1], [text, *others] if others else text


def _said(message: ModelMessage) -> str:
    """The text of a message that is nothing but a text of the person; else empty."""
    match message:
        case ModelRequest(parts=[UserPromptPart(content=str(text))]):
            return text
    return ""


def recalling(messages: Sequence[ModelMessage], recalled: str) -> list[ModelMessage]:
    """Return the messages with the memories of this turn behind its prompt, as ``prompt_of`` has
    them: behind all that stays the same, so that a provider's cache of the rest holds."""
    changed = list(messages)
    for at in range(len(changed) - 1, -1, -1):
        if _begins_turn(changed[at]):
            changed[at] = _with_texts(changed[at], lambda text: text + _block(recalled))
            break
    return changed


def forgetting(messages: Sequence[ModelMessage], recalled: str) -> list[ModelMessage]:
    """Return the messages without the memories of this turn: they are nobody's words."""
    if not recalled:
        return list(messages)
    return [
        _with_texts(each, lambda text: text.removesuffix(_block(recalled))) for each in messages
    ]


def _block(recalled: str) -> str:
    return f"\n\n{recalled}" if recalled else ""


def _with_texts(message: ModelMessage, change: Callable[[str], str]) -> ModelMessage:
    """Return the message with the first text of each prompt in it changed."""
    if not isinstance(message, ModelRequest):
        return message
    parts: list[ModelRequestPart] = []
    for part in message.parts:
        content = part.content if isinstance(part, UserPromptPart) else None
        if isinstance(part, UserPromptPart) and isinstance(content, str):
            parts.append(replace(part, content=change(content)))
        elif isinstance(part, UserPromptPart) and content and isinstance(content[0], str):
            parts.append(replace(part, content=[change(content[0]), *content[1:]]))
        else:
            parts.append(part)
    return replace(message, parts=parts)


def has_own_state(segment: Segment) -> bool:
    """Whether the messages before this one come from a state that the transcript can replace."""
    continues = segment.resume is not None and segment.resume.checkpoint is not None
    return segment.engine_state is not None and not continues


def messages_before(segment: Segment) -> list[ModelMessage]:
    """Return the messages before this one."""
    if segment.engine_state is not None:
        try:
            data = json.loads(segment.engine_state)
            if data["engine"] == "llm" and data["v"] == _VERSION:
                return replayable(ModelMessagesTypeAdapter.validate_python(data["messages"]))
        except (ValueError, KeyError, TypeError):
            _log.warning(
                f"the model's own state of session {segment.session_id} can't be read; its "
                "transcript is used"
            )
    return replayable([_message(item) for item in segment.history])


def _message(item: HistoryItem) -> ModelMessage:
    if item.role == "assistant":
        return ModelResponse(parts=[TextPart(item.text)])
    text = item.text if item.role == "user" else f"[note] {item.text}"
    return ModelRequest(parts=[UserPromptPart(text)])


def dump(messages: Sequence[ModelMessage]) -> bytes | None:
    """Return the state for the next turn of the session: the newest whole turns within the limit.

    None if the last turn alone is over it: then the transcript is used.
    """
    turns: list[list[ModelMessage]] = []
    for message in _with_few_pictures(replayable(messages)):
        if _begins_turn(message) or not turns:
            turns.append([])
        turns[-1].append(_bare(message))
    chosen: list[bytes] = []
    size = 0
    for turn in reversed(turns):
        raw = ModelMessagesTypeAdapter.dump_json(turn)
        size += len(raw)
        if size > MAX_STATE_BYTES:
            break
        chosen.append(raw[1:-1])
    if not chosen:
        return None
    head = f'{{"engine":"llm","v":{_VERSION},"messages":['.encode()
    return head + b",".join(reversed(chosen)) + b"]}"


def _with_few_pictures(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages with the newest pictures alone."""
    left, within = MAX_PICTURE_BYTES, list(messages)
    for at in range(len(within) - 1, -1, -1):
        message = within[at]
        if not isinstance(message, ModelRequest):
            continue
        parts = list(message.parts)
        for number, part in enumerate(parts):
            if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
                content, left = _within(part.content, left)
                parts[number] = replace(part, content=content)
        within[at] = replace(message, parts=parts)
    return within


def _within(content: Sequence[UserContent], left: int) -> tuple[list[UserContent], int]:
    """Return the content with pictures of at most ``left`` bytes, and what is left of these."""
    within: list[UserContent] = []
    for each in content:
        size = len(each.data) if isinstance(each, BinaryContent) else 0
        left -= size
        within.append("(you saw it then; it is not shown again)" if size and left < 0 else each)
    return within, left


def _begins_turn(message: ModelMessage) -> bool:
    return isinstance(message, ModelRequest) and any(
        isinstance(part, UserPromptPart) for part in message.parts
    )


def _bare(message: ModelMessage) -> ModelMessage:
    """Return the message without the system instructions, which each turn has anew."""
    if isinstance(message, ModelRequest) and message.instructions is not None:
        return replace(message, instructions=None)
    return message


class Checkpoint(BaseModel):
    """The saved state of a run that waits for an answer: its messages, and the text so far."""

    messages: Any
    """``ModelMessage`` values; the library's own adapter reads and writes them."""
    text: str
    answers: dict[str, str] = Field(default_factory=dict)
    """Results of the model's calls, by their ids."""
    ask_id: str = ""
    """The call with the question that waits, if it is the model's own."""
    again: list[str] = Field(default_factory=list)
    """The calls that wait for an approval, which are to be made again."""
    names: dict[str, str] = Field(default_factory=dict)
    """Our names of the tools of these calls, by the model's names."""

    def freeze(self) -> bytes:
        """Return it as the bytes of a checkpoint."""
        bare = [_bare(message) for message in self.messages]
        messages = ModelMessagesTypeAdapter.dump_python(bare, mode="json")
        return json.dumps({**self.model_dump(exclude={"messages"}), "messages": messages}).encode()


def thaw(checkpoint: bytes, answer: str | None) -> Checkpoint:
    """Return what ``freeze`` saved, with the answer filled in. Raises ``CheckpointUnusable``."""
    try:
        data = json.loads(checkpoint)
        messages = ModelMessagesTypeAdapter.validate_python(data["messages"])
        saved = Checkpoint.model_validate({**data, "messages": messages})
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointUnusable(
            "what this turn had worked out before its question can't be read any more; send the "
            "message again"
        ) from error
    if saved.ask_id:
        given = answer if answer is not None else "(no answer was given in time)"
        saved.answers[saved.ask_id] = given
    return saved
