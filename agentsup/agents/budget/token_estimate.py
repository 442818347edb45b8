"""The estimated usage of an engine that reports no tokens, by the length of its texts. Pure.

Four bytes of text count as one token. Input is the request with instructions and history, once and
again with each call (a model reads everything at each of its steps), and the results of the calls
as far as they are known. Output is the text, the thinking and the arguments of calls. Hidden text
of the engine's program is unknown, so the estimate is rather too low than too high.
"""

from __future__ import annotations

import json
from dataclasses import replace

from agentsup.agents.memory.texts import tokens_of_bytes
from agentsup.model.engine import (
    EngineDone,
    EngineEvent,
    FileOut,
    Segment,
    Suspended,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    Usage,
)

STEP_TOKENS = 5_000
"""Estimated tokens beyond the request after which a running engine's usage is recorded, so that a
budget ends a run that reports nothing. Most engines report their tokens sooner."""

_PICTURE_BYTES = 4 * 1_600
"""A picture counts as many tokens as the large providers bill for one of our size, at most."""


class TokenEstimate:
    """Estimates the usage of one run, for as long as the engine reports no tokens itself."""

    def __init__(self) -> None:
        self.has_report = False
        """The engine has reported tokens. From then on only its reports count."""
        self._asked = self._first = 0
        self._read = self._written = 0
        self._has_said = False
        self._counted = Usage()

    def asked(self, segment: Segment) -> None:
        """Count a request to the engine."""
        texts = (segment.instructions, segment.prompt, *(item.text for item in segment.history))
        self._asked = sum(map(_bytes, texts)) + _PICTURE_BYTES * len(segment.pictures)
        self._read += self._asked
        self._first = self._asked

    def observe(self, event: EngineEvent) -> Usage | None:
        """Count an event of the engine. Returns the usage to record now, or None."""
        match event:
            case TextDelta(text=text) | ThinkingDelta(text=text):
                self._written += _bytes(text)
            case ToolStarted(name=name, args=args):
                self._written += _bytes(name) + _bytes(json.dumps(args, default=str))
                self._read += self._asked
            case ToolFinished(preview=preview):
                self._read += _bytes(preview)
            case FileOut():
                pass
            case _:
                return None
        self._has_said = True
        if tokens_of_bytes(self._read - self._first + self._written) < STEP_TOKENS:
            return None
        return self._taken()

    def reported(self, usage: Usage) -> Usage:
        """The engine's own report, less the estimates that were recorded before."""
        self.has_report = self.has_report or bool(usage.input_tokens or usage.output_tokens)
        before, usd = self._counted, usage.usd
        left = replace(
            usage,
            input_tokens=max(0, usage.input_tokens - before.input_tokens),
            output_tokens=max(0, usage.output_tokens - before.output_tokens),
            usd=None if usd is None else max(0.0, usd - (before.usd or 0.0)),
        )
        self._counted = Usage(
            before.input_tokens - (usage.input_tokens - left.input_tokens),
            before.output_tokens - (usage.output_tokens - left.output_tokens),
            None if usd is not None else before.usd,
        )
        return left

    @property
    def is_covered(self) -> bool:
        """Whether the engine's own reports now cover all estimates."""
        return self.has_report and not (self._counted.input_tokens or self._counted.output_tokens)

    def counted(self, usage: Usage) -> None:
        """Note that this estimate was recorded, with its price if it has one."""
        before = self._counted
        usd = None if usage.usd is None and before.usd is None else 0.0
        self._counted = Usage(
            before.input_tokens + usage.input_tokens,
            before.output_tokens + usage.output_tokens,
            None if usd is None else (before.usd or 0.0) + (usage.usd or 0.0),
        )

    def ended(self, end: EngineDone | Suspended | None) -> Usage | None:
        """The usage still to record at the end of the run (``end`` None: it was cut off), or None.
        A run that failed before its first event counts for nothing."""
        if self.has_report:
            return None
        if isinstance(end, EngineDone) and end.outcome == "failed" and not self._has_said:
            return None
        if isinstance(end, EngineDone | Suspended) and not self._has_said:
            self._written += _bytes(end.text)
        return self._taken()

    def _taken(self) -> Usage | None:
        if self.has_report:
            return None
        used = Usage(tokens_of_bytes(self._read), tokens_of_bytes(self._written), is_estimated=True)
        self._read = self._written = self._first = 0
        return used if used.input_tokens or used.output_tokens else None


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
