"""Rules for overrides: which fields an operator may set in place of the files, to what values.

The schema of an entry of agents.json checks an override too. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from agentsup.config.entry import BLOCK_MODELS, AgentEntry, known_keys
from agentsup.config.findings import Report, did_you_mean
from agentsup.model.agent import FIELDS, field_info

OVERRIDABLE = tuple(path for path, info in FIELDS.items() if info.overridable)
"""The dotted paths that may be overridden, in the order of the table."""

_RIGHTS = ("plan", "dontAsk", "default", "acceptEdits", "auto", "bypassPermissions")
"""Permission modes, from the most restricted to the one without any approval."""


def field_problem(path: str) -> str | None:
    """Why the field can't be overridden at all, and where to set it instead; None if it can."""
    try:
        info = field_info(path)
    except KeyError:
        hint = did_you_mean(path, OVERRIDABLE) or did_you_mean(path, FIELDS)
        return f"there is no field {path[:60]!r}; {hint or 'fields: ' + ', '.join(OVERRIDABLE)}"
    if info.overridable:
        return None
    if info.secret:
        why = "it is a secret, which is kept in one place"
    elif info.identity:
        why = "it says which agent this is"
    else:
        why = "only the files say it"
    return (
        f"{path} can't be overridden: {why}. Set it in agents.json (or config.toml); an edit applies "
        "at once"
    )


def override_problem(path: str, value: Any) -> str | None:
    """Why an operator can't override ``path`` with ``value``, or None if that is allowed."""
    if problem := field_problem(path):
        return problem
    if value is None:
        return f"{path} can't be overridden with nothing"
    block, dot, key = path.partition(".")
    report = Report("override")
    try:
        AgentEntry.model_validate({"name": "x", block: {key: value} if dot else value})
    except ValidationError as error:
        report.invalid(error.errors(include_url=False, include_input=True), known=known_keys)
    for each in report.findings:
        return f"{path}: {each.message}" + (f"; {each.hint}" if each.hint else "")
    return None


def choices(path: str) -> tuple[str, ...]:
    """The values of a field, if they can be listed."""
    return tuple(
        str(value)
        for part in _parts(_annotation(path))
        if get_origin(part) is Literal
        for value in get_args(part)
    )


def read_value(path: str, text: str) -> Any:
    """A typed text as a value of that field: the text, or a number if the field takes one."""
    if path not in OVERRIDABLE or any(
        part is str or get_origin(part) is Literal for part in _parts(_annotation(path))
    ):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def raises_rights(path: str, before: Any, after: Any) -> bool:
    """Whether the change lets an agent do more without approval."""
    if path != "permission_mode":
        return False
    return _RIGHTS.index(after or "default") > _RIGHTS.index(before or "default")


def _annotation(path: str) -> Any:
    block, dot, key = path.partition(".")
    fields = BLOCK_MODELS[block].model_fields if dot else AgentEntry.model_fields
    return fields[key or block].annotation


def _parts(annotation: Any) -> Iterator[Any]:
    """The annotation and, recursively, its arguments."""
    yield annotation
    if get_origin(annotation) is not Literal:
        for part in get_args(annotation):
            yield from _parts(part)
