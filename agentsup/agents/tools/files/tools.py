"""The ``fs_*`` tools for the files of the agent's workspace, opened so that no path leads out of it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Any, get_type_hints

from pydantic import Field

from agentsup.agents.tools.declaring import Arguments, Text, Whole, checked, tool, tool_of
from agentsup.kit import safe_files
from agentsup.kit.pool import BoundedPool, PoolTimeout
from agentsup.kit.safe_files import GuardedFolder, PathEscapes
from agentsup.model.errors import BadRequest, Conflict, NotFound, TooLarge
from agentsup.model.tool import Effect, Safety, Tool, ToolContext

MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_ENTRIES = 2_000
_PROTECTED = frozenset(
    (".git", ".claude", ".codex", ".gemini", ".opencode", ".cursor", ".mcp.json", ".envrc")
)
_ALL_LINES = 1_000_000
READ_CHARS = 200_000
"""The most characters of a file in one call. What is over the result limit comes in pages."""

_PATH = "Path relative to the workspace."


def protected(names: Sequence[str]) -> str | None:
    """The first name that no tool may write, since programs run commands from it; or None."""
    return next((name for name in names if name.casefold() in _PROTECTED), None)


def names_of(path: str) -> tuple[str, ...]:
    """The names on a relative path. Raises ``BadRequest`` for one that leaves the workspace."""
    try:
        return safe_files.names_of(path)
    except PathEscapes:
        text = "this is no path relative to the workspace, or it leads out of it"
        raise BadRequest(f"{path[:200]!r}: {text}", field="path") from None


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One entry of a directory. ``kind``: file | directory | link | other. Times are wall ms."""

    name: str
    kind: str
    size: int
    changed_at: int
    mode: int


class WorkspaceTree:
    """The files under one root directory. Errors of the system become errors for the model."""

    def __init__(self, root: str) -> None:
        self._folder = GuardedFolder(root)

    def read(self, path: str, *, offset: int = 0, limit: int = MAX_FILE_BYTES) -> tuple[bytes, int]:
        """Bytes of a file from ``offset``, at most ``limit``; and its size."""
        if not names_of(path):
            raise BadRequest("the path names no file", field="path")
        with _tool_errors(path):
            return self._folder.head(path, limit, offset=offset)

    def write(self, path: str, data: bytes) -> bool:
        """Write a file atomically, and create its parent directories; True if it is new.

        The old file stays until the new one is safe. Raises ``TooLarge``, and ``Conflict`` if the
        path exists and is no file.
        """
        if len(data) > MAX_FILE_BYTES:
            raise TooLarge(
                f"{path} would have {len(data)} bytes; at most {MAX_FILE_BYTES} are written"
            )
        names = _writable(path)
        with _tool_errors(path):
            if names[:-1]:
                self._folder.make("/".join(names[:-1]))
            try:
                known = self._folder.stat(path)
            except FileNotFoundError:
                known = None
            if known is not None and not stat.S_ISREG(known.st_mode):
                raise Conflict(f"{path} is there and no file")
            mode = 0o644 if known is None else stat.S_IMODE(known.st_mode) & 0o777
            self._folder.write(path, data, mode=mode)
            return known is None

    def delete(self, path: str) -> bool:
        """Remove a file, a link or an empty directory; False if there was none."""
        _writable(path)
        with _tool_errors(path):
            return self._folder.remove(path)

    def make(self, path: str) -> None:
        """Create a directory and its parents. It may exist already."""
        _writable(path)
        with _tool_errors(path):
            self._folder.make(path)

    def list(self, path: str) -> tuple[list[TreeEntry], bool]:
        """The entries of a directory by name, and whether there are more than are returned."""
        names_of(path)
        with _tool_errors(path):
            found, is_more = self._folder.list(path, MAX_ENTRIES)
        return [_entry(name, known) for name, known in found], is_more

    def stat(self, path: str) -> TreeEntry:
        """The entry at a path. A link is not followed."""
        names = names_of(path)
        with _tool_errors(path):
            return _entry(names[-1] if names else ".", self._folder.stat(path))


@contextmanager
def _tool_errors(path: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise _tool_error(error, path) from None


def _writable(path: str) -> tuple[str, ...]:
    names = names_of(path)
    if not names:
        raise BadRequest("the path names no file", field="path")
    if (found := protected(names)) is not None:
        raise BadRequest(f"{found} is not written by tools: programs take orders from it")
    return names


def _entry(name: str, known: os.stat_result) -> TreeEntry:
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link"))
    kind = next((kind for test, kind in kinds if test(known.st_mode)), "other")
    mode = stat.S_IMODE(known.st_mode)
    return TreeEntry(name, kind, known.st_size, known.st_mtime_ns // 1_000_000, mode)


def _tool_error(error: OSError, path: str) -> BadRequest | NotFound | Conflict:
    where = path or "the workspace"
    if error.errno == errno.ENOENT:
        return NotFound(f"there is no {where} in the workspace")
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return BadRequest(f"{where} is a link or no directory; links are not followed")
    if error.errno == errno.ENOTEMPTY:
        return Conflict(f"{where} is not empty; delete what is in it first")
    return Conflict(f"{where} can't be used: {error.strerror or error}")


class OnePath(Arguments):
    """The arguments of tools that take a path alone."""

    path: Text = Field(description=_PATH)


class ListFolder(OnePath):
    """The arguments of ``fs_list``."""

    path: Text = Field(".", description=_PATH)


class ReadFile(OnePath):
    """The arguments of ``fs_read``."""

    offset: Whole = Field(1, description="First line, from 1.")
    lines: Whole = Field(_ALL_LINES, description="How many lines at most.")


class WriteFile(OnePath):
    """The arguments of ``fs_write``."""

    content: Text


class EditFile(OnePath):
    """The arguments of ``fs_edit``."""

    old: Text
    new: Text


def file_tools(files: BoundedPool | None = None) -> tuple[Tool, ...]:
    """The seven tools, which run in the pool ``files``.

    Only ``fs_delete`` must be named in an agent's ``tools``.
    """
    pool = files or BoundedPool("files")
    works = (_read, _list, _stat, _write, _edit, _mkdir, _delete)
    return tuple(_made(pool, each) for each in works)


def _made(files: BoundedPool, work: Callable[[WorkspaceTree, Any], str]) -> Tool:
    @wraps(work)
    async def run(context: ToolContext, args: OnePath) -> str:
        if not context.workspace:
            raise Conflict("this agent has no workspace")
        step = partial(work, WorkspaceTree(context.workspace), args)
        try:
            return await files.run(step, key=context.agent_name)
        except PoolTimeout as error:
            raise Conflict(f"the files of the workspace don't answer: {error}") from None

    def problem(args: OnePath) -> str | None:
        names = names_of(args.path)
        found = None if made.effect is Effect.READ else protected(names)
        return f"{found} is not written by tools: programs take orders from it" if found else None

    made = tool_of(run)
    return replace(made, check=checked(get_type_hints(work)["args"], problem))


# -- work (blocks) ---------------------------------------------------------------------------------


@tool("fs_read", Effect.READ, Safety.SAFE)
def _read(tree: WorkspaceTree, args: ReadFile) -> str:
    """Read a text file of the workspace."""
    first, count = args.offset, args.lines
    text = _text_of(tree, args.path)
    if first <= 1 and len(text) <= READ_CHARS and count >= _ALL_LINES:
        return text
    lines = text.splitlines(keepends=True)
    chosen = "".join(lines[max(0, first - 1) : max(0, first - 1) + max(0, count)])
    if len(chosen) > READ_CHARS:
        return (
            chosen[:READ_CHARS] + f"\n[cut at {READ_CHARS} characters; {len(lines)} lines in all]"
        )
    return chosen


def _text_of(tree: WorkspaceTree, path: str) -> str:
    data, size = tree.read(path)
    if size > MAX_FILE_BYTES:
        raise TooLarge(f"{path} has {size} bytes; files up to {MAX_FILE_BYTES} are read")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Conflict(f"{path} is no text (UTF-8); it has {size} bytes") from None


@tool("fs_list", Effect.READ, Safety.SAFE)
def _list(tree: WorkspaceTree, args: ListFolder) -> str:
    """List a directory of the workspace."""
    entries, is_more = tree.list(args.path)
    lines = [
        f"{entry.name}/"
        if entry.kind == "directory"
        else f"{entry.name}  {entry.size} bytes"
        + ("" if entry.kind == "file" else f" ({entry.kind})")
        for entry in entries
    ]
    return "\n".join([*lines, *(["[there is more]"] if is_more else [])]) or "(empty)"


@tool("fs_stat", Effect.READ, Safety.SAFE)
def _stat(tree: WorkspaceTree, args: OnePath) -> str:
    """Tell what a path is."""
    entry = tree.stat(args.path)
    changed = datetime.fromtimestamp(entry.changed_at / 1000, UTC).isoformat(timespec="seconds")
    return f"{entry.kind}, {entry.size} bytes, mode {entry.mode:o}, changed {changed}"


@tool("fs_write", Effect.IDEMPOTENT, Safety.MODERATE)
def _write(tree: WorkspaceTree, args: WriteFile) -> str:
    """Write a text file as a whole, with the directories on its way."""
    data = args.content.encode("utf-8", "replace")
    is_new = tree.write(args.path, data)
    return f"{'Made' if is_new else 'Replaced'} {args.path}, {len(data)} bytes."


@tool("fs_edit", Effect.BLIND, Safety.MODERATE)
def _edit(tree: WorkspaceTree, args: EditFile) -> str:
    """Replace a piece of a text file, which must occur exactly once."""
    path = args.path
    if not args.old:
        raise BadRequest("old is empty; fs_write makes new files", field="old")
    text = _text_of(tree, path)
    count = text.count(args.old)
    if count != 1:
        raise Conflict(f"the piece occurs {count} times in {path}; it must be exactly once")
    tree.write(path, text.replace(args.old, args.new).encode("utf-8", "replace"))
    return f"Changed {path}."


@tool("fs_mkdir", Effect.IDEMPOTENT, Safety.MODERATE)
def _mkdir(tree: WorkspaceTree, args: OnePath) -> str:
    """Make a directory."""
    tree.make(args.path)
    return f"The directory {args.path} is there."


@tool("fs_delete", Effect.IDEMPOTENT, Safety.DANGEROUS, is_optional=True)
def _delete(tree: WorkspaceTree, args: OnePath) -> str:
    """Delete a file or an empty directory."""
    return f"Deleted {args.path}." if tree.delete(args.path) else f"There was no {args.path}."
