"""The stages every daemon has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from agentsup.agents.pipeline import ceiling
from agentsup.agents.pipeline.hooks import Hooks
from agentsup.agents.pipeline.marking import marked
from agentsup.agents.pipeline.personal import without_personal_data
from agentsup.agents.pipeline.results import Results
from agentsup.agents.pipeline.shortening import allowance, head_and_tail
from agentsup.model.hook import (
    Allow,
    Approver,
    CallFacts,
    Change,
    Deny,
    Gate,
    Hook,
    Phase,
    Verdict,
    Watch,
)
from agentsup.model.tool import ToolResult
from agentsup.observe.logging import get_logger
from agentsup.observe.redact import Redactor

_log = get_logger(__name__)

MAX_CALLS = 200
"""Calls in one turn; a model that makes more goes in circles."""
MAX_ARGUMENT_CHARS = 1_000_000
_LONG_CHARS = 50_000
"""A longer text is searched in a thread."""
_MAX_DEPTH = 32


def default_hooks(
    *,
    redactor: Redactor,
    results: Results,
    approver: Approver,
    switches: Callable[[], Mapping[str, bool]] = dict,
    exhausted: Callable[[str], str | None] = lambda message_id: None,
) -> Hooks:
    """The stages of the pipeline in their order. ``switches`` are the settings' ``[hooks]``;
    ``exhausted(message_id)`` says why a turn may use nothing any more, if so."""
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
            Change(
                name="redact",
                phase=Phase.REDACT,
                about="mask the daemon's secrets",
                priority=10,
                is_fixed=True,
                run=_redacting(redactor),
            ),
            Change(
                name="personal_data",
                phase=Phase.REDACT,
                about="name mail addresses, bank, card and telephone numbers instead of showing them",
                priority=20,
                is_on=False,
                run=_without_personal_data,
            ),
            Change(
                name="store",
                phase=Phase.STORE,
                about="keep a large result and show its ends",
                priority=10,
                is_fixed=True,
                run=_storing(results),
            ),
            Change(
                name="outside",
                phase=Phase.STORE,
                about="mark what others have written as data",
                priority=20,
                is_fixed=True,
                run=_marking,
            ),
            Watch(name="log", phase=Phase.OBSERVE, about="log how it ended", run=_log_end),
        ),
        switches=switches,
    )


def _gate(
    name: str, phase: Phase, about: str, run: Callable[[CallFacts], Awaitable[Verdict]]
) -> Gate:
    return Gate(name=name, phase=phase, about=about, is_fixed=True, run=run)


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
    """Roughly how many characters the arguments have; what is nested too deep counts as too much."""
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, dict | list):
        return 8
    if depth > _MAX_DEPTH:
        return MAX_ARGUMENT_CHARS + 1
    items = (*value, *value.values()) if isinstance(value, dict) else value
    return 8 + sum(_size(item, depth + 1) for item in items)


# -- changes ---------------------------------------------------------------------------------------


async def _on_text(text: str, change: Callable[[str], str]) -> str:
    return change(text) if len(text) < _LONG_CHARS else await asyncio.to_thread(change, text)


def _redacting(redactor: Redactor) -> Callable[[CallFacts, ToolResult], Awaitable[ToolResult]]:
    async def run(call: CallFacts, result: ToolResult) -> ToolResult:
        del call
        return replace(result, text=await _on_text(result.text, redactor.text))

    return run


async def _without_personal_data(call: CallFacts, result: ToolResult) -> ToolResult:
    del call
    return replace(result, text=await _on_text(result.text, without_personal_data))


def _storing(results: Results) -> Callable[[CallFacts, ToolResult], Awaitable[ToolResult]]:
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
