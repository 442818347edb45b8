"""SHAREDMEMORY.md: part of every agent's prompt, and a read-only copy in each workspace.

The file that people edit is only read. The copies are generated and replaced whole, so that a turn
never sees half of one. Something that is in the way of a copy is renamed and reported. A copy that
can't be made affects only its own agent.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

from agentsup.config import ConfigFiles
from agentsup.kit.log import get_logger
from agentsup.kit.planted import GuardedFolder
from agentsup.kit.pool import BoundedPool
from agentsup.kit.tasks import OwnerClosed, TaskOwner

_log = get_logger(__name__)

COPY_NAME = "SHAREDMEMORY.md"
MAX_BYTES = 256 * 1024
_HEAD = (
    "<!-- A generated copy: agentsup replaces it. Edit SHAREDMEMORY.md in the home instead. -->\n"
)
_WAIT_S = 0.5
"""The longest wait of an edit for its copies, so that a workspace that does not answer delays no
other edit."""


async def _unreadable(text: str) -> None:
    del text


class SharedKnowledge:
    """The current text of the file, and its copies."""

    def __init__(
        self,
        path: Path,
        workspaces: Callable[[], Iterable[Path]],
        *,
        config_files: ConfigFiles | None = None,
        files: BoundedPool | None = None,
        tasks: TaskOwner | None = None,
        tell: Callable[[str], Awaitable[None]] = _unreadable,
    ) -> None:
        """``workspaces`` returns the workspaces of all running agents. ``config_files`` reads the
        file, ``files`` is the pool for making copies, ``tasks`` owns the copy tasks. ``tell`` is
        called with a text about each problem of the file and each renamed entry."""
        self._path = path
        self._workspaces = workspaces
        self._config_files = config_files or ConfigFiles()
        self._files = files or BoundedPool("files")
        self._tasks = tasks or TaskOwner("shared knowledge")
        self._tell = tell
        self.text = ""
        """The last good text; empty if there is no file."""
        self._digest = ""
        self._copying: dict[Path, str] = {}
        self.problem = ""
        """Why the file could not be read, or empty. The last good text stays in use."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the file can't be read, and which copies could not be made."""
        return tuple(filter(None, (self.problem, *self._copying.values())))

    async def refresh(self) -> bool:
        """Read the file again and renew the copies. Returns whether the text changed."""
        text, problem = await self._read()
        if problem != self.problem:
            self.problem = problem
            await self._say(problem or f"{self._path.name} can be read again.")
        if problem:
            return False
        digest = hashlib.sha256(text.encode()).hexdigest()
        changed = digest != self._digest
        self.text, self._digest = text, digest
        workspaces = tuple(self._workspaces())
        self._copying = {at: why for at, why in self._copying.items() if at in workspaces}
        try:
            copies = [
                self._tasks.spawn(self.copy_to(at), name=f"knowledge:{at.parent.name}")
                for at in workspaces
            ]
        except OwnerClosed:
            return changed
        if copies:
            await asyncio.wait(copies, timeout=_WAIT_S)
        return changed

    async def make(self, workspace: Path) -> None:
        """Create a workspace and its copy, for an agent that starts. Raises ``OSError`` if the
        workspace is no directory or does not answer."""
        await self._files.run(GuardedFolder(workspace).make, key=workspace.parent.name)
        await self.copy_to(workspace)

    async def copy_to(self, workspace: Path) -> None:
        """Renew the copy in one workspace, if it differs. Problems are reported, not raised."""
        agent = workspace.parent.name
        try:
            aside = await self._files.run(partial(_copy, workspace, self.text), key=agent)
        except OSError as error:
            why = f"{agent} has no current copy of {COPY_NAME}: {error.strerror or error}"
            if self._copying.get(workspace) != why:
                self._copying[workspace] = why
                _log.warning("shared knowledge not copied", agent=agent, reason=why)
            return
        self._copying.pop(workspace, None)
        if aside:
            what = f"{COPY_NAME} in the workspace of {agent} was no plain file"
            await self._say(f"{what}; it was set aside as {aside}.")

    async def _read(self) -> tuple[str, str]:
        try:
            raw = await self._config_files.read(self._path, MAX_BYTES)
        except FileNotFoundError:
            return "", ""
        except OSError as error:
            return "", f"{self._path} can't be read: {error.strerror or error}"
        if len(raw) > MAX_BYTES:
            return "", f"{self._path} has more than {MAX_BYTES} bytes, which is all that is shared"
        try:
            return raw.decode("utf-8-sig"), ""
        except UnicodeDecodeError as error:
            return "", f"{self._path} is not UTF-8 at byte {error.start}"

    async def _say(self, text: str) -> None:
        _log.warning("shared knowledge", reason=text)
        await self._tell(text)


def _copy(workspace: Path, text: str) -> str:
    """Renew the copy. Returns the new name of what was in the way, or empty. Blocks."""
    folder = GuardedFolder(workspace)
    if text:
        return folder.renew(COPY_NAME, (_HEAD + text).encode(), mode=0o444)
    try:
        folder.remove(COPY_NAME)
    except OSError:  # a directory with something in it
        return folder.set_aside(COPY_NAME)
    return ""
