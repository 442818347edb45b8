"""One pipeline for every call: registered tools, effects of an engine, and a CLI's own calls; and the
live registry of its stages, which ``/hooks`` shows."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from agentsup.kit import faults
from agentsup.kit.clock import Clock
from agentsup.kit.log import get_logger
from agentsup.mailbox.work import Journal, Replay, bounded
from agentsup.model.errors import AgentsupError, Conflict, LeaseLost, StoreUnavailable
from agentsup.model.hook import (
    Allow,
    CallFacts,
    ChangeHook,
    Deny,
    GateHook,
    Hook,
    Phase,
    SubagentFacts,
    SubagentGate,
    SubagentWatch,
    Suspend,
    Verdict,
    WatchHook,
)
from agentsup.model.tool import Effect, ToolResult

_ORDER = {phase: number for number, phase in enumerate(Phase)}

H = TypeVar("H", bound=Hook)
_log = get_logger(__name__)

PASSING = (LeaseLost, StoreUnavailable)
"""Errors that must reach the stack: no stage and no tool may turn them into a result."""

Execute = Callable[[dict[str, Any]], Awaitable[str]]


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
        """Ask every stage whether a run may be started. Returns the first denial, or None. A stage
        that fails denies."""
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


class Pipeline:
    """Passes calls through their stages. Shared by all agents; it has no state of a call."""

    def __init__(self, hooks: Hooks, journal: Journal, clock: Clock) -> None:
        self.hooks = hooks
        self._journal = journal
        self._clock = clock

    async def admit(self, call: CallFacts) -> tuple[CallFacts, Deny | Suspend | None]:
        """Pass the gates in order. Returns the call with its admitted arguments, and what stopped
        it, if anything."""
        for gate in self.hooks.of(GateHook):
            verdict = await self._ask(gate, call)
            if isinstance(verdict, Deny | Suspend):
                return call, verdict
            call, problem = self.edited(call, verdict)
            if problem is not None:
                return call, problem
        return call, None

    @staticmethod
    def edited(call: CallFacts, verdict: Allow) -> tuple[CallFacts, Deny | None]:
        """The call with the arguments of ``verdict``, and a denial if the policy refuses those."""
        if verdict.args is None:
            return call, None
        call = replace(call, args=verdict.args)
        reason = call.check(call.args) if call.check is not None else None
        return call, None if reason is None else Deny(reason, "policy")

    async def denied(self, call: CallFacts, why: Deny) -> ToolResult:
        """The result of a call that is not made; it is reported to the observers."""
        result = ToolResult(False, why.reason, why.code)
        self._observe(call, result, 0.0)
        return result

    def recalled(self, call: CallFacts, replay: Replay) -> ToolResult:
        """The result of a call that was made before, from the journal."""
        result = ToolResult(replay.ok, replay.text, replay.code, replayed=True)
        self._observe(call, result, 0.0)
        return result

    async def carry_out(
        self,
        call: CallFacts,
        execute: Execute,
        *,
        asked: dict[str, Any],
        fence: int,
        began: Callable[[], None],
    ) -> ToolResult:
        """Journal, execute, redact, store, observe. ``asked`` are the arguments as the model gave
        them: they identify the call, even if a person edited them. ``began`` is called if the call
        is really made, when it begins.

        Raises ``LeaseLost``, ``StoreUnavailable``, and what ``Journal.begin`` raises.
        """
        began_at = self._clock.monotonic()
        replay = await self._journal.begin(
            call.call_id, call.message_id, fence, call.name, call.effect, asked
        )
        if replay is not None:
            return self.recalled(call, replay)
        faults.point("journal.after_intent")
        began()
        result = await self._executed(call, execute)
        faults.point("journal.after_effect")
        result = await self.shown(call, result)
        if call.effect is Effect.READ:
            stored = bounded(result.text)
        else:
            stored = await self._journal.finish(call.call_id, result.ok, result.text, result.code)
        faults.point("journal.after_result")
        result = replace(result, text=stored)
        self._observe(call, result, self._clock.monotonic() - began_at)
        return result

    async def shown(self, call: CallFacts, result: ToolResult) -> ToolResult:
        """The result as the model may see it."""
        for change in self.hooks.of(ChangeHook):
            try:
                result = await change.run(call, result)
            except PASSING:
                raise
            except Exception:  # noqa: BLE001 - supervision boundary: a hook is anyone's code
                _log.exception("a stage failed", hook=change.name, tool=call.name)
                text = f"(the result of {call.name} is withheld: {change.name} failed)"
                return replace(result, text=text)
        return result

    # -- inside ------------------------------------------------------------------------------------

    async def _ask(self, gate: GateHook, call: CallFacts) -> Verdict:
        try:
            return await gate.run(call)
        except PASSING:
            raise
        except Exception as error:  # noqa: BLE001 - supervision boundary: a hook is anyone's code
            _log.exception("a stage failed", hook=gate.name, tool=call.name)
            return Deny(f"the check {gate.name} failed ({type(error).__name__})", "hook_failed")

    @staticmethod
    async def _executed(call: CallFacts, execute: Execute) -> ToolResult:
        try:
            return ToolResult(True, await execute(call.args))
        except PASSING:
            raise
        except AgentsupError as error:
            return ToolResult(False, error.message, error.code)
        except Exception as error:  # noqa: BLE001 - supervision boundary: a tool's bug ends the call
            _log.exception("tool failed", tool=call.name)
            text = f"the tool {call.name} failed: {type(error).__name__}: {error}"
            return ToolResult(False, text, "tool_failed")

    def _observe(self, call: CallFacts, result: ToolResult, seconds: float) -> None:
        for watch in self.hooks.of(WatchHook):
            try:
                watch.run(call, result, seconds)
            except Exception:  # noqa: BLE001 - supervision boundary: a hook is anyone's code
                _log.exception("a stage failed", hook=watch.name, tool=call.name)
