"""What a client of the OpenAI API sends, and what of it an agent is asked. Pure decisions.

The client resends the whole conversation each time; a session remembers its own. So a conversation
is recognised by all that was said before: `before` is the key of the session that has heard
everything up to its latest answer, `after` the key of the same session once it has heard the new
text too. What was answered last is no part of the key: the session knows it better.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from agentsup.api.bodies import Body
from agentsup.api.completions.shaping import Bounds
from agentsup.model.errors import BadRequest

PREFIX = "v1:"
_FREE_CHOICE = (None, "auto", "none")
StopText = Annotated[str, Field(min_length=1, max_length=200)]


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
    """What a stream has beside text."""

    include_usage: bool = False


class CompletionBody(Body):
    """A chat completion; `model` is the name of an agent."""

    model_config = ConfigDict(strict=False, extra="ignore")

    model: Annotated[str, Field(min_length=1, max_length=200, description="name of the agent")]
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=5000)]
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Annotated[int | None, Field(ge=1, le=1, description="one answer is given")] = None
    stop: StopText | Annotated[list[StopText], Field(max_length=4)] | None = None
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    max_completion_tokens: Annotated[int | None, Field(ge=1)] = None
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
    def bounds(self) -> Bounds:
        """How much of the answer is wanted."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return Bounds(stop, self.max_completion_tokens or self.max_tokens)


@dataclass(frozen=True, slots=True)
class Said:
    """One message of the conversation as text."""

    role: str
    text: str

    @property
    def is_instruction(self) -> bool:
        return self.role in ("system", "developer")


@dataclass(frozen=True, slots=True)
class Asked:
    """What an agent is asked, and what was said before."""

    text: str
    typed: str
    """`text` without the names of who says it."""
    earlier: tuple[Said, ...]
    before: str
    """The key of the session that has given the answer before; empty without one."""
    after: str
    digest: str
    """The whole conversation; the same request has the same."""

    @property
    def last_answer(self) -> str | None:
        """What the client was answered right before; None at the beginning."""
        last = self.earlier[-1] if self.earlier else None
        return last.text if last is not None and last.role == "assistant" else None


def asked(messages: Sequence[ChatMessage]) -> Asked:
    """Take the last texts of the person as the question. Raises `BadRequest`."""
    said = [_said(message, number) for number, message in enumerate(messages)]
    first = len(said)
    while first and said[first - 1].role == "user":
        first -= 1
    if first == len(said):
        raise BadRequest("the last message must be the user's", field="messages")
    text = "\n\n".join(one.text for one in said[first:])
    if not text.strip():
        raise BadRequest("the last message is empty", field="messages")
    earlier = tuple(said[:first])
    has_answer = bool(earlier) and earlier[-1].role == "assistant"
    return Asked(
        text,
        "\n\n".join(_text_of(message, "") for message in messages[first:]),
        earlier,
        before=_key(earlier[:-1]) if has_answer else "",
        after=_key(said),
        digest=_digest([[one.role, one.text] for one in said]),
    )


def remembered(earlier: Sequence[Said], most: int) -> tuple[Said, ...]:
    """What of `earlier` a fresh session is told: every instruction, and the latest of the rest.

    More than `most` is never read again.
    """
    room = max(0, most - sum(one.is_instruction for one in earlier))
    others = [one for one in earlier if not one.is_instruction]
    dropped = len(others) - min(room, len(others))
    kept = []
    for one in earlier:
        if one.is_instruction:
            kept.append(one)
        elif dropped:
            dropped -= 1
        else:
            kept.append(one)
    return tuple(kept[:most])


def named_key(name: str) -> str:
    """The key of a lasting conversation that the client names."""
    return f"{PREFIX}named:{name}"


def request_digest(agent_id: str, conversation: str, asked: Asked) -> str:
    """What makes two requests the same request."""
    return _digest([agent_id, conversation, asked.digest])


def told_digest(message_id: str, text: str) -> str:
    """What a client was told as the answer to a message."""
    return _digest([message_id, text.strip()])


def _said(message: ChatMessage, number: int) -> Said:
    where = f"messages[{number}]"
    if message.role in ("tool", "function") or message.tool_calls or message.function_call:
        raise BadRequest(
            f"{where} is a tool's call or result; an agent calls its own tools and hands none out",
            field="messages",
        )
    text = _text_of(message, where)
    if message.name and message.role == "user":
        text = f"{_clean(message.name, where)}: {text}" if text.strip() else ""
    return Said(message.role, text)


def _text_of(message: ChatMessage, where: str) -> str:
    """Raises `BadRequest` for what is no text."""
    content = message.content or ""
    if isinstance(content, str):
        return _clean(content, where)
    texts = []
    for part in content:
        if part.get("type") not in ("text", "refusal") or not isinstance(
            part.get(part["type"]), str
        ):
            raise BadRequest(
                f"{where} has a part of type {str(part.get('type'))[:40]!r}; only text is taken",
                field="messages",
            )
        texts.append(part[part["type"]])
    return _clean("\n".join(texts), where)


def _clean(text: str, where: str) -> str:
    if text.isascii() or text.encode("utf-8", "replace").decode() == text:
        return text
    raise BadRequest(
        f"{where} holds half of a character (a lone surrogate), which is no text", field="messages"
    )


def _key(said: Sequence[Said]) -> str:
    return PREFIX + _digest([[one.role, one.text.strip()] for one in said])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True).encode()).hexdigest()
