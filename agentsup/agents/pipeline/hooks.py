"""The live registry of stages: what ``/hooks`` shows is what a call passes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from agentsup.model.errors import Conflict
from agentsup.model.hook import (
    Deny,
    Hook,
    Phase,
    SubagentFacts,
    SubagentGate,
    SubagentWatch,
    Suspend,
)
from agentsup.observe.logging import get_logger

_log = get_logger(__name__)
_ORDER = {phase: number for number, phase in enumerate(Phase)}

H = TypeVar("H", bound=Hook)


@dataclass(frozen=True, slots=True)
class HookRow:
    """One stage, as people see it."""

    phase: str
    priority: int
    name: str
    is_on: bool
    is_fixed: bool
    about: str

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        return {
            "phase": self.phase,
            "priority": self.priority,
            "name": self.name,
            "on": self.is_on,
            "fixed": self.is_fixed,
            "about": self.about,
        }


class Hooks:
    """Stages by phase, priority and order of arrival; names are unique."""

    def __init__(
        self,
        hooks: Iterable[Hook] = (),
        *,
        switches: Callable[[], Mapping[str, bool]] = dict,
    ) -> None:
        """``switches`` is asked at each use: the settings that turn stages on and off by name."""
        self._numbers = itertools.count()
        self._hooks: list[tuple[tuple[int, int, int], Hook]] = []
        self._switches = switches
        for hook in hooks:
            self.add(hook)

    def add(self, hook: Hook) -> None:
        """Put a stage in its place. Raises ``Conflict`` for a second one of the same name."""
        if any(known.name == hook.name for _, known in self._hooks):
            raise Conflict(f"two stages are called {hook.name}", hook=hook.name)
        place = (_ORDER[hook.phase], hook.priority, next(self._numbers))
        self._hooks.append((place, hook))
        self._hooks.sort(key=lambda pair: pair[0])

    def remove(self, name: str) -> None:
        """Take a stage out, if it is there and not fixed."""
        self._hooks = [
            (place, hook) for place, hook in self._hooks if hook.name != name or hook.is_fixed
        ]

    def of(self, kind: type[H]) -> tuple[H, ...]:
        """The stages of that kind that are on, in their order."""
        switches = self._switches()
        return tuple(
            hook for _, hook in self._hooks if isinstance(hook, kind) and _is_on(hook, switches)
        )

    def rows(self) -> tuple[HookRow, ...]:
        """All stages, those that are off included."""
        switches = self._switches()
        return tuple(
            HookRow(
                hook.phase.value,
                hook.priority,
                hook.name,
                _is_on(hook, switches),
                hook.is_fixed,
                hook.about,
            )
            for _, hook in self._hooks
        )

    def unknown_switches(self) -> tuple[str, ...]:
        """Names in the settings that switch nothing: unknown stages, and fixed ones."""
        known = {hook.name for _, hook in self._hooks if not hook.is_fixed}
        return tuple(sorted(name for name in self._switches() if name not in known))

    # -- sub-agents --------------------------------------------------------------------------------

    async def subagent_spawning(self, facts: SubagentFacts) -> Deny | None:
        """Whether a run may be started: None, or the first denial. A stage that fails denies."""
        for hook in self.of(SubagentGate):
            try:
                verdict = await hook.run(facts)
            except Exception as error:  # noqa: BLE001 - supervision boundary: a hook is anyone's code
                _log.exception("a stage failed", hook=hook.name)
                return Deny(f"the check {hook.name} failed ({type(error).__name__})", "hook_failed")
            if isinstance(verdict, Suspend):
                return Deny(f"{hook.name} can't ask about a run that is not started yet")
            if isinstance(verdict, Deny):
                return verdict
        return None

    def subagent_ended(self, facts: SubagentFacts) -> None:
        """A run has ended with ``facts.outcome``. One listener's failure hides nothing from others."""
        for hook in self.of(SubagentWatch):
            try:
                hook.run(facts)
            except Exception:  # noqa: BLE001 - supervision boundary: a hook is anyone's code
                _log.exception("a stage failed", hook=hook.name)


def _is_on(hook: Hook, switches: Mapping[str, bool]) -> bool:
    return hook.is_on if hook.is_fixed else switches.get(hook.name, hook.is_on)
