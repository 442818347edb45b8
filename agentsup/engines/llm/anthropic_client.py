"""Anthropic's client and model class."""

from __future__ import annotations

from typing import Any

import anthropic
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers import Provider
from pydantic_ai.providers.anthropic import AnthropicProvider

from agentsup.engines.llm.settings import Endpoint
from agentsup.kit.outbound.httpx_client import BoundedClient


def make_client(endpoint: Endpoint, http_client: BoundedClient) -> tuple[Provider[Any], Any]:
    """A client of ``endpoint`` without retries of its own, and its provider object."""
    client = anthropic.AsyncAnthropic(
        api_key=endpoint.api_key,
        base_url=endpoint.base_url or None,
        timeout=endpoint.timeout_s,
        max_retries=0,
        http_client=http_client,
    )
    return AnthropicProvider(anthropic_client=client), client


def make_model(name: str, provider: Provider[Any]) -> Model:
    """The model ``name`` on that provider."""
    return AnthropicModel(name, provider=provider)
