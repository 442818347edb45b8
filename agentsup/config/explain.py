"""Checks of a home without a running daemon: whether it is valid, and where a value comes from."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentsup.config import secrets
from agentsup.config.agents_file import decode
from agentsup.config.findings import ConfigFinding, Severity, did_you_mean
from agentsup.config.home import Home
from agentsup.config.merge import leaves
from agentsup.config.settings import ENV_PREFIX, parse_settings, setting_class
from agentsup.config.settings_file import SettingsFile
from agentsup.config.snapshot import Check, ConfigSnapshot, load
from agentsup.model.agent import FIELDS, AgentSpec, field_info
from agentsup.model.agent_fields import FieldClass
from agentsup.model.errors import ConfigError, ConfigErrors, NotFound

AGENT_TABLES: Final = ("main", "agent_defaults")
"""The tables whose keys are those of an agent's entry."""
_FREE: Final = ("people", "prices", "hooks")
"""Tables whose keys people choose."""


@dataclass(frozen=True, slots=True)
class ExplainedValue:
    """One value of an agent for display: secrets as their reference or ``***``."""

    field: str
    value: Any
    origin: str
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
    return [
        ExplainedValue(
            field=path,
            value=secrets.redacted(value),
            origin=explained.origin(path).named(path),
            doc=field_info(path).doc,
        )
        for path, value in leaves(spec).items()
    ]


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


# -- the settings of config.toml one by one ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SettingValue:
    """One setting as it is in effect, secrets as their reference or ``***``."""

    key: str
    value: Any
    origin: str
    effect: FieldClass
    is_default: bool = False


def settings_list(data: bytes | None) -> list[SettingValue]:
    """Every setting of the daemon, and what ``[main]`` and ``[agent_defaults]`` set.

    ``data`` is config.toml, None without one. Raises ``ConfigErrors`` where it is wrong.
    """
    loaded = parse_settings(data)
    written = flat(tomllib.loads(decode(data or b"", "config.toml")))
    defaults = flat(SettingsFile().model_dump(exclude={*AGENT_TABLES}))
    found = []
    for key, value in flat(loaded.settings.model_dump(exclude={*AGENT_TABLES})).items():
        is_default = value == defaults.get(key, value) and key not in written
        origin = "config.toml" if key in written else "built-in"
        if (variable := _variable_of(key)) and value != written.get(key, defaults.get(key)):
            origin, is_default = f"environment {variable}", False
        found.append(SettingValue(key, value, origin, effect_of(key), is_default))
    for table, layer in (("main", loaded.main), ("agent_defaults", loaded.agent_defaults)):
        from_environment = flat(layer.environment)
        for key, value in flat(secrets.redacted(secrets.protect(layer.values))).items():
            path = f"{table}.{key}"
            origin = f"config.toml [{table}]"
            if key in from_environment:
                origin = f"environment {_variable_of(path) or ENV_PREFIX}"
            found.append(SettingValue(path, value, origin, effect_of(path)))
    return found


def effect_of(key: str) -> FieldClass:
    """The class of a change of that setting. Raises ``NotFound`` with the closest key."""
    table, _, path = key.partition(".")
    try:
        if table in AGENT_TABLES and path:
            return field_info(path).cls
        if key in AGENT_TABLES:
            return FieldClass.LIVE
        if table in _FREE or key in SettingsFile.model_fields:
            return setting_class(table)
        known = flat(SettingsFile().model_dump(exclude={*AGENT_TABLES}))
        if key in known:
            return setting_class(key)
    except KeyError:
        pass
    hint = did_you_mean(key, known_keys())
    raise NotFound(f"there is no setting {key[:80]!r}" + (f"; {hint}" if hint else ""))


def known_keys() -> Iterator[str]:
    """The keys of all settings but those that people name themselves."""
    yield from flat(SettingsFile().model_dump(exclude={*AGENT_TABLES}))
    for table in AGENT_TABLES:
        yield from (f"{table}.{path}" for path in FIELDS if path != "name")


def flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested tables by dotted path; lists are values."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{above}{key}.")
        else:
            found[above + key] = value
    return found


def _variable_of(key: str) -> str:
    """The variable of this process that sets the key, or a table with it; empty without one."""
    names = {name.upper(): name for name in os.environ}
    parts = key.upper().split(".")
    for count in range(len(parts), 0, -1):
        if found := names.get(ENV_PREFIX + "__".join(parts[:count])):
            return found
    return ""
