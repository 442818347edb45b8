"""A task's folder with its TASKMEMORY.md: made, appended to, put away; never deleted on doubt.

The folder is there from the start; TASKMEMORY.md comes with the first turn or note.
What is in a folder is people's and agents' work. Deleting a task moves its folder aside; a folder
without a row is left where it is, and a row without a folder gets a new one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["NOTES", "FolderMaker", "Folders"]

_log = logging.getLogger(__name__)

NOTES = "TASKMEMORY.md"
DELETED = ".deleted"
MAX_NOTES_BYTES = 256 * 1024
"""A file that has grown beyond this is appended to no more."""


class Folders:
    """The folders of all tasks. Every method blocks on the disk."""

    def __init__(self, root: Path, folder_of: Callable[[str], Path]) -> None:
        """``root`` holds them; ``folder_of`` names one by its task's id."""
        self._root = root
        self.of = folder_of

    def make(self, task_id: str, heading: str) -> Path:
        """The folder with its TASKMEMORY.md, both made if they aren't there; what is there stays."""
        folder = self.of(task_id)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with (folder / NOTES).open("x", encoding="utf-8") as notes:
                notes.write(f"# {heading}\n\n")
        except FileExistsError:
            return folder
        return folder

    def prepare(self, task_id: str) -> None:
        """The folder of a new task, still empty: each file that is made with a task has to be
        flushed with the store's next commits, and halves how many tasks can be done. Where the
        disk refuses, the task is written down nevertheless, and its turn tries again."""
        try:
            self.of(task_id).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            _log.warning("the folder of %s could not be made: %s", task_id, error)

    def note(self, task_id: str, heading: str, text: str) -> None:
        """Append a paragraph to TASKMEMORY.md. Raises ``OSError``: also where it is no plain file,
        or full."""
        path = self.make(task_id, heading) / NOTES
        given = (text.rstrip() + "\n").encode("utf-8", "replace")
        descriptor = _open_file(path, os.O_WRONLY | os.O_APPEND)
        try:
            if os.fstat(descriptor).st_size + len(given) > MAX_NOTES_BYTES:
                raise OSError(f"{NOTES} is full ({MAX_NOTES_BYTES} bytes); shorten it")
            os.write(descriptor, given)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, task_id: str, limit: int) -> str:
        """The beginning of TASKMEMORY.md, at most ``limit`` characters; empty if there is none."""
        try:
            descriptor = _open_file(self.of(task_id) / NOTES, os.O_RDONLY)
        except OSError:
            return ""
        with os.fdopen(descriptor, "rb") as notes:
            text = notes.read(4 * limit + 4).decode("utf-8", "replace")
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
        folder = self.of(task_id)
        if not folder.is_dir():
            return None
        aside = self._root / DELETED
        aside.mkdir(mode=0o700, exist_ok=True)
        target, number = aside / task_id, 1
        while target.exists():
            number += 1
            target = aside / f"{task_id}.{number}"
        folder.rename(target)
        return target

    def purge(self, before_s: float) -> list[str]:
        """Remove what was put away before that time (wall seconds), and nothing else; the names."""
        aside, gone = self._root / DELETED, []
        try:
            entries = sorted(os.scandir(aside), key=lambda entry: entry.name)
        except FileNotFoundError:
            return []
        for entry in entries:
            # A folder's own change time is when it was moved here, whatever its files say.
            if (
                entry.name.startswith("task_")
                and entry.is_dir(follow_symlinks=False)
                and entry.stat(follow_symlinks=False).st_ctime < before_s
            ):
                shutil.rmtree(entry.path)
                gone.append(entry.name)
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
            if task_id in self._wanted:  # else whoever had the turn before has done it
                wanted, self._wanted = self._wanted, set()
                await asyncio.to_thread(self._prepare_all, wanted)

    def _prepare_all(self, wanted: Iterable[str]) -> None:
        for task_id in wanted:
            self._folders.prepare(task_id)


def _open_file(path: Path, flags: int) -> int:
    """Open a plain file. A pipe under its name, which would keep its reader waiting, is none."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(f"{path.name} is no plain file")
