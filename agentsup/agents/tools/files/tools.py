"""The ``fs_*`` tools for the files of the agent's workspace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Any, get_type_hints

from pydantic import Field

from agentsup.agents.tools.arguments import Arguments, Text, Whole, checked
from agentsup.agents.tools.declaring import tool, tool_of
from agentsup.agents.tools.files.tree import MAX_FILE_BYTES, WorkspaceTree, names_of, protected
from agentsup.kit.pool import BoundedPool, PoolTimeout
from agentsup.model.errors import BadRequest, Conflict, TooLarge
from agentsup.model.tool import Effect, Safety, Tool, ToolContext

_ALL_LINES = 1_000_000
READ_CHARS = 200_000
"""The most characters of a file in one call. What is over the result limit comes in pages."""

_PATH = "Path relative to the workspace."


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
