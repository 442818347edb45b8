"""The only module that imports matrix-nio: in a thread, and only when there is a bot.

Only the library's builders of requests (paths, parameters and bodies) are used. They are in a
module of their own, which is loaded alone. The rest costs 13 MiB and a third of a second, and must
not be used: a client that sleeps and retries by itself, discards raw events, and turns encryption
on if it finds a library for it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NAME = "agentsup.channels.matrix._nio_api"
"""The name of the module here; importing it as ``nio.api`` would import the whole package."""


@dataclass(frozen=True, slots=True)
class Library:
    """The library's names that the channel uses."""

    api: Any
    """``nio.Api``: builders of requests, each a tuple of method, path and maybe body."""


async def load() -> Library:
    """Import the library without blocking the event loop; at once if it was imported before.

    Raises ``ImportError`` if it isn't installed, or has another layout than expected.
    """
    return await asyncio.to_thread(_load)


def _load() -> Library:
    known = sys.modules.get(_NAME)
    if known is None:
        package = importlib.util.find_spec("nio")
        if package is None or package.origin is None:
            raise ImportError("matrix-nio is not installed")
        file = Path(package.origin).with_name("api.py")
        spec = importlib.util.spec_from_file_location(_NAME, file)
        if spec is None or spec.loader is None or not file.is_file():
            raise ImportError(f"matrix-nio is not as expected: {file} is missing")
        known = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(known)
        sys.modules[_NAME] = known
    return Library(api=known.Api)
