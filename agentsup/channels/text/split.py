"""Splits a laid-out answer into passages that fit a platform's limit.

Each of these is a property in the tests: the joined passages are the flow, with only white space
missing between them; a passage is never longer than the limit; its spans lie within it; code that
is cut is code on both sides; rows of a table come with their header. The cuts depend only on the
text, the limit and the unit, and each only on the text up to shortly after it, so the same answer
is split into the same passages after a restart.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from wcwidth import grapheme_boundary_before

from agentsup.channels.text.clean import is_blank
from agentsup.channels.text.layout import Flow, Repeat
from agentsup.model.answer import Style, TextSpan, TextUnit

MIN_LIMIT = 16

_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*(?=\s)|[。！？][”’」』）]*")
_BLOCK_GAP = 2
_MAX_BMP = "\uffff"


def utf16_len(text: str) -> int:
    """Return the number of UTF-16 code units of a text."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a flow that fits into one message, never blank.

    ``text[repeated:]`` is ``flow.text[start:end]``; before it is the repeated header of a table.
    """

    text: str
    spans: tuple[TextSpan, ...]
    start: int
    end: int
    repeated: int = 0


def passages(flow: Flow, limit: int, unit: TextUnit = TextUnit.UTF16) -> Iterator[Passage]:
    """Yield passages of at most ``limit`` units each; none if the flow shows nothing.

    The text is cut between blocks if that leaves no message nearly empty, else between paragraphs,
    lines, sentences, words, grapheme clusters, and last between code points. Raises ``ValueError``
    for a limit below ``MIN_LIMIT``.
    """
    if limit < MIN_LIMIT:
        raise ValueError(f"a limit of {limit} leaves no room to write in; {MIN_LIMIT} is the least")
    return _Splitter(flow, limit, _Ruler(flow.text, unit)).passages()


class _Ruler:
    """Measures parts of a text in a platform's unit."""

    def __init__(self, text: str, unit: TextUnit) -> None:
        self._length = len(text)
        self._upto: array[int] | None = None
        if text.isascii() or (unit is TextUnit.UTF16 and utf16_len(text) == len(text)):
            return  # one unit each
        sizes = (
            ((1 if char <= _MAX_BMP else 2) for char in text)
            if unit is TextUnit.UTF16
            else (len(char.encode("utf-8", "replace")) for char in text)
        )
        self._upto = array("L", accumulate(sizes, initial=0))

    def size(self, start: int, end: int) -> int:
        return end - start if self._upto is None else self._upto[end] - self._upto[start]

    def reach(self, start: int, size: int) -> int:
        """Return the furthest end of a part from ``start`` that has at most ``size`` units."""
        if self._upto is None:
            return min(self._length, start + size)
        return bisect_right(self._upto, self._upto[start] + size) - 1


class _Splitter:
    def __init__(self, flow: Flow, limit: int, ruler: _Ruler) -> None:
        self._flow = flow
        self._text = flow.text
        self._limit = limit
        self._ruler = ruler
        self._code = [span for span in flow.spans if span.style is Style.PRE]
        self._code_starts = [span.start for span in self._code]
        self._repeat_starts = [repeat.start for repeat in flow.repeats]

    def passages(self) -> Iterator[Passage]:
        spans = _Spans(self._flow.spans)
        start = self._skip(0)
        while start < len(self._text):
            repeat = self._repeat_at(start)
            head = self._text[repeat.start : repeat.body] if repeat else ""
            room = self._limit - (self._ruler.size(repeat.start, repeat.body) if repeat else 0)
            furthest = self._ruler.reach(start, room)
            cut = furthest if furthest == len(self._text) else self._cut(start, furthest)
            body = self._text[start:cut].rstrip()
            if not is_blank(body):
                end = start + len(body)
                yield Passage(
                    head + body, spans.within(start, end, len(head)), start, end, len(head)
                )
            start = self._skip(cut)

    # -- where to begin ----------------------------------------------------------------------------

    def _skip(self, at: int) -> int:
        """Return the position after white space; in code only line ends are skipped.

        White space after a line end may be indentation.
        """
        number = bisect_right(self._code_starts, at) - 1
        in_code = number >= 0 and at < self._code[number].end
        following = bisect_left(self._code_starts, at)
        stop = self._code_starts[following] if following < len(self._code) else len(self._text)
        if in_code:
            stop = self._code[number].end
        while at < stop and (self._text[at] == "\n" if in_code else self._text[at].isspace()):
            at += 1
        # At the end of code, the white space between blocks follows.
        return self._skip(at) if in_code and at == stop < len(self._text) else at

    def _repeat_at(self, start: int) -> Repeat | None:
        """Return the header to repeat above rows that begin at ``start``, if there is room."""
        number = bisect_right(self._repeat_starts, start) - 1
        if number < 0:
            return None
        repeat = self._flow.repeats[number]
        is_row = repeat.body <= start < repeat.end
        has_room = self._ruler.size(repeat.start, repeat.body) <= self._limit // 2
        return repeat if is_row and has_room else None

    # -- where to end ------------------------------------------------------------------------------

    def _cut(self, start: int, furthest: int) -> int:
        """Return where to end a passage that may reach ``furthest``; always beyond ``start``."""
        cut = self._between_blocks(start, furthest)
        if cut is not None:
            return cut
        half = start + (furthest - start) // 2
        for earliest in (half, start):
            for candidate in (
                self._text.rfind("\n\n", earliest + 1, furthest + 2),
                self._text.rfind("\n", earliest + 1, furthest + 1),
                self._after_sentence(earliest, furthest),
                self._before_space(earliest, furthest),
            ):
                if candidate > start:
                    together = self._start_of_table_or_pre(start, candidate)
                    return together if together > start else candidate
        return self._between_characters(start, furthest)

    def _between_blocks(self, start: int, furthest: int) -> int | None:
        """Return the last block's start if the passage is full enough without that block.

        It must be half full, or a quarter full if the block fits whole into the next passage.
        """
        starts = self._flow.starts
        number = bisect_right(starts, furthest + _BLOCK_GAP) - 1
        if number < 0 or starts[number] <= start:
            return None
        cut = starts[number]
        filled, full = cut - start, furthest - start
        following = starts[number + 1] if number + 1 < len(starts) else len(self._text)
        fits_whole = self._ruler.size(cut, following) <= self._limit
        return cut if filled * 2 >= full or (fits_whole and filled * 4 >= full) else None

    def _after_sentence(self, earliest: int, furthest: int) -> int:
        last = -1
        for match in _SENTENCE_END.finditer(self._text, earliest, furthest + 1):
            if earliest < match.end() <= furthest:
                last = match.end()
        return last

    def _before_space(self, earliest: int, furthest: int) -> int:
        for at in range(furthest, earliest, -1):
            if self._text[at].isspace():
                while at - 1 > earliest and self._text[at - 1].isspace():
                    at -= 1  # noqa: PLW2901 - the whole gap goes to the next passage
                return at
        return -1

    def _start_of_table_or_pre(self, start: int, cut: int) -> int:
        """Move a cut, if possible, that is between a table's header and rows or below a heading."""
        number = bisect_right(self._repeat_starts, cut) - 1
        if number >= 0 and cut < self._flow.repeats[number].body:
            cut = max(start, self._repeat_starts[number])
        following = bisect_left(self._flow.after_headings, cut)
        if following < len(self._flow.after_headings) and self._flow.after_headings[
            following
        ] <= self._skip(cut):
            number = bisect_left(self._flow.starts, cut) - 1
            cut = max(start, self._flow.starts[number]) if number >= 0 else start
        return cut

    def _between_characters(self, start: int, furthest: int) -> int:
        """Cut between grapheme clusters (a flag, a letter with marks), unless there is only one."""
        window = self._text[start : furthest + 1]
        candidate = grapheme_boundary_before(window, len(window))
        return start + candidate if candidate > 0 else furthest


class _Spans:
    """Cuts sorted spans to parts of the text that are requested in ascending order."""

    def __init__(self, spans: tuple[TextSpan, ...]) -> None:
        self._spans = spans
        self._next = 0
        self._open: list[TextSpan] = []

    def within(self, start: int, end: int, head: int) -> tuple[TextSpan, ...]:
        """Return the spans of ``[start, end)``, moved behind a repeated header of length ``head``.

        Code that began before ``start`` also covers the header.
        """
        while self._next < len(self._spans) and self._spans[self._next].start < end:
            self._open.append(self._spans[self._next])
            self._next += 1
        self._open = [span for span in self._open if span.end > start]
        found = []
        for span in self._open:
            if span.start >= end:
                continue
            first = max(span.start, start) - start + head
            if span.style is Style.PRE and span.start < start:
                first = 0
            found.append(TextSpan(first, min(span.end, end) - start + head, span.style, span.arg))
        return tuple(found)
