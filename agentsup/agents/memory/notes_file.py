"""The MEMORY.md of an agent. People write it; the daemon only reads it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from agentsup.kit.known_files import KnownFiles
from agentsup.kit.pool import BoundedPool
from agentsup.kit.safe_files import read_plain


class NotesFiles:
    """Reads the MEMORY.md files of all agents."""

    def __init__(self, files: BoundedPool | None = None) -> None:
        """``files`` is the pool in which they are read."""
        self._files = files or BoundedPool("files")

    async def read(self, path: Path, max_bytes: int) -> str | None:
        """The first ``max_bytes`` of the file as text, or None if it can't be read."""
        try:
            return await self._files.run(partial(_read, path, max_bytes), key=path.parent.name)
        except OSError:
            return None


class KnownNotes:
    """The MEMORY.md files of all agents, for turns: each version is read once."""

    def __init__(self, files: BoundedPool, path_of: Callable[[str], Path], home: Path) -> None:
        """``path_of`` gives the path of an agent's file by the agent's name."""
        self._known: KnownFiles[str] = KnownFiles(files)
        self._path_of = path_of
        self._home = str(home)

    async def text(self, name: str, max_bytes: int) -> str:
        """The first ``max_bytes`` of the file as text; empty if it can't be read."""
        try:
            return await self._known.get(
                (name, max_bytes),
                partial(self._path_of, name),
                partial(_read, max_bytes=max_bytes),
                home=self._home,
                slot=name,
            )
        except OSError:
            return ""


def _read(path: Path, max_bytes: int) -> str:
    return read_plain(path, max_bytes).decode("utf-8-sig", "ignore")
