"""Removes files from programs' homes: moved away at once, deleted in steps afterwards.

A program may have put any number of files where its settings are read from. A turn that begins does
not wait until all of them are removed: one rename takes them out of the home.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from agentsup.kit.planted import GuardedFolder

_LISTED = 1000


@dataclass(frozen=True, slots=True)
class Removed:
    """A folder that no program reaches, on the disk of the agent's folder. All methods block and
    raise ``OSError``."""

    path: Path

    def take(self, folder: GuardedFolder, name: str) -> str:
        """Move the entry ``name`` of ``folder`` here and return "".

        If ``folder`` is on another disk, the entry is renamed there and its new name returned.
        """
        GuardedFolder(self.path).make(mode=0o700)
        here = next(str(number) for number in count(1) if not self._has(str(number)))
        try:
            folder.move_out(name, GuardedFolder(self.path), here)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return folder.set_aside(name)
        return ""

    def is_empty(self) -> bool:
        """Whether nothing is left to remove."""
        try:
            return not GuardedFolder(self.path).list("", 1)[0]
        except FileNotFoundError:
            return True

    def purge(self, steps: int) -> bool:
        """Delete at most ``steps`` files and directories; True if there are more."""
        left = iter(range(steps))
        try:
            entries, has_more = GuardedFolder(self.path).list("", _LISTED)
        except FileNotFoundError:
            return False
        for name, _ in entries:
            if not GuardedFolder(self.path).remove_tree(name, lambda: next(left, None) is not None):
                return True
        return has_more

    def _has(self, name: str) -> bool:
        return GuardedFolder(self.path).has(name)
