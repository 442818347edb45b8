"""Whether a setting has an effect with an engine, as far as is known before a turn runs.

An override without effect is refused with these texts. What only the program itself knows, such as
whether it has a model of that name, is not checked here.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from collections.abc import Callable, Mapping

from agentsup.engines.process import read_options
from agentsup.engines.programs.presets import PRESETS, PROGRAMS
from agentsup.engines.registry.registry import llm_problem
from agentsup.kit.searching import not_found
from agentsup.model.agent import OFFLINE
from agentsup.model.engine import EngineSpec
from agentsup.model.errors import EngineFailed

_COMMAND, _ACP, _LLM = "command", "acp", "llm"
_OPTIONS: Mapping[str, tuple[str, str]] = {
    "llm": ("agentsup.engines.llm.settings", "LlmOptions"),
    "command": ("agentsup.engines.command.engine", "CommandOptions"),
    "claude": ("agentsup.engines.claude.arguments", "ClaudeOptions"),
    **dict.fromkeys((_ACP, *PRESETS), ("agentsup.engines.acp.options", "AcpOptions")),
}
"""The module and the class of the ``engine_options`` of each engine."""


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
