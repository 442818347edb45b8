"""SHAREDMEMORY.md: part of every agent's prompt, and a read-only copy in each workspace.

The people's file is only read. The copies are generated and replaced whole, so that a turn never
sees half of one; nothing that a person edits is rewritten.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from agentsup.kit.files import write_atomic

COPY_NAME = "SHAREDMEMORY.md"
MAX_BYTES = 256 * 1024
_HEAD = (
    "<!-- A generated copy: agentsup replaces it. Edit SHAREDMEMORY.md in the home instead. -->\n"
)


class SharedKnowledge:
    """The current text, and the copies of it."""

    def __init__(self, path: Path, workspaces: Callable[[], Iterable[Path]]) -> None:
        """``workspaces`` names the workspaces of all agents that are up now."""
        self._path = path
        self._workspaces = workspaces
        self._text = ""
        self._digest = ""
        self.problem = ""
        """Why the file could not be read, or empty; the last good text stays in use."""

    @property
    def text(self) -> str:
        """The last good text; empty if there is no file."""
        return self._text

    async def refresh(self) -> bool:
        """Read the file again and renew the copies; whether the text changed."""
        text, problem = await asyncio.to_thread(_read, self._path)
        self.problem = problem
        if problem:
            return False
        digest = hashlib.sha256(text.encode()).hexdigest()
        changed = digest != self._digest
        self._text, self._digest = text, digest
        for workspace in tuple(self._workspaces()):
            await self.copy_to(workspace)
        return changed

    async def copy_to(self, workspace: Path) -> None:
        """Renew the copy in one workspace, if it differs."""
        await asyncio.to_thread(_copy, workspace / COPY_NAME, self._text)


def _read(path: Path) -> tuple[str, str]:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return "", ""
    except OSError as error:
        return "", f"{path} can't be read: {error.strerror}"
    if len(raw) > MAX_BYTES:
        return "", f"{path} has {len(raw)} bytes; at most {MAX_BYTES} are shared"
    try:
        return raw.decode("utf-8-sig"), ""
    except UnicodeDecodeError as error:
        return "", f"{path} is not UTF-8 at byte {error.start}"


def _copy(target: Path, text: str) -> None:
    if not text:
        target.unlink(missing_ok=True)
        return
    data = (_HEAD + text).encode()
    try:
        if target.read_bytes() == data:
            return
    except OSError:
        target.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(target, data, mode=0o444)
