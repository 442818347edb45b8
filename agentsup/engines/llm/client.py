"""Clients of providers: one per endpoint, without retries of their own, closed together.

How often a failed message is tried again is decided by the mailbox; a client that also retried
would multiply the two.
"""

from __future__ import annotations

import importlib
import ssl
from typing import Any

import openai
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers import Provider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from agentsup.engines.llm.settings import Endpoint, LlmSettings
from agentsup.kit.outbound.httpx_client import BoundedClient
from agentsup.kit.outbound.limits import MIB, AnswerLimits

_OPENAI_HOST = "api.openai.com"
_TURN_S = 3600.0
"""The time limit of one answer; the limits of turns are meant to come first."""


def http_client(endpoint: Endpoint, tls: ssl.SSLContext) -> BoundedClient:
    """Return the HTTP client for a provider's client; it limits the answers of the endpoint."""
    limits = AnswerLimits(
        body_bytes=8 * MIB,
        event_bytes=2 * MIB,
        # Each value becomes an object of the provider's library, which costs time.
        values=5_000,
        headers_s=endpoint.timeout_s,
        idle_s=endpoint.timeout_s,
        total_s=_TURN_S,
    )
    return BoundedClient(limits, tls, follow_redirects=True)


class Clients:
    """The open clients, by endpoint."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        """``tls`` has the certificates that all of them trust."""
        self._tls = tls
        self._open: dict[Endpoint, tuple[Provider[Any], Any]] = {}

    def model(self, settings: LlmSettings) -> Model:
        """A model object on a shared client; makes no request."""
        endpoint = settings.endpoint
        if endpoint not in self._open:
            make = _openai if endpoint.dialect == "openai" else _anthropic_module().make_client
            self._open[endpoint] = make(endpoint, http_client(endpoint, self._tls))
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


def _openai(endpoint: Endpoint, http: BoundedClient) -> tuple[Provider[Any], Any]:
    client = openai.AsyncOpenAI(
        api_key=endpoint.api_key,
        base_url=endpoint.base_url or f"https://{_OPENAI_HOST}/v1",
        timeout=endpoint.timeout_s,
        max_retries=0,
        http_client=http,
    )
    if client.base_url.host == _OPENAI_HOST:
        return OpenAIProvider(openai_client=client), client
    return OpenAICompatibleProvider("openai-compatible", openai_client=client), client


def _anthropic_module() -> Any:
    """Imported only where Anthropic is configured: it costs another second and 20 MB."""
    return importlib.import_module("agentsup.engines.llm.anthropic_client")
