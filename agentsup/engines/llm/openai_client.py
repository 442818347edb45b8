"""OpenAI's client and model class, made for servers that follow its protocol loosely."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import Any, Self

import openai
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
from pydantic_ai.providers import Provider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_core import from_json

from agentsup.engines.failures import ConnectionFailed
from agentsup.engines.llm.settings import OPENAI_HOST, Endpoint
from agentsup.kit.outbound.httpx_client import BoundedClient


def make_client(endpoint: Endpoint, http_client: BoundedClient) -> tuple[Provider[Any], Any]:
    """A client of ``endpoint`` without retries of its own, and its provider object."""
    client = openai.AsyncOpenAI(
        api_key=endpoint.api_key,
        base_url=endpoint.base_url or f"https://{OPENAI_HOST}/v1",
        timeout=endpoint.timeout_s,
        max_retries=0,
        http_client=http_client,
    )
    if client.base_url.host == OPENAI_HOST:
        return OpenAIProvider(openai_client=client), client
    return OpenAICompatibleProvider("openai-compatible", openai_client=client), client


def make_model(name: str, provider: Provider[Any]) -> Model:
    """The model ``name`` on that provider."""
    return _ChatModel(name, provider=provider)


class _ChatModel(OpenAIChatModel):
    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _Stream


@dataclass
class _Stream(OpenAIStreamedResponse):
    def __post_init__(self) -> None:
        # The library finds a tag only if it is a delta of its own; ``engines.thoughts`` finds all.
        self._model_profile = {**self._model_profile, "thinking_tags": ("", "")}

    def _validate_response(self) -> AsyncIterable[ChatCompletionChunk]:
        return _Chunks(super()._validate_response())


class _Chunks:
    """The chunks of one response as the library expects them, with calls told apart. Raises
    ``ConnectionFailed`` at the end of a stream that broke off."""

    def __init__(self, chunks: AsyncIterable[ChatCompletionChunk]) -> None:
        self._chunks: AsyncIterator[ChatCompletionChunk | None] = aiter(chunks)
        self._calls = _Calls()
        self._has_ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChatCompletionChunk:
        chunk = None
        while chunk is None:  # some servers send ``null`` to keep the connection open
            try:
                chunk = await anext(self._chunks)
            except StopAsyncIteration:
                if not self._has_ended:
                    raise ConnectionFailed("the model's answer broke off before its end") from None
                raise
        if not chunk.choices:
            # The usage of the whole comes after the answer.
            self._has_ended = self._has_ended or chunk.usage is not None
        _complete_usage(chunk)
        if not chunk.choices:
            return chunk
        choice = chunk.choices[0]
        # Some servers send an empty reason with the last chunk.
        self._has_ended = self._has_ended or choice.finish_reason is not None
        # The library skips a chunk without a delta, and with it the reason for the end.
        choice.delta = choice.delta or ChoiceDelta()
        for call in choice.delta.tool_calls or ():
            self._calls.tell_apart(call)
        return chunk


def _complete_usage(chunk: ChatCompletionChunk) -> None:
    """Put 0 in the place of a count that a server leaves out; without any count there is no usage."""
    used = chunk.usage
    if used is None:
        return
    counts = [getattr(used, name, None) for name in ("prompt_tokens", "completion_tokens")]
    if counts == [None, None]:
        chunk.usage = None
    else:
        used.prompt_tokens, used.completion_tokens = (count or 0 for count in counts)


_NO_ARGUMENTS = "{}"


class _Calls:
    """Numbers the calls of one message. Some servers give all of them the same index."""

    def __init__(self) -> None:
        self._count = 0
        self._open: dict[Any, _OpenCall] = {}

    def tell_apart(self, delta: ChoiceDeltaToolCall) -> None:
        """Give ``delta`` the number of its call as its index."""
        name = (delta.function and delta.function.name) or ""
        known = self._open.get(delta.index)
        if known is None or (name and known.is_another(delta.id, name)):
            known = self._open[delta.index] = _OpenCall(self._count, delta.id)
            self._count += 1
        elif name and name == known.name and delta.function:
            delta.function.name = None  # said again with each delta
        known.call_id = known.call_id or delta.id
        known.name += (delta.function and delta.function.name) or ""
        if delta.function and isinstance(delta.function.arguments, str):
            delta.function.arguments = known.add(delta.function.arguments)
        delta.index = known.number


@dataclass(slots=True)
class _OpenCall:
    number: int
    call_id: str | None
    name: str = ""
    arguments: str = ""

    def add(self, arguments: str) -> str:
        """Return what a piece adds: nothing if it is an object without members, in whose place
        some servers send the real one afterwards."""
        if arguments and self.arguments == _NO_ARGUMENTS:
            self.arguments = ""
        is_first = not self.arguments
        self.arguments += arguments
        return "" if is_first and arguments == _NO_ARGUMENTS else arguments

    def is_another(self, call_id: str | None, name: str) -> bool:
        """Whether a delta with that name begins another call."""
        if call_id and self.call_id:
            return call_id != self.call_id
        if not self.arguments:
            return False
        try:
            from_json(self.arguments)
        except ValueError:
            return False
        return True
