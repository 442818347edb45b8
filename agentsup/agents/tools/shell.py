"""``exec``: one program in the workspace, without a shell, in bounds, gone with its call."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentsup.agents.tools import arguments, command_lines, shell_policy
from agentsup.engines.child import exec_home
from agentsup.engines.child.fencing import Fencing
from agentsup.kit.leftovers import LEADER
from agentsup.kit.planted import Folder
from agentsup.kit.pool import BoundedPool
from agentsup.kit.procgroup import Output, ProcessGroup, Stdio
from agentsup.model.errors import AgentsupError, BadRequest, Conflict, NotFound, TimedOut
from agentsup.model.tool import Effect, Safety, Tool, ToolContext

TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 1200.0
OUTPUT_BYTES = 1024 * 1024
TERM_GRACE_S = 0.5
_WORDS = 1000

# The program starts only after a line came, so that nothing works before its group was recorded.
# The shell's number, the program's too, lets a later sweep find what has left the group.
_GATE = (
    "/bin/sh",
    "-c",
    f'read -r go || exit 125; {LEADER}=$$; export {LEADER}; exec "$@" </dev/null',
    "gate",
)


def exec_tool(
    environment: Callable[[], Mapping[str, str]],
    fencing: Callable[[], Fencing] = Fencing,
    files: BoundedPool | None = None,
) -> Tool:
    """``environment`` is the allow-listed one, asked for at each call; a home beside the workspace
    is added. ``fencing`` is what is closed to the program, ``files`` the pool in which its place is
    prepared. Only for agents whose ``tools`` name ``exec``."""
    pool = files or BoundedPool("files")

    async def run(context: ToolContext, args: dict[str, Any]) -> str:
        argv = words_of(args)
        limit_s = min(MAX_TIMEOUT_S, max(0.1, arguments.number(args, "timeout", default=TIMEOUT_S)))
        return await _run(context, argv, environment(), fencing(), pool, limit_s)

    return Tool(
        "exec",
        "Run one program in the workspace and return its output. There is no shell: no pipes, "
        "redirections, variables or wildcards.",
        {
            "type": "object",
            "properties": {
                "argv": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "The program and its arguments, one word each.",
                },
                "command": {
                    "type": "string",
                    "description": "Instead of argv: the same as one line, quoted as in a shell.",
                },
                "timeout": {"type": "number", "description": "Seconds; default 120."},
            },
            "additionalProperties": False,
        },
        run,
        Effect.BLIND,
        Safety.DANGEROUS,
        is_optional=True,
        is_outside=True,
        check=_check,
        commands=_commands,
    )


def words_of(args: dict[str, Any]) -> list[str]:
    """The words to run. Raises ``BadRequest``, also for a line that wants a shell."""
    argv = args.get("argv")
    if argv is not None:
        is_words = isinstance(argv, list) and all(isinstance(word, str) for word in argv)
        if not is_words or not argv or not argv[0] or len(argv) > _WORDS:
            raise BadRequest("argv is a list of words, the program first", field="argv")
        return list(argv)
    line = arguments.text(args, "command")
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise BadRequest(f"the command can't be read: {error}", field="command") from None
    if not words or not words[0]:
        raise BadRequest("there is no command", field="command")
    quoted = set("();<>|&")
    if any(word and set(word) <= quoted for word in words):
        raise BadRequest(
            "there is no shell here, so no pipes, redirections or lists; run one program at a "
            'time, or name a shell yourself with argv ["sh", "-c", …]',
            field="command",
        )
    return words


def _commands(args: dict[str, Any]) -> command_lines.Lines:
    try:
        return command_lines.of_words(words_of(args))
    except AgentsupError:
        return ()


def _check(args: dict[str, Any]) -> str | None:
    try:
        return shell_policy.problem(words_of(args))
    except AgentsupError as error:
        return error.message


async def _run(
    context: ToolContext,
    argv: list[str],
    environment: Mapping[str, str],
    fencing: Fencing,
    files: BoundedPool,
    limit_s: float,
) -> str:
    children = context.children
    if children is None or not context.workspace:
        raise Conflict("this agent can't run programs: it has no workspace")
    workspace = os.path.abspath(context.workspace)  # noqa: ASYNC240, PTH100 - words, no I/O
    home = str(exec_home(Path(workspace), context.person))
    env = {**environment, "HOME": home, "PWD": workspace}

    def prepare() -> tuple[str, dict[str, str]]:
        env["PATH"] = _fixed(env.get("PATH", os.defpath), workspace)
        program = _prepared(argv[0], env, workspace)
        return program, fencing.with_room(env, Path(home))

    try:
        program, env = await files.run(prepare, key=context.agent_name)
    except OSError as error:
        raise Conflict(f"{argv[0]} can't be run now: {error.strerror or error}") from None
    rules = fencing.around((workspace, home), files=files, key=context.agent_name)
    async with rules as fence:
        group = await ProcessGroup.spawn(
            [*_GATE, program, *argv[1:]],
            env=env,
            cwd=workspace,
            stdin=Stdio.PIPE,
            stderr=Stdio.MERGE,
            gains_rights=False,
            fence=fence,
        )
    try:
        await children.spawned(group.pgid, group.record.started_ticks, program)
        assert group.stdin is not None
        group.stdin.feed(b"go\n", then_close=True)
        try:
            async with asyncio.timeout(limit_s):
                output = await group.communicate(limit_bytes=OUTPUT_BYTES)
        except TimeoutError:
            raise TimedOut(
                f"{argv[0]} took over {limit_s:g} s and was ended; what it changed stays changed"
            ) from None
    finally:
        try:
            await group.stop(term_grace_s=TERM_GRACE_S)
        finally:
            await children.reaped(group.pgid)
    return told(output)


def told(output: Output) -> str:
    """An exit code and what was said, as the model reads it."""
    text = output.stdout.decode("utf-8", "replace").rstrip("\n")
    head = f"exit code {output.code}" if output.code >= 0 else f"ended by signal {-output.code}"
    more = f"\n[the output was cut at {OUTPUT_BYTES} bytes]" if output.is_truncated else ""
    return f"{head}\n{text}{more}" if text else f"{head}, no output"


def _fixed(path: str, workspace: str) -> str:
    """``path`` without places that an agent's files could be in: a name means the same program
    whatever was written to the workspace."""
    root = os.path.realpath(workspace) + os.sep
    places = [
        place
        for place in path.split(os.pathsep)
        if place.startswith("/") and not (os.path.realpath(place) + os.sep).startswith(root)
    ]
    return os.pathsep.join(places) or os.defpath


def _prepared(program: str, env: Mapping[str, str], workspace: str) -> str:
    """The file of ``program``. Its home is there then, where no file tool reaches: what programs
    read in their home, they take orders from."""
    Folder(env["HOME"]).make(mode=0o700)
    if "/" in program:
        found = Path(workspace, program)
        if not found.is_file():
            raise NotFound(f"there is no program {program}")
        return str(found)
    where = shutil.which(program, path=env["PATH"])
    if where is None:
        raise NotFound(f"there is no program {program} on the path")
    return where
