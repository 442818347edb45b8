"""Chat as text above a prompt: whole lines are printed, the unfinished line is held in ``tail``.

Pure except for ``write``, so that tests can check what a terminal shows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from agentsup.cli.chat.conversation import FORMS, ShownItem, ShownKind
from agentsup.cli.chat.markdown import MarkdownStream
from agentsup.cli.output.show import painted, width_of
from agentsup.kit.terminal import clean
from agentsup.model.health import AgentState

_REMEMBERED: Final = 200
OLD_SHOWN: Final = 12
_MARKDOWN: Final = frozenset({ShownKind.ANSWER, ShownKind.RESULT, ShownKind.QUESTION})
"""Kinds whose texts are Markdown of agents."""


@dataclass(slots=True)
class _PaintedTurn:
    """The part of a turn's text that the person has seen."""

    message_id: str
    who: str
    seen: str = ""
    segment: str = ""
    """The text that was seen since the turn began or went on after a question."""
    earlier: str = ""
    """The text of an earlier attempt that the person saw, as long as this attempt repeats it."""
    began_line: bool = False
    is_cut: bool = False
    """The beginning of its text was no longer available when this client connected."""
    asked: bool = False
    """The turn waits for an answer and goes on after it."""
    markdown: MarkdownStream | None = None
    """The part that can't be shown yet, where answers are rendered."""


@dataclass(slots=True)
class Painter:
    """Turns things to show into lines. ``tail`` is the unfinished line of a running turn."""

    write: Callable[[str], None]
    width: Callable[[], int]
    plain: bool = False
    renders: bool = False
    """Whether agents' Markdown is rendered."""
    tail: str = ""
    _turn: _PaintedTurn | None = None
    _answered: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _seen: dict[str, _PaintedTurn] = field(default_factory=dict)

    def show(self, one: ShownItem) -> None:
        """Print the complete lines of ``one``."""
        match one.kind:
            case ShownKind.BEGIN:
                self._begin(one)
            case ShownKind.DELTA:
                self._stream(one, one.text)
            case ShownKind.PICTURE:
                self._picture(one)
            case ShownKind.TOOL:
                self._tool(one)
            case ShownKind.END:
                if self._turn is not None and self._turn.message_id == one.message_id:
                    self._flush()
            case ShownKind.ANSWER:
                self._answer(one)
            case ShownKind.WELCOME if one.old:
                pass  # connected again: what is being written goes on in its line
            case _:
                self._flush()
                if one.kind is ShownKind.QUESTION and one.message_id in self._seen:
                    self._seen[one.message_id].asked = True
                self._print(one)

    def _turn_of(self, one: ShownItem) -> _PaintedTurn:
        if self._turn is None or self._turn.message_id != one.message_id:
            self._flush()
            found = self._seen.pop(one.message_id, None) or _PaintedTurn(one.message_id, one.who)
            self._seen[one.message_id] = found
            while len(self._seen) > _REMEMBERED:
                del self._seen[next(iter(self._seen))]
            self._turn = found
        return self._turn

    def _begin(self, one: ShownItem) -> None:
        turn = self._turn_of(one)
        if turn.seen and not turn.asked:
            self._anew(turn)
        turn.segment, turn.asked = "", False

    def _anew(self, turn: _PaintedTurn) -> None:
        """Start the text of a turn again, as after a crash. Text that it repeats is not printed
        again."""
        turn.earlier = max(turn.earlier, turn.seen, key=len)
        turn.seen, turn.segment = "", ""

    def _stream(self, one: ShownItem, text: str) -> None:
        if one.message_id in self._answered or not text:
            return
        turn = self._turn_of(one)
        turn.seen += text
        turn.segment += text
        if turn.earlier:
            if turn.earlier.startswith(turn.seen):
                return
            if turn.seen.startswith(turn.earlier):
                text = turn.seen[len(turn.earlier) :]
            else:
                # It differs from the earlier attempt: it is shown from its beginning.
                self._flush()
                turn.began_line, turn.markdown, text = False, None, turn.seen
            turn.earlier = ""
        self._feed(turn, text)

    def _feed(self, turn: _PaintedTurn, text: str) -> None:
        if self.renders:
            if turn.markdown is None:
                lead = "" if turn.began_line else f"{clean(turn.who)}: "
                turn.markdown, turn.began_line = MarkdownStream(lead, self.width), True
            for line in turn.markdown.add(clean(text)):
                self.write(line)
            self.tail = turn.markdown.lead + turn.markdown.unfinished
            return
        if not turn.began_line and not self.tail:
            self.tail = f"{turn.who}: "
            turn.began_line = True
        self.tail += clean(text)
        *whole, self.tail = self.tail.split("\n")
        for line in whole:
            for piece in self._fitting(line):
                self.write(piece)
        *full, self.tail = self._fitting(self.tail)
        for line in full:
            self.write(line)

    def _fitting(self, line: str) -> list[str]:
        """``line`` as lines that the terminal need not break in the middle of a word."""
        limit = max(20, self.width() - 1)
        found = []
        # A line may be a megabyte long: only its beginning is measured each time.
        while len(line) * 2 > limit and width_of(line[: limit * 8]) > limit:
            head, line = _broken(line, limit)
            found.append(head)
        return [*found, line]

    def _print(self, one: ShownItem) -> None:
        """Write all of ``one``, in its colour."""
        lines = self._lines(one)
        if self.renders and one.kind in _MARKDOWN:
            lead = FORMS[one.kind][0].format(text="", who=clean(one.who))
            colour = "dim" if one.old else FORMS[one.kind][1]
            written = MarkdownStream(lead, self.width, colour)
            for line in (*written.add(clean(one.text)), *written.end()):
                self.write(line)
            lines = self._below(one)
        for line, colour in lines:
            for piece in self._fitting(line):
                self.write(painted(piece, colour, plain=self.plain) if colour else piece)

    def _picture(self, one: ShownItem) -> None:
        """Take the whole text so far, and show the part that was not seen yet."""
        turn = self._turn_of(one)
        if not one.text.startswith(turn.segment):
            self._anew(turn)
        turn.is_cut = turn.is_cut or (one.is_cut and not turn.segment)
        self._stream(one, one.text[len(turn.segment) :])

    def _tool(self, one: ShownItem) -> None:
        if one.state == "finished":
            return
        self._turn_of(one)
        self._flush()
        self.write(painted(f"  · {clean(one.text)}", "dim", plain=self.plain))

    def _answer(self, one: ShownItem) -> None:
        turn = self._seen.get(one.message_id)
        if turn is None or not (turn.seen or turn.earlier):
            self._flush()
            self._turn = None
            self._print(one)
        else:
            turn = self._turn_of(one)
            seen = turn.earlier or turn.seen
            at = one.text.find(seen) if turn.is_cut else 0
            if at >= 0 and one.text.startswith(seen, at):
                rest = one.text[at + len(seen) :]
                if rest:
                    self._feed(turn, rest)
                self._flush()
            else:
                self._flush()
                if turn.earlier or turn.segment.strip() != one.text.strip():
                    self._print(one)
        self._answered.append(one.message_id)
        self._turn = None

    def _flush(self) -> None:
        """End the unfinished line."""
        if self._turn is not None and self._turn.markdown is not None:
            for line in self._turn.markdown.end():
                self.write(line)
            self.tail = ""
        if self.tail:
            tail, self.tail = self.tail, ""
            self.write(tail)

    def _lines(self, one: ShownItem) -> list[tuple[str, str]]:
        """The lines of ``one``, each with its colour (empty: none)."""
        shown = replace(one, text=clean(one.text), who=clean(one.who))
        if one.kind is ShownKind.WELCOME and not one.old:
            state = "" if one.state == AgentState.RUNNING else f" It is {clean(one.state)}."
            hint = "/help lists commands, Ctrl-D leaves."
            return [(f"You talk to {shown.who}.{state} {hint}", "dim")]
        if one.kind not in FORMS:
            return []
        colour = FORMS[one.kind][1]
        if one.old and one.kind is not ShownKind.QUESTION:
            colour = "dim"
        elif one.kind in (ShownKind.NOTICE, ShownKind.REPLY) and not one.ok:
            colour = "yellow"
        return [*((line, colour) for line in shown.sentence.split("\n")), *self._below(one)]

    def _below(self, one: ShownItem) -> list[tuple[str, str]]:
        """The lines below a question: its options, and how to answer."""
        if one.kind is ShownKind.QUESTION:
            options = [f"  {n}. {clean(o)}" for n, o in enumerate(one.options, start=1)]
            without = "your next text is the answer; /skip goes on without one"
            hint = "type its number" if options else without
            return [*((option, "") for option in options), (f"  ({hint})", "dim")]
        return []


def _broken(line: str, limit: int) -> tuple[str, str]:
    """``line`` broken at a space before ``limit`` columns, or within a word if it has none."""
    columns, at, space = 0, 0, -1
    for at, c in enumerate(line):
        columns += width_of(c)
        if columns > limit:
            break
        if c == " ":
            space = at
    if space > 0:
        return line[:space], line[space + 1 :]
    return line[:at], line[at:]
