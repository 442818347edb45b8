"""One immutable snapshot of everything declared: the running set is built from it alone.

``load`` reads the files, checks them and merges the layers; it blocks on the disk, so the daemon
calls it in a thread. Any error raises and nothing is applied: the caller keeps its last snapshot.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agentsup.config.agents_file import (
    MAX_BYTES,
    AgentsFile,
    DeclaredAgent,
    parse_agents,
)
from agentsup.config.crosscheck import (
    LocateField,
    Where,
    as_warnings,
    cross_check,
    secret_values_of,
    unknown_names,
)
from agentsup.config.findings import (
    ConfigFinding,
    KeyPath,
    Severity,
    did_you_mean,
    field_path,
    raise_errors,
)
from agentsup.config.home import Home
from agentsup.config.home_environment import read_environment
from agentsup.config.merge import (
    OF_ENVIRONMENT,
    ExplainedValues,
    Layer,
    ValueOrigin,
    build_spec,
    built_in,
    digest,
    merge,
)
from agentsup.config.override_rules import override_problem
from agentsup.config.settings import LoadedSettings, Settings, parse_settings, unknown_variables
from agentsup.kit.safe_files import read_plain
from agentsup.model.agent import MAIN, AgentSpec
from agentsup.model.errors import BadRequest, ConfigErrors, NotFound
from agentsup.model.name import BUILTIN_ROLES
from agentsup.model.platforms import PLATFORMS
from agentsup.model.secret import Secret


@dataclass(frozen=True, slots=True)
class Override:
    """An operator's value for one field, and a digest of the files' value at that time.

    The override holds while the digest matches; when the files' value changes, it is cleared.
    """

    value: Any
    base: str


Overrides = Mapping[str, Mapping[str, Override]]
"""Overrides by agent name and dotted field path (``model``, ``streaming.mode``)."""


Check = Callable[[AgentSpec, LocateField, Path], Iterable[ConfigFinding]]
"""A further check of an agent, given its spec, a function for locations, and the home's root."""


@dataclass(frozen=True, slots=True)
class ClearedOverride:
    """An override that ended, because its field was edited in a file or can't be overridden."""

    agent: str
    field: str
    reason: str


@dataclass(frozen=True, slots=True)
class ConfigSnapshot:
    """Everything declared at one moment. ``specs`` holds main first, then the file's order."""

    home: Home
    specs: Mapping[str, AgentSpec]
    explained: Mapping[str, ExplainedValues]
    declared: Mapping[str, ExplainedValues]
    """The merged values without overrides, as the files have them."""
    settings: Settings
    warnings: tuple[ConfigFinding, ...] = ()
    cleared: tuple[ClearedOverride, ...] = ()
    file_hashes: Mapping[str, str | None] = field(default_factory=dict)
    """Content hash by file name, None for a file that does not exist; the watcher compares with
    these."""
    content_hash: str = ""

    def find(self, name: str) -> AgentSpec | None:
        """The spec of the agent called ``name``, in any case; None if there is none."""
        if name in self.specs:
            return self.specs[name]
        fold = name.casefold()
        return next((spec for each, spec in self.specs.items() if each.casefold() == fold), None)

    def require(self, name: str) -> AgentSpec:
        """As ``find``. Raises ``NotFound`` with the closest name."""
        if (spec := self.find(name)) is not None:
            return spec
        hint = did_you_mean(name, self.specs)
        known = ", ".join(self.specs)
        there = f"there is no agent called {name[:64]!r}."
        raise NotFound(
            " ".join(filter(None, (there, hint, f"Agents: {known}"))),
            kind="agent",
            name=name[:64],
            did_you_mean=hint,
        )

    def override(self, agent: str, path: str, value: Any) -> Override:
        """The override to store so that ``path`` of ``agent`` becomes ``value``.

        Raises ``NotFound`` for an unknown agent, ``BadRequest`` for a field that can't be
        overridden or a value of the wrong type.
        """
        name = self.require(agent).name
        if problem := override_problem(path, value):
            raise BadRequest(problem, field=path)
        return Override(value, digest(_value_at(self.declared[name].values, path)))

    def secrets(self) -> tuple[Secret, ...]:
        """Every secret of every agent, for redaction by value in the log."""
        return tuple(each for spec in self.specs.values() for each in secret_values_of(spec))


def load(
    home: Home,
    overrides: Overrides | None = None,
    *,
    previous: ConfigSnapshot | None = None,
    environ: Mapping[str, str] | None = None,
    checks: Sequence[Check] = (),
    content: Mapping[str, bytes | OSError] | None = None,
    is_start: bool = False,
) -> ConfigSnapshot:
    """Read, check and merge everything declared in ``home``. Blocks on the disk.

    ``environ``: by default the process's environment with the home's file. ``checks`` are further
    checks of each agent; their findings are treated as those of unknown names. ``content`` gives the
    content of the two files, by name, if they have been read already. ``is_start``: the daemon
    starts from this snapshot; unknown names, which an earlier version accepted, are warnings.

    A missing file counts as empty, unless ``previous`` had it, or without ``previous`` the copy
    applied last: then it is an error, since a file that vanished must not remove agents. Raises
    ``ConfigErrors`` with every finding.
    """
    declared_environment = read_environment(home)
    environ = declared_environment.beside(os.environ) if environ is None else environ
    found: list[ConfigFinding] = []
    declaring = (home.config_toml, home.agents_json)
    given = content or {}
    content = {
        path.name: given[path.name] if path.name in given else _content(path) for path in declaring
    }
    still_declared = {path.name for path in declaring if _was_there(path, home, previous)}
    data = {
        path.name: _usable(path, content[path.name], still_declared, found) for path in declaring
    }
    raise_errors(found)
    loaded, declared = _parse(data["config.toml"], data["agents.json"])
    made = _Resolver(loaded, declared, overrides or {})
    found += [*loaded.warnings, *declared.warnings, *unknown_variables(environ)]
    found += declared_environment.findings
    found += cross_check(
        made.specs.values(),
        made.locate_value,
        base=home.root,
        environ=environ,
        has_people={
            platform.name
            for person in loaded.settings.people.values()
            for platform in PLATFORMS
            if getattr(person, platform.name)
        },
    )
    roles = (*BUILTIN_ROLES, *_roles_in(home.roles))

    def named(specs: Collection[AgentSpec], locate: LocateField) -> Iterator[ConfigFinding]:
        """Problems with the names in specs: roles, tools, agents, scripts."""
        yield from unknown_names(specs, locate, roles)
        for check in checks:
            for spec in specs:
                yield from check(spec, locate, home.root)

    running = () if previous is None else previous.specs.values()
    known = None if is_start else named(running, _nowhere)
    found += as_warnings(named(made.specs.values(), made.locate_value), known)
    raise_errors(found)
    hashes = {name: content_hash(content) for name, content in data.items()}
    shown = loaded.settings.model_dump_json()
    parts = [*map(str, hashes.values()), shown, repr(sorted(_plain(overrides or {})))]
    return ConfigSnapshot(
        home=home,
        specs=MappingProxyType(made.specs),
        explained=MappingProxyType(made.explained),
        declared=MappingProxyType(made.below),
        settings=loaded.settings,
        warnings=tuple(found),
        cleared=tuple(made.cleared),
        file_hashes=MappingProxyType(hashes),
        content_hash=hashlib.sha256("\0".join(parts).encode()).hexdigest(),
    )


def _plain(overrides: Overrides) -> list[tuple[str, str, str]]:
    return [
        (agent, path, digest(each.value))
        for agent, fields in overrides.items()
        for path, each in fields.items()
    ]


def _content(path: Path) -> bytes | OSError:
    try:
        return read_plain(path, MAX_BYTES + 1)
    except OSError as error:
        return error


def _was_there(path: Path, home: Home, previous: ConfigSnapshot | None) -> bool:
    """Whether a daemon of this home has applied the file before, so that its loss is an error."""
    if previous is not None:
        return previous.file_hashes.get(path.name) is not None
    return (home.applied / path.name).exists()


def _usable(
    path: Path, content: bytes | OSError, was_there: Container[str], found: list[ConfigFinding]
) -> bytes | None:
    if isinstance(content, bytes):
        return content
    hint = None
    if not isinstance(content, FileNotFoundError):
        reason = content.strerror or str(content) or type(content).__name__
        message = f"the file can't be read: {reason}"
    elif path.name not in was_there:
        return None
    else:
        message = "the file is gone; everything stays as it was"
        empty = "[] to remove all agents" if path.suffix == ".json" else "an empty file"
        hint = f"put it back (applied/{path.name} is a copy), or write {empty}"
    found.append(ConfigFinding(Severity.ERROR, message, path.name, 1, 1, "(file)", hint))
    return None


def _roles_in(directory: Path) -> tuple[str, ...]:
    """The roles of the home by name. Errors in a role are reported where roles are read."""
    try:
        return tuple(each.parent.name for each in sorted(directory.glob("*/AGENT.md")))
    except OSError:
        return ()


def content_hash(data: bytes | None) -> str | None:
    """The hash by which a file's content is compared; None for no file."""
    return None if data is None else hashlib.sha256(data).hexdigest()


def _parse(config: bytes | None, agents: bytes | None) -> tuple[LoadedSettings, AgentsFile]:
    """Parse both files, so that the errors of both are reported at once."""
    errors: list[Any] = []
    loaded: LoadedSettings | None = None
    declared: AgentsFile | None = None
    try:
        loaded = parse_settings(config)
    except ConfigErrors as error:
        errors += error.findings
    try:
        declared = AgentsFile() if agents is None else parse_agents(agents)
    except ConfigErrors as error:
        errors += error.findings
    if loaded is None or declared is None:
        raise ConfigErrors(tuple(errors))
    return loaded, declared


class _Resolver:
    """Merges the layers of every agent, and knows where each value was written."""

    def __init__(self, loaded: LoadedSettings, declared: AgentsFile, overrides: Overrides) -> None:
        self.specs: dict[str, AgentSpec] = {}
        self.explained: dict[str, ExplainedValues] = {}
        self.below: dict[str, ExplainedValues] = {}
        self.cleared: list[ClearedOverride] = []
        self._loaded = loaded
        self._entries: dict[str, DeclaredAgent] = {each.name: each for each in declared.entries}
        defaults = built_in()
        for name in (MAIN, *(each for each in self._entries if each != MAIN)):
            self._add(name, defaults, overrides.get(name, {}))

    def _add(self, name: str, defaults: Layer, overrides: Mapping[str, Override]) -> None:
        entry = self._entries.get(name)
        loaded = self._loaded
        layers = [
            defaults,
            Layer(ValueOrigin.AGENT_DEFAULTS, loaded.agent_defaults.values),
            Layer(ValueOrigin.DEFAULTS_ENVIRONMENT, loaded.agent_defaults.environment),
        ]
        if name == MAIN:
            layers.append(Layer(ValueOrigin.MAIN, loaded.main.values))
            layers.append(Layer(ValueOrigin.MAIN_ENVIRONMENT, loaded.main.environment))
        layers.append(Layer(ValueOrigin.ENTRY, {"name": name, **(entry.values if entry else {})}))
        below = explained = merge(layers)
        if valid := self._valid_overrides(name, overrides, below):
            explained = merge([*layers, Layer(ValueOrigin.OVERRIDE, valid)])
        self.below[name], self.explained[name] = below, explained
        self.specs[name] = build_spec(explained.values)

    def _valid_overrides(
        self, name: str, overrides: Mapping[str, Override], below: ExplainedValues
    ) -> dict[str, Any]:
        valid: dict[str, Any] = {}
        for path, each in overrides.items():
            reason = override_problem(path, each.value)
            if reason is None and digest(_value_at(below.values, path)) != each.base:
                reason = "the field was edited in a file"
            if reason is not None:
                self.cleared.append(ClearedOverride(name, path, reason))
                continue
            block, dot, key = path.partition(".")
            if dot:
                valid.setdefault(block, {})[key] = each.value
            else:
                valid[block] = each.value
        return valid

    def locate_value(self, name: str, where: KeyPath) -> Where:
        """The source of the value at ``where`` of an agent."""
        path = ".".join(str(part) for part in where if isinstance(part, str))
        origin = self.explained[name].origin(path)
        entry = self._entries.get(name)
        if origin is ValueOrigin.ENTRY and entry is not None:
            return Where("agents.json", *entry.locate(where), f"{name}.{field_path(where)}")
        if origin is ValueOrigin.OVERRIDE:
            return Where("override", None, None, f"{name}.{field_path(where)}")
        if origin in OF_ENVIRONMENT:
            return Where("environment", None, None, origin.named(path).removeprefix("environment "))
        layer = self._loaded.main if origin is ValueOrigin.MAIN else self._loaded.agent_defaults
        table = "main" if origin is ValueOrigin.MAIN else "agent_defaults"
        return Where("config.toml", *layer.locate(where), f"{table}.{field_path(where)}")


def _nowhere(name: str, where: KeyPath) -> Where:
    """An empty location, for findings that are only compared and never shown."""
    return Where("", None, None, "")


def _value_at(values: Mapping[str, Any], path: str) -> Any:
    value: Any = values
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
