"""``fs_read`` and its like: the agent's own files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from agentsup.agents.tools import arguments
from agentsup.agents.tools.tree import MAX_FILE_BYTES, Tree, names_of, protected
from agentsup.kit.pool import BoundedPool, NoAnswer
from agentsup.model.errors import AgentsupError, BadRequest, Conflict, TooLarge
from agentsup.model.tool import Effect, Safety, Tool, ToolContext

READ_CHARS = 200_000
"""Most characters of a file in one call; what is over the result limit comes in pages."""

_PATH = {"type": "string", "description": "Path relative to the workspace."}
_READ, _IDEMPOTENT, _BLIND = Effect.READ, Effect.IDEMPOTENT, Effect.BLIND
_SAFE, _MODERATE, _DANGEROUS = Safety.SAFE, Safety.MODERATE, Safety.DANGEROUS

Work = Callable[[Tree, dict[str, Any]], str]


def file_tools(files: BoundedPool | None = None) -> tuple[Tool, ...]:
    """All seven, at work in the pool ``files``. Only ``fs_delete`` must be named in an agent's
    ``tools`` to be there."""
    _tool = partial(_made, files or BoundedPool("files"))
    return (
        _tool(
            "fs_read",
            "Read a text file of the workspace.",
            _read,
            (_READ, _SAFE),
            {
                "offset": {"type": "integer", "description": "First line, from 1."},
                "lines": {"type": "integer", "description": "How many lines at most."},
            },
            needs=("path",),
        ),
        _tool("fs_list", "List a directory of the workspace.", _list, (_READ, _SAFE)),
        _tool("fs_stat", "Tell what a path is.", _stat, (_READ, _SAFE), needs=("path",)),
        _tool(
            "fs_write",
            "Write a text file as a whole, with the directories on its way.",
            _write,
            (_IDEMPOTENT, _MODERATE),
            {"content": {"type": "string"}},
            needs=("path", "content"),
        ),
        _tool(
            "fs_edit",
            "Replace a piece of a text file, which must occur exactly once.",
            _edit,
            (_BLIND, _MODERATE),
            {"old": {"type": "string"}, "new": {"type": "string"}},
            needs=("path", "old", "new"),
        ),
        _tool("fs_mkdir", "Make a directory.", _mkdir, (_IDEMPOTENT, _MODERATE), needs=("path",)),
        _tool(
            "fs_delete",
            "Delete a file or an empty directory.",
            _delete,
            (_IDEMPOTENT, _DANGEROUS),
            needs=("path",),
            is_optional=True,
        ),
    )


def _made(
    files: BoundedPool,
    name: str,
    description: str,
    work: Work,
    kind: tuple[Effect, Safety],
    more: dict[str, Any] | None = None,
    *,
    needs: tuple[str, ...] = (),
    is_optional: bool = False,
) -> Tool:
    effect, safety = kind
    return Tool(
        name,
        description,
        {
            "type": "object",
            "properties": {"path": _PATH, **(more or {})},
            "required": list(needs),
            "additionalProperties": False,
        },
        _in_pool(files, work),
        effect,
        safety,
        is_optional=is_optional,
        check=_check_reading if effect is _READ else _check_writing,
    )


def _in_pool(
    files: BoundedPool, work: Work
) -> Callable[[ToolContext, dict[str, Any]], Awaitable[str]]:
    async def run(context: ToolContext, args: dict[str, Any]) -> str:
        if not context.workspace:
            raise Conflict("this agent has no workspace")
        step = partial(work, Tree(context.workspace), args)
        try:
            return await files.run(step, key=context.agent_name)
        except NoAnswer as error:
            raise Conflict(f"the files of the workspace don't answer: {error}") from None

    return run


# -- rules -----------------------------------------------------------------------------------------


def _check_reading(args: dict[str, Any]) -> str | None:
    try:
        names_of(arguments.text(args, "path", default="."))
    except AgentsupError as error:
        return error.message
    return None


def _check_writing(args: dict[str, Any]) -> str | None:
    try:
        found = protected(names_of(arguments.text(args, "path")))
    except AgentsupError as error:
        return error.message
    return f"{found} is not written by tools: programs take orders from it" if found else None


# -- work (blocks) ---------------------------------------------------------------------------------


def _read(tree: Tree, args: dict[str, Any]) -> str:
    path = arguments.text(args, "path")
    first = int(arguments.number(args, "offset", default=1))
    count = int(arguments.number(args, "lines", default=1_000_000))
    text = _text_of(tree, path)
    if first <= 1 and len(text) <= READ_CHARS and count >= 1_000_000:
        return text
    lines = text.splitlines(keepends=True)
    chosen = "".join(lines[max(0, first - 1) : max(0, first - 1) + max(0, count)])
    if len(chosen) > READ_CHARS:
        return (
            chosen[:READ_CHARS] + f"\n[cut at {READ_CHARS} characters; {len(lines)} lines in all]"
        )
    return chosen


def _text_of(tree: Tree, path: str) -> str:
    data, size = tree.read(path)
    if size > MAX_FILE_BYTES:
        raise TooLarge(f"{path} has {size} bytes; files up to {MAX_FILE_BYTES} are read")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Conflict(f"{path} is no text (UTF-8); it has {size} bytes") from None


def _list(tree: Tree, args: dict[str, Any]) -> str:
    entries, is_more = tree.list(arguments.text(args, "path", default="."))
    lines = [
        f"{entry.name}/"
        if entry.kind == "directory"
        else f"{entry.name}  {entry.size} bytes"
        + ("" if entry.kind == "file" else f" ({entry.kind})")
        for entry in entries
    ]
    return "\n".join([*lines, *(["[there is more]"] if is_more else [])]) or "(empty)"


def _stat(tree: Tree, args: dict[str, Any]) -> str:
    entry = tree.stat(arguments.text(args, "path"))
    changed = datetime.fromtimestamp(entry.changed_at / 1000, UTC).isoformat(timespec="seconds")
    return f"{entry.kind}, {entry.size} bytes, mode {entry.mode:o}, changed {changed}"


def _write(tree: Tree, args: dict[str, Any]) -> str:
    path, content = arguments.text(args, "path"), arguments.text(args, "content")
    data = content.encode("utf-8", "replace")
    is_new = tree.write(path, data)
    return f"{'Made' if is_new else 'Replaced'} {path}, {len(data)} bytes."


def _edit(tree: Tree, args: dict[str, Any]) -> str:
    path = arguments.text(args, "path")
    old, new = arguments.text(args, "old"), arguments.text(args, "new")
    if not old:
        raise BadRequest("old is empty; fs_write makes new files", field="old")
    text = _text_of(tree, path)
    count = text.count(old)
    if count != 1:
        raise Conflict(f"the piece occurs {count} times in {path}; it must be exactly once")
    tree.write(path, text.replace(old, new).encode("utf-8", "replace"))
    return f"Changed {path}."


def _mkdir(tree: Tree, args: dict[str, Any]) -> str:
    path = arguments.text(args, "path")
    tree.make(path)
    return f"The directory {path} is there."


def _delete(tree: Tree, args: dict[str, Any]) -> str:
    path = arguments.text(args, "path")
    return f"Deleted {path}." if tree.delete(path) else f"There was no {path}."
