"""Which SQLite this Python brings, for those who may not import it."""

from __future__ import annotations

import sqlite3

__all__ = ["SQLITE_VERSION"]

SQLITE_VERSION = sqlite3.sqlite_version
