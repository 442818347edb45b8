"""Chat as text above a prompt: whole lines are printed, the line being written is kept apart.

Pure but for `write`, so that what a terminal shows can be tested.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from agentsup.cli.chat.conversation import Kind, Shown
from agentsup.cli.show import clean, painted, width_of

_KEPT: Final = 200
OLD_SHOWN: Final = 12


@dataclass(slots=True)
class _Turn:
    """How much of a turn's text the person has seen."""

    message_id: str
    who: str
    seen: str = ""
    segment: str = ""
    """What was seen since the turn began or went on after a question."""
    earlier: str = ""
    """What the person saw of an earlier attempt, as long as this one says the same again."""
    began_line: bool = False
    is_cut: bool = False
    """Its first words were gone when this client came."""
    asked: bool = False
    """It waits for an answer and goes on after it."""


@dataclass(slots=True)
class Painter:
    """Turns what there is to show into lines. `tail` is the unfinished line of a running turn."""

    write: Callable[[str], None]
    width: Callable[[], int]
    plain: bool = False
    tail: str = ""
    _turn: _Turn | None = None
    _answered: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _seen: dict[str, _Turn] = field(default_factory=dict)

    def show(self, one: Shown) -> None:
        """Print what is complete of `one`."""
        match one.kind:
            case Kind.BEGIN:
                self._begin(one)
            case Kind.DELTA:
                self._stream(one, one.text)
            case Kind.PICTURE:
                self._picture(one)
            case Kind.TOOL:
                self._tool(one)
            case Kind.END:
                if self._turn is not None and self._turn.message_id == one.message_id:
                    self._flush()
            case Kind.ANSWER:
                self._answer(one)
            case Kind.WELCOME if one.old:
                pass  # connected again: what is being written goes on in its line
            case _:
                self._flush()
                if one.kind is Kind.QUESTION and one.message_id in self._seen:
                    self._seen[one.message_id].asked = True
                self._print(one)

    def _turn_of(self, one: Shown) -> _Turn:
        if self._turn is None or self._turn.message_id != one.message_id:
            self._flush()
            found = self._seen.pop(one.message_id, None) or _Turn(one.message_id, one.who)
            self._seen[one.message_id] = found
            while len(self._seen) > _KEPT:
                del self._seen[next(iter(self._seen))]
            self._turn = found
        return self._turn

    def _begin(self, one: Shown) -> None:
        turn = self._turn_of(one)
        if turn.seen and not turn.asked:
            self._anew(turn)
        turn.segment, turn.asked = "", False

    def _anew(self, turn: _Turn) -> None:
        """The turn starts again from its beginning, as after a crash. What it says again stands
        there already."""
        turn.earlier = max(turn.earlier, turn.seen, key=len)
        turn.seen, turn.segment = "", ""

    def _stream(self, one: Shown, text: str) -> None:
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
                self._differs(turn)
                text = turn.seen
            turn.earlier = ""
        self._feed(turn, text)

    def _differs(self, turn: _Turn) -> None:
        """It says something else than before: what follows is shown from its beginning."""
        self._flush()
        turn.began_line = False

    def _feed(self, turn: _Turn, text: str) -> None:
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
        """`line` as lines that the terminal need not break in the middle of a word."""
        limit = max(20, self.width() - 1)
        found = []
        while width_of(line) > limit:
            head, line = _broken(line, limit)
            found.append(head)
        return [*found, line]

    def _print(self, one: Shown) -> None:
        """Write all of `one`, in its colour."""
        for line, colour in self._lines(one):
            for piece in self._fitting(line):
                self.write(painted(piece, colour, plain=self.plain) if colour else piece)

    def _picture(self, one: Shown) -> None:
        """The whole text so far: show what of it was not seen yet."""
        turn = self._turn_of(one)
        if not one.text.startswith(turn.segment):
            self._anew(turn)
        turn.is_cut = turn.is_cut or (one.is_cut and not turn.segment)
        self._stream(one, one.text[len(turn.segment) :])

    def _tool(self, one: Shown) -> None:
        if one.ok and not one.text.endswith("started"):
            return
        self._turn_of(one)
        self._flush()
        self.write(painted(f"  · {clean(one.text)}", "dim", plain=self.plain))

    def _answer(self, one: Shown) -> None:
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
        if self.tail:
            tail, self.tail = self.tail, ""
            self.write(tail)

    def _lines(self, one: Shown) -> list[tuple[str, str]]:
        """The lines of `one`, each with its colour (empty: none)."""
        text, who = clean(one.text), clean(one.who)
        match one.kind:
            case Kind.ANSWER:
                found, colour = f"{who}: {text}", ""
            case Kind.PERSON:
                found, colour = f"{who or 'you'}: {text}", "cyan"
            case Kind.CORRECTED:
                found, colour = f"{who or 'you'} (corrected): {text}", "cyan"
            case Kind.FILE:
                found, colour = f"{who}: [file {text}]", ""
            case Kind.QUESTION:
                options = [f"  {n}. {clean(o)}" for n, o in enumerate(one.options, start=1)]
                hint = (
                    "type its number"
                    if options
                    else "your next text is the answer; /skip goes on without one"
                )
                return [
                    *((line, "bold") for line in f"{who} asks: {text}".split("\n")),
                    *((option, "") for option in options),
                    (f"  ({hint})", "dim"),
                ]
            case Kind.WELCOME if not one.old:
                state = "" if one.text == "running" else f" It is {text}."
                hint = "/help lists commands, Ctrl-D leaves."
                found, colour = f"You talk to {who}.{state} {hint}", "dim"
            case Kind.REPLY:
                found, colour = text, "" if one.ok else "yellow"
            case Kind.NOTICE:
                found, colour = f"* {text}", "dim" if one.ok else "yellow"
            case Kind.WARNING:
                found, colour = f"* {text}", "yellow"
            case Kind.ERROR:
                found, colour = f"! {text}", "red"
            case _:
                return []
        return [(line, "dim" if one.old else colour) for line in found.split("\n")]


def _broken(line: str, limit: int) -> tuple[str, str]:
    """`line` broken at a space before `limit` columns, or hard where it has none."""
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
