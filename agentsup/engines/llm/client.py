"""Clients of providers: one per endpoint, without retries of their own, closed together.

How often a failed message is tried again is decided by the mailbox; a client that also retried
would multiply the two.
"""

from __future__ import annotations

import importlib
from typing import Any

import openai
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers import Provider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from agentsup.engines.llm.settings import Endpoint, LlmSettings

_OPENAI_HOST = "api.openai.com"


class Clients:
    """The open clients, by endpoint."""

    def __init__(self) -> None:
        self._open: dict[Endpoint, tuple[Provider[Any], Any]] = {}

    def model(self, settings: LlmSettings) -> Model:
        """A model object on a shared client; makes no request."""
        endpoint = settings.endpoint
        if endpoint not in self._open:
            make = _openai if endpoint.dialect == "openai" else _anthropic
            self._open[endpoint] = make(endpoint)
        provider, _ = self._open[endpoint]
        if endpoint.dialect == "openai":
            return OpenAIChatModel(settings.model, provider=provider)
        model: Model = _anthropic_module().make_model(settings.model, provider)
        return model

    async def close(self) -> None:
        """Close every client; a later ``model`` opens a new one."""
        clients = [client for _, client in self._open.values()]
        self._open.clear()
        for client in clients:
            await client.close()


def _openai(endpoint: Endpoint) -> tuple[Provider[Any], Any]:
    # A proxy from the environment must not stand between us and a server on this machine.
    http_client = (
        openai.DefaultAsyncHttpxClient(trust_env=False, timeout=endpoint.timeout_s)
        if endpoint.is_local
        else None
    )
    client = openai.AsyncOpenAI(
        api_key=endpoint.api_key,
        base_url=endpoint.base_url or f"https://{_OPENAI_HOST}/v1",
        timeout=endpoint.timeout_s,
        max_retries=0,
        http_client=http_client,
    )
    if client.base_url.host == _OPENAI_HOST:
        return OpenAIProvider(openai_client=client), client
    return OpenAICompatibleProvider("openai-compatible", openai_client=client), client


def _anthropic(endpoint: Endpoint) -> tuple[Provider[Any], Any]:
    made: tuple[Provider[Any], Any] = _anthropic_module().make_client(endpoint)
    return made


def _anthropic_module() -> Any:
    """Imported only where Anthropic is configured: it costs another second and 20 MB."""
    return importlib.import_module("agentsup.engines.llm.anthropic_client")
