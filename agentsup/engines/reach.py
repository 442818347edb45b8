"""Whether a setting reaches what thinks: what is known before a turn runs.

An override that nothing would hear is refused with these words. What only the program itself can
tell, such as whether it has a model of that name, is no concern of this module.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from collections.abc import Callable, Mapping

from agentsup.engines.child import read_options
from agentsup.engines.programs import PRESETS, PROGRAMS
from agentsup.engines.registry import has_llm_extra
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
"""Where each engine says what ``engine_options`` it takes."""


def unheard(field: str, spec: EngineSpec) -> str:
    """Why ``field`` (``model``, ``provider`` or ``reasoning_effort``) has no effect with the engine
    of ``spec``; empty where it has one, where only the program can tell, and for other fields."""
    engine, options = spec.engine, spec.options
    if field in ("model", "provider") and engine == _LLM and options.get(field):
        return f"engine_options.{field} names it already, and that counts; change it in the file"
    if field == "model" and engine == OFFLINE:
        return (
            f"the engine {engine} answers by rules and uses no model; choose another engine first"
        )
    if field == "model" and engine == _COMMAND and options.get("input") == "text":
        return 'the program of the engine command is not told the model while engine_options.input is "text"'
    if field == "provider" and engine != _LLM:
        return f"the engine {engine} has no choice of provider; the engine llm has"
    if field == "reasoning_effort" and engine in (OFFLINE, _COMMAND, _LLM):
        return f"the engine {engine} can't be told how long to think; claude and coding agents can"
    return ""


def unable(
    spec: EngineSpec,
    env: Mapping[str, str],
    *,
    is_installed: Callable[[str], bool] = lambda name: importlib.util.find_spec(name) is not None,
) -> str:
    """Why the engine of ``spec`` could not work with its options; empty where nothing is known.
    Looks for its program on the PATH of ``env``; starts nothing."""
    engine = spec.engine
    if engine in _OPTIONS:
        module, name = _OPTIONS[engine]
        try:
            read_options(getattr(importlib.import_module(module), name), spec.options, engine)
        except EngineFailed as error:
            return f"{error.message}; set the engine in the file, with options that fit it"
    if engine == _LLM and not has_llm_extra():
        return "the engine llm is not installed: run pip install 'agentsup[llm]' and restart"
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
        return f"the program {program} of the engine {engine} was not found: {remedy}"
    return ""
