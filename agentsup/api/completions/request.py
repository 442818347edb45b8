"""What a client of the OpenAI API sends, and what of it an agent is asked. Pure decisions.

The client resends the whole conversation each time; a session remembers its own. So a conversation
is recognised by what its person has said so far: `before` is the key of the session that has heard
everything up to now, `after` the key of the same session once it has heard the new text too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentsup.api.bodies import Body
from agentsup.model.errors import BadRequest

PREFIX = "v1:"
_HEARD = ("system", "developer", "user")


class _Lenient(BaseModel):
    """Members that are not known here are settings of a model; an agent has its own."""

    model_config = ConfigDict(extra="ignore")


class ChatMessage(_Lenient):
    """One message of the conversation so far."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None


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
    earlier: tuple[Said, ...]
    before: str
    """The key of the session that has heard `earlier`; empty at the beginning."""
    after: str
    digest: str
    """The whole conversation; the same request has the same."""

    @property
    def last_answer(self) -> str | None:
        """The latest answer the client knows of."""
        return next((one.text for one in reversed(self.earlier) if one.role == "assistant"), None)


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
    heard = [one for one in said if one.role in _HEARD]
    known = [one for one in earlier if one.role in _HEARD]
    has_answer = any(one.role == "assistant" for one in earlier)
    return Asked(
        text,
        earlier,
        before=_key(known) if has_answer else "",
        after=_key(heard),
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


def _said(message: ChatMessage, number: int) -> Said:
    where = f"messages[{number}]"
    if message.role in ("tool", "function"):
        raise BadRequest(
            f"{where} is a tool's result; an agent calls its own tools and hands none out",
            field="messages",
        )
    content = message.content
    if content is None:
        content = ""
    if isinstance(content, str):
        return Said(message.role, _clean(content, where))
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
    return Said(message.role, _clean("\n".join(texts), where))


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
