"""Imports python-telegram-bot in a thread, and only when a bot needs it.

Only its modules of requests, files and errors are loaded. Its types of answers, its own HTTP client
and the library for Telegram Passport would take 13 MiB more.
"""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import dataclass
from typing import Any

from agentsup.kit.loading import hidden, late


@dataclass(frozen=True, slots=True)
class Library:
    """The library's names that the channel uses."""

    request: Any
    """``channels.telegram.request``, which imports the library."""


async def load() -> Library:
    """Import the library in a thread; fast if it has been imported before.

    Raises ``ImportError`` if it is not installed.
    """
    return await asyncio.to_thread(_load)


def _load() -> Library:
    late("telegram")
    late("telegram.request")
    with hidden("cryptography"):  # only Telegram Passport would take it
        return Library(importlib.import_module("agentsup.channels.telegram.request"))
