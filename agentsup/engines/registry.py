"""Which engines there are. Nothing of an engine is imported before it is asked for."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Protocol

from agentsup.engines.child import ChildManager
from agentsup.engines.failures import ExtraMissing, UnknownEngine
from agentsup.engines.llm.settings import KEY_NAMES, URL_NAMES, dialect_of
from agentsup.engines.programs import (
    PRESETS,
    PROGRAMS,
    Preset,
    found_signed_in,
    sign_in_of,
)
from agentsup.kit.clock import Clock
from agentsup.model.engine import Engine, EngineSpec

AUTO = "auto"
CLAUDE_CODE_NAMES = ("sonnet", "opus", "haiku", "opusplan", "default")
"""Short names of models that the program takes and Anthropic's API does not."""


class ClosableEngine(Engine, Protocol):
    """An engine that may hold connections between turns."""

    async def close(self) -> None:
        """Release them."""


Factory = Callable[[], ClosableEngine]


class EngineRegistry:
    """Engines by name, each made once, when first asked for. ``add`` before use, ``close`` after."""

    def __init__(
        self, factories: Mapping[str, Factory], children: ChildManager | None = None
    ) -> None:
        """``children`` runs the programs of these engines; it is closed with them."""
        self._factories = dict(factories)
        self.children = children
        self._made: dict[str, ClosableEngine] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Every registered name, sorted."""
        return tuple(sorted(self._factories))

    def add(self, name: str, factory: Factory) -> None:
        """Register another engine, or replace one that was not used yet."""
        self._factories[name] = factory

    def get(self, name: str) -> Engine:
        """The engine ``name``. Raises ``UnknownEngine``, or ``ExtraMissing`` with the command."""
        made = self._made.get(name)
        if made is not None:
            return made
        factory = self._factories.get(name)
        if factory is None:
            close = difflib.get_close_matches(name, self._factories, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UnknownEngine(
                f"there is no engine {name!r}, only {', '.join(self.names)}{hint}", engine=name
            )
        try:
            made = self._made[name] = factory()
        except ImportError as error:
            raise ExtraMissing(
                f"the engine {name} needs an optional part that is not installed "
                f"({error.name or error}): run pip install 'agentsup[{name}]' and restart"
            ) from error
        return made

    def gauges(self) -> dict[str, float]:
        """Figures for metrics: programs that run, that wait for a person, that wait for a place."""
        if self.children is None:
            return {}
        berths = self.children.berths
        return {
            "programs_running": berths.running,
            "programs_held": berths.held,
            "programs_waiting": berths.waiting,
        }

    async def close(self) -> None:
        """Close every engine that was made."""
        made, self._made = list(self._made.values()), {}
        for engine in made:
            await engine.close()
        if self.children is not None:
            await self.children.close()


def default_registry(
    clock: Clock, env: Mapping[str, str], children: ChildManager | None = None
) -> EngineRegistry:
    """The engines that come with agentsup.

    ``env`` is the daemon's environment (keys, endpoints); ``children`` runs their programs.
    """
    manager = children or ChildManager(clock)

    def scripted() -> ClosableEngine:
        module = importlib.import_module("agentsup.engines.scripted")
        engine: ClosableEngine = module.ScriptedEngine(clock, manager.files)
        return engine

    def llm() -> ClosableEngine:
        module = importlib.import_module("agentsup.engines.llm")
        engine: ClosableEngine = module.LlmEngine(env)
        return engine

    def command() -> ClosableEngine:
        module = importlib.import_module("agentsup.engines.command")
        engine: ClosableEngine = module.CommandEngine(manager)
        return engine

    def claude() -> ClosableEngine:
        module = importlib.import_module("agentsup.engines.claude")
        engine: ClosableEngine = module.ClaudeEngine(manager, clock, env)
        return engine

    def acp(preset: Preset | None) -> Factory:
        def made() -> ClosableEngine:
            module = importlib.import_module("agentsup.engines.acp.engine")
            engine: ClosableEngine = module.AcpEngine(manager, env, preset)
            return engine

        return made

    own = {"scripted": scripted, "llm": llm, "command": command, "claude": claude}
    agents = {name: acp(preset) for name, preset in PRESETS.items()}
    return EngineRegistry({**own, "acp": acp(None), **agents}, manager)


def has_llm_extra() -> bool:
    """The libraries of the engine llm are installed (they are not imported)."""
    return importlib.util.find_spec("pydantic_ai") is not None


def best_available(
    env: Mapping[str, str],
    spec: EngineSpec,
    *,
    is_llm_installed: Callable[[], bool] = has_llm_extra,
    is_file: Callable[[str], bool] = os.path.isfile,
) -> tuple[str, str]:
    """The engine for ``"engine": "auto"`` and one plain line saying why.

    ``llm`` where an endpoint, or a model and a key, are configured in ``spec`` or ``env``; else the
    first coding agent found on the PATH of ``env`` and signed in; else ``scripted``, which works
    offline.
    """
    name, why = _model_or_nothing(env, spec, is_llm_installed)
    if name == "scripted":
        model = str(spec.options.get("model") or spec.model)
        found = found_signed_in(
            env, lambda each: _which(each, env) if _may_know(each, model) else None, is_file
        )
        if found is not None:
            if model:
                return found[0], f"{found[1]}, and the engine llm can't use model {model}"
            return found[0], f"{found[1]}, and no model is configured for the engine llm"
    return name, why


def _may_know(program: str, model: str) -> bool:
    """Whether the program can have a model of that name: Claude Code has Claude models only."""
    is_claudes = not model or model in CLAUDE_CODE_NAMES or "claude" in model
    return is_claudes or program != PROGRAMS["claude"].program


def needs_users_home(name: str, env: Mapping[str, str]) -> bool:
    """The program of the engine ``name`` is signed in by a file in the home of the daemon's user,
    and by nothing else."""
    preset = PROGRAMS.get(name)
    return preset is not None and bool(sign_in_of(preset, env, os.path.isfile).login)


def _which(program: str, env: Mapping[str, str]) -> str | None:
    return shutil.which(program, path=env.get("PATH", ""))


def _model_or_nothing(
    env: Mapping[str, str], spec: EngineSpec, is_llm_installed: Callable[[], bool]
) -> tuple[str, str]:
    """``llm`` if it can work, else ``scripted``, and why. As ``llm`` itself reads its settings."""
    options = spec.options
    model = str(options.get("model") or spec.model)
    provider = str(options.get("provider") or spec.provider)
    dialect, _ = dialect_of(provider, model, env)
    url = str(options.get("base_url") or env.get(URL_NAMES[dialect], ""))
    key = KEY_NAMES[dialect] if env.get(KEY_NAMES[dialect]) else ""
    key = "engine_options.api_key" if options.get("api_key") else key
    if not url and model in CLAUDE_CODE_NAMES:
        return "scripted", (
            f"model {model} is a name that Claude Code alone knows (engine claude), and it is not "
            "installed or not signed in, so the offline engine answers; for the engine llm write the "
            "model's whole name"
        )
    if not url and not key and model:
        return "scripted", (
            f"model {model} is named but the daemon has no key for it ({KEY_NAMES[dialect]} in its "
            f"environment, or `api_key` in engine_options; {URL_NAMES[dialect]} for a server of your "
            "own), so the offline engine answers"
        )
    if not url and not key:
        return "scripted", (
            "no model is configured (set OPENAI_API_KEY or ANTHROPIC_API_KEY and a model, or "
            "OPENAI_BASE_URL), so the offline engine answers"
        )
    if not url and not model:
        return "scripted", (
            f"{key} is set but no model is named (`model` of the agent or in [agent_defaults]), "
            "so the offline engine answers"
        )
    if not is_llm_installed():
        return "scripted", (
            "a model is configured but the engine llm is not installed "
            "(pip install 'agentsup[llm]'), so the offline engine answers"
        )
    return "llm", f"model {model or 'of the endpoint'} at {url}" if url else f"model {model}, {key}"
