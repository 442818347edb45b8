"""The one door to matrix-nio: imported in a thread, and only when a bot is wanted.

Of the library we use what it knows of the protocol: paths, parameters and bodies of requests. These
lie in a module of their own, which is loaded alone. The rest costs thirteen MiB and a third of a
second, and is what we must not have: a client that sleeps and repeats by itself, throws raw events
away, and turns encryption on where it finds a library for it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Library", "load"]

_NAME = "agentsup.channels.matrix._nio_api"
"""What the module is called here; as ``nio.api`` it would bring its package with it."""


@dataclass(frozen=True, slots=True)
class Library:
    """What the channel uses of it."""

    api: Any
    """``nio.Api``: builders of requests, each a tuple of method, path and maybe body."""


async def load() -> Library:
    """Import the library without holding up the loop; at once if it has been imported before.

    Raises ``ImportError`` where it isn't installed, or is not as we know it.
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
