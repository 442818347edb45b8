"""config.toml and ``AGENTSUP_*``: settings of the daemon, and the defaults of main and all agents.

The file is checked strictly, with line and suggestion. Then pydantic-settings merges the
environment over it (``AGENTSUP_API__PORT=8800``, two underscores per level).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, get_args

from pydantic import ValidationError

from agentsup.config.agents_file import CheckedValues, check_values, decode
from agentsup.config.findings import (
    ConfigFinding,
    KeyPath,
    Report,
    Severity,
    did_you_mean,
    raise_errors,
    refuse_file,
)
from agentsup.config.positions import TomlPositions
from agentsup.config.settings_file import WITHOUT_EFFECT, SettingsFile
from agentsup.model.agent import FIELDS
from agentsup.model.agent_fields import FieldClass
from agentsup.model.errors import ConfigErrors
from agentsup.model.platforms import PLATFORMS

ENV_PREFIX = "AGENTSUP_"


class Settings(SettingsFile):
    """config.toml with the environment merged over it. Immutable."""


def setting_class(path: str) -> FieldClass:
    """The class of a change of the setting at a dotted path: its own mark, that of its table, else
    ``live``. Raises ``KeyError`` for an unknown table."""
    table, _, key = path.partition(".")
    declared = SettingsFile.model_fields[table]
    inner = getattr(declared.annotation, "model_fields", {}).get(key)
    marks = (*(inner.metadata if inner is not None else ()), *declared.metadata)
    return next((mark for mark in marks if isinstance(mark, FieldClass)), FieldClass.LIVE)


@dataclass(frozen=True, slots=True)
class AgentLayer(CheckedValues):
    """``[main]`` or ``[agent_defaults]``."""

    environment: Mapping[str, Any] = field(repr=False)
    """Those of ``values`` that come from the environment, not from the file."""


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Checked settings, the two agent layers, and warnings to report."""

    settings: Settings
    main: AgentLayer
    agent_defaults: AgentLayer
    warnings: tuple[ConfigFinding, ...]


def parse_settings(data: bytes | None, path: str = "config.toml") -> LoadedSettings:
    """Parse the content of config.toml (None without a file), and merge the environment over it.

    Raises ``ConfigErrors`` with every finding; then nothing of it may be applied.
    """
    text = decode(data or b"", path).replace("\r\n", "\n")
    document = _loads(text, path)
    positions = TomlPositions(text)
    report = Report(path, positions.locate)
    _check_file(document, report)
    raise_errors(report.findings)
    settings = _under_environment(document)
    main, defaults = (
        _agent_layer(table, document.get(table, {}), getattr(settings, table), report)
        for table in ("main", "agent_defaults")
    )
    _check_identities(settings.agent_defaults, report)
    raise_errors(report.findings)
    return LoadedSettings(settings, main, defaults, report.findings)


def _loads(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        position = re.search(r"\(at (?:line (\d+), column (\d+)|end of document)\)", str(error))
        if position and position[1]:
            line, column = int(position[1]), int(position[2])
        else:
            line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
        message = re.sub(r" \(at .*\)$", "", str(error)) or "nested too deep"
        twice = re.fullmatch(r"Cannot declare (\(.*\)) twice", message)
        if twice:
            table = ".".join(re.findall(r"'([^']*)'", twice[1]))
            message = f"the table [{table}] is here a second time; put its keys into the first"
        refuse_file(path, f"this is not TOML: {message}", (line, column))


def _check_file(document: dict[str, Any], report: Report) -> None:
    api = document.get("api")
    if isinstance(api, dict) and "interagent_port" in api:
        port = api.pop("interagent_port")
        if api.setdefault("port", port) != port:
            report.error(
                ("api", "interagent_port"),
                "port and interagent_port are the same setting",
                "keep port",
            )
    for table, keys in WITHOUT_EFFECT.items():
        given = document.get(table)
        if not isinstance(given, dict):
            continue
        for key in keys.keys() & given.keys():
            del given[key]
            report.warning((table, key), f"{key!r} has no effect", keys[key])
        if not given and table not in SettingsFile.model_fields:
            del document[table]
    try:
        SettingsFile.model_validate(document, strict=True)
    except ValidationError as error:
        report.invalid(error.errors(include_url=False), _known)
    people = document.get("people")
    if isinstance(people, dict):
        _check_people(people, report)


def _check_people(people: dict[str, Any], report: Report) -> None:
    owners: dict[tuple[str, Any], str] = {}
    for name, person in people.items():
        for kind in (platform.name for platform in PLATFORMS):
            listed = person.get(kind) if isinstance(person, dict) else None
            for each in listed if isinstance(listed, list) else ():
                if not isinstance(each, str | int):
                    continue
                if owners.setdefault((kind, each), name) != name:
                    report.error(
                        ("people", name, kind),
                        f"{kind} id {each!r} belongs to {owners[kind, each]!r} already",
                        "one id is one person",
                    )


def _known(where: KeyPath) -> tuple[str, ...]:
    """The known keys of the table at ``where``."""
    if not where:
        return tuple(SettingsFile.model_fields)
    declared = SettingsFile.model_fields[str(where[0])].annotation
    named = get_args(declared)[-1:]  # of a table of tables by name, such as [people]
    return tuple(getattr(named[0] if named else declared, "model_fields", ()))


def _under_environment(document: dict[str, Any]) -> Settings:
    variables = {name.upper() for name in os.environ} - OWN_VARIABLES
    try:
        if not any(name.startswith(ENV_PREFIX) for name in variables):
            return Settings(**document)
        # Loaded where there is such a variable: most homes have none.
        return Settings(**import_module("agentsup.config.environment_values").merged(document))
    except ValidationError as error:
        # The file alone was valid, so the error comes from the environment.
        report = Report("environment")
        report.invalid(error.errors(include_url=False), _known)
        raise ConfigErrors(
            tuple(as_variable(each).as_error() for each in report.findings)
        ) from None


def _agent_layer(
    table: str, written: Mapping[str, Any], under: Mapping[str, Any], report: Report
) -> AgentLayer:
    """The layer of the values in the file, with the environment merged over them."""
    values = typed(table, (), under, written)
    if "name" in values:
        report.error((table, "name"), f"[{table}] has no name", "remove the key")
    given = {key: value for key, value in values.items() if key != "name"}
    checked = check_values(given, (table,), report)
    if table == "main" and given.get("enabled") is False:
        report.error((table, "enabled"), "the main agent can't be disabled", "remove the key")
    silent = Report("config.toml")
    unnamed = {key: value for key, value in written.items() if key != "name"}
    in_file = check_values(unnamed, (table,), silent)
    return AgentLayer(checked.values, checked.locate, beyond(checked.values, in_file.values))


def _check_identities(values: dict[str, Any], report: Report) -> None:
    """Refuse defaults of fields that belong to one agent alone."""
    for path, row in FIELDS.items():
        if not row.identity or path == "name":
            continue
        block, dot, key = path.partition(".")
        holder = values.get(block) if dot else values
        if isinstance(holder, dict) and (key or block) in holder:
            report.error(
                ("agent_defaults", *path.split(".")),
                f"{path} belongs to one agent and can't be a default for all",
                "write it under [main] or into the agent's entry",
            )


def unknown_variables(environ: Mapping[str, str] | None = None) -> tuple[ConfigFinding, ...]:
    """Warnings for ``AGENTSUP_*`` variables that look like a setting and are none."""
    environ = os.environ if environ is None else environ
    known = [ENV_PREFIX + name.upper() for name in SettingsFile.model_fields]
    found: list[ConfigFinding] = []
    for name in environ:
        hint = did_you_mean(name, known) if name.startswith(ENV_PREFIX) else None
        if hint and "__" not in name and name.upper() not in known and name not in OWN_VARIABLES:
            message = "this environment variable is no setting"
            found.append(
                ConfigFinding(Severity.WARNING, message, "environment", field=name, hint=hint)
            )
    return tuple(found)


OWN_VARIABLES = frozenset(
    {
        f"{ENV_PREFIX}{name}"
        for name in ("HOME", "URL", "TOKEN", "AGENT", "TASK", "FAULT", "FAULT_LOG")
    }
)
"""Variables that are no settings: the home, and those that engines and tests are given."""


# -- agents' settings from the environment ------------------------------------------------------------


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
