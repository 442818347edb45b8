"""The differences between two snapshots, and how each change takes effect. Pure.

An agent that did not change is not in the result, so nothing can affect it. Serves promise P4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentsup.config.explain import flat
from agentsup.config.merge import leaves
from agentsup.config.settings import Settings, setting_class
from agentsup.config.snapshot import ClearedOverride, ConfigSnapshot
from agentsup.model.agent import AgentSpec, field_info
from agentsup.model.agent_fields import FieldClass


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field's old and new value (secrets stay ``Secret``), and how the change takes effect."""

    old: Any
    new: Any
    cls: FieldClass


Changes = Mapping[str, FieldChange]
"""Changes by dotted field path."""


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The changes that lead from one snapshot to another."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: Mapping[str, Changes] = field(default_factory=dict)
    settings: Changes = field(default_factory=dict)
    cleared: tuple[ClearedOverride, ...] = ()
    """Overrides that an edit of their field ended; the caller must remove and report them."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to apply and nothing to report."""
        return not (self.added or self.removed or self.changed or self.settings or self.cleared)

    @property
    def rebuild(self) -> tuple[str, ...]:
        """Changed agents that must be drained and rebuilt."""
        return tuple(name for name, changes in self.changed.items() if _needs_rebuild(changes))

    @property
    def live(self) -> tuple[str, ...]:
        """Changed agents that go on running: they only get the new spec, and a channel may
        reconnect."""
        return tuple(name for name, changes in self.changed.items() if not _needs_rebuild(changes))

    @property
    def enabled(self) -> Mapping[str, bool]:
        """Agents whose ``enabled`` changed, with its new value."""
        turned = {name: changes.get("enabled") for name, changes in self.changed.items()}
        return {name: bool(change.new) for name, change in turned.items() if change is not None}

    @property
    def needs_restart(self) -> tuple[str, ...]:
        """Changed settings that take effect only at the next start of the daemon."""
        return tuple(
            path for path, change in self.settings.items() if change.cls is FieldClass.PROCESS
        )


def takes_rebuild(cls: FieldClass) -> bool:
    """Whether a change of this class takes effect only when the agent is rebuilt."""
    return cls not in (FieldClass.LIVE, FieldClass.CHANNEL)


def _needs_rebuild(changes: Changes) -> bool:
    return any(takes_rebuild(change.cls) for change in changes.values())


def diff(old: ConfigSnapshot, new: ConfigSnapshot) -> ChangePlan:
    """The plan that leads from ``old`` to ``new``."""
    changed = {
        name: changes
        for name, spec in new.specs.items()
        if name in old.specs and (changes := diff_specs(old.specs[name], spec))
    }
    return ChangePlan(
        added=tuple(name for name in new.specs if name not in old.specs),
        removed=tuple(name for name in old.specs if name not in new.specs),
        changed=changed,
        settings=diff_settings(old.settings, new.settings),
        cleared=tuple(each for each in new.cleared if each not in old.cleared),
    )


def diff_specs(old: AgentSpec, new: AgentSpec) -> dict[str, FieldChange]:
    """The fields that differ between two specs of one agent, in the order of the table."""
    if old == new:
        return {}
    return _changes(leaves(old), leaves(new), lambda path: field_info(path).cls)


def diff_settings(old: Settings, new: Settings) -> dict[str, FieldChange]:
    """The daemon's settings that differ. ``[main]`` and ``[agent_defaults]`` are in the specs."""
    before, after = (
        flat(each.model_dump(exclude={"main", "agent_defaults"})) for each in (old, new)
    )
    return _changes(before, after, setting_class)


def _changes(
    before: Mapping[str, Any], after: Mapping[str, Any], class_of: Callable[[str], FieldClass]
) -> dict[str, FieldChange]:
    found: dict[str, FieldChange] = {}
    for path in (*after, *(each for each in before if each not in after)):
        old, new = before.get(path), after.get(path)
        if old != new or type(old) is not type(new):
            found[path] = FieldChange(old, new, class_of(path))
    return found
