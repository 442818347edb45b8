"""The live registry of stages. ``/hooks`` shows the stages that a call passes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from agentsup.kit.log import get_logger
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

_log = get_logger(__name__)
_ORDER = {phase: number for number, phase in enumerate(Phase)}

H = TypeVar("H", bound=Hook)


class Hooks:
    """Stages in order of phase, priority and registration; names are unique."""

    def __init__(
        self,
        hooks: Iterable[Hook] = (),
        *,
        switches: Callable[[], Mapping[str, bool]] = dict,
    ) -> None:
        """``switches`` returns the settings that turn stages on and off by name, and is called at
        each use."""
        self._numbers = itertools.count()
        self._hooks: list[tuple[tuple[int, int, int], Hook]] = []
        self._switches = switches
        for hook in hooks:
            self.add(hook)

    def add(self, hook: Hook) -> None:
        """Add a stage in its order. Raises ``Conflict`` if there is one of the same name."""
        if any(known.name == hook.name for _, known in self._hooks):
            raise Conflict(f"two stages are called {hook.name}", hook=hook.name)
        position = (_ORDER[hook.phase], hook.priority, next(self._numbers))
        self._hooks.append((position, hook))
        self._hooks.sort(key=lambda pair: pair[0])

    def remove(self, name: str) -> None:
        """Remove a stage, if it is there and not fixed."""
        self._hooks = [
            (position, hook) for position, hook in self._hooks if hook.name != name or hook.is_fixed
        ]

    def of(self, kind: type[H]) -> tuple[H, ...]:
        """The stages of that kind that are on, in their order."""
        switches = self._switches()
        return tuple(
            hook for _, hook in self._hooks if isinstance(hook, kind) and _is_on(hook, switches)
        )

    def rows(self) -> tuple[Hook, ...]:
        """All stages, on or off as the settings say."""
        switches = self._switches()
        return tuple(replace(hook, is_on=_is_on(hook, switches)) for _, hook in self._hooks)

    def unknown_switches(self) -> tuple[str, ...]:
        """Names in the settings that have no effect: unknown stages, and fixed ones."""
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
        """Report that a run ended with ``facts.outcome``. A listener's failure is only logged."""
        for hook in self.of(SubagentWatch):
            try:
                hook.run(facts)
            except Exception:  # noqa: BLE001 - supervision boundary: a hook is anyone's code
                _log.exception("a stage failed", hook=hook.name)


def _is_on(hook: Hook, switches: Mapping[str, bool]) -> bool:
    return hook.is_on if hook.is_fixed else switches.get(hook.name, hook.is_on)
