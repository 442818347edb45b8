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
    began_line: bool = False


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
            case _:
                self._flush()
                for line in self._lines(one):
                    self.write(line)

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
        self._turn_of(one).segment = ""

    def _stream(self, one: Shown, text: str) -> None:
        if one.message_id in self._answered or not text:
            return
        turn = self._turn_of(one)
        turn.seen += text
        turn.segment += text
        self._feed(turn, text)

    def _feed(self, turn: _Turn, text: str) -> None:
        if not turn.began_line and not self.tail:
            self.tail = f"{turn.who}: "
            turn.began_line = True
        self.tail += clean(text)
        *whole, self.tail = self.tail.split("\n")
        for line in whole:
            self.write(line)
        limit = max(20, self.width() - 1)
        while width_of(self.tail) > limit:
            head, self.tail = _broken(self.tail, limit)
            self.write(head)

    def _picture(self, one: Shown) -> None:
        """The whole text so far: show what of it was not seen yet."""
        turn = self._turn_of(one)
        if one.text.startswith(turn.segment):
            self._stream(one, one.text[len(turn.segment) :])
        elif one.text:
            self._flush()
            turn.segment, turn.began_line = "", False
            self._stream(one, "… " + one.text)

    def _tool(self, one: Shown) -> None:
        if one.ok and not one.text.endswith("started"):
            return
        self._turn_of(one)
        self._flush()
        self.write(painted(f"  · {clean(one.text)}", "dim", plain=self.plain))

    def _answer(self, one: Shown) -> None:
        turn = self._seen.get(one.message_id)
        if turn is None or not turn.seen:
            self._flush()
            self._turn = None
            for line in self._lines(one):
                self.write(line)
        else:
            turn = self._turn_of(one)
            if one.text.startswith(turn.seen):
                rest = one.text[len(turn.seen) :]
                if rest:
                    self._feed(turn, rest)
                self._flush()
            else:
                self._flush()
                if turn.segment.strip() != one.text.strip():
                    for line in self._lines(one):
                        self.write(line)
        self._answered.append(one.message_id)
        self._turn = None

    def _flush(self) -> None:
        """End the unfinished line."""
        if self.tail:
            tail, self.tail = self.tail, ""
            self.write(tail)

    def _lines(self, one: Shown) -> list[str]:
        text, who = clean(one.text), clean(one.who)
        match one.kind:
            case Kind.ANSWER:
                found, colour = f"{who}: {text}", ""
            case Kind.PERSON:
                found, colour = f"{who or 'you'}: {text}", "cyan"
            case Kind.FILE:
                found, colour = f"{who}: [file {text}]", ""
            case Kind.QUESTION:
                return self._question(one)
            case Kind.WELCOME:
                return [] if one.old else self._welcome(one)
            case Kind.REPLY:
                found, colour = text, "" if one.ok else "yellow"
            case Kind.NOTICE:
                found, colour = f"* {text}", "dim" if one.ok else "yellow"
            case Kind.ERROR:
                found, colour = f"! {text}", "red"
            case _:
                return []
        colour = "dim" if one.old else colour
        lines = found.split("\n")
        return [painted(line, colour, plain=self.plain) if colour else line for line in lines]

    def _question(self, one: Shown) -> list[str]:
        lines = [painted(f"{clean(one.who)} asks: {clean(one.text)}", "bold", plain=self.plain)]
        lines += [f"  {n}. {clean(option)}" for n, option in enumerate(one.options, start=1)]
        hint = "type its number" if one.options else "answer with /answer and your text"
        lines.append(painted(f"  ({hint})", "dim", plain=self.plain))
        return lines

    def _welcome(self, one: Shown) -> list[str]:
        state = "" if one.text == "running" else f" It is {clean(one.text)}."
        text = f"You talk to {clean(one.who)}.{state} /help lists commands, Ctrl-D leaves."
        return [painted(text, "dim", plain=self.plain)]


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
