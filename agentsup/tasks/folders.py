"""A task's folder with its TASKMEMORY.md: made, appended to, put away; never deleted on doubt.

The folder is there from the start; TASKMEMORY.md comes with the first turn or note.
What is in a folder is people's and agents' work. Deleting a task moves its folder aside; a folder
without a row is left where it is, and a row without a folder gets a new one.
"""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

from agentsup.kit.planted import Folder, TooLong
from agentsup.kit.pool import BoundedPool

__all__ = ["NOTES", "FolderMaker", "Folders"]

T = TypeVar("T")
_log = logging.getLogger(__name__)

NOTES = "TASKMEMORY.md"
DELETED = ".deleted"
MAX_DELETED = 10_000
_REMOVED_AT_ONCE = 50_000
"""Files and directories in one call; a larger folder is taken up again."""
MAX_NOTES_BYTES = 256 * 1024
"""A file that has grown beyond this is appended to no more."""


class Folders:
    """The folders of all tasks. Every method but ``run`` blocks on the disk, and is called in it."""

    def __init__(
        self, root: Path, folder_of: Callable[[str], Path], files: BoundedPool | None = None
    ) -> None:
        """``root`` holds them; ``folder_of`` names one by its task's id; ``files`` is the pool in
        which work on them is done."""
        self._root = root
        self._files = files or BoundedPool("files")
        self.of = folder_of

    async def run(self, step: Callable[[], T], *, key: str, limit_s: float | None = None) -> T:
        """Do work on folders off the loop. Raises ``OSError``, also where it takes too long."""
        return await self._files.run(step, key=key, limit_s=limit_s)

    def make(self, task_id: str, heading: str) -> Path:
        """The folder with its TASKMEMORY.md, both made if they aren't there; what is there stays."""
        folder = self.of(task_id)
        Folder(folder).make(mode=0o700)
        Folder(folder).create(NOTES, f"# {heading}\n\n".encode("utf-8", "replace"))
        return folder

    def prepare(self, task_id: str) -> None:
        """The folder of a new task, still empty: each file that is made with a task has to be
        flushed with the store's next commits, and halves how many tasks can be done. Where the
        disk refuses, the task is written down nevertheless, and its turn tries again."""
        try:
            Folder(self.of(task_id)).make(mode=0o700)
        except OSError as error:
            _log.warning("the folder of %s could not be made: %s", task_id, error)

    def note(self, task_id: str, heading: str, text: str) -> None:
        """Append a paragraph to TASKMEMORY.md. Raises ``OSError``: also where it is no plain file,
        or full."""
        folder = Folder(self.make(task_id, heading))
        given = (text.rstrip() + "\n").encode("utf-8", "replace")
        try:
            folder.append(NOTES, given, MAX_NOTES_BYTES)
        except TooLong:
            raise OSError(f"{NOTES} is full ({MAX_NOTES_BYTES} bytes); shorten it") from None

    def read(self, task_id: str, limit: int) -> str:
        """The beginning of TASKMEMORY.md, at most ``limit`` characters; empty if there is none."""
        try:
            data, _ = Folder(self.of(task_id)).head(NOTES, 4 * limit + 4)
        except OSError:
            return ""
        text = data.decode("utf-8", "replace")
        return text if len(text) <= limit else text[: limit - 1] + "…"

    def put_away(self, task_id: str) -> Path | None:
        """Move the folder of a deleted task to ``.deleted/``; None if there is none, or if it has
        to stay where it is."""
        try:
            return self._put_away(task_id)
        except OSError as error:
            _log.warning("the folder of %s stays: %s", task_id, error)
            return None

    def _put_away(self, task_id: str) -> Path | None:
        tasks = Folder(self._root)
        tasks.make(DELETED, mode=0o700)
        target, number = task_id, 1
        while tasks.has(f"{DELETED}/{target}"):
            number += 1
            target = f"{task_id}.{number}"
        try:
            tasks.move(self.of(task_id).name, f"{DELETED}/{target}")
        except FileNotFoundError:
            return None
        return self._root / DELETED / target

    def purge(self, before_s: float) -> list[str]:
        """Remove what was put away before that time (wall seconds), and nothing else; the names of
        what is gone. A very large folder goes in several calls."""
        aside, gone = Folder(self._root / DELETED), []
        steps = iter(range(_REMOVED_AT_ONCE))
        try:
            entries, _ = aside.list("", MAX_DELETED)
        except FileNotFoundError:
            return []
        for name, known in entries:
            # A folder's own change time is when it was moved here, whatever its files say.
            is_due = stat.S_ISDIR(known.st_mode) and known.st_ctime < before_s
            if not name.startswith("task_") or not is_due:
                continue
            try:
                if aside.remove_tree(name, lambda: next(steps, None) is not None):
                    gone.append(name)
            except OSError as error:
                _log.warning("the deleted folder %s stays: %s", name, error)
        return gone


class FolderMaker:
    """Prepares the folders of new tasks off the loop: those that are wanted at once in one go,
    since each hop to another thread costs more than a folder."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._wanted: set[str] = set()
        self._turn = asyncio.Lock()

    async def prepare(self, task_id: str) -> None:
        """``Folders.prepare``."""
        self._wanted.add(task_id)
        async with self._turn:
            if task_id not in self._wanted:
                return  # whoever had the turn before has done it
            wanted, self._wanted = self._wanted, set()
            try:
                await self._folders.run(partial(self._prepare_all, wanted), key="tasks")
            except OSError as error:
                _log.warning("folders of new tasks could not be made: %s", error)

    async def put_away(self, task_id: str) -> None:
        """``Folders.put_away``, however the disk is."""
        try:
            await self._folders.run(partial(self._folders.put_away, task_id), key=task_id)
        except OSError as error:
            _log.warning("the folder of %s stays: %s", task_id, error)

    def _prepare_all(self, wanted: Iterable[str]) -> None:
        for task_id in wanted:
            self._folders.prepare(task_id)
