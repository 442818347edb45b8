"""The two models of an agent: the primary one, and the fallback that answers while it is out; and why
they could not answer last.

A wrong key, an account without credit or an unknown model shows only when a provider is asked. It
is remembered until that model answers, so that the agent's state shows the true reason. In memory
only: a new life of the agent begins without it, and its first turn finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from agentsup.agents.recovery.decisions import FALLBACK, OUT, PRIMARY, failure_kind_of
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import Engine, EngineDone, EngineSpec, Suspended

_PROVIDER_OPTIONS = ("base_url", "api_key", "provider")
"""Engine options that belong to one provider."""
_NAMED = {FALLBACK: "its fallback"}


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


@dataclass(slots=True, eq=False)
class EngineProblems:
    """The last failure of each model that lasts until somebody repairs its cause."""

    on_change: Callable[[str], None] = lambda agent_id: None
    """Called with the id of an agent whose problems came or went."""
    _known: dict[str, dict[str, str]] = field(init=False, default_factory=dict)
    """By agent and by tier. Only agents that run have an entry."""

    def begin(self, agent_id: str) -> None:
        """Know the agent from now on, and nothing of its models."""
        had_any = bool(self._known.get(agent_id))
        self._known[agent_id] = {}
        if had_any:
            self.on_change(agent_id)

    def forget(self, agent_id: str) -> None:
        """The agent runs no more."""
        self._known.pop(agent_id, None)

    def keep(self, agent_id: str, chat_models: Collection[str]) -> None:
        """Forget the models of chats that are not in ``chat_models``."""
        known = self._known.get(agent_id, {})
        still = {PRIMARY, FALLBACK, *map(chat_model_problem, chat_models)}
        gone = [each for each in known if each not in still]
        for each in gone:
            del known[each]
        if gone:
            self.on_change(agent_id)

    def ended(self, agent_id: str, tier: str, end: EngineDone | Suspended, text: str) -> None:
        """Take note of how a run on a model of the agent ended; ``text`` is the error as people may
        read it. ``tier`` is one of its two models, or ``chat_model_problem`` of another."""
        known = self._known.get(agent_id)
        if known is None:
            return
        if isinstance(end, Suspended) or end.outcome == "ok":
            if known.pop(tier, None) is not None:
                self.on_change(agent_id)
            return
        if end.outcome != "failed" or failure_kind_of(end.code, permanent=end.permanent) not in OUT:
            return
        if known.get(tier) != text:
            known[tier] = text
            self.on_change(agent_id)

    def of(self, agent_id: str) -> str:
        """Why models of the agent can't answer; empty if nothing is known."""
        known = self._known.get(agent_id, {})
        own = [known[PRIMARY]] if PRIMARY in known else []
        others = sorted((tier, text) for tier, text in known.items() if tier != PRIMARY)
        return "; ".join(own + [f"{_NAMED.get(tier, tier)}: {text}" for tier, text in others])


def chat_model_problem(model: str) -> str:
    """In the place of a tier: a model that was chosen for a chat."""
    return f"{model}, chosen for a chat"
