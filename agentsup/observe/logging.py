"""Logging: one path for the records of ``kit.log`` and of libraries, off the event loop.

The thread that logs makes a record plain and removes secrets. The record then waits in a bounded
queue, and a separate thread writes it, so neither a blocked terminal nor a slow disk blocks the
loop (P3). Records that do not fit are counted, and the count is logged. A terminal gets readable
lines, everything else one JSON object per line.
"""

from __future__ import annotations

import contextlib
import json as jsonlib
import logging
import logging.handlers
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

from structlog import contextvars as bound

from agentsup.kit.clock import SystemClock
from agentsup.kit.log import FACTS
from agentsup.kit.terminal import clean, clean_json, clean_line
from agentsup.observe.redact import Redactor

QUEUE_MAX: Final = 10_000
GATHER_S: Final = 0.02
"""The longest wait of a line for others that are written with it."""
BATCH: Final = 1000
TEXT_MAX: Final = 16 * 1024
"""The longest text in a record, in characters."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", FACTS}
_FIRST = ("agent", "session", "message", "trace")


# -- names on lines --------------------------------------------------------------------------------


def bind(
    *, agent: str = "", session: str = "", message: str = "", trace: str = ""
) -> AbstractContextManager[None]:
    """Add these names to the log lines of this task, and of tasks it starts, inside a ``with`` block.

    Empty ones change nothing.
    """
    names = {"agent": agent, "session": session, "message": message, "trace": trace}
    given = {name: value for name, value in names.items() if value}
    return bound.bound_contextvars(**given)


# -- setup -----------------------------------------------------------------------------------------


def setup_logging(
    *,
    level: str,
    json: bool,
    file: Path | None,
    redactor: Redactor,
    stream: TextIO | None = None,
    plain: bool = False,
    file_bytes: int = 5 * 1024 * 1024,
    most_files: int = 5,
) -> LogSystem:
    """Configure logging; once, at the start of the process.

    ``level`` is a name such as "info". Lines go to ``stream`` (default: stderr), as JSON if
    ``json`` is set or if it is no terminal (unless ``plain``). They also go to ``file`` as JSON,
    which is rotated at ``file_bytes`` with ``most_files`` older files. Raises
    ``ValueError`` for an unknown level and ``OSError`` if the file can't be opened. Close the
    result at the end, so that the last lines are written.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"there is no log level {level!r}: use debug, info, warning or error")
    stream = stream or sys.stderr
    is_json = json or not (plain or stream.isatty())
    targets: list[Target] = [
        _Console(stream, _as_json if is_json else partial(_as_text, has_colours=stream.isatty()))
    ]
    if file is not None:
        targets.append(_open_file(file, file_bytes, most_files))
    system = LogSystem(targets, redactor)
    system.take_over(number)
    # A line for each request is only for debugging; errors are logged where they are handled.
    logging.getLogger("aiohttp.access").setLevel(max(number, logging.WARNING))
    logging.getLogger("asyncio").setLevel(max(number, logging.WARNING))
    if number <= logging.DEBUG:
        logging.getLogger("aiohttp.access").setLevel(logging.DEBUG)
    return system


@dataclass(frozen=True, slots=True)
class Line:
    """One record, plain and without secrets."""

    level: str
    logger: str
    created_s: float
    facts: dict[str, Any]


class Target(Protocol):
    """A place to which lines go."""

    @property
    def form(self) -> Callable[[Line], str]:
        """The format of a line for this target; targets with the same function share its
        results."""

    def put(self, texts: Sequence[str]) -> None:
        """Write the texts, each as a line; any error counts them as not written."""

    def close(self) -> None:
        """Close what was opened for it. Raises ``OSError``."""


class LogSystem:
    """The running logging: the handler of the root logger and the writing thread."""

    def __init__(
        self, targets: Sequence[Target], redactor: Redactor, *, queue_max: int = QUEUE_MAX
    ) -> None:
        self._queue: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        self._targets = targets
        self.handler = _Funnel(self._queue, redactor, queue_max)
        self._reported_dropped = 0
        self._before: tuple[int, tuple[logging.Handler, ...]] | None = None
        self.write_errors = 0
        """Lines that a target could not write (disk full, closed pipe)."""
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._write, name="log-writer", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines that did not fit into the queue."""
        return self.handler.dropped

    def take_over(self, level: int) -> None:
        """Become the only handler of the root logger; ``close`` restores the earlier ones."""
        root = logging.getLogger()
        self._before = (root.level, tuple(root.handlers))
        root.handlers[:] = [self.handler]
        root.setLevel(level)
        logging.captureWarnings(True)

    def close(self, timeout_s: float = 2.0) -> bool:
        """Write queued records and end; False if the targets took longer than ``timeout_s``."""
        if self._before is not None:
            root = logging.getLogger()
            root.setLevel(self._before[0])
            root.handlers[:] = self._before[1]
            logging.captureWarnings(False)
            self._before = None
        self._is_closing.set()
        self._queue.put(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        for target in self._targets:
            # A full disk may not take the last line; the process ends with its exit code.
            with contextlib.suppress(OSError):
                target.close()
        return True

    def _write(self) -> None:
        """Write what has come, in batches, until the end: a wake and a flush per line would cost
        more than the line."""
        while (first := self._queue.get()) is not None:
            self._is_closing.wait(GATHER_S)
            lines, is_last = self._gathered(first)
            self._hand_out(lines)
            dropped = self.handler.dropped
            if dropped > self._reported_dropped and (is_last or self._queue.empty()):
                self._hand_out([_dropped_line(dropped - self._reported_dropped)])
                self._reported_dropped = dropped
            if is_last:
                return

    def _gathered(self, first: Line) -> tuple[list[Line], bool]:
        """The lines that wait, at most ``BATCH``; whether the end came behind them."""
        lines = [first]
        with contextlib.suppress(queue.Empty):
            while len(lines) < BATCH:
                following = self._queue.get_nowait()
                if following is None:
                    return lines, True
                lines.append(following)
        return lines, False

    def _hand_out(self, lines: list[Line]) -> None:
        texts: dict[Callable[[Line], str], list[str]] = {}
        for target in self._targets:
            if target.form not in texts:
                texts[target.form] = [target.form(line) for line in lines]
            try:
                target.put(texts[target.form])
            except Exception:  # noqa: BLE001
                # supervision boundary: the other targets go on. A line about it would fail in the
                # same way, so it is only counted.
                self.write_errors += len(lines)


class _Funnel(logging.Handler):
    """Makes each record plain, removes secrets and queues it; never waits."""

    def __init__(
        self, waiting: queue.SimpleQueue[Line | None], redactor: Redactor, most: int
    ) -> None:
        super().__init__()
        self._waiting = waiting
        self._redactor = redactor
        self._most = most
        self.dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        if self._waiting.qsize() >= self._most:
            self.dropped += 1
            return
        try:
            facts = self._redactor.value(_facts_of(record), TEXT_MAX)
        except Exception:  # noqa: BLE001
            # supervision boundary: whoever logs must not fail because of the log
            self.dropped += 1
            return
        self._waiting.put(Line(record.levelname, record.name, record.created, facts))


def _facts_of(record: logging.LogRecord) -> dict[str, Any]:
    facts: dict[str, Any] = {"event": _message_of(record)}
    facts |= bound.get_contextvars()
    if record.name.partition(".")[0] != "aiohttp":  # its extras repeat its line
        facts |= {k: v for k, v in vars(record).items() if k not in _STANDARD}
    facts |= getattr(record, FACTS, {})
    if record.exc_info:
        facts["exception"] = logging.Formatter().formatException(record.exc_info)
    elif record.exc_text:
        facts["exception"] = record.exc_text
    if record.stack_info:
        facts["stack"] = record.stack_info
    return facts


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001
        # supervision boundary: a wrong format must not hide the message
        return f"{record.msg} (arguments do not fit: {type(error).__name__})"


def _dropped_line(count: int) -> Line:
    text = f"{count} log lines were dropped: they came too fast"
    return Line("WARNING", __name__, SystemClock().now_ms() / 1000, {"event": text})


# -- the look of lines -----------------------------------------------------------------------------


def _as_json(line: Line) -> str:
    """One JSON object; the time in UTC."""
    at = datetime.fromtimestamp(line.created_s, UTC).isoformat(timespec="milliseconds")
    shown: dict[str, Any] = {
        "at": at.replace("+00:00", "Z"),
        "level": line.level.lower(),
        "logger": line.logger,
    }
    for name, value in line.facts.items():
        shown[f"{name}_" if name in shown else name] = value
    return clean_json(jsonlib.dumps(shown, ensure_ascii=False, default=str))


_COLOURS: Final = {"WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31;1m"}


def _as_text(line: Line, *, has_colours: bool) -> str:
    """Time, level, agent, event, key=value; for people. Only terminals get colours."""
    facts = dict(line.facts)
    exception, stack = facts.pop("exception", None), facts.pop("stack", None)
    at = time.strftime("%H:%M:%S", time.localtime(line.created_s))
    colour = _COLOURS.get(line.level, "") if has_colours else ""
    level = f"{colour}{line.level.lower():<8}{chr(27) + '[0m' if colour else ''}"
    agent, event = facts.pop("agent", ""), clean_line(facts.pop("event", ""))
    known = [name for name in _FIRST if name in facts]
    rest = [name for name in facts if name not in _FIRST]
    pairs = [f"{clean_line(name)}={_shown(facts[name])}" for name in (*rest, *known)]
    head = [at, level, *([f"[{clean_line(agent)}]"] if agent else []), event, *pairs]
    return "\n".join([" ".join(head), *(clean(t) for t in (exception, stack) if t)])


def _shown(value: Any) -> str:
    if isinstance(value, str):
        text = clean_line(value)
        return (
            text if text and not set(text) & set(' "=') else jsonlib.dumps(text, ensure_ascii=False)
        )
    return clean_json(jsonlib.dumps(value, ensure_ascii=False, default=str))


# -- targets ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Console:
    """A stream of somebody else's, such as stderr."""

    stream: TextIO
    form: Callable[[Line], str]

    def put(self, texts: Sequence[str]) -> None:
        self.stream.write("".join(f"{text}\n" for text in texts))
        self.stream.flush()

    def close(self) -> None:
        """Nothing to close."""


class _RotatingFile(logging.handlers.RotatingFileHandler):
    """A rotating file of JSON that only its owner can read, whatever the umask."""

    form = staticmethod(_as_json)
    _size = 0

    def put(self, texts: Sequence[str]) -> None:
        for text in texts:
            size = 1 + (len(text) if text.isascii() else len(text.encode("utf-8", "replace")))
            if self._size and self._size + size > self.maxBytes:
                self.doRollover()
            if self.stream is None:  # an earlier attempt to rotate has failed
                self.stream = self._open()
            self.stream.write(f"{text}\n")
            self._size += size
        self.flush()

    def _open(self) -> Any:
        descriptor = os.open(
            self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        self._size = os.fstat(descriptor).st_size
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")


def _open_file(path: Path, max_bytes: int, count: int) -> Target:
    path.parent.mkdir(parents=True, exist_ok=True)
    return _RotatingFile(path, maxBytes=max_bytes, backupCount=count, encoding="utf-8")
