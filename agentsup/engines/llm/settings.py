"""The settings of the language model engine, from an agent's options and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from agentsup.engines.failures import NotConfigured
from agentsup.engines.process import read_options
from agentsup.model.engine import EngineSpec

Dialect = Literal["openai", "anthropic"]

KEY_NAMES: Mapping[Dialect, str] = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
URL_NAMES: Mapping[Dialect, str] = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}
NO_KEY = "no-key-needed"
"""Sent to an endpoint for which no key is configured, such as a local server."""
OPENAI_HOST = "api.openai.com"
_SEPARATING_HOSTS = {
    *(OPENAI_HOST, "api.anthropic.com", "generativelanguage.googleapis.com", "openrouter.ai"),
    *("api.mistral.ai", "api.deepseek.com", "api.x.ai"),
}
OLLAMA_PORT = 11434
CLAUDE_CODE_NAMES = ("sonnet", "opus", "haiku", "opusplan", "default")
"""Short names of models that Claude Code accepts and Anthropic's API does not."""


class LlmOptions(BaseModel):
    """``engine_options`` of the engine ``llm``; secrets are resolved already."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: str = ""
    api_key: str = Field(default="", repr=False)
    model: str = ""
    provider: str = ""
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    request_timeout_s: float = Field(default=120.0, gt=0)
    request_limit: int = Field(default=30, ge=1)
    tool_calls_limit: int = Field(default=60, ge=0)
    total_tokens_limit: int | None = Field(default=None, ge=1)
    ask_user: bool = True
    pictures: bool = True
    """Whether the model is shown pictures; not all models can see."""
    template_opens_thought: bool | None = None
    """Whether the model's chat template opens a thought that the model only closes. Null: its first
    answer shows it, so that this one is not shown before it is whole."""
    script: str = ""
    """For the scripted engine, which ``auto`` selects without a model; it has no effect here."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The endpoint of requests; two agents with equal endpoints share one client."""

    dialect: Dialect
    base_url: str
    api_key: str
    timeout_s: float

    @property
    def separates_thoughts(self) -> bool:
        """Whether no template of a model can have opened a thought in the text of its answers."""
        where = urlsplit(self.base_url)
        return not self.base_url or where.hostname in _SEPARATING_HOSTS or where.port == OLLAMA_PORT

    def __repr__(self) -> str:
        return f"Endpoint({self.dialect}, {self.base_url or 'default'})"


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """Everything one session needs, complete and checked."""

    endpoint: Endpoint
    model: str
    """Empty if only an address is configured: its server is asked (``ListedModels``)."""
    options: LlmOptions
    key_source: str
    """The source of the key, for messages: an environment variable's or an option's name."""

    @property
    def template_opens_thought(self) -> bool | None:
        """Whether the model answers within a thought; None if that is not known before."""
        if self.options.template_opens_thought is None and self.endpoint.separates_thoughts:
            return False
        return self.options.template_opens_thought

    @property
    def model_key(self) -> tuple[str, str]:
        """The model as one of its endpoint."""
        return self.endpoint.base_url, self.model


def read_settings(
    spec: EngineSpec, env: Mapping[str, str], *, needs_model: bool = True
) -> LlmSettings:
    """Settings of ``spec`` over ``env`` (the daemon's). Raises ``NotConfigured`` with what is missing
    and what mends it. Not ``needs_model``: the endpoint is asked for its models.

    A key from the environment goes only to the endpoint of the environment or the provider's own,
    never to a ``base_url`` that an agent's entry names.
    """
    options = read_options(LlmOptions, spec.options, "llm")
    model = options.model or spec.model
    dialect, model = dialect_of(options.provider or spec.provider, model, env)
    base_url = options.base_url or env.get(URL_NAMES[dialect], "")
    key, source = options.api_key, "engine_options.api_key"
    if not key and not options.base_url:
        key, source = env.get(KEY_NAMES[dialect], ""), KEY_NAMES[dialect]
    if not base_url and model in CLAUDE_CODE_NAMES:
        raise NotConfigured(
            f"model {model} is a name that Claude Code alone knows: install it and sign in "
            "(`claude`), or name the model by its whole name, such as with `agentsup setup`"
        )
    if not key and not base_url:
        named = f"model {model} is named but the daemon has no key for it"
        raise NotConfigured(
            f"{named if model else 'no model and no key is set up'}: `agentsup setup` asks for one, or put "
            f"{KEY_NAMES[dialect]}=… into the file environment of the home and restart, or "
            'engine_options.api_key (as "file:PATH" or "env:NAME") into the agent\'s entry'
        )
    if not model and not base_url and needs_model:
        raise NotConfigured(
            "no model is named: set `model` in the agent's entry or in [agent_defaults]"
        )
    endpoint = Endpoint(dialect, base_url, key or NO_KEY, options.request_timeout_s)
    return LlmSettings(endpoint, model, options, source)


def dialect_of(provider: str, model: str, env: Mapping[str, str]) -> tuple[Dialect, str]:
    """Return the dialect that ``provider`` or a prefix of ``model`` names, and the bare model.

    If neither names one: Anthropic's if ``env`` has a key or an address for that alone, else
    OpenAI's.
    """
    prefix, colon, rest = model.partition(":")
    if colon and prefix in {"openai", "anthropic"} and not provider:
        provider, model = prefix, rest
    if provider in {"anthropic", "claude"} or (not provider and model.startswith("claude")):
        return "anthropic", model
    if not provider and not _is_configured("openai", env) and _is_configured("anthropic", env):
        return "anthropic", model
    return "openai", model


def _is_configured(dialect: Dialect, env: Mapping[str, str]) -> bool:
    return bool(env.get(KEY_NAMES[dialect]) or env.get(URL_NAMES[dialect]))
