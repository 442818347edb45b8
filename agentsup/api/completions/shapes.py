"""Shapes of the answers under ``/v1``, as clients of the OpenAI API read them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentsup.api.documents.document import Document


class CompletionMessage(Document):
    role: Literal["assistant"]
    content: str
    refusal: None


class CompletionChoice(Document):
    index: Literal[0]
    message: CompletionMessage
    logprobs: None
    finish_reason: Literal["stop", "length"]


class CompletionUsage(Document):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(Document):
    id: str
    object: Literal["chat.completion"]
    created: int = Field(description="seconds since 1970-01-01 UTC")
    model: str = Field(description="the agent that answered")
    choices: list[CompletionChoice]
    usage: CompletionUsage


class Model(Document):
    id: str = Field(description="name of the agent")
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(Document):
    object: Literal["list"]
    data: list[Model]


class OpenAIErrorFacts(Document):
    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(Document):
    error: OpenAIErrorFacts
