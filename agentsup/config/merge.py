"""One documented deep merge, with the origin of every value.

Built-in defaults < ``[agent_defaults]`` < ``[main]`` (main alone) < entry < operator's override.
Blocks merge key by key; texts, numbers and lists replace. Pure: no file, no clock. Serves P4.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from sys import intern
from typing import Any

from agentsup.config import mcp, secrets
from agentsup.model.agent import BLOCKS, FIELDS, AgentSpec
from agentsup.model.secret import Secret


class ValueOrigin(StrEnum):
    """The layer that gave a value."""

    BUILT_IN = "built-in"
    AGENT_DEFAULTS = "config.toml [agent_defaults]"
    MAIN = "config.toml [main]"
    ENTRY = "agents.json"
    DEFAULTS_ENVIRONMENT = "environment AGENTSUP_AGENT_DEFAULTS__"
    MAIN_ENVIRONMENT = "environment AGENTSUP_MAIN__"
    OVERRIDE = "override"

    def named(self, path: str) -> str:
        """The origin of the value at ``path`` for people; a variable by its full name."""
        return (
            self.value + path.upper().replace(".", "__") if self in OF_ENVIRONMENT else self.value
        )


OF_ENVIRONMENT = frozenset({ValueOrigin.DEFAULTS_ENVIRONMENT, ValueOrigin.MAIN_ENVIRONMENT})


@dataclass(frozen=True, slots=True)
class Layer:
    """The values of one origin: only the keys that it sets."""

    origin: ValueOrigin
    values: Mapping[str, Any] = field(repr=False)  # may hold secrets in clear


@dataclass(frozen=True, slots=True)
class ExplainedValues:
    """Merged values as nested blocks, and the origin of every leaf by its dotted path."""

    values: Mapping[str, Any] = field(repr=False)  # may hold secrets in clear
    origins: Mapping[str, ValueOrigin]

    def origin(self, path: str) -> ValueOrigin:
        """The origin of the value at ``path``: its own, or that of a value around it or in it."""
        within = next((each for each in self.origins if each.startswith(f"{path}.")), "")
        while path and path not in self.origins:
            path = path.rpartition(".")[0]
        return self.origins.get(path or within, ValueOrigin.BUILT_IN)


def merge(layers: Iterable[Layer]) -> ExplainedValues:
    """Merge layers; later ones win, key by key."""
    values: dict[str, Any] = {}
    origins: dict[str, ValueOrigin] = {}
    for layer in layers:
        _merge_into(values, layer.values, "", layer.origin, origins)
    return ExplainedValues(values, origins)


def _merge_into(
    target: dict[str, Any],
    values: Mapping[str, Any],
    prefix: str,
    origin: ValueOrigin,
    origins: dict[str, ValueOrigin],
) -> None:
    for key, value in values.items():
        path = intern(f"{prefix}{key}")  # of all agents
        known = target.get(key)
        if isinstance(value, Mapping) and isinstance(known, dict):
            if value:
                origins.pop(path, None)  # an empty block has its own origin
                _merge_into(known, value, f"{path}.", origin, origins)
            elif not known:
                origins[path] = origin
            continue
        if isinstance(known, dict):
            _forget(origins, path)
        origins.pop(path, None)
        if isinstance(value, Mapping) and value:
            target[key] = {}
            _merge_into(target[key], value, f"{path}.", origin, origins)
        else:
            target[key] = {} if isinstance(value, Mapping) else value
            origins[path] = origin


def _forget(origins: dict[str, ValueOrigin], path: str) -> None:
    """Drop the origins of a block's keys, after a value replaced the block."""
    for each in [known for known in origins if known.startswith(f"{path}.")]:
        del origins[each]


def built_in() -> Layer:
    """The defaults of ``AgentSpec`` as a layer."""
    spec = AgentSpec(name="x")
    values = {
        each.name: _plain(getattr(spec, each.name))
        for each in dataclasses.fields(AgentSpec)
        if each.name != "name"
    }
    return Layer(ValueOrigin.BUILT_IN, values)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def build_spec(values: Mapping[str, Any]) -> AgentSpec:
    """The frozen spec of merged values, which were checked layer by layer."""
    made: dict[str, Any] = {}
    for key, value in values.items():
        if key in ("engine_options", "fallback_options"):
            made[key] = secrets.protect(value)
        elif key == "mcp":
            made[key] = mcp.protect_servers(value)
        elif key in BLOCKS:
            made[key] = BLOCKS[key](
                **{each: _frozen(f"{key}.{each}", inner) for each, inner in value.items()}
            )
        else:
            made[key] = _frozen(key, value)
    return AgentSpec(**made)


def _frozen(path: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if FIELDS[path].secret and isinstance(value, str):
        return Secret(value)
    return value


def leaves(spec: AgentSpec) -> dict[str, Any]:
    """Every value of a spec by dotted path: blocks key by key, engine options by top key."""
    found: dict[str, Any] = {}
    for each in dataclasses.fields(spec):
        value = getattr(spec, each.name)
        if each.name in BLOCKS:
            for inner in dataclasses.fields(value):
                found[f"{each.name}.{inner.name}"] = getattr(value, inner.name)
        elif each.name in ("engine_options", "fallback_options", "mcp"):
            found.update({f"{each.name}.{key}": inner for key, inner in value.items()})
        else:
            found[each.name] = value
    return found


def digest(value: Any) -> str:
    """A short stable digest of plain merged values, to detect a change of a file's value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
