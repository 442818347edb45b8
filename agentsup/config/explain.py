"""Questions about a home that need no running daemon: is it right, and where does a value come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsup.config import secrets
from agentsup.config.findings import Finding, Severity
from agentsup.config.home import Home
from agentsup.config.merge import leaves
from agentsup.config.snapshot import Check, ConfigSnapshot, Overrides, load
from agentsup.model.agent import FieldClass, field_info
from agentsup.model.errors import ConfigError, ConfigErrors


@dataclass(frozen=True, slots=True)
class ExplainedValue:
    """One value of an agent for people: secrets as their reference or `***`."""

    field: str
    value: Any
    origin: str
    cls: FieldClass
    doc: str


def validate(
    home: Home, environ: Mapping[str, str] | None = None, checks: Sequence[Check] = ()
) -> list[Finding]:
    """Everything there is to say about the files of `home`, errors first; `checks` add to it.
    Blocks on the disk."""
    try:
        return list(load(home, environ=environ, checks=checks).warnings)
    except ConfigErrors as error:
        return [finding_of(each) for each in error.findings]


def finding_of(error: ConfigError) -> Finding:
    """A `ConfigError` as the finding it was made of."""
    return Finding(
        Severity.ERROR,
        error.message,
        error.path,
        error.line,
        error.column,
        error.field,
        error.hint,
    )


def explain(
    home: Home,
    name: str,
    overrides: Overrides | None = None,
    environ: Mapping[str, str] | None = None,
) -> list[ExplainedValue]:
    """Every value of the agent called `name` and where it came from. Blocks on the disk.

    Raises `ConfigErrors` where the files are wrong, `NotFound` with the closest name.
    """
    return explain_agent(load(home, overrides, environ=environ), name)


def explain_agent(snapshot: ConfigSnapshot, name: str) -> list[ExplainedValue]:
    """As `explain`, for a snapshot. Raises `NotFound`."""
    spec = snapshot.require(name)
    explained = snapshot.explained[spec.name]
    found = []
    for path, value in leaves(spec).items():
        row = field_info(path)
        found.append(
            ExplainedValue(
                path, secrets.redacted(value), explained.origin(path).named(path), row.cls, row.doc
            )
        )
    return found
