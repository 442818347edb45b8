"""The one door to python-telegram-bot: imported in a thread, and only when a bot is wanted.

The import takes over a second and several MiB; a daemon without a Telegram bot never pays it.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass


__all__ = ["Library", "load"]

_COMMAND_LINE = "httpx._main"
"""An optional part of the library's HTTP client that nobody here calls; with the colouring libraries
behind it, it takes five MiB."""


@dataclass(frozen=True, slots=True)
class Library:
    """What the channel uses of it."""

    telegram: Any
    """The module itself."""
    request: Any
    """`agentsup.channels.telegram.request`, which needs the library to be imported."""


async def load() -> Library:
    """Import the library without holding up the loop; at once if it has been imported before.

    Raises ``ImportError`` where it isn't installed.
    """
    return await asyncio.to_thread(_load)


def _load() -> Library:
    # A full collection among a thousand new classes holds the interpreter, and so the loop, for
    # tens of milliseconds; nothing of what is imported is garbage.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with _without(_COMMAND_LINE):
            return Library(
                telegram=importlib.import_module("telegram"),
                request=importlib.import_module("agentsup.channels.telegram.request"),
            )
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _without(module: str) -> Iterator[None]:
    """Have the import of `module` fail meanwhile, unless it is there already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # so the import system says "not found"
    try:
        yield
    finally:
        sys.modules.pop(module, None)
