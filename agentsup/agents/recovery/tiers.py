"""The two models of an agent: the primary one, and the fallback that answers while it is out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from agentsup.model.agent import AgentSpec
from agentsup.model.engine import Engine, EngineSpec

_PROVIDER_OPTIONS = ("base_url", "api_key", "provider")
"""Engine options that belong to one provider."""


@dataclass(frozen=True, slots=True)
class ModelTier:
    """One of the two models with its engine. ``provider`` names its service, for the breaker;
    ``engine_spec`` takes the token of the turn and the person whose work it is."""

    name: str
    engine: Engine
    model: str
    provider: str
    engine_spec: Callable[[str, str], EngineSpec]


def has_fallback(spec: AgentSpec) -> bool:
    """Whether the agent has another model to answer with."""
    return bool(spec.fallback_model or spec.fallback_provider or spec.fallback_engine)


def fallback_name(spec: AgentSpec) -> str:
    """The name of the fallback for people; empty if there is none."""
    names = (spec.fallback_model, spec.fallback_provider, spec.fallback_engine)
    return next((name for name in names if name), "")


def fallback_spec(spec: AgentSpec) -> AgentSpec:
    """The agent's spec on its fallback. Fields that are not set for the fallback are those of the
    primary model, as far as they apply to another engine or provider."""
    engine = spec.fallback_engine or spec.engine
    is_same = engine == spec.engine
    options = dict(spec.fallback_options)
    if not options and is_same:
        options = {key: value for key, value in spec.engine_options.items() if key != "model"}
        if spec.fallback_provider:
            options = {key: value for key, value in options.items() if key not in _PROVIDER_OPTIONS}
    return replace(
        spec,
        engine=engine,
        provider=spec.fallback_provider or (spec.provider if is_same else None),
        model=spec.fallback_model or (spec.model if is_same else None),
        engine_options=options,
    )
