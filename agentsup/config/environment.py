"""Agent settings from ``AGENTSUP_*`` variables: texts are converted to the type of their field, and
told apart from the file's values."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentsup.config.agents_file import check_values
from agentsup.config.findings import ConfigFinding, KeyPath, Report
from agentsup.model.errors import ConfigErrors

ENV_PREFIX = "AGENTSUP_"


def as_variable(found: ConfigFinding) -> ConfigFinding:
    """The finding, with the variable in place of the setting's key."""
    name = ENV_PREFIX + re.sub(r"\W+", "__", found.field or "").upper().strip("_")
    return replace(found, line=None, column=None, field=name)


def typed(table: str, at: KeyPath, values: Mapping[str, Any], written: Any) -> dict[str, Any]:
    """Convert values that the environment added to an agent table to the type of their field."""
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
    """``value`` itself, or read as text, or read as JSON: the first that its field accepts."""
    text = value if isinstance(value, str) else json.dumps(value)
    candidates: list[Any] = [value, text]
    with contextlib.suppress(ValueError, RecursionError):
        candidates.append(json.loads(text))
    reports: list[Report] = []
    for candidate in candidates:
        said: Any = candidate
        for part in reversed(at):
            said = {part: said}
        report = Report("environment")
        check_values(said, (table,), report)
        if not report.has_errors:
            return candidate
        reports.append(report)
    raise ConfigErrors(
        tuple(as_variable(each).as_error() for each in reports[-1].findings if each.is_error)
    )


def beyond(values: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of ``values`` that are missing or different in ``known``."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        there = known.get(key)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            if more := beyond(value, there):
                found[key] = more
        elif key not in known or value != there:
            found[key] = value
    return found
