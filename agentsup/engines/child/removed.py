"""What is taken out of programs' homes: moved away at once, removed in steps afterwards.

A program may have put any number of files where its settings are read from. A turn that begins does
not wait until all of them are removed: one rename takes them out of the home.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from agentsup.kit.planted import Folder

__all__ = ["Removed"]

_LISTED = 1000


@dataclass(frozen=True, slots=True)
class Removed:
    """A folder that no program reaches, on the disk of the agent's folder. Everything blocks and
    raises ``OSError``."""

    path: Path

    def take(self, folder: Folder, name: str) -> str:
        """Move what has that name in ``folder`` here; or, where ``folder`` is on another disk, give
        it another name there, and return that."""
        Folder(self.path).make(mode=0o700)
        here = next(str(number) for number in count(1) if not self._has(str(number)))
        try:
            folder.move_out(name, Folder(self.path), here)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return folder.set_aside(name)
        return ""

    def is_empty(self) -> bool:
        """Whether nothing is left to remove."""
        try:
            return not Folder(self.path).list("", 1)[0]
        except FileNotFoundError:
            return True

    def purge(self, steps: int) -> bool:
        """Remove at most that many files and directories; True if there is more."""
        left = iter(range(steps))
        try:
            entries, has_more = Folder(self.path).list("", _LISTED)
        except FileNotFoundError:
            return False
        for name, _ in entries:
            if not Folder(self.path).remove_tree(name, lambda: next(left, None) is not None):
                return True
        return has_more

    def _has(self, name: str) -> bool:
        return Folder(self.path).has(name)
