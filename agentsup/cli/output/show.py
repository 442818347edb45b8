"""Output of results: aligned tables, cards in a narrow terminal, JSON for programs.

Texts from elsewhere are shown without control characters, which could move the cursor.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TextIO

from agentsup.kit.own_command import with_home
from agentsup.kit.terminal import clean, clean_json, clean_painted

GAP: Final = 2
LEAST_LAST: Final = 16
"""The last column of a table is shortened to no less than this; below it cards are shown."""
_COLOURS: Final = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
_STATES: Final = {
    "running": "green",
    "done": "green",
    "ok": "green",
    "degraded": "yellow",
    "starting": "yellow",
    "backoff": "yellow",
    "warn": "yellow",
    "draining": "yellow",
    "failed": "red",
    "dead": "red",
    "fail": "red",
    "warned": "yellow",
    "exhausted": "red",
}


def is_plain(stream: TextIO) -> bool:
    """Whether ``stream`` takes no colour: no terminal, a dumb one, or NO_COLOR is set."""
    dumb = os.environ.get("TERM", "") in {"dumb", ""}
    return not stream.isatty() or dumb or bool(os.environ.get("NO_COLOR"))


def painted(text: str, colour: str, *, plain: bool) -> str:
    """``text`` in a colour of the terminal (empty: none), or as it is."""
    return text if plain or not (text and colour) else f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def width_of(text: str) -> int:
    """Columns that ``text`` takes in a terminal."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in {"W", "F"} else 1
        for c in text
    )


def shortened(text: str, columns: int) -> str:
    """``text`` on one line within ``columns``."""
    line = " ".join(text.split())
    if width_of(line) <= columns:
        return line
    shown = ""
    for c in line:
        if width_of(shown + c) > columns - 1:
            break
        shown += c
    return shown + "…"


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], width: int | None) -> str:
    """Rows as aligned columns within ``width``; as one card per row where they don't fit.

    ``width`` None: no limit, for pipes. The last column is the one that is shortened.
    """
    cells = [[" ".join(with_home(clean(c)).split()) for c in row] for row in rows]
    widths = [max([width_of(h), *(width_of(r[i]) for r in cells)]) for i, h in enumerate(headers)]
    before_last = sum(widths[:-1]) + GAP * (len(widths) - 1)
    if width is not None and before_last + widths[-1] > width:
        room = width - before_last
        if room < min(LEAST_LAST, widths[-1]):
            return cards(headers, cells, width)
        widths[-1] = room
    lines = [_line([h.upper() for h in headers], widths)]
    lines += [_line([*row[:-1], shortened(row[-1], widths[-1])], widths) for row in cells]
    return "\n".join(lines)


def cards(headers: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> str:
    """One block per row: its first cell as the title, the others below it."""
    blocks = []
    for row in rows:
        lines = textwrap.wrap(row[0], max(10, width)) or [""]
        for header, cell in zip(headers[1:], row[1:], strict=True):
            if cell:
                lines += wrapped(f"{header} {cell}", width, indent="  ")
        blocks.append("\n".join(lines))
    return "\n".join(blocks)


def wrapped(text: str, width: int | None, *, indent: str = "") -> list[str]:
    """Lines of ``text`` within ``width``, its own line ends kept; all but the first deeper."""
    lines: list[str] = []
    for line in text.split("\n"):
        if width is None or width_of(indent + line) <= width:
            lines.append(indent + line)
            continue
        lines += textwrap.wrap(
            line,
            max(12, width),
            initial_indent=indent,
            subsequent_indent=indent + "  ",
            break_long_words=True,
        ) or [indent]
    return lines


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [c + " " * (w - width_of(c)) for c, w in zip(cells, widths, strict=True)]
    return (" " * GAP).join(padded).rstrip()


def facts(pairs: Iterable[tuple[str, object]], width: int | None) -> str:
    """``name  value`` lines, aligned; empty values are left out."""
    shown = [
        (name, with_home(clean(value))) for name, value in pairs if value not in (None, "", [], ())
    ]
    column = max((len(name) for name, _ in shown), default=0) + GAP
    lines: list[str] = []
    for name, value in shown:
        room = None if width is None else max(16, width - column)
        first, *rest = wrapped(value, room) or [""]
        lines.append(name.ljust(column) + first)
        lines += [" " * column + line for line in rest]
    return "\n".join(lines)


def when(at_ms: int | None, none: str = "-") -> str:
    """A stored time as local time, to the second; ``none`` for no time."""
    if not at_ms:
        return none
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float | None) -> str:
    """A length of time in its two largest units."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    for unit_s, unit, below_s, below in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit_s:
            rest = whole % unit_s // below_s
            return f"{whole // unit_s} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


Cell = Callable[[dict[str, Any]], object]
"""Makes of a document what a table or a record shows of it."""
Columns = Sequence[str | tuple[str, str | Cell]]
"""What is shown of a document: members by their names, or under other labels."""


def labelled(one: dict[str, Any], columns: Columns) -> list[tuple[str, object]]:
    """What ``columns`` show of a document, each with its label."""
    pairs = ((each, each) if isinstance(each, str) else each for each in columns)
    return [(label, one[of] if isinstance(of, str) else of(one)) for label, of in pairs]


def at(member: str, none: str = "-") -> Cell:
    """The time in that member; ``none`` if there is none."""
    return lambda one: when(one[member], none)


def all_of(member: str) -> Cell:
    """The texts in that member, each on a line of its own."""
    return lambda one: "\n".join(one[member])


def brief(member: str) -> Cell:
    """The beginning of the text in that member, on one line."""
    return lambda one: shortened(one[member], 200)


class CommandOutput:
    """The output of a command's result."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to ``stream``, by default to standard output as it is now."""
        self._stream = sys.stdout if stream is None else stream
        self.is_terminal = self._stream.isatty()
        self.plain = is_plain(self._stream)

    @classmethod
    def unless_json(cls, document: Any, as_json: bool, code: int = 0) -> CommandOutput:
        """The output for a command's text. With ``as_json`` it prints the document instead and ends
        the command with ``code``: raises ``typer.Exit``."""
        screen = cls()
        if not as_json:
            return screen
        import typer

        screen.json(document)
        raise typer.Exit(code)

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None in a pipe, where nothing is shortened."""
        return shutil.get_terminal_size().columns if self.is_terminal else None

    def say(self, text: str) -> None:
        """Print a text and a line end; of control sequences only our colours are kept."""
        print(clean_painted(with_home(text)), file=self._stream)

    def prose(self, text: str, indent: str = "") -> None:
        """Sentences, broken between words where a terminal is narrow; ``indent`` begins what is
        broken off."""
        width, text = self.width, with_home(text)
        if width is not None:
            text = textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False)
        self.say(text)

    def finding(self, text: object, kind: str = "error", colour: str = "red") -> None:
        """Something that is wrong, after the word for how bad it is."""
        self.say(f"{self.paint(kind, colour)}: {clean(text)}")

    def difference(self, lines: Iterable[str]) -> None:
        """Lines that were removed (``- ``) and added (``+ ``) in a file."""
        for line in lines:
            self.say(self.paint(clean(line), "red" if line[0] == "-" else "green"))

    def done(self, document: Any, text: str, *, as_json: bool) -> None:
        """Print the result of a change: ``text``, or the ``document`` as JSON."""
        if as_json:
            self.json(document)
        else:
            self.say(text)

    def json(self, document: Any) -> None:
        """One JSON document."""
        print(json_text(document), file=self._stream)

    def listing(self, found: Iterable[dict[str, Any]], columns: Columns, *, empty: str) -> None:
        """A table of documents, or the sentence ``empty`` (for people, so on stderr in a pipe)."""
        heads = [each if isinstance(each, str) else each[0] for each in columns]
        rows = [[shown for _, shown in labelled(one, columns)] for one in found]
        if rows:
            text = table(heads, rows, self.width)
            self.say(text if self.plain else _with_states(text))
        else:
            print(empty, file=self._stream if self.is_terminal else sys.stderr)

    def facts(self, pairs: Iterable[tuple[str, object]]) -> None:
        """``name  value`` lines."""
        self.say(facts(pairs, self.width))

    def paint(self, text: str, colour: str) -> str:
        """``text`` in a colour, where this screen has colours."""
        return painted(text, colour, plain=self.plain)


def json_text(document: Any) -> str:
    """A JSON document for people and programs; control characters are escaped."""
    return clean_json(json.dumps(document, ensure_ascii=False, indent=2))


def _with_states(text: str) -> str:
    """A table for a colour terminal: bold heads, words of state in their colour."""
    head, *lines = text.split("\n")
    return "\n".join([painted(head, "bold", plain=False), *map(_coloured, lines)])


def _coloured(line: str) -> str:
    for word in line.split():
        if word in _STATES:
            return line.replace(word, painted(word, _STATES[word], plain=False), 1)
    return line
