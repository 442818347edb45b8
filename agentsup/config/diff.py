"""What changed between two snapshots, and what each change takes. Pure.

An agent that did not change does not appear, so nothing can touch it. Serves promise P4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentsup.config.merge import leaves
from agentsup.config.settings import Settings, setting_class
from agentsup.config.snapshot import ClearedOverride, ConfigSnapshot
from agentsup.model.agent import AgentSpec, FieldClass, field_info


@dataclass(frozen=True, slots=True)
class Change:
    """One field's old and new value (secrets stay `Secret`), and what the change takes."""

    old: Any
    new: Any
    cls: FieldClass


Changes = Mapping[str, Change]
"""Changes by dotted field path."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The way from one snapshot to another."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: Mapping[str, Changes] = field(default_factory=dict)
    settings: Changes = field(default_factory=dict)
    cleared: tuple[ClearedOverride, ...] = ()
    """Overrides that an edit of their field ended; the caller forgets and reports them."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do and nothing to tell."""
        return not (self.added or self.removed or self.changed or self.settings or self.cleared)

    @property
    def rebuild(self) -> tuple[str, ...]:
        """Changed agents that must be drained and built anew."""
        return tuple(name for name, changes in self.changed.items() if _needs_rebuild(changes))

    @property
    def live(self) -> tuple[str, ...]:
        """Changed agents that work on: publishing the new spec is all, a channel may reconnect."""
        return tuple(name for name, changes in self.changed.items() if not _needs_rebuild(changes))

    @property
    def enabled(self) -> Mapping[str, bool]:
        """Agents whose `enabled` was turned, with its new value."""
        turned = {name: changes.get("enabled") for name, changes in self.changed.items()}
        return {name: bool(change.new) for name, change in turned.items() if change is not None}

    @property
    def needs_restart(self) -> tuple[str, ...]:
        """Settings that take effect only when the daemon is started again."""
        return tuple(
            path for path, change in self.settings.items() if change.cls is FieldClass.PROCESS
        )


def takes_rebuild(cls: FieldClass) -> bool:
    """Whether a change of this class takes effect only when the agent is built anew."""
    return cls not in (FieldClass.LIVE, FieldClass.CHANNEL)


def _needs_rebuild(changes: Changes) -> bool:
    return any(takes_rebuild(change.cls) for change in changes.values())


def diff(old: ConfigSnapshot, new: ConfigSnapshot) -> Plan:
    """The plan that leads from `old` to `new`."""
    changed = {
        name: changes
        for name, spec in new.specs.items()
        if name in old.specs and (changes := diff_specs(old.specs[name], spec))
    }
    return Plan(
        added=tuple(name for name in new.specs if name not in old.specs),
        removed=tuple(name for name in old.specs if name not in new.specs),
        changed=changed,
        settings=diff_settings(old.settings, new.settings),
        cleared=tuple(each for each in new.cleared if each not in old.cleared),
    )


def diff_specs(old: AgentSpec, new: AgentSpec) -> dict[str, Change]:
    """The fields that differ between two specs of one agent, in the order of the table."""
    if old == new:
        return {}
    before, after = leaves(old), leaves(new)
    found: dict[str, Change] = {}
    for path in (*after, *(each for each in before if each not in after)):
        one, other = before.get(path), after.get(path)
        if one != other or type(one) is not type(other):
            found[path] = Change(one, other, field_info(path).cls)
    return found


def diff_settings(old: Settings, new: Settings) -> dict[str, Change]:
    """The daemon's settings that differ; `[main]` and `[agent_defaults]` show in the specs."""
    layers = {"main", "agent_defaults"}
    before = _flat(old.model_dump(exclude=layers))
    after = _flat(new.model_dump(exclude=layers))
    return {
        path: Change(before.get(path), after.get(path), setting_class(path))
        for path in (*after, *(each for each in before if each not in after))
        if before.get(path) != after.get(path)
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found.update(_flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found
