"""The one door to matrix-nio: imported in a thread, and only when a bot is wanted.

The import takes a third of a second and a dozen MiB; a daemon without a Matrix bot never pays it.
Of the library we use what it knows of the protocol: paths, parameters and bodies of requests. Its
client is left alone, because it sleeps and repeats by itself, throws raw events away and turns
encryption on where it finds a library for it.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
from dataclasses import dataclass
from typing import Any

__all__ = ["Library", "load"]


@dataclass(frozen=True, slots=True)
class Library:
    """What the channel uses of it."""

    api: Any
    """``nio.Api``: builders of requests, each a tuple of method, path and maybe body."""


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
        return Library(api=importlib.import_module("nio").Api)
    finally:
        if was_enabled:
            gc.enable()
