"""Whether the scripts that agents name can be read and say what a script may say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agentsup.config.crosscheck import Placed
from agentsup.config.findings import Finding, KeyPath, Severity
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import ConfigError

_ENGINES = ("scripted", "auto")
"""Those that answer by a script; to others one is of no effect."""


def script_findings(spec: AgentSpec, place: Placed, home: Path) -> Iterable[Finding]:
    """An error for each script of the agent that its engine would refuse, by the file and the line
    that are wrong. Reads the files."""
    if spec.engine in _ENGINES:
        yield from _of(spec.engine_options, "engine_options", spec, place, home)
    has_fallback = spec.fallback_engine or spec.fallback_model or spec.fallback_provider
    if has_fallback and (spec.fallback_engine or spec.engine) in _ENGINES:
        yield from _of(spec.fallback_options, "fallback_options", spec, place, home)


def _of(
    options: Mapping[str, Any], field: str, spec: AgentSpec, place: Placed, home: Path
) -> Iterable[Finding]:
    from agentsup.engines.scripted import load_script, script_path
    from agentsup.engines.scripted_rules import build_script

    source = options.get("script")
    try:
        if source:
            load_script(script_path(str(source), str(home)))
        else:
            build_script(options.get("rules") or [], path="rules")
    except OSError as error:
        at = place(spec.name, (field, "script"))
        text = f"the script {str(source)!r} can't be read: {error.strerror or type(error).__name__}"
        hint = "its path is relative to the home"
        yield Finding(Severity.ERROR, text, at.path, at.line, at.column, at.field, hint)
    except ConfigError as error:
        where, path, line, column = error.field, error.path, error.line, error.column
        if not source:
            at = place(spec.name, (field, "rules", *_index(where)))
            where = f"{at.field}: {where}" if where else at.field
            path, line, column = at.path, at.line, at.column
        text = f"the script of {spec.name}: {error.message}"
        yield Finding(Severity.ERROR, text, path, line, column, where, error.hint)


def _index(where: str | None) -> KeyPath:
    """The rule that a finding names ("rule 2, step 1"), as an index."""
    number = (where or "").removeprefix("rule ").partition(",")[0]
    return (int(number) - 1,) if number.isdigit() else ()
