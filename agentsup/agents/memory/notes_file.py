"""MEMORY.md of an agent: people write it, we only read it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from agentsup.kit.planted import read_plain
from agentsup.kit.pool import BoundedPool


class NotesFiles:
    """The files of all agents."""

    def __init__(self, files: BoundedPool | None = None) -> None:
        """``files`` is the pool in which they are read."""
        self._files = files or BoundedPool("files")

    async def read(self, path: Path, max_bytes: int) -> str | None:
        """The beginning of the file as text; None where there is none that can be read."""
        try:
            raw = await self._files.run(partial(read_plain, path, max_bytes), key=path.parent.name)
        except OSError:
            return None
        return raw.decode("utf-8-sig", "ignore")
