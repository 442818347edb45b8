"""Logging for every package: what happened in words, and facts as keywords.

``observe.logging`` decides where the lines go and how they look; this module knows nothing of it, so
that all rings can use it.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

FACTS = "agentsup_facts"
"""The attribute of a standard log record that holds the facts."""
_Error = bool | BaseException | None


class Logger:
    """The logger of one module: ``log.warning("what happened", reason=why)``.

    ``exc_info`` adds the traceback of an error, or with True that of the one being handled. The
    event is written as it stands, whatever characters it has.
    """

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, /, *, exc_info: _Error = None, **facts: Any) -> None:
        self._put(logging.DEBUG, event, exc_info, facts)

    def info(self, event: str, /, *, exc_info: _Error = None, **facts: Any) -> None:
        self._put(logging.INFO, event, exc_info, facts)

    def warning(self, event: str, /, *, exc_info: _Error = None, **facts: Any) -> None:
        self._put(logging.WARNING, event, exc_info, facts)

    def error(self, event: str, /, *, exc_info: _Error = None, **facts: Any) -> None:
        self._put(logging.ERROR, event, exc_info, facts)

    def exception(self, event: str, /, **facts: Any) -> None:
        """An error with the traceback of the exception being handled."""
        self._put(logging.ERROR, event, True, facts)

    def critical(self, event: str, /, *, exc_info: _Error = None, **facts: Any) -> None:
        self._put(logging.CRITICAL, event, exc_info, facts)

    def log(self, level: int, event: str, /, **facts: Any) -> None:
        """A line of a ``level`` of the standard library."""
        self._put(level, event, None, facts)

    def is_enabled(self, level: int) -> bool:
        """Whether lines of that level are written, for a text that is costly to make."""
        return self._logger.isEnabledFor(level)

    def _put(self, level: int, event: str, exc_info: _Error, facts: dict[str, Any]) -> None:
        logger = self._logger
        if not logger.isEnabledFor(level):
            return
        error = sys.exception() if exc_info is True else exc_info or None
        info = (type(error), error, error.__traceback__) if error is not None else None
        # Where the call stands is not written, so it is not looked up. Without arguments the event
        # is not used as a format string.
        record = logging.LogRecord(logger.name, level, "", 0, event, None, info)
        setattr(record, FACTS, facts)
        logger.handle(record)


def get_logger(name: str) -> Logger:
    """The logger of the module called ``name``."""
    return Logger(name)


def set_level(level: int | str, name: str | None = None) -> None:
    """Drop lines below ``level`` of the loggers under ``name``; None: of all loggers."""
    logging.getLogger(name).setLevel(level)
