"""Checks of a home without a running daemon: whether it is valid, and where a value comes from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsup.config import secrets
from agentsup.config.findings import ConfigFinding, Severity
from agentsup.config.home import Home
from agentsup.config.merge import leaves
from agentsup.config.snapshot import Check, ConfigSnapshot, load
from agentsup.model.agent import AgentSpec, field_info
from agentsup.model.agent_fields import FieldClass
from agentsup.model.errors import ConfigError, ConfigErrors


@dataclass(frozen=True, slots=True)
class ExplainedValue:
    """One value of an agent for display: secrets as their reference or ``***``."""

    field: str
    value: Any
    origin: str
    change_class: FieldClass
    doc: str


def validate(
    home: Home,
    environ: Mapping[str, str] | None = None,
    checks: Sequence[Check] = (),
    content: Mapping[str, bytes | OSError] | None = None,
) -> list[ConfigFinding]:
    """All findings about the files of ``home``, errors first. Blocks on the disk.

    ``checks`` are further checks of each agent; ``content`` gives the content of a file, by its
    name, in place of the file on the disk.
    """
    try:
        return list(load(home, environ=environ, checks=checks, content=content).warnings)
    except ConfigErrors as error:
        return [finding_of(each) for each in error.findings]


def finding_of(error: ConfigError) -> ConfigFinding:
    """The finding from which a ``ConfigError`` was made."""
    return ConfigFinding(Severity.ERROR, error.message, **error.facts)


def explain_agent(snapshot: ConfigSnapshot, name: str) -> list[ExplainedValue]:
    """Every value of the agent called ``name`` and its origin. Raises ``NotFound`` with the closest
    name."""
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


def differing(agent: str, values: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of explained values (members ``field`` and ``value``) those that differ from the default.

    ``name`` is left out: it has no default."""
    defaults = _plain(leaves(AgentSpec(agent)))
    return [
        dict(one)
        for one in values
        if one["field"] != "name"
        and (one["field"] not in defaults or defaults[one["field"]] != _plain(one["value"]))
    ]


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    return json.loads(json.dumps(secrets.redacted(value)))
