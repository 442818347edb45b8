"""The registry of engines. An engine is imported only when it is requested."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from agentsup.engines.failures import ExtraMissing, UnknownEngine
from agentsup.engines.llm.settings import KEY_NAMES, URL_NAMES, dialect_of
from agentsup.engines.process import ProcessLauncher
from agentsup.engines.programs.presets import (
    AUTO_ORDER,
    PRESETS,
    PROGRAMS,
    found_signed_in,
    sign_in_of,
)
from agentsup.kit.clock import Clock
from agentsup.kit.searching import folder_of
from agentsup.model.engine import Engine, EngineSpec

AUTO = "auto"
LLM = "llm"
CLAUDE_CODE_NAMES = ("sonnet", "opus", "haiku", "opusplan", "default")
"""Short names of models that Claude Code accepts and Anthropic's API does not."""


class ClosableEngine(Engine, Protocol):
    """An engine that may hold connections between turns."""

    async def close(self) -> None:
        """Release them."""


Factory = Callable[[], ClosableEngine]


class EngineRegistry:
    """Engines by name, each made once, when first needed. ``add`` before use, ``close`` after."""

    def __init__(
        self, factories: Mapping[str, Factory], children: ProcessLauncher | None = None
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
        """Return an engine. Raises ``UnknownEngine``, or ``ExtraMissing`` with the command."""
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
            raise ExtraMissing.of(name, name, error) from error
        return made

    def gauges(self) -> dict[str, float]:
        """Return metrics: the programs that run, that are paused, and that wait for a slot."""
        if self.children is None:
            return {}
        slots = self.children.process_slots
        return {
            "programs_running": slots.running,
            "programs_held": slots.paused,
            "programs_waiting": slots.waiting,
        }

    async def close(self) -> None:
        """Close every engine that was made."""
        made, self._made = list(self._made.values()), {}
        for engine in made:
            await engine.close()
        if self.children is not None:
            await self.children.close()


def default_registry(
    clock: Clock, env: Mapping[str, str], children: ProcessLauncher | None = None
) -> EngineRegistry:
    """Return the engines that come with agentsup.

    ``env`` is the daemon's environment (keys, endpoints); ``children`` runs their programs.
    """
    manager = children or ProcessLauncher(clock)

    own = {
        "scripted": _lazily("scripted.engine", "ScriptedEngine", clock, manager.files),
        "llm": _lazily("llm", "LlmEngine", env),
        "command": _lazily("command", "CommandEngine", manager),
        "claude": _lazily("claude", "ClaudeEngine", manager, clock, env),
        "acp": _lazily("acp.engine", "AcpEngine", manager, env),
    }
    agents = {
        name: _lazily("acp.engine", "AcpEngine", manager, env, preset)
        for name, preset in PRESETS.items()
    }
    return EngineRegistry({**own, **agents}, manager)


def _lazily(module: str, name: str, *args: Any) -> Factory:
    """A factory that imports the engine's module when the engine is made."""

    def make() -> ClosableEngine:
        kind = getattr(importlib.import_module(f"agentsup.engines.{module}"), name)
        engine: ClosableEngine = kind(*args)
        return engine

    return make


def has_llm_extra() -> bool:
    """Whether the libraries of the engine llm are installed (they are not imported)."""
    return importlib.util.find_spec("pydantic_ai") is not None


def best_available(env: Mapping[str, str], spec: EngineSpec) -> tuple[str, str]:
    """Return the engine for ``"engine": "auto"`` and one plain line saying why.

    This is ``llm`` if an endpoint, or a model and a key, are configured in ``spec`` or ``env``;
    else the first coding agent found on the PATH of ``env`` and signed in; else ``scripted``, which
    works offline. An endpoint in ``env`` that is Claude Code's, too, is left to it if it is signed
    in and no model is named that the endpoint could know.
    """
    name, why = _model_or_nothing(env, spec)
    model = str(spec.options.get("model") or spec.model)
    if name == "llm" and _is_claudes(env, spec, model):
        claude = PROGRAMS["claude"]
        by = sign_in_of(claude, env, os.path.isfile)
        if by and _which(claude.program, env):
            url = URL_NAMES["anthropic"]
            return claude.name, f"{claude.title} is installed and {by}, and gets {url}"
    if name == "scripted":
        found = found_signed_in(
            env, lambda each: _which(each, env) if _may_know(each, model) else None, os.path.isfile
        )
        if found is None and (near := _near(env)):
            return name, f"{why} ({near})"
        if found is not None and not found[0]:
            return name, f"{why} ({found[1]})"
        if found is not None:
            if model:
                return found[0], f"{found[1]}, and the engine llm can't use model {model}"
            return found[0], f"{found[1]}, and no model is configured for the engine llm"
    return name, why


def _is_claudes(env: Mapping[str, str], spec: EngineSpec, model: str) -> bool:
    """Whether the endpoint is Anthropic's from ``env``, and no model of it is named."""
    is_named = model and model not in CLAUDE_CODE_NAMES
    dialect, _ = dialect_of(str(spec.options.get("provider") or spec.provider), model, env)
    own = spec.options.get("base_url") or spec.options.get("api_key")
    return dialect == "anthropic" and not is_named and not own


def _may_know(program: str, model: str) -> bool:
    """Whether the program can have a model of that name: Claude Code has Claude models only."""
    is_claudes = not model or model in CLAUDE_CODE_NAMES or "claude" in model
    return is_claudes or program != PROGRAMS["claude"].program


def needs_users_home(name: str, env: Mapping[str, str]) -> bool:
    """Whether the engine's program is signed in only by a file in the home of the daemon's user."""
    preset = PROGRAMS.get(name)
    return preset is not None and bool(sign_in_of(preset, env, os.path.isfile).login)


def _near(env: Mapping[str, str]) -> str:
    """Tell of a coding agent that is signed in, but in a folder that is not on the PATH."""
    for preset in map(PROGRAMS.__getitem__, AUTO_ORDER):
        if not _which(preset.program, env) and sign_in_of(preset, env, os.path.isfile):
            folder = folder_of(preset.program)
            if folder:
                return f"{preset.title} is in {folder}, which is not on the PATH; see `agentsup doctor`"
    return ""


def _which(program: str, env: Mapping[str, str]) -> str | None:
    return shutil.which(program, path=env.get("PATH", ""))


def _model_or_nothing(env: Mapping[str, str], spec: EngineSpec) -> tuple[str, str]:
    """Return ``llm`` if it can work, else ``scripted``, and why. Reads settings as ``llm`` does."""
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
            f"model {model} is named but the daemon has no key for it, so the offline engine answers: "
            f"put {KEY_NAMES[dialect]}=… into the file environment of the home and restart, or run "
            f"`agentsup setup` ({URL_NAMES[dialect]} is for a server of your own)"
        )
    if not url and not key:
        return "scripted", (
            "no model is configured, so the offline engine answers; `agentsup setup` sets one up"
        )
    if not url and not model:
        return "scripted", (
            f"{key} is set but no model is named (`model` of the agent or in [agent_defaults]), "
            "so the offline engine answers"
        )
    if not has_llm_extra():
        return "scripted", (
            f"model {model or 'of the endpoint'} is configured but the engine llm is not installed, so "
            "the offline engine answers: pip install 'agentsup[llm]', then restart"
        )
    return "llm", f"model {model or 'of the endpoint'} at {url}" if url else f"model {model}, {key}"
