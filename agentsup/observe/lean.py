"""structlog, imported without rich.

structlog imports rich for its console renderer if it finds it; that renderer is not used here, and
rich with its lexers would be a sixth of the daemon's start and 8 MiB of its memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Let `import name` fail inside, unless the module is there already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # how Python marks what can't be imported
    try:
        yield
    finally:
        del sys.modules[name]


with _hidden("rich"):
    import structlog

__all__ = ["structlog"]
