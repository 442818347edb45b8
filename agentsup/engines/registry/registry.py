"""The registry of engines, and which settings have an effect with them.

An engine is imported only when it is requested. What only a program itself knows, such as whether
it has a model of that name, is not checked here.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from agentsup.engines.failures import ExtraMissing, UnknownEngine
from agentsup.engines.llm.settings import (
    CLAUDE_CODE_NAMES,
    KEY_NAMES,
    URL_NAMES,
    Dialect,
    dialect_of,
    read_settings,
)
from agentsup.engines.process import ProcessLauncher, read_options
from agentsup.engines.programs.presets import (
    AUTO_ORDER,
    PRESETS,
    PROGRAMS,
    found_signed_in,
    sign_in_of,
)
from agentsup.kit.clock import Clock
from agentsup.kit.own_command import with_home
from agentsup.kit.searching import folder_of, not_found
from agentsup.model.agent import OFFLINE
from agentsup.model.engine import Engine, EngineSpec
from agentsup.model.errors import EngineFailed

AUTO = "auto"
LLM = "llm"
_COMMAND, _ACP, _LLM = "command", "acp", "llm"
_OPTIONS: Mapping[str, tuple[str, str]] = {
    "llm": ("agentsup.engines.llm.settings", "LlmOptions"),
    "command": ("agentsup.engines.command.engine", "CommandOptions"),
    "claude": ("agentsup.engines.claude.arguments", "ClaudeOptions"),
    **dict.fromkeys((_ACP, *PRESETS), ("agentsup.engines.acp.choices", "AcpOptions")),
}
"""The module and the class of the ``engine_options`` of each engine."""


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
        OFFLINE: _lazily("scripted.engine", "ScriptedEngine", clock, manager.files),
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
    else the first coding agent found on the PATH of ``env`` and signed in. Without either, ``llm``
    if a model, an endpoint or a key of its own is named: its turns fail with what is missing, since
    nothing may answer in the place of a model that somebody chose. Only where nobody named one is
    it ``scripted``, which works offline. An endpoint in ``env`` that is Claude Code's, too, is left
    to it if it is signed in and no model is named that the endpoint could know.
    """
    model = str(spec.options.get("model") or spec.model)
    if _is_configured(env, spec):
        if _is_claudes(env, spec, model):
            claude = PROGRAMS["claude"]
            by = sign_in_of(claude, env, os.path.isfile)
            if by and _which(claude.program, env):
                url = URL_NAMES["anthropic"]
                return claude.name, f"{claude.title} is installed and {by}, and gets {url}"
        return LLM, _reached(env, spec)
    found = found_signed_in(
        env, lambda each: _which(each, env) if _may_know(each, model) else None, os.path.isfile
    )
    if found is not None and found[0]:
        if model:
            return found[0], f"{found[1]}, and the engine llm can't use model {model}"
        return found[0], f"{found[1]}, and no model is configured for the engine llm"
    near = found[1] if found is not None else _near(env)
    hint = f" ({near})" if near else ""
    if model or _has_url(env, spec) or spec.options.get("api_key"):
        return LLM, llm_problem(spec, env) + hint
    return OFFLINE, _nobody_named(env, spec) + hint


def _is_claudes(env: Mapping[str, str], spec: EngineSpec, model: str) -> bool:
    """Whether ``env`` selects Anthropic's endpoint and no model of it is named."""
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


def llm_problem(spec: EngineSpec, env: Mapping[str, str]) -> str:
    """Why the engine ``llm`` can't work with the settings of ``spec`` over ``env``; empty if it can,
    as far as is known without a request."""
    if not has_llm_extra():
        return "the engine llm is not installed: run pip install 'agentsup[llm]' and restart"
    try:
        read_settings(spec, env)
    except EngineFailed as error:
        return error.message
    return ""


def _dialect(env: Mapping[str, str], spec: EngineSpec) -> Dialect:
    provider = str(spec.options.get("provider") or spec.provider)
    return dialect_of(provider, str(spec.options.get("model") or spec.model), env)[0]


def _has_url(env: Mapping[str, str], spec: EngineSpec) -> bool:
    return bool(spec.options.get("base_url") or env.get(URL_NAMES[_dialect(env, spec)]))


def _is_configured(env: Mapping[str, str], spec: EngineSpec) -> bool:
    """Whether ``llm`` has an endpoint, or a model and a key."""
    if not has_llm_extra():
        return False
    model = str(spec.options.get("model") or spec.model)
    has_key = spec.options.get("api_key") or env.get(KEY_NAMES[_dialect(env, spec)])
    return _has_url(env, spec) or bool(has_key and model and model not in CLAUDE_CODE_NAMES)


def _reached(env: Mapping[str, str], spec: EngineSpec) -> str:
    """How ``llm`` reaches its model."""
    dialect, options = _dialect(env, spec), spec.options
    model = str(options.get("model") or spec.model)
    if url := str(options.get("base_url") or env.get(URL_NAMES[dialect], "")):
        return f"model {model or 'of the endpoint'} at {url}"
    return f"model {model}, {'engine_options.api_key' if options.get('api_key') else KEY_NAMES[dialect]}"


def _nobody_named(env: Mapping[str, str], spec: EngineSpec) -> str:
    """Why the offline engine answers."""
    key = KEY_NAMES[_dialect(env, spec)]
    if env.get(key):
        return (
            f"{key} is set but no model is named (`model` of the agent or in [agent_defaults]), "
            "so you get canned answers"
        )
    return with_home(
        "no model is configured, so you get canned answers; `agentsup setup` sets one up"
    )


def why_ignored(field: str, spec: EngineSpec) -> str:
    """Return why ``field`` has no effect with the engine of ``spec``, or "".

    Fields are ``model``, ``provider`` and ``reasoning_effort``. Empty if the field has an effect,
    if only the program knows, and for other fields.
    """
    engine, options = spec.engine, spec.options
    if field in ("model", "provider") and engine == _LLM and options.get(field):
        return f"engine_options.{field} names it already, and that counts; change it in the file"
    if field == "model" and engine == OFFLINE:
        return (
            f"the engine {engine} answers by rules and uses no model; choose another engine first"
        )
    if field == "model" and engine == _COMMAND and options.get("input") == "text":
        return 'the program of the engine command does not get the model while engine_options.input is "text"'
    if field == "provider" and engine != _LLM:
        return f"the engine {engine} has no choice of provider; the engine llm has"
    if field == "reasoning_effort" and engine in (OFFLINE, _COMMAND, _LLM):
        return f"the engine {engine} has no setting for how long to think; claude and coding agents have"
    return ""


def unable(
    spec: EngineSpec,
    env: Mapping[str, str],
    *,
    is_installed: Callable[[str], bool] = lambda name: importlib.util.find_spec(name) is not None,
) -> str:
    """Return why the engine of ``spec`` can't work with its options; empty if no reason is known.
    Looks for its program on the PATH of ``env``; starts nothing."""
    engine = spec.engine
    if engine in _OPTIONS:
        module, name = _OPTIONS[engine]
        try:
            read_options(getattr(importlib.import_module(module), name), spec.options, engine)
        except EngineFailed as error:
            return f"{error.message}; set the engine in the file, with options that fit it"
    if engine == _LLM:
        return llm_problem(spec, env)
    if (engine == _ACP or engine in PRESETS) and not is_installed("acp"):
        return f"the engine {engine} is not installed: run pip install 'agentsup[acp]' and restart"
    if engine not in (*PROGRAMS, _COMMAND, _ACP):
        return ""
    command = spec.options.get("command") or ()
    preset = PROGRAMS.get(engine)
    if not command and preset is None:
        return f"the engine {engine} needs engine_options.command; set both in the file"
    program = str(command[0]) if command else preset.program if preset else ""
    if shutil.which(program, path=env.get("PATH", "")) is None:
        remedy = preset.remedy if preset else "name another one in engine_options.command"
        return f"the engine {engine} can't start: {not_found(program, env, remedy)}"
    return ""
