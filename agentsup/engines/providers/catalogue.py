"""Providers of language models known by name: where they are, and how they are signed in to. Data.

What a provider changes on its side (an address, its models) is asked at the provider, or written in
``engine_options``; nothing here is needed for the engine ``llm`` to work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlsplit

from agentsup.engines.llm.settings import Dialect


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider, or one kind of server of one's own."""

    name: str
    title: str
    base_url: str
    """The default address; empty if only the person knows it."""
    key_name: str = ""
    """The usual variable of its key; empty if no key is needed."""
    keys_at: str = ""
    """The page where one gets a key."""
    dialect: Dialect = "openai"
    start: str = ""
    """The command that starts it, for a server on one's own machine."""
    load: str = ""
    """How a person loads a model into it, for a server that may have none."""
    prices: str = ""
    """Its name in the table of prices; empty if what it answers costs nothing by the token."""

    @property
    def needs_key(self) -> bool:
        """Whether it answers nobody without a key."""
        return bool(self.key_name)


_ALL = (
    Provider(
        "openai",
        "OpenAI",
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        "https://platform.openai.com/api-keys",
        prices="openai",
    ),
    Provider(
        "anthropic",
        "Anthropic",
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
        "https://console.anthropic.com/settings/keys",
        dialect="anthropic",
        prices="anthropic",
    ),
    Provider(
        "gemini",
        "Google Gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        "https://aistudio.google.com/apikey",
        prices="google",
    ),
    Provider(
        "mistral",
        "Mistral",
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        "https://console.mistral.ai/api-keys",
        prices="mistral",
    ),
    Provider(
        "openrouter",
        "OpenRouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        "https://openrouter.ai/settings/keys",
        prices="openrouter",
    ),
    Provider(
        "ollama",
        "Ollama",
        "http://127.0.0.1:11434/v1",
        start="start it with `ollama serve`",
        load="`ollama pull NAME` gets one of those at https://ollama.com/library",
    ),
    Provider(
        "lmstudio",
        "LM Studio",
        "http://127.0.0.1:1234/v1",
        start="start its server in the tab Developer, or with `lms server start`",
        load="load one in the tab Developer, or with `lms load`",
    ),
    Provider("vllm", "vLLM", "http://127.0.0.1:8000/v1", start="start it with `vllm serve MODEL`"),
    Provider("compatible", "another OpenAI-compatible server", ""),
)

PROVIDERS: Mapping[str, Provider] = MappingProxyType({each.name: each for each in _ALL})
"""Every provider by its name, in the order in which they are offered."""


def provider_at(dialect: Dialect, base_url: str) -> Provider:
    """The provider whose address it is; ``compatible`` if none of them."""
    if not base_url:
        return PROVIDERS[dialect]
    host = urlsplit(base_url).netloc
    for each in _ALL:
        if each.base_url and urlsplit(each.base_url).netloc == host:
            return each
    return PROVIDERS["compatible"]
