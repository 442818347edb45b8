"""The stages that every daemon has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from agentsup.agents.pipeline import ceiling
from agentsup.agents.pipeline.marking import allowance, head_and_tail, marked, without_personal_data
from agentsup.agents.pipeline.pipeline import Hooks
from agentsup.agents.pipeline.results import ResultStore
from agentsup.kit.compute import compute
from agentsup.kit.log import get_logger
from agentsup.model.hook import (
    Allow,
    Approver,
    CallFacts,
    ChangeHook,
    Deny,
    GateHook,
    Hook,
    Phase,
    Verdict,
    WatchHook,
)
from agentsup.model.tool import ToolResult
from agentsup.observe import Redactor

_log = get_logger(__name__)

Change = Callable[[CallFacts, ToolResult], Awaitable[ToolResult]]

MAX_CALLS = 200
"""The most calls in one turn; a model that makes more is assumed to loop."""
MAX_ARGUMENT_CHARS = 1_000_000
_LONG_CHARS = 50_000
"""A longer text is searched in a thread."""
_MAX_DEPTH = 32


def default_hooks(
    *,
    redactor: Redactor,
    results: ResultStore,
    approver: Approver,
    switches: Callable[[], Mapping[str, bool]] = dict,
    exhausted: Callable[[str], str | None] = lambda message_id: None,
) -> Hooks:
    """The stages of the pipeline in their order. ``switches`` returns the section ``[hooks]`` of
    the settings; ``exhausted(message_id)`` returns why a turn's budget is used up, or None."""
    return Hooks(
        (
            Hook(
                name="trace",
                phase=Phase.TRACE,
                about="number the call, take the time, and meet a call that was made before",
                is_fixed=True,
            ),
            _gate("policy", Phase.POLICY, "refuse what is out of the question for anyone", _policy),
            _gate("ceiling", Phase.CEILING, "refuse what is not among the agent's tools", _ceiling),
            _gate(
                "approval", Phase.APPROVAL, "allow, deny, or ask a person first", approver.decide
            ),
            _gate(
                "budget",
                Phase.BUDGET,
                f"refuse more than {MAX_CALLS} calls a turn, and any once its budget is used up",
                _budget(exhausted),
            ),
            Hook(
                name="journal",
                phase=Phase.JOURNAL,
                about="commit the intent before a call and its result after it",
                is_fixed=True,
            ),
            Hook(name="execute", phase=Phase.EXECUTE, about="carry it out", is_fixed=True),
            _change(
                "redact", Phase.REDACT, "mask the daemon's secrets", 10, _on_text(redactor.text)
            ),
            ChangeHook(
                name="personal_data",
                phase=Phase.REDACT,
                about="name mail addresses, bank, card and telephone numbers instead of showing them",
                priority=20,
                is_on=False,
                run=_on_text(without_personal_data),
            ),
            _change(
                "store", Phase.STORE, "keep a large result and show its ends", 10, _storing(results)
            ),
            _change("outside", Phase.STORE, "mark what others have written as data", 20, _marking),
            WatchHook(name="log", phase=Phase.OBSERVE, about="log how it ended", run=_log_end),
        ),
        switches=switches,
    )


def _gate(
    name: str, phase: Phase, about: str, run: Callable[[CallFacts], Awaitable[Verdict]]
) -> GateHook:
    return GateHook(name=name, phase=phase, about=about, is_fixed=True, run=run)


def _change(name: str, phase: Phase, about: str, priority: int, run: Change) -> ChangeHook:
    return ChangeHook(
        name=name, phase=phase, about=about, priority=priority, is_fixed=True, run=run
    )


# -- gates -----------------------------------------------------------------------------------------


async def _policy(call: CallFacts) -> Verdict:
    size = _size(call.args)
    if size > MAX_ARGUMENT_CHARS:
        return Deny(f"the arguments are over {MAX_ARGUMENT_CHARS} characters", "policy")
    reason = call.check(call.args) if call.check is not None else None
    return Allow() if reason is None else Deny(reason, "policy")


async def _ceiling(call: CallFacts) -> Verdict:
    reason = ceiling.beyond(call)
    return Allow() if reason is None else Deny(reason, "beyond_ceiling")


def _budget(
    exhausted: Callable[[str], str | None],
) -> Callable[[CallFacts], Awaitable[Verdict]]:
    async def run(call: CallFacts) -> Verdict:
        if (reason := exhausted(call.message_id)) is not None:
            return Deny(reason, "budget_exceeded")
        if call.ordinal <= MAX_CALLS:
            return Allow()
        return Deny(
            f"this turn has made {MAX_CALLS} calls, which is the most; end it with what you have",
            "call_limit",
        )

    return run


def _size(value: object, depth: int = 0) -> int:
    """About how many characters the arguments have; too deep nesting counts as too many."""
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, dict | list):
        return 8
    if depth > _MAX_DEPTH:
        return MAX_ARGUMENT_CHARS + 1
    items = (*value, *value.values()) if isinstance(value, dict) else value
    return 8 + sum(_size(item, depth + 1) for item in items)


# -- changes ---------------------------------------------------------------------------------------


def _on_text(
    change: Callable[[str], str],
) -> Change:
    async def run(call: CallFacts, result: ToolResult) -> ToolResult:
        step = partial(change, result.text)
        is_long = len(result.text) >= _LONG_CHARS
        text = await compute(step, key=call.agent_id) if is_long else step()
        return replace(result, text=text)

    return run


def _storing(results: ResultStore) -> Change:
    async def run(call: CallFacts, result: ToolResult) -> ToolResult:
        limit = allowance(call.room_chars())
        if len(result.text) <= limit:
            return result
        if call.is_paged:
            note = f"\n[only {limit} characters are shown: this turn has read its share]"
            return replace(result, text=result.text[: limit - len(note)] + note)
        reference = await results.keep(call, result.text)
        return replace(result, text=head_and_tail(result.text, limit, reference))

    return run


async def _marking(call: CallFacts, result: ToolResult) -> ToolResult:
    if not call.is_outside or not result.ok:
        return result
    name = call.own_name or call.name
    return replace(result, text=marked(result.text, name=name, call_id=call.call_id))


# -- observers -------------------------------------------------------------------------------------


def _log_end(call: CallFacts, result: ToolResult, seconds: float) -> None:
    _log.info(
        "call",
        tool=call.own_name or call.name,
        ok=result.ok,
        code=result.code,
        ms=round(seconds * 1000, 1),
        replayed=result.replayed,
    )
