"""Requests of OpenAI clients, and the part of each that the agent gets. Pure.

The client resends the whole conversation each time, but a session has its own transcript. So the
session is found by a key over the conversation: ``before`` is the key of all messages up to the
latest answer, without that answer; ``after`` is the key of all messages with the new text. The
latest answer is not in the key because the session has it itself.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from agentsup.api.completions.files import MOST_FILES, GivenFile, file_of
from agentsup.api.documents.bodies import Body
from agentsup.model.errors import BadRequest

PREFIX = "v1:"
_FREE_CHOICE = (None, "auto", "none")
_KINDS = {"image_url": "a picture", "input_audio": "a recording", "file": "a file"}
_IGNORED = ("stop", "max_tokens", "max_completion_tokens")
"""Settings of a model that would shorten an answer; an agent answers as a whole."""


class _Lenient(BaseModel):
    """Members that are not known here are settings of a model; an agent has its own."""

    model_config = ConfigDict(extra="ignore")


class ChatMessage(_Lenient):
    """One message of the conversation so far."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None
    name: Annotated[str | None, Field(max_length=200)] = None
    tool_calls: list[Any] | None = None
    function_call: dict[str, Any] | None = None


class StreamOptions(_Lenient):
    """The options of a stream."""

    include_usage: bool = False


class CompletionBody(Body):
    """A chat completion; `model` is the name of an agent."""

    model_config = ConfigDict(strict=False, extra="ignore")

    model: Annotated[str, Field(min_length=1, max_length=200, description="name of the agent")]
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=5000)]
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Annotated[int | None, Field(ge=1, le=1, description="one answer is given")] = None
    stop: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    tool_choice: Any = None
    function_call: Any = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None
    logprobs: bool | None = None

    @field_validator("tool_choice", "function_call")
    @classmethod
    def _no_forced_call(cls, value: Any) -> Any:
        if value not in _FREE_CHOICE:
            raise ValueError("an agent calls its own tools and none of a client's; use 'auto'")
        return value

    @field_validator("response_format")
    @classmethod
    def _text_alone(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None and value.get("type") != "text":
            raise ValueError("an agent answers in text; no other format can be promised")
        return value

    @field_validator("modalities")
    @classmethod
    def _written_alone(cls, value: list[str] | None) -> list[str] | None:
        if value and value != ["text"]:
            raise ValueError("an agent answers in text alone")
        return value

    @field_validator("logprobs")
    @classmethod
    def _no_logprobs(cls, value: bool | None) -> bool | None:
        if value:
            raise ValueError("an agent's answer has no probabilities")
        return value

    @property
    def ignored(self) -> str:
        """The given settings that have no effect, for a header."""
        return ", ".join(name for name in _IGNORED if getattr(self, name) is not None)


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message of the conversation as text."""

    role: str
    text: str

    @property
    def is_instruction(self) -> bool:
        return self.role in ("system", "developer")


@dataclass(frozen=True, slots=True)
class CompletionPrompt:
    """The new text for an agent, and the conversation before it."""

    text: str
    typed: str
    """``text`` without the names of its senders."""
    earlier: tuple[PromptMessage, ...]
    before: str
    """The key of the session that has given the latest answer; empty without one."""
    after: str
    digest: str
    """The digest of the whole conversation; equal for the same request."""
    files: tuple[GivenFile, ...] = ()
    """The files that came with the new text."""

    @property
    def last_answer(self) -> str | None:
        """The answer that the client got right before; None at the beginning."""
        last = self.earlier[-1] if self.earlier else None
        return last.text if last is not None and last.role == "assistant" else None


def asked(messages: Sequence[ChatMessage]) -> CompletionPrompt:
    """Take the last texts of the person as the question. Raises ``BadRequest``.

    What can't be taken is refused in these alone: clients send all that was said before again.
    """
    first = len(messages)
    while first and messages[first - 1].role == "user":
        first -= 1
    said = [
        _prompt_message(message, number, is_earlier=number < first)
        for number, message in enumerate(messages)
    ]
    if first == len(said):
        raise BadRequest("the last message must be the user's", field="messages")
    files = tuple(each for message in messages[first:] for each in _files_of(message))
    if len(files) > MOST_FILES:
        raise BadRequest(f"a message may have {MOST_FILES} files", field="messages")
    text = "\n\n".join(one.text for one in said[first:])
    for each in files:  # their paths follow the text that the agent reads
        text = text.replace(each.mark, "").rstrip("\n")
    if not text.strip() and not files:
        raise BadRequest("the last message is empty", field="messages")
    earlier = tuple(said[:first])
    has_answer = bool(earlier) and earlier[-1].role == "assistant"
    return CompletionPrompt(
        text,
        _typed(messages[first:], files),
        earlier,
        before=_key(earlier[:-1]) if has_answer else "",
        after=_key(said),
        digest=_digest([[one.role, one.text] for one in said]),
        files=files,
    )


def _typed(messages: Sequence[ChatMessage], files: Sequence[GivenFile]) -> str:
    text = "\n\n".join(_text_of(message, "") for message in messages)
    for each in files:
        text = text.replace(each.mark, "").rstrip("\n")
    return text


def remembered(earlier: Sequence[PromptMessage], most: int) -> tuple[PromptMessage, ...]:
    """The part of ``earlier`` that a new session gets: every instruction, and the latest others.

    At most ``most`` messages: a session never reads more of them.
    """
    others = [at for at, one in enumerate(earlier) if not one.is_instruction]
    room = max(0, most - (len(earlier) - len(others)))
    dropped = {*others[: max(0, len(others) - room)]}
    return tuple(one for at, one in enumerate(earlier) if at not in dropped)[:most]


def named_key(name: str) -> str:
    """The key of a lasting conversation that the client names."""
    return f"{PREFIX}named:{name}"


def request_digest(agent_id: str, conversation: str, asked: CompletionPrompt) -> str:
    """The digest by which a repeated request is recognised."""
    return _digest([agent_id, conversation, asked.digest])


def _prompt_message(message: ChatMessage, number: int, *, is_earlier: bool) -> PromptMessage:
    where = f"messages[{number}]"
    if message.role in ("tool", "function") or message.tool_calls or message.function_call:
        raise BadRequest(
            f"{where} is a tool's call or result; an agent calls its own tools and hands none out",
            field="messages",
        )
    text = _text_of(message, where, is_earlier=is_earlier)
    if message.name and message.role == "user":
        text = f"{_clean(message.name, where)}: {text}" if text.strip() else ""
    return PromptMessage(message.role, text)


def _text_of(message: ChatMessage, where: str, *, is_earlier: bool = False) -> str:
    """The text of a message. Raises ``BadRequest`` for other content, unless it ``is_earlier``: then
    a word stands for it."""
    content = message.content or ""
    if isinstance(content, str):
        return _clean(content, "" if is_earlier else where)
    texts = []
    for number, part in enumerate(content):
        try:
            texts.append(_part_text(message.role, part, where, number))
        except BadRequest:
            if not is_earlier:
                raise
            texts.append(f"[{_KINDS.get(str(part.get('type')), 'something that is no text')}]")
    text = "\n".join(texts)
    return _clean(text, "" if is_earlier else where)


def _part_text(role: str, part: dict[str, Any], where: str, number: int) -> str:
    """The text of a part; a mark for a user's file. Raises ``BadRequest``."""
    if role == "user" and (given := file_of(part, f"{where}.content[{number}]")):
        return given.mark
    text = part.get(part["type"]) if part.get("type") in ("text", "refusal") else None
    if not isinstance(text, str):
        raise BadRequest(
            f"{where} has a part of type {str(part.get('type'))[:40]!r}; text and a user's files "
            "(image_url, file, input_audio) are taken",
            field="messages",
        )
    return text


def _files_of(message: ChatMessage) -> list[GivenFile]:
    content = message.content if isinstance(message.content, list) else []
    return [given for part in content if (given := file_of(part, "")) is not None]


def _clean(text: str, where: str) -> str:
    """The text if it is one; without ``where``, halves of characters are replaced."""
    sound = text if text.isascii() else text.encode("utf-8", "replace").decode()
    if sound == text or not where:
        return sound
    raise BadRequest(
        f"{where} holds half of a character (a lone surrogate), which is no text", field="messages"
    )


def _key(said: Sequence[PromptMessage]) -> str:
    return PREFIX + _digest([[one.role, one.text.strip()] for one in said])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True).encode()).hexdigest()


_TITLE_CHARS: Final = 50
_QUERY_CHARS: Final = 200
_TASK = re.compile(
    r"\s*### Task:\n.*?^### Output:\n[^{]{0,200}\{\s*"
    r'"(?P<wanted>title|tags|follow_ups|queries)"\s*:'
    r".*<chat_history>(?P<talk>.*)</chat_history>\s*",
    re.DOTALL | re.MULTILINE,
)
_SAID = re.compile(r"^USER:(.*?)(?=^(?:USER|ASSISTANT):|\Z)", re.DOTALL | re.MULTILINE)


def client_task_answer(asked: CompletionPrompt) -> str:
    """The answer to such a request; empty if it is none. A title is how the talk began, and what to
    search for is the person's last text. Tags and questions are not made up."""
    if asked.files or not all(one.is_instruction for one in asked.earlier):
        return ""
    found = _TASK.fullmatch(asked.typed)
    if found is None:
        return ""
    said = [" ".join(text.split()) for text in _SAID.findall(found["talk"])] or [""]
    answers: dict[str, Any] = {
        "title": _shortened(said[0], _TITLE_CHARS),
        "tags": [],
        "follow_ups": [],
        "queries": [said[-1][:_QUERY_CHARS]] if said[-1] else [],
    }
    return json.dumps({found["wanted"]: answers[found["wanted"]]}, ensure_ascii=False)


def _shortened(text: str, most: int) -> str:
    """The first words of a text."""
    if len(text) <= most:
        return text
    return f"{text[: most - 1].rpartition(' ')[0] or text[: most - 1]}…"
