"""What an engine that tells no tokens has probably used, by the length of what it read and wrote. Pure.

Four bytes of text are a token. Read was what the engine was asked, with instructions and history, once
and again with each call, as a model reads everything with each of its steps, and what its calls gave
back as far as it is known; written was what it said, thought and called with. Hidden text of the
program itself is not known, so this is less than the truth rather than more.
"""

from __future__ import annotations

import json

from agentsup.agents.memory.tokens import tokens_of_bytes
from agentsup.model.engine import (
    Done,
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
"""After so much of its own doing an engine that still runs is counted, so that a budget ends a run
that tells nothing. Most tell their tokens sooner."""


class Meter:
    """Measures one run, for as long as the engine tells no tokens itself."""

    def __init__(self) -> None:
        self.is_told = False
        """The engine tells tokens: from then on they alone count."""
        self._asked = self._first = 0
        self._read = self._written = 0
        self._has_said = False
        self._counted = Usage()

    def asked(self, segment: Segment) -> None:
        """The engine is asked this."""
        texts = (segment.system, segment.prompt, *(item.text for item in segment.history))
        self._asked = sum(map(_bytes, texts))
        self._read += self._asked
        self._first = self._asked

    def heard(self, event: EngineEvent) -> Usage | None:
        """What the engine told; returns what is to be counted by now."""
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
        """The engine's own report, without what was counted for it before."""
        self.is_told = self.is_told or bool(usage.input_tokens or usage.output_tokens)
        before, usd = self._counted, usage.usd
        left = Usage(
            max(0, usage.input_tokens - before.input_tokens),
            max(0, usage.output_tokens - before.output_tokens),
            None if usd is None else max(0.0, usd - (before.usd or 0.0)),
        )
        self._counted = Usage(
            before.input_tokens - (usage.input_tokens - left.input_tokens),
            before.output_tokens - (usage.output_tokens - left.output_tokens),
            None if usd is not None else before.usd,
        )
        return left

    @property
    def is_covered(self) -> bool:
        """All that was counted is in the engine's own reports by now: nothing is estimated."""
        return self.is_told and not (self._counted.input_tokens or self._counted.output_tokens)

    def counted(self, usage: Usage) -> None:
        """This, with its price if it has one, was counted."""
        before = self._counted
        usd = None if usage.usd is None and before.usd is None else 0.0
        self._counted = Usage(
            before.input_tokens + usage.input_tokens,
            before.output_tokens + usage.output_tokens,
            None if usd is None else (before.usd or 0.0) + (usage.usd or 0.0),
        )

    def ended(self, end: Done | Suspended | None) -> Usage | None:
        """What is left to be counted at the end of the run; None: it was cut off. A run that failed
        before it said a word counts for nothing."""
        if self.is_told:
            return None
        if isinstance(end, Done) and end.outcome == "failed" and not self._has_said:
            return None
        if isinstance(end, Done | Suspended) and not self._has_said:
            self._written += _bytes(end.text)
        return self._taken()

    def _taken(self) -> Usage | None:
        if self.is_told:
            return None
        used = Usage(tokens_of_bytes(self._read), tokens_of_bytes(self._written), is_estimated=True)
        self._read = self._written = self._first = 0
        return used if used.input_tokens or used.output_tokens else None


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
