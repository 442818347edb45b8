"""config.toml and `AGENTSUP_*`: settings of the daemon, and what main and all agents start from.

The file is checked strictly, with line and suggestion; then the environment is laid over it by
pydantic-settings (`AGENTSUP_API__PORT=8800`, two underscores per level). Every setting's class
(`live` or `process`) is in `SETTING_CLASSES`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from agentsup.config.agents_file import check_values, decode
from agentsup.config.environment import ENV_PREFIX, as_variable, beyond, typed
from agentsup.config.fencing import FenceSettings
from agentsup.config.fields import Texts, as_tuple
from agentsup.config.findings import (
    Finding,
    KeyPath,
    Locate,
    Report,
    Severity,
    did_you_mean,
    raise_errors,
)
from agentsup.config.observing import OtelSettings, TraceSettings
from agentsup.config.positions import TomlPlaces
from agentsup.model.agent import FIELDS, FieldClass
from agentsup.model.errors import ConfigErrors
from agentsup.model.principal import PersonRole

Seconds = Annotated[float, Field(gt=0, le=100_000_000, allow_inf_nan=False)]
Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=1, le=100_000_000)]
Money = Annotated[float, Field(ge=0, le=1_000_000_000, allow_inf_nan=False)]
TokenCount = Annotated[int, Field(ge=0, lt=1 << 63)]


class _Section(BaseModel):
    """A table of config.toml: unknown keys are findings."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ApiSettings(_Section):
    """`[api]`: where the internal HTTP API listens."""

    bind: str = "127.0.0.1"
    port: Port = 8799
    allowed_hosts: Texts = ()
    connections: Annotated[int, Field(ge=16, le=16_384)] = 512


class TaskSettings(_Section):
    """`[tasks]`: background work."""

    enabled: bool = True
    max_parallel: Count = 10
    timeout_s: Seconds = 7200.0
    keep_days: Count = 14


class LimitSettings(_Section):
    """`[limits]`: the bounds that keep one request from growing without end."""

    depth: Annotated[int, Field(ge=1, le=64)] = 8
    messages_per_root: Count = 200
    fan_out: Count = 20
    pending_per_sender: Count = 1000
    attempts: Annotated[int, Field(ge=1, le=100)] = 4
    crashes: Annotated[int, Field(ge=1, le=100)] = 2
    resume_age_s: Seconds = 900.0
    aging_s: Seconds = 1800.0
    send_timeout_s: Seconds = 300.0
    ready_timeout_s: Seconds = 120.0
    approval_s: Seconds = 600.0
    drain_s: Seconds = 30.0
    body_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = 1 << 20
    processes: Count = 8
    processes_per_agent: Count = 4
    held_processes: Count = 8
    mcp_processes: Count = 64
    process_memory_mb: Annotated[int, Field(ge=16, le=1 << 20)] = 4096
    keep_days: Count = 90
    backups: Annotated[int, Field(ge=0, le=1000)] = 7


class BudgetSettings(_Section):
    """`[budget]`: what all agents together may use, and what one request may set off."""

    per_day_usd: Money | None = None
    per_month_usd: Money | None = None
    per_day_tokens: TokenCount | None = None
    per_tree_usd: Money | None = None
    per_tree_tokens: TokenCount | None = None


class PriceSettings(_Section):
    """`[prices."MODEL"]`: US dollars for a million tokens of a model that no table knows."""

    input: Money
    output: Money


class LogSettings(_Section):
    """`[log]`: what is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "text", "json"] = "auto"
    file: bool = True
    max_bytes: Annotated[int, Field(ge=65_536, le=1 << 40)] = 10_000_000
    keep: Annotated[int, Field(ge=0, le=1000)] = 5


class Person(_Section):
    """`[people.NAME]`: who a platform id belongs to, and what that person may do."""

    role: Literal["viewer", "user", "operator", "manager"] = "user"
    telegram: Annotated[tuple[int, ...], BeforeValidator(as_tuple)] = ()
    matrix: Texts = ()
    language: str = ""
    """What the person reads, such as ``de``, where the platform does not tell it."""

    @property
    def level(self) -> PersonRole:
        """The role as the ordered value that decisions compare."""
        return PersonRole[self.role.upper()]


class SettingsFile(BaseModel):
    """The shape of config.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    main_crash: Literal["exit", "restart"] = "exit"
    restart_in_place: Literal["auto", "always", "never"] = "auto"
    api: ApiSettings = ApiSettings()
    tasks: TaskSettings = TaskSettings()
    limits: LimitSettings = LimitSettings()
    budget: BudgetSettings = BudgetSettings()
    prices: dict[str, PriceSettings] = Field(default_factory=dict)
    fence: FenceSettings = FenceSettings()
    log: LogSettings = LogSettings()
    traces: TraceSettings = TraceSettings()
    otel: OtelSettings = OtelSettings()
    people: dict[str, Person] = Field(default_factory=dict)
    hooks: dict[str, bool] = Field(default_factory=dict)
    main: dict[str, Any] = Field(default_factory=dict, repr=False)
    agent_defaults: dict[str, Any] = Field(default_factory=dict, repr=False)


class Settings(BaseSettings, SettingsFile):
    """config.toml with the environment laid over it. Immutable."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file, which comes in as keyword arguments."""
        return (env_settings, init_settings)


SETTING_CLASSES: Mapping[str, FieldClass] = MappingProxyType(
    {
        "main_crash": FieldClass.LIVE,
        "restart_in_place": FieldClass.LIVE,
        "api": FieldClass.PROCESS,
        "tasks": FieldClass.LIVE,
        "tasks.enabled": FieldClass.PROCESS,
        "limits": FieldClass.LIVE,
        "limits.body_bytes": FieldClass.PROCESS,
        "budget": FieldClass.LIVE,
        "prices": FieldClass.LIVE,
        "fence": FieldClass.LIVE,
        "log": FieldClass.PROCESS,
        "log.level": FieldClass.LIVE,
        "traces": FieldClass.LIVE,
        "otel": FieldClass.PROCESS,
        "people": FieldClass.LIVE,
        "hooks": FieldClass.LIVE,
    }
)
"""What a changed setting takes; a table's class holds for its keys that are not listed."""


def setting_class(path: str) -> FieldClass:
    """The class of the setting at a dotted path. Raises `KeyError` for an unknown one."""
    probe = path
    while probe not in SETTING_CLASSES:
        probe, dot, _ = probe.rpartition(".")
        if not dot:
            raise KeyError(path)
    return SETTING_CLASSES[probe]


@dataclass(frozen=True, slots=True)
class AgentLayer:
    """`[main]` or `[agent_defaults]` in the keys of an entry, with the places of its keys."""

    values: Mapping[str, Any] = field(repr=False)  # may hold secrets in clear
    locate: Locate
    environment: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Those of ``values`` that the environment gave, and not the file."""


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Checked settings, the two agent layers, and what is to be told."""

    settings: Settings
    main: AgentLayer
    agent_defaults: AgentLayer
    warnings: tuple[Finding, ...]


def parse_settings(data: bytes | None, path: str = "config.toml") -> LoadedSettings:
    """Read the content of config.toml (None where there is no file) under the environment.

    Raises `ConfigErrors` with every finding; then nothing of it is to be applied.
    """
    text = decode(data or b"", path).replace("\r\n", "\n")
    document = _loads(text, path)
    places = TomlPlaces(text)
    report = Report(path, places.locate)
    _check_file(document, report)
    raise_errors(report.findings)
    settings = _under_environment(document)
    layers = {
        table: _agent_layer(table, document.get(table, {}), values, report)
        for table, values in (
            ("main", settings.main),
            ("agent_defaults", settings.agent_defaults),
        )
    }
    _check_identities(settings.agent_defaults, report)
    raise_errors(report.findings)
    return LoadedSettings(settings, layers["main"], layers["agent_defaults"], report.findings)


def _loads(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        place = re.search(r"\(at (?:line (\d+), column (\d+)|end of document)\)", str(error))
        line, column = (int(place[1]), int(place[2])) if place and place[1] else (None, None)
        if line is None:
            line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
        message = re.sub(r" \(at .*\)$", "", str(error)) or "nested too deep"
        found = Finding(
            Severity.ERROR, f"this is not TOML: {message}", path, line, column, "(file)"
        )
        raise ConfigErrors((found.as_error(),)) from None


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
        for kind in ("telegram", "matrix"):
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


_SECTIONS: Mapping[str, type[BaseModel]] = {
    "api": ApiSettings,
    "tasks": TaskSettings,
    "limits": LimitSettings,
    "budget": BudgetSettings,
    "fence": FenceSettings,
    "log": LogSettings,
    "traces": TraceSettings,
    "otel": OtelSettings,
}


def _known(where: KeyPath) -> tuple[str, ...]:
    if not where:
        return tuple(SettingsFile.model_fields)
    of_names: dict[object, type[BaseModel]] = {"people": Person, "prices": PriceSettings}
    section = of_names.get(where[0]) or _SECTIONS.get(str(where[0]))
    return tuple(section.model_fields) if section else ()


def _under_environment(document: dict[str, Any]) -> Settings:
    try:
        return Settings(**document)
    except SettingsError as error:
        found = Finding(Severity.ERROR, str(error), "environment", field=ENV_PREFIX + "*")
        raise ConfigErrors((found.as_error(),)) from None
    except ValidationError as error:
        # The file alone was found right, so what is wrong comes from the environment.
        report = Report("environment", lambda where: (None, None))
        report.invalid(error.errors(include_url=False), _known)
        raise ConfigErrors(
            tuple(as_variable(each).as_error() for each in report.findings)
        ) from None


def _agent_layer(
    table: str, written: Mapping[str, Any], under: Mapping[str, Any], report: Report
) -> AgentLayer:
    """The layer of what stands in the file, ``under`` the environment."""
    values = typed(table, (), under, written)
    if "name" in values:
        report.error((table, "name"), f"[{table}] has no name", "remove the key")
    given = {key: value for key, value in values.items() if key != "name"}
    checked = check_values(given, (table,), report, report.locate, has_name=False)
    if table == "main" and given.get("enabled") is False:
        report.error((table, "enabled"), "the main agent can't be disabled", "remove the key")
    silent = Report("config.toml", report.locate)
    in_file = check_values(
        {key: value for key, value in written.items() if key != "name"},
        (table,),
        silent,
        report.locate,
        has_name=False,
    )
    return AgentLayer(checked.values, checked.locate, beyond(checked.values, in_file.values))


def _check_identities(values: dict[str, Any], report: Report) -> None:
    """What belongs to one agent alone can't be everyone's default."""
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


def unknown_variables(environ: Mapping[str, str] | None = None) -> tuple[Finding, ...]:
    """Warnings for `AGENTSUP_*` variables that look like a setting and are none."""
    environ = os.environ if environ is None else environ
    known = [ENV_PREFIX + name.upper() for name in SettingsFile.model_fields]
    found: list[Finding] = []
    for name in environ:
        hint = did_you_mean(name, known) if name.startswith(ENV_PREFIX) else None
        if hint and "__" not in name and name.upper() not in known and name not in OWN_VARIABLES:
            message = "this environment variable is no setting"
            found.append(Finding(Severity.WARNING, message, "environment", field=name, hint=hint))
    return tuple(found)


OWN_VARIABLES = frozenset(
    {
        f"{ENV_PREFIX}{name}"
        for name in ("HOME", "URL", "TOKEN", "AGENT", "TASK", "FAULT", "FAULT_LOG")
    }
)
"""Variables that are no settings: the home, and what engines are handed."""
