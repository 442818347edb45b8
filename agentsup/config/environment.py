"""What `AGENTSUP_*` variables say of agents: texts given the type of their field, told from the file's."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from typing import Any

from agentsup.config.agents_file import check_values
from agentsup.config.findings import Finding, KeyPath, Report
from agentsup.model.errors import ConfigErrors

__all__ = ["ENV_PREFIX", "as_variable", "beyond", "typed"]

ENV_PREFIX = "AGENTSUP_"


def as_variable(found: Finding) -> Finding:
    """What was found of a setting, as about the variable that sets it."""
    name = ENV_PREFIX + re.sub(r"\W+", "__", found.field or "").upper().strip("_")
    return Finding(found.severity, found.message, found.path, None, None, name, found.hint)


def typed(table: str, at: KeyPath, values: Mapping[str, Any], written: Any) -> dict[str, Any]:
    """Give the values that the environment added to an agent table the type of their field."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        in_file = written.get(key) if isinstance(written, Mapping) else None
        if isinstance(value, Mapping):
            found[key] = typed(table, (*at, key), value, in_file)
        elif value != in_file:
            found[key] = _leaf(table, (*at, key), value)
        else:
            found[key] = value
    return found


def _leaf(table: str, at: KeyPath, value: Any) -> Any:
    """`value` as it is, else read as JSON, else as text; whichever its field takes."""
    text = value if isinstance(value, str) else json.dumps(value)
    candidates: list[Any] = [value, text]
    with contextlib.suppress(ValueError, RecursionError):
        candidates.append(json.loads(text))
    reports: list[Report] = []
    for candidate in candidates:
        said: Any = candidate
        for part in reversed(at):
            said = {part: said}
        report = Report("environment", lambda where: (None, None))
        check_values(said, (table,), report, report.locate, has_name=False)
        if not report.has_errors:
            return candidate
        reports.append(report)
    raise ConfigErrors(
        tuple(as_variable(each).as_error() for each in reports[-1].findings if each.is_error)
    )


def beyond(values: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of ``values`` that ``known`` has not, or has otherwise."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        there = known.get(key)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            if more := beyond(value, there):
                found[key] = more
        elif key not in known or value != there:
            found[key] = value
    return found
