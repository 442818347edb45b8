"""The meaning of an agent's messages, as plain values: no task, no process, no library.

Updates are read leniently: agents differ, and unknown content must do no harm. Only messages to an
agent are typed by the library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentsup.engines.clean import as_dict, objects
from agentsup.engines.failures import (
    ContentFiltered,
    EmptyAfterToolUse,
    EmptyAnswer,
    LimitReached,
    RequestRejected,
    TurnLimitReached,
)
from agentsup.engines.thoughts import AnswerText
from agentsup.model.engine import (
    EngineDone,
    EngineEvent,
    EngineNotice,
    Permission,
    PermissionRequest,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    Usage,
)
from agentsup.model.errors import EngineFailed
from agentsup.model.tool import OUR_MCP_SERVER

_PREVIEW_CHARS = 500
_MOST_CALLS = 1000
_PLAN_LINES = 12
_DIFF_CHARS = 20_000
_UNKNOWN_KIND = "other"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# -- messages of the agent -------------------------------------------------------------------------


@dataclass(slots=True)
class _Call:
    """A tool call of the agent's own, as far as it is known."""

    kind: str = ""
    title: str = ""
    args: dict[str, Any] = field(default_factory=dict)
    changes: list[dict[str, Any]] = field(default_factory=list)
    is_reported: bool = False
    is_over: bool = False

    @property
    def name(self) -> str:
        return self.kind or _UNKNOWN_KIND

    def learn(self, update: Mapping[str, Any]) -> None:
        self.kind = _text(update.get("kind")) or self.kind
        self.title = _text(update.get("title")) or self.title
        if (raw := update.get("rawInput")) not in (None, {}):
            self.args = raw if isinstance(raw, dict) else {"input": raw}
        changes = [
            {"path": _text(each.get("path")), "text": _text(each.get("newText"))[:_DIFF_CHARS]}
            for each in objects(update.get("content"))
            if each.get("type") == "diff"
        ]
        self.changes = changes or self.changes

    @property
    def shown_args(self) -> dict[str, Any]:
        """The arguments of the call; if the agent gives none, its title and changes."""
        if self.args:
            return self.args
        shown: dict[str, Any] = {"title": self.title} if self.title else {}
        return shown | ({"changes": self.changes} if self.changes else {})


def our_call(request: PermissionRequest, our_title: str) -> PermissionRequest:
    """Return the request under the host's name of the tool, if that is one of our MCP server's.

    Agents show that by the title alone, each in its own way (``our_title``). Only calls of no known
    kind are checked: other titles may be the model's words.
    """
    before, found, after = our_title.partition("{tool}")
    title = request.title
    if not found or request.tool != _UNKNOWN_KIND or len(title) <= len(before) + len(after):
        return request
    tool = title.removeprefix(before).removesuffix(after)
    if f"{before}{tool}{after}" != title:
        return request
    return replace(request, tool=f"mcp__{OUR_MCP_SERVER}__{tool}")


class AcpTurnState:
    """The state of one turn: its open calls, its text and its usage."""

    def __init__(self, *, usd_before: float = 0.0, answer: AnswerText | None = None) -> None:
        """``usd_before`` is what the agent's session had cost before this turn."""
        self._calls: dict[str, _Call] = {}
        self._usd_before = usd_before
        self.usd_total: float | None = None
        """The cost of the agent's session by now, in US dollars."""
        self._has_planned = False
        self.answer = answer or AnswerText()

    @property
    def said(self) -> str:
        """The answer so far."""
        return self.answer.text

    @property
    def has_acted(self) -> bool:
        """Whether a tool was called: running the turn again might do something twice."""
        return bool(self._calls)

    def take(self, update: Mapping[str, Any]) -> list[EngineEvent]:
        """Return the events of one ``session/update``."""
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                text = _content_text(update.get("content"))
                return [self.answer.feed(text)] if text else []
            case "agent_thought_chunk":
                thought = _content_text(update.get("content"))
                return [ThinkingDelta(thought)] if thought else []
            case "tool_call" | "tool_call_update":
                return self._call(update)
            case "plan":
                return self._plan(update.get("entries"))
            case "usage_update":
                self._cost(as_dict(update.get("cost")))
        return []

    def about(self, tool_call: Mapping[str, Any]) -> tuple[PermissionRequest, list[EngineEvent]]:
        """Return a permission request about ``tool_call``, and the events that it leads to."""
        call_id = _text(tool_call.get("toolCallId"))
        self._forget_over(call_id)
        events = self._interrupted(call_id)
        call = self._learn(call_id, tool_call)
        request = PermissionRequest(
            request_id=call_id, tool=call.name, args=call.shown_args, title=call.title
        )
        return request, events + self._reported(call)

    def denied(self, call_id: str, why: str) -> list[EngineEvent]:
        """Return the end of a call that was denied; not every agent reports it."""
        call = self._calls.get(call_id)
        if call is None or call.is_over:
            return []
        call.is_over = True
        return [ToolFinished(call.name, ok=False, preview=why[:_PREVIEW_CHARS])]

    def close(self) -> list[EngineEvent]:
        """Return the rest of the text, the ends of calls whose end the agent did not report, and
        the money spent."""
        events = self.answer.end()
        events += [
            ToolFinished(call.name, ok=False, preview="its end was not told")
            for call in self._calls.values()
            if call.is_reported and not call.is_over
        ]
        if self.usd_total is not None:
            # A total below the last one is that of a new process, which counts from zero.
            before = self._usd_before if self.usd_total >= self._usd_before else 0.0
            events.append(Usage(usd=self.usd_total - before))
        return events

    # -- inside ------------------------------------------------------------------------------------

    def _interrupted(self, call_id: str) -> list[EngineEvent]:
        """Return the rest of the text before a call. News of a known call may come amid a text."""
        if call_id in self._calls and self.answer.is_open:
            return []
        return self.answer.end()

    def _forget_over(self, call_id: str) -> None:
        """Forget an ended call: a call that begins under its id is a new one and counts as such."""
        known = self._calls.get(call_id)
        if known is not None and known.is_over:
            del self._calls[call_id]

    def _learn(self, call_id: str, update: Mapping[str, Any]) -> _Call:
        call = self._calls.get(call_id)
        if call is None:
            if len(self._calls) >= _MOST_CALLS:
                over = next((key for key, each in self._calls.items() if each.is_over), None)
                self._calls.pop(over if over is not None else next(iter(self._calls)))
            call = self._calls[call_id] = _Call()
        call.learn(update)
        return call

    def _call(self, update: Mapping[str, Any]) -> list[EngineEvent]:
        call_id = _text(update.get("toolCallId"))
        if not call_id:
            return []
        if update.get("sessionUpdate") == "tool_call":
            self._forget_over(call_id)
        events = self._interrupted(call_id)
        call = self._learn(call_id, update)
        status = update.get("status")
        if call.is_over or (status in (None, "pending") and not call.args):
            return events  # the agent reports more before the call runs
        events += self._reported(call)
        if status in ("completed", "failed"):
            call.is_over = True
            preview = _preview(update)
            events.append(ToolFinished(call.name, ok=status == "completed", preview=preview))
        return events

    def _reported(self, call: _Call) -> list[EngineEvent]:
        if call.is_reported:
            return []
        call.is_reported = True
        return [ToolStarted(call.name, call.shown_args)]

    def _plan(self, entries: Any) -> list[EngineEvent]:
        steps = [text for each in objects(entries) if (text := _text(each.get("content")))]
        if self._has_planned or not steps:
            return []
        self._has_planned = True  # it changes with each step; it is shown once
        more = [f"… and {len(steps) - _PLAN_LINES} more"] if len(steps) > _PLAN_LINES else []
        lines = [f"{number}. {step}" for number, step in enumerate(steps[:_PLAN_LINES], 1)]
        return [EngineNotice("\n".join(["Plan:", *lines, *more]))]

    def _cost(self, cost: Mapping[str, Any]) -> None:
        amount = cost.get("amount")
        if cost.get("currency") == "USD" and isinstance(amount, int | float):
            self.usd_total = float(amount)


def _content_text(content: Any) -> str:
    block = as_dict(content)
    match block.get("type"):
        case "text":
            return _text(block.get("text"))
        case "resource_link":
            return _text(block.get("uri"))
    return ""


def _preview(update: Mapping[str, Any]) -> str:
    """Return the beginning of the result of a call."""
    parts = []
    for block in objects(update.get("content")):
        if block.get("type") == "content":
            parts.append(_content_text(block.get("content")))
        elif block.get("type") == "diff":
            parts.append(f"changed {_text(block.get('path'))}")
    text = "\n".join(part for part in parts if part)
    if not text and (raw := update.get("rawOutput")) is not None:
        text = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False, default=str)
    return text[:_PREVIEW_CHARS]


def usage_of(response: Mapping[str, Any]) -> Usage | None:
    """Return the tokens of a turn, from the answer to its prompt."""
    used = as_dict(response.get("usage"))
    taken, given = ("inputTokens", "cachedReadTokens", "cachedWriteTokens"), "outputTokens"
    if not used:
        # Gemini CLI has them under a key of its own.
        meta = as_dict(response.get("_meta"))
        used = as_dict(as_dict(meta.get("quota")).get("token_count"))
        taken, given = ("input_tokens", "", ""), "output_tokens"
    tokens_in = sum(_count(used.get(name)) for name in taken)
    tokens_out = _count(used.get(given))
    if not (tokens_in or tokens_out):
        return None
    read, written = _count(used.get(taken[1])), _count(used.get(taken[2]))
    return Usage(tokens_in, tokens_out, cache_read_tokens=read, cache_write_tokens=written)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


# -- the end of a turn -----------------------------------------------------------------------------


def end_of(
    reason: str, *, said: str, denied: str, state: bytes | None, has_acted: bool = False
) -> EngineDone | EngineFailed:
    """Return the end of a turn with the stop reason ``reason`` and the text ``said``.

    ``denied`` is why a call in it was denied, if one was: some agents give up the turn then.
    ``has_acted``: tools were used.
    """
    match reason:
        case "end_turn" if said.strip():
            return EngineDone("ok", text=said, engine_state=state)
        case "end_turn" if not denied and has_acted:
            return EmptyAfterToolUse("the agent used its tools and then said nothing", state=state)
        case "end_turn" if not denied:
            return EmptyAnswer("the agent ended its turn without an answer")
        case "max_tokens":
            return LimitReached("the model stopped at its limit of tokens for one answer")
        case "max_turn_requests":
            return TurnLimitReached(
                "the agent stopped at its limit of model requests for one turn", state=state
            )
        case "refusal":
            return ContentFiltered("the model refuses to go on with this conversation")
        case "end_turn" | "cancelled" if denied:
            why = f"I stopped there: {denied}"
            return EngineDone("ok", text=f"{said}\n\n{why}" if said else why, engine_state=state)
        case "cancelled":
            return RequestRejected("the agent gave the turn up without saying why")
    return RequestRejected(f"the agent ended the turn for a reason unknown here: {reason[:100]}")


# -- approvals ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PermissionChoice:
    """The option to choose (None: the request counts as cancelled), and why a call was denied."""

    option_id: str | None
    denied: str = ""


def choose(options: Sequence[Mapping[str, Any]], answer: Permission) -> PermissionChoice:
    """Return the option for ``answer``. Ids are the agent's own, so options are found by kind.

    Only a single call is ever allowed: with an agent's *always*, further calls would bypass the
    gate.
    """
    by_kind: dict[str, str] = {}
    for option in options:
        by_kind.setdefault(_text(option.get("kind")), _text(option.get("optionId")))
    denied = answer.reason or "this call was denied"
    if answer.allowed:
        if answer.args is None and "allow_once" in by_kind:
            return PermissionChoice(by_kind["allow_once"])
        denied = (
            "it was allowed with other arguments, which this agent can't be given"
            if answer.args is not None
            else "the agent asks for a grant only, and none is given"
        )
    return PermissionChoice(by_kind.get("reject_once") or by_kind.get("reject_always"), denied)
