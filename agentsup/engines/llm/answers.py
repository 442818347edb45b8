"""A model's response, read as it comes and corrected when it is whole.

The library judges a response only after ``AnswerReader.settle``: it then has no thoughts in its text,
no blank texts, no halves of characters, and arguments of calls that are JSON objects where they can be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any, Literal

from pydantic_ai.messages import (
    ModelResponse,
    ModelResponsePart,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)

from agentsup.engines import failures
from agentsup.engines.clean import HalfJoiner, clean, clean_value
from agentsup.engines.thoughts import ThoughtSplitter
from agentsup.model.engine import RefusedTool, TextDelta

Cut = Literal["", "length", "filter", "printed"]
"""Why an answer is not whole, or none."""
CUT: dict[Cut, str] = {
    "length": (
        "[The answer was cut off here at the model's output limit; max_tokens in engine_options "
        "raises it.]"
    ),
    "filter": "[The provider's content filter cut the answer off here.]",
    "printed": (
        "[The model wrote this call as text instead of making it, also when asked once more. Its "
        "server may need a tool parser or another chat template.]"
    ),
}
WRITTEN_CALL = (
    "You wrote the call of a tool as text, so that nothing was called. Call it as a tool, or answer "
    "in words."
)
_LENGTH = {"length", "max_tokens", "max_output_tokens", "model_length"}
_FILTER = {
    *("content_filter", "refusal", "sensitive", "safety", "recitation", "blocklist"),
    *("prohibited_content", "spii", "guardrail_intervened"),
}
_BROKEN = {
    "error",
    "network_error",
    "abort",
    "insufficient_system_resource",
    "malformed_function_call",
}
_PRINTED = re.compile(
    r"(?:<tool_call>|\[TOOL_CALLS\])\s*"
    r"(?:<function=(?P<name>[\w-]{1,128})>.*|(?P<call>[\[{][^<]*)(?:</tool_call>)?)\Z",
    re.DOTALL,
)
_BEGINNINGS = ('{"name"', '[{"name"', "<tool_call>", "[TOOL_CALLS]", '```json\n{"name"')
_MOST_ENCODINGS = 3
_MOST_MODELS = 1000


class KnownModels:
    """Facts learned about models: whether their template opens a thought, and which tools their
    provider refuses.

    Until a model has given an answer the first is not known, and its answer is shown only as a whole.
    """

    def __init__(self) -> None:
        self._opens: dict[tuple[str, str], bool] = {}
        self._refused: dict[tuple[str, str], dict[str, RefusedTool]] = {}
        self._notices: set[str] = set()

    def refused_of(self, model: tuple[str, str]) -> dict[str, RefusedTool]:
        """The tools that the provider of that model has refused, by digest, to be added to."""
        if len(self._refused) >= _MOST_MODELS:
            self._refused.clear()
        return self._refused.setdefault(model, {})

    def tells(self, notice: str) -> bool:
        """Record a notice; returns whether it is the first time, so that it should be given."""
        is_new = notice not in self._notices
        if len(self._notices) >= _MOST_MODELS:
            self._notices.clear()
        self._notices.add(notice)
        return is_new

    def may_open(self, model: tuple[str, str]) -> bool:
        """Whether the template of that model (address and name) may have opened a thought."""
        return self._opens.get(model, True)

    def learn(self, model: tuple[str, str], splitter: ThoughtSplitter) -> None:
        """Take what a whole response with text shows about its model."""
        if splitter.is_opened_outside or model not in self._opens:
            if len(self._opens) >= _MOST_MODELS:
                self._opens.clear()
            self._opens[model] = splitter.is_opened_outside


@dataclass(slots=True)
class SegmentText:
    """The text of a segment so far, as the person sees it; texts of different steps are
    paragraphs."""

    text: list[str] = field(default_factory=list)
    is_new_step: bool = False
    used_tools: bool = False
    cut: Cut = ""
    """Why the last answer is not whole."""
    _step_at: int = 0

    def begin_step(self) -> None:
        self.is_new_step, self._step_at = True, len(self.text)

    def add(self, piece: str) -> TextDelta | None:
        if not piece:
            return None
        if self.is_new_step and self.text:
            piece = "\n\n" + piece
        self.is_new_step = False
        self.text.append(piece)
        return TextDelta(piece)

    def correct_step(self, answer: str) -> None:
        """Take ``answer`` for the text of this step: a thought may have been told apart late."""
        del self.text[self._step_at :]
        self.is_new_step = True
        self.add(answer if answer.strip() else "")


class AnswerReader:
    """Reads one response. ``text`` and ``thoughts`` are what the last event added."""

    def __init__(self, *, may_open: bool) -> None:
        """``may_open``: the model's template may have opened a thought."""
        self.splitter = ThoughtSplitter(holds=may_open)
        self._halves = HalfJoiner()
        self._raw: list[str] = []
        self._waiting = ""

    def read(self, event: Any) -> tuple[str, str] | None:
        """Return what an event of the stream adds to the answer and to the thoughts; None if it has
        no text."""
        match event:
            case (
                PartStartEvent(part=TextPart(content=text))
                | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
            ):
                return self._feed(self._halves.feed(text))
            case (
                PartStartEvent(part=ThinkingPart(content=text))
                | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text))
            ):
                return "", text or ""
        return None

    def end(self, response: ModelResponse) -> str:
        """Return what the end of the text adds to the answer."""
        text, _ = self._feed(self._halves.end())
        waiting, self._waiting = self._waiting, ""
        rest = text + waiting + self.splitter.end(is_cut=bool(cut_of(response)))
        return rest if self.splitter.answer.strip() else ""

    def settle(
        self, response: ModelResponse, real: Callable[[str], str | None], call_ids: set[str]
    ) -> None:
        """Correct the response. ``real`` returns the name of a tool for a name that is not quite it.
        ``call_ids`` are those of earlier calls; a call with one of them gets another."""
        answer, raw = self.splitter.answer, "".join(self._raw)
        if answer != raw:
            response.parts = _with_text(response.parts, answer)
        response.parts = [_settled(part, real) for part in response.parts if not is_blank(part)]
        for part in response.parts:
            if isinstance(part, ToolCallPart):
                part.tool_call_id = _new_id(part.tool_call_id or "call", call_ids)
                call_ids.add(part.tool_call_id)

    def _feed(self, text: str) -> tuple[str, str]:
        self._raw.append(text)
        news, thought = self.splitter.feed(text) if text else ("", "")
        self._waiting += news
        is_all = self.splitter.answer == self._waiting
        if is_all and (self._waiting.isspace() or self._waiting.startswith(_BEGINNINGS)):
            return "", thought  # perhaps nothing, or a call that is written as text
        news, self._waiting = self._waiting, ""
        return news, thought


def is_blank(part: ModelResponsePart) -> bool:
    """Whether a part says nothing; a provider may refuse it in a history."""
    match part:
        case TextPart(content=text):
            return not text.strip()
        case ThinkingPart(content=text):
            return not (text.strip() or part.signature or part.provider_details)
    return False


def raise_if_broken(response: ModelResponse) -> None:
    """Raise ``ConnectionFailed`` or ``ServerFailed`` if the answer has not come to an end."""
    reason = _reason(response)
    if reason in _BROKEN:
        raise failures.ServerFailed(f"the provider ended the answer with {reason!r}")
    if not reason:
        raise failures.ConnectionFailed("the model's answer broke off before its end")


def cut_of(response: ModelResponse) -> Cut:
    """Return why the answer is not whole, or the empty text."""
    reason = _reason(response)
    return "length" if reason in _LENGTH else "filter" if reason in _FILTER else ""


def _reason(response: ModelResponse) -> str:
    """Why the provider ended the response, in its own words if it has them."""
    own = (response.provider_details or {}).get("finish_reason")
    return str(own or response.finish_reason or "").lower()


def _with_text(parts: Any, answer: str) -> list[ModelResponsePart]:
    """Return the parts with ``answer`` in place of all texts."""
    changed: list[ModelResponsePart] = []
    for part in parts:
        if not isinstance(part, TextPart):
            changed.append(part)
        elif answer:
            changed.append(replace(part, content=answer))
            answer = ""
    return changed


def _settled(part: ModelResponsePart, real: Callable[[str], str | None]) -> ModelResponsePart:
    match part:
        case ToolCallPart():
            name = clean(part.tool_name)
            part.tool_name = real(name) or name
            part.tool_call_id = clean(part.tool_call_id)
            part.args = arguments(part.args)
        case TextPart() | ThinkingPart():
            part.content = clean(part.content)
    return part


def _new_id(wanted: str, taken: set[str]) -> str:
    """Return the id, or one like it that is not taken."""
    return next(
        each
        for each in chain([wanted], (f"{wanted}_{number}" for number in count(2)))
        if each not in taken
    )


def arguments(given: Any) -> Any:
    """Return a call's arguments as an object if they are one, also one that is encoded again as a
    text; otherwise what came, which goes back to the model."""
    value = given
    for _ in range(_MOST_ENCODINGS):
        if not isinstance(value, str):
            break
        if not value.strip():
            return {}
        try:
            value = json.loads(_unfenced(value), strict=False)
        except (ValueError, RecursionError):
            break
    if value is None:
        return {}
    if isinstance(value, dict):
        return clean_value(value)
    return clean(given) if isinstance(given, str) else given


def printed_call(text: str, is_tool: Callable[[str], bool]) -> str:
    """Return the name of the tool whose call a model wrote as text at the end of its answer, or
    the empty text. It is not made: the text may be quoted from anywhere."""
    found = _PRINTED.search(text.rstrip())
    if found is not None and is_tool(found["name"] or ""):
        return found["name"]
    try:
        value = json.loads(_unfenced(found["call"] if found is not None else text), strict=False)
    except (ValueError, RecursionError, TypeError):
        return ""
    call = value[0] if isinstance(value, list) and value else value
    call = call.get("function", call) if isinstance(call, dict) else {}
    if not isinstance(call, dict) or not call.keys() & {"arguments", "parameters", "args"}:
        return ""
    name = call.get("name")
    return name if isinstance(name, str) and is_tool(name) else ""


def _unfenced(text: str) -> str:
    """Return the text without a code fence around it."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") : -3]
    return text
