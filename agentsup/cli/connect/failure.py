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
def failing_as(text: str) -> Iterator[None]:
    """Raise an ``OSError`` as ``CommandFailed``: ``text``, and the reason that the system names."""
    try:
        yield
    except OSError as error:
        raise CommandFailed(f"{text}: {error.strerror or error}") from None
