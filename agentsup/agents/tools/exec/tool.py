"""``exec``: runs one program in the workspace, without a shell, for the time of the call."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from agentsup.agents.tools.declaring import (
    Arguments,
    Check,
    Number,
    Text,
    checked,
    missing,
    read,
    tool,
    tool_of,
)
from agentsup.agents.tools.exec import command_lines
from agentsup.engines.process import Fencing, exec_home
from agentsup.kit.pipes import Stdio
from agentsup.kit.pool import BoundedPool
from agentsup.kit.process_tracker import LEADER
from agentsup.kit.procgroup import Output, ProcessGroup
from agentsup.kit.proctable import programs_of
from agentsup.kit.safe_files import GuardedFolder
from agentsup.model.errors import AgentsupError, BadRequest, Conflict, NotFound, TimedOut
from agentsup.model.tool import Effect, Safety, Tool, ToolContext

TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 1200.0
OUTPUT_BYTES = 1024 * 1024
TERM_GRACE_S = 0.5
_WORDS = 1000
_NAMED = 5
_ARGV = {"type": "array", "items": {"type": "string"}}

# The shell waits for a line, so that the program does not run before its process group is recorded.
# The shell's pid is the program's too. A later sweep finds by it processes that left the group.
_GATE = (
    "/bin/sh",
    "-c",
    f'read -r go || exit 125; {LEADER}=$$; export {LEADER}; exec "$@" </dev/null',
    "gate",
)


def _argv(value: Any) -> list[str]:
    is_words = isinstance(value, list) and all(isinstance(word, str) for word in value)
    if not is_words or not value or not value[0] or len(value) > _WORDS:
        raise BadRequest("argv is a list of words, the program first", field="argv")
    return list(value)


class Execute(Arguments):
    """The arguments of ``exec``."""

    argv: Annotated[list[str] | None, Check(_argv, _ARGV)] = Field(
        None, description="The program and its arguments, one word each."
    )
    command: Text | None = Field(
        None, description="Instead of argv: the same as one line, quoted as in a shell."
    )
    timeout: Number = Field(TIMEOUT_S, description="Seconds; default 120.")

    @property
    def words(self) -> list[str]:
        """The program and its arguments. Raises ``BadRequest``."""
        if self.argv is not None:
            return self.argv
        if self.command is None:
            raise missing("command")
        return _split(self.command)


def exec_tool(
    environment: Callable[[], Mapping[str, str]],
    fencing: Callable[[], Fencing] = Fencing,
    files: BoundedPool | None = None,
) -> Tool:
    """The ``exec`` tool, only for agents whose ``tools`` name it.

    ``environment`` gives the allow-listed variables at each call; a home beside the workspace is
    added. ``fencing`` gives the rules of the program fence. ``files`` is the pool in which the home
    is prepared.
    """
    pool = files or BoundedPool("files")

    @tool(
        "exec",
        Effect.BLIND,
        Safety.DANGEROUS,
        is_optional=True,
        is_outside=True,
        check=checked(Execute, lambda args: command_lines.problem(args.words)),
        commands=_commands,
    )
    async def execute(context: ToolContext, args: Execute) -> str:
        """Run one program in the workspace and return its output. There is no shell: no pipes,
        redirections, variables or wildcards."""
        limit_s = min(MAX_TIMEOUT_S, max(0.1, args.timeout))
        return await _run(context, args.words, environment(), fencing(), pool, limit_s)

    return tool_of(execute)


def words_of(args: dict[str, Any]) -> list[str]:
    """The program and its arguments. Raises ``BadRequest``, also for a line that needs a shell."""
    return read(Execute, args).words


def _split(line: str) -> list[str]:
    try:
        words = command_lines.split_at_operators(line)
    except ValueError as error:
        raise BadRequest(f"the command can't be read: {error}", field="command") from None
    if not words or not words[0]:
        raise BadRequest("there is no command", field="command")
    if any(command_lines.is_operator(word) for word in words):
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
            left = await _left_behind(group, files, context.agent_name)
        except TimeoutError:
            raise TimedOut(
                f"{argv[0]} took over {limit_s:g} s and was ended; what it changed stays changed"
            ) from None
    finally:
        try:
            await group.stop(term_grace_s=TERM_GRACE_S)
        finally:
            await children.reaped(group.pgid)
    return result_text(output, left)


async def _left_behind(group: ProcessGroup, files: BoundedPool, agent: str) -> list[str]:
    """The programs that still run. A look that fails hides no result."""
    try:
        return await files.run(partial(programs_of, group.pgid), key=agent)
    except OSError:
        return []


def result_text(output: Output, left: Sequence[str] = ()) -> str:
    """The exit code and the output as the model reads them, and what was ended: programs that were
    ``left`` running."""
    text = output.stdout.decode("utf-8", "replace").rstrip("\n")
    head = f"exit code {output.code}" if output.code >= 0 else f"ended by signal {-output.code}"
    more = f"\n[the output was cut at {OUTPUT_BYTES} bytes]" if output.is_truncated else ""
    said = f"{head}\n{text}{more}" if text else f"{head}, no output"
    if not left:
        return said
    names = ", ".join(left[:_NAMED]) + (", …" if len(left) > _NAMED else "")
    return (
        f"{said}\n[{len(left)} left running in the background ({names}), and ended with this call: "
        "nothing outlives a call. Do what needs it in the same call, or ask the operator to keep it "
        "running as a service]"
    )


def _fixed(path: str, workspace: str) -> str:
    """``path`` without relative folders and those in the workspace.

    So a name means the same program, whatever an agent writes to its workspace.
    """
    root = os.path.realpath(workspace) + os.sep
    folders = [
        folder
        for folder in path.split(os.pathsep)
        if folder.startswith("/") and not (os.path.realpath(folder) + os.sep).startswith(root)
    ]
    return os.pathsep.join(folders) or os.defpath


def _prepared(program: str, env: Mapping[str, str], workspace: str) -> str:
    """Make the home, and find the file of ``program``. Raises ``NotFound``.

    File tools can't reach the home, since programs may run commands from the settings in it.
    """
    GuardedFolder(env["HOME"]).make(mode=0o700)
    if "/" in program:
        found = Path(workspace, program)
        if not found.is_file():
            raise NotFound(f"there is no program {program}")
        return str(found)
    where = shutil.which(program, path=env["PATH"])
    if where is None:
        raise NotFound(f"there is no program {program} on the PATH ({env['PATH']})")
    return where
