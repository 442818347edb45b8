"""A look into the store from beside it: reading only, by a program that does not own it."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from agentsup.store.connection import connect_reader
from agentsup.store.failures import Trouble, condition_of, unavailable
from agentsup.store.transaction import Reader

__all__ = ["glance"]

T = TypeVar("T")
_PATIENCE_MS = 2_000


def glance(path: Path, fn: Callable[[Reader], T]) -> T:
    """Run `fn` over one snapshot of the database at `path`, whoever writes it meanwhile.

    Blocks. Raises `StoreUnavailable` or `StoreCorrupt` where it can't be read.
    """
    try:
        with contextlib.closing(connect_reader(path, busy_timeout_ms=_PATIENCE_MS)) as connection:
            connection.execute("BEGIN")
            return fn(Reader(connection))
    except sqlite3.Error as error:
        raise (
            condition_of(error, path, lambda: None)
            or unavailable(Trouble.NOT_OPENED, path, str(error))
        ) from error
