"""Reading the store from a program that does not own it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from agentsup.store.connection import connect_reader
from agentsup.store.failures import StoreFault, condition_of, unavailable
from agentsup.store.transaction import Reader

T = TypeVar("T")
_PATIENCE_MS = 2_000


def glance(path: Path, fn: Callable[[Reader], T]) -> T:
    """Run ``fn`` over one snapshot of the database at ``path``, while others may write it.

    Blocks. Raises ``StoreUnavailable`` or ``StoreCorrupt`` if it can't be read.
    """
    try:
        with contextlib.closing(connect_reader(path, busy_timeout_ms=_PATIENCE_MS)) as connection:
            connection.execute("BEGIN")
            return fn(Reader(connection))
    except sqlite3.Error as error:
        raise (
            condition_of(error, path, lambda: None)
            or unavailable(StoreFault.NOT_OPENED, path, str(error))
        ) from error
