"""Logs: one way for structlog's and the standard library's records, off the event loop.

A record is made plain and free of secrets in the thread that logs, waits in a bounded queue and is
written by a thread of its own, so neither a blocked terminal nor a slow disk holds the loop up
(P3). What does not fit is counted and the count is logged. A readable line goes to a terminal, a
JSON object per line to everything else.
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
from collections.abc import Mapping, MutableMapping
from contextvars import Token
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self, TextIO

from agentsup.kit.terminal import clean, clean_json, clean_line
from agentsup.observe.lean import structlog
from agentsup.observe.redact import Redactor

__all__ = ["Bound", "LogSystem", "bind", "get_logger", "setup_logging"]

FILE_BYTES: Final = 5 * 1024 * 1024
FILES_KEPT: Final = 5
QUEUE_MAX: Final = 10_000
TEXT_MAX: Final = 16 * 1024
"""Longest text in a record, in characters."""
_FACTS = "agentsup_facts"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", _FACTS}
_FIRST = ("agent", "session", "message", "trace")


# -- for code that logs ----------------------------------------------------------------------------


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger for ``log.info("what happened", key=value)``."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(name)
    return logger


class Bound:
    """Names bound to the log lines of this task and of tasks it starts; ends with ``with``."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._tokens: Mapping[str, Token[Any]] = structlog.contextvars.bind_contextvars(**names)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        structlog.contextvars.reset_contextvars(**self._tokens)


def bind(*, agent: str = "", session: str = "", message: str = "", trace: str = "") -> Bound:
    """Add these names to every line from here on, in a ``with`` block until its end.

    Empty ones are left as they are.
    """
    names = {"agent": agent, "session": session, "message": message, "trace": trace}
    return Bound({name: value for name, value in names.items() if value})


# -- set up ----------------------------------------------------------------------------------------


def setup_logging(
    *,
    level: str,
    json: bool,
    file: Path | None,
    redactor: Redactor,
    stream: TextIO | None = None,
    plain: bool = False,
    file_bytes: int | None = None,
    files_kept: int | None = None,
) -> LogSystem:
    """Configure structlog and the standard library's logging; once, at the start of the process.

    ``level`` is a name such as "info". Lines go to ``stream`` (default: stderr), as JSON if
    ``json`` or if it is no terminal (unless ``plain``), and as JSON to ``file``, in pieces of
    ``file_bytes`` (5 MiB) of which ``files_kept`` (5) full ones are kept. Raises ``ValueError``
    for an unknown level and ``OSError`` if the file can't be opened. Close the result at the end,
    so that the last lines are written.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"there is no log level {level!r}: use debug, info, warning or error")
    stream = stream or sys.stderr
    console = logging.StreamHandler(stream)
    is_json = json or not (plain or stream.isatty())
    console.setFormatter(_JsonFormatter() if is_json else _LineFormatter(stream.isatty()))
    targets: list[logging.Handler] = [console]
    if file is not None:
        kept = FILES_KEPT if files_kept is None else files_kept
        targets.append(_open_file(file, file_bytes or FILE_BYTES, kept))
    system = LogSystem(targets, redactor)
    system.take_over(number)
    # Each request as a line is for debugging; what is wrong is logged where it is handled.
    logging.getLogger("aiohttp.access").setLevel(max(number, logging.WARNING))
    logging.getLogger("asyncio").setLevel(max(number, logging.WARNING))
    if number <= logging.DEBUG:
        logging.getLogger("aiohttp.access").setLevel(logging.DEBUG)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, _hand_over],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    return system


class LogSystem:
    """The running logs: the handler of the root logger and the thread that writes."""

    def __init__(
        self, targets: list[logging.Handler], redactor: Redactor, *, queue_max: int = QUEUE_MAX
    ) -> None:
        self._queue: queue.Queue[logging.LogRecord | None] = queue.Queue(queue_max)
        self._targets = targets
        self.handler = _Funnel(self._queue, redactor)
        self._told_dropped = 0
        self._before: tuple[int, tuple[logging.Handler, ...]] | None = None
        self.write_errors = 0
        """Lines that a target could not write (disk full, closed pipe)."""
        for target in targets:
            target.handleError = self._count_error  # type: ignore[method-assign]  # the documented hook
        self._thread = threading.Thread(target=self._write, name="log-writer", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines that did not fit into the queue."""
        return self.handler.dropped

    def take_over(self, level: int) -> None:
        """Become the only handler of the root logger; ``close`` puts back what was there."""
        root = logging.getLogger()
        self._before = (root.level, tuple(root.handlers))
        root.handlers[:] = [self.handler]
        root.setLevel(level)
        logging.captureWarnings(True)

    def close(self, timeout_s: float = 2.0) -> bool:
        """Write what waits and end; False if the targets took longer than ``timeout_s``."""
        if self._before is not None:
            root = logging.getLogger()
            root.setLevel(self._before[0])
            root.handlers[:] = self._before[1]
            logging.captureWarnings(False)
            self._before = None
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=timeout_s)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        for target in self._targets:
            if isinstance(target, logging.FileHandler):
                # A full disk may not take the last line; the process ends with its exit code.
                with contextlib.suppress(OSError):
                    target.close()
        return True

    def _count_error(self, record: logging.LogRecord) -> None:
        # Told by a counter: a line about it would meet the same trouble.
        self.write_errors += 1

    def _write(self) -> None:
        while (record := self._queue.get()) is not None:
            self._hand_out(record)
            dropped = self.handler.dropped
            if dropped > self._told_dropped and self._queue.empty():
                self._hand_out(_dropped_record(dropped - self._told_dropped))
                self._told_dropped = dropped

    def _hand_out(self, record: logging.LogRecord) -> None:
        for target in self._targets:
            target.handle(record)


class _Funnel(logging.handlers.QueueHandler):
    """Makes each record plain and clean and queues it; never waits."""

    def __init__(self, waiting: queue.Queue[Any], redactor: Redactor) -> None:
        super().__init__(waiting)
        self._redactor = redactor
        self.dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """A new record that holds only the facts: no arguments, no traceback objects."""
        facts = _facts_of(record)
        clean = logging.makeLogRecord(
            {
                "name": record.name,
                "levelno": record.levelno,
                "levelname": record.levelname,
                "created": record.created,
                "msecs": record.msecs,
            }
        )
        setattr(clean, _FACTS, self._redactor.value(facts, TEXT_MAX))
        return clean

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - name of the library
        self.dropped += 1


def _hand_over(
    logger: Any, method: str, event_dict: MutableMapping[str, Any]
) -> tuple[tuple[str], dict[str, Any]]:
    """structlog's last step: the event and its facts as arguments of the standard logger."""
    exc_info = event_dict.pop("exc_info", None)
    if method == "exception" and exc_info is None:
        exc_info = True
    stack_info = bool(event_dict.pop("stack_info", False))
    event = str(event_dict.pop("event", ""))
    # The text is no format string here, whatever characters it has: no arguments follow.
    return (event,), {
        "exc_info": exc_info,
        "stack_info": stack_info,
        "extra": {_FACTS: dict(event_dict)},
    }


def _facts_of(record: logging.LogRecord) -> dict[str, Any]:
    facts: dict[str, Any] = {"event": _message_of(record)}
    facts |= structlog.contextvars.get_contextvars()
    if record.name.partition(".")[0] != "aiohttp":  # its extras repeat its line
        facts |= {k: v for k, v in vars(record).items() if k not in _STANDARD}
    facts |= getattr(record, _FACTS, {})
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
        # supervision boundary: a wrong format must not hide that there was something to say
        return f"{record.msg} (arguments do not fit: {type(error).__name__})"


def _dropped_record(count: int) -> logging.LogRecord:
    record = logging.LogRecord(__name__, logging.WARNING, "", 0, "", None, None)
    setattr(record, _FACTS, {"event": f"{count} log lines were dropped: they came too fast"})
    return record


# -- targets ---------------------------------------------------------------------------------------


class _JsonFormatter(logging.Formatter):
    """One JSON object per line; times in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "at": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        for name, value in getattr(record, _FACTS).items():
            line[f"{name}_" if name in line else name] = value
        return clean_json(jsonlib.dumps(line, ensure_ascii=False, default=str))


class _LineFormatter(logging.Formatter):
    """Time, level, agent, event, key=value; for people. Only terminals get colours."""

    COLOURS: Final = {"WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31;1m"}

    def __init__(self, has_colours: bool) -> None:
        super().__init__()
        self._has_colours = has_colours

    def format(self, record: logging.LogRecord) -> str:
        facts = dict(getattr(record, _FACTS))
        exception, stack = facts.pop("exception", None), facts.pop("stack", None)
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        colour = self.COLOURS.get(record.levelname, "") if self._has_colours else ""
        level = f"{colour}{record.levelname.lower():<8}{chr(27) + '[0m' if colour else ''}"
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


class _RotatingFile(logging.handlers.RotatingFileHandler):
    """Readable by its owner only, whatever the umask."""

    def _open(self) -> Any:
        descriptor = os.open(
            self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")


def _open_file(path: Path, max_bytes: int, kept: int) -> logging.Handler:
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = _RotatingFile(path, maxBytes=max_bytes, backupCount=kept, encoding="utf-8")
    handler.setFormatter(_JsonFormatter())
    return handler
