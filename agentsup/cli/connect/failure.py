"""The exceptions with which a command fails: a sentence for stderr and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CommandFailed(Exception):
    """Ends the command with ``exit_code``; the text says what happened and what to do.

    An empty text ends it silently, for commands that have said everything already.
    """

    def __init__(self, text: str = "", *, exit_code: int = 1) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class DaemonUnreachable(CommandFailed):
    """No daemon answers at the address."""


@contextmanager
def failing_as(text: str, *others: type[Exception], end: str = "") -> Iterator[None]:
    """Raise an ``OSError`` or one of ``others`` as ``CommandFailed``: ``text``, the reason that the
    system names, and ``end``."""
    kinds: tuple[type[Exception], ...] = (OSError, *others)
    try:
        yield
    except kinds as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandFailed(f"{text}: {reason}{end}") from None
