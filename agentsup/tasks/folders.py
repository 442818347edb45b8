"""A task's folder with its TASKMEMORY.md: made, appended to, moved when the task is deleted.

The folder exists from the start; TASKMEMORY.md is made with the first turn or note. The content of
a folder is people's and agents' work, so nothing is deleted in doubt: deleting a task moves its
folder to ``.deleted/``, a folder without a row stays, and a row without a folder gets a new one.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

from agentsup.kit.log import get_logger
from agentsup.kit.pool import BoundedPool
from agentsup.kit.safe_files import FileTooLong, GuardedFolder
from agentsup.model.errors import Conflict
from agentsup.model.task import Task

T = TypeVar("T")
_log = get_logger(__name__)

NOTES = "TASKMEMORY.md"
DELETED = ".deleted"
MAX_DELETED = 10_000
_REMOVED_AT_ONCE = 50_000
"""The most files and directories removed in one call; a larger folder needs several calls."""
MAX_NOTES_BYTES = 256 * 1024
"""Nothing is appended to a file that is larger."""


class Folders:
    """The folders of all tasks. Every method but ``run`` blocks on the disk; call it in ``run``."""

    def __init__(
        self, root: Path, folder_of: Callable[[str], Path], files: BoundedPool | None = None
    ) -> None:
        """``root`` contains them; ``folder_of`` returns the path for a task's id.

        ``files`` is the thread pool for work on them.
        """
        self._root = root
        self._files = files or BoundedPool("files")
        self.of = folder_of

    async def run(self, step: Callable[[], T], *, key: str, limit_s: float | None = None) -> T:
        """Do work on folders outside the loop. Raises ``OSError``, also if it takes too long."""
        return await self._files.run(step, key=key, limit_s=limit_s)

    def make(self, task_id: str, heading: str) -> Path:
        """Make the folder and its TASKMEMORY.md if they don't exist; return the folder."""
        folder = self.of(task_id)
        GuardedFolder(folder).make(mode=0o700)
        GuardedFolder(folder).create(NOTES, f"# {heading}\n\n".encode("utf-8", "replace"))
        return folder

    def prepare(self, task_id: str) -> None:
        """Make the empty folder of a new task.

        Each file that is made with a task is flushed with the store's next commits, which halves
        the rate of new tasks; so TASKMEMORY.md is made later. If the disk refuses, the task is
        created nevertheless, and its turn tries again.
        """
        try:
            GuardedFolder(self.of(task_id)).make(mode=0o700)
        except OSError as error:
            _log.warning(f"the folder of {task_id} could not be made: {error}")

    def note(self, task_id: str, heading: str, text: str) -> None:
        """Append a paragraph to TASKMEMORY.md.

        Raises ``OSError``, also if it is no plain file, or full (``MAX_NOTES_BYTES``).
        """
        folder = GuardedFolder(self.make(task_id, heading))
        given = (text.rstrip() + "\n").encode("utf-8", "replace")
        try:
            folder.append(NOTES, given, MAX_NOTES_BYTES)
        except FileTooLong:
            raise OSError(f"{NOTES} is full ({MAX_NOTES_BYTES} bytes); shorten it") from None

    def read(self, task_id: str, limit: int) -> str:
        """The beginning of TASKMEMORY.md, at most ``limit`` characters; empty if there is none."""
        try:
            data, _ = GuardedFolder(self.of(task_id)).head(NOTES, 4 * limit + 4)
        except OSError:
            return ""
        text = data.decode("utf-8", "replace")
        return text if len(text) <= limit else text[: limit - 1] + "…"

    def move_to_deleted(self, task_id: str) -> Path | None:
        """Move the folder of a deleted task to ``.deleted/``; return its new path.

        None if there is no folder. Raises ``OSError`` if it can't be moved.
        """
        tasks = GuardedFolder(self._root)
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
        """Remove folders that were moved to ``.deleted/`` before that time (wall seconds).

        Returns the names of removed folders. A very large folder takes several calls.
        """
        aside, gone = GuardedFolder(self._root / DELETED), []
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
                _log.warning(f"the deleted folder {name} stays: {error}")
        return gone


class FolderMaker:
    """Makes the folders of new tasks outside the loop.

    Several are made at a time, since each change of thread costs more than a folder.
    """

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._wanted: set[str] = set()
        self._turn = asyncio.Lock()

    async def prepare(self, task_id: str) -> None:
        """Call ``Folders.prepare`` in the pool."""
        self._wanted.add(task_id)
        async with self._turn:
            if task_id not in self._wanted:
                return  # an earlier caller has made it
            wanted, self._wanted = self._wanted, set()
            try:
                await self._folders.run(partial(self._prepare_all, wanted), key="tasks")
            except OSError as error:
                _log.warning(f"folders of new tasks could not be made: {error}")
            except BaseException:
                self._wanted |= wanted  # this caller was cancelled; the waiting ones need theirs
                raise

    async def move_to_deleted(self, task_id: str) -> None:
        """Call ``Folders.move_to_deleted`` in the pool; a failure of the disk is logged."""
        try:
            await self._folders.run(partial(self._folders.move_to_deleted, task_id), key=task_id)
        except OSError as error:
            _log.warning(f"the folder of {task_id} stays: {error}")

    async def note(self, task: Task, text: str) -> None:
        """Call ``Folders.note`` in the pool. Raises ``Conflict`` if the note can't be written."""
        try:
            add = partial(self._folders.note, task.task_id, task.name, text)
            await self._folders.run(add, key=task.task_id)
        except OSError as error:
            warning = f"the note can't be kept, all else was: {error}"
            raise Conflict(warning, task_id=task.task_id) from error

    def _prepare_all(self, wanted: Iterable[str]) -> None:
        for task_id in wanted:
            self._folders.prepare(task_id)
