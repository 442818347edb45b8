"""The manager of engine programs: finds and starts them, watches their memory and ends them."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from agentsup.engines.failures import (
    EnginesBusy,
    NotConfigured,
    NotInstalled,
    OutOfMemory,
    Permanent,
)
from agentsup.engines.process.fencing import Fencing
from agentsup.engines.process.homes import ProgramHome
from agentsup.engines.process.preparing import HomePreparer
from agentsup.engines.process.process import MIB, EngineProcess, ProcessLimits, concealer
from agentsup.engines.process.slots import ProcessSlot, ProcessSlotLimits, ProcessSlots
from agentsup.kit import proctable, searching
from agentsup.kit.clock import Clock
from agentsup.kit.log import get_logger
from agentsup.kit.pipes import Stdio
from agentsup.kit.pool import BoundedPool
from agentsup.kit.process_tracker import LEADER
from agentsup.kit.procgroup import GroupStuck, ProcessGroup, live_groups
from agentsup.kit.safe_files import GuardedFolder
from agentsup.kit.tasks import TaskOwner
from agentsup.model.engine import EngineSpec
from agentsup.model.tool import Children, ReleasableSlot

_log = get_logger(__name__)

# The shell starts the program only after it has read a line: no program works before its group is
# recorded. It reads byte by byte, so what follows is the program's own input. The shell's pid is
# that of the program and of its group: by it, a later sweep finds descendants that left the group.
_GATE = (
    "/bin/sh",
    "-c",
    f'read -r go || exit 125; {LEADER}=$$; export {LEADER}; exec "$@"',
    "gate",
)
_WAIT_S = 240.0
_LOOK_S = 1.0
_CLOSE_S = 2.0


def find_program(name: str, env: Mapping[str, str], *, cwd: str, remedy: str = "") -> str:
    """Return the file to execute for ``name``, found in the program's own PATH; blocks briefly.

    A name with a slash is relative to ``cwd``. Raises ``NotInstalled`` with ``remedy``.
    """
    name = os.path.expanduser(name)  # noqa: PTH111 - a path part of an argument list
    if os.sep in name:
        path = os.path.join(cwd, name)  # noqa: PTH118 - keeps an absolute name as it is
        found = path if os.path.isfile(path) and os.access(path, os.X_OK) else None  # noqa: PTH113
    else:
        found = shutil.which(name, path=env.get("PATH", os.defpath))
    if found is None:
        advice = remedy or "install it, or name its full path in engine_options"
        raise NotInstalled(searching.not_found(name, env, advice), program=name)
    return found


def contained(workspace: str, path: str) -> Path:
    """Return ``path`` in the workspace, links resolved. Raises ``Permanent`` if it leads out."""
    root = Path(os.path.realpath(workspace))
    try:
        target = Path(os.path.realpath(root / path))
    except ValueError:
        target = root
    if not workspace or target == root or not target.is_relative_to(root):
        raise Permanent(f"{path!r} is not a file inside the workspace")
    return target


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run. Put no prompt and no secret into ``argv``: every process can read it.

    ``home``: the paths that it may use besides the workspace. ``secrets`` never appear in its quoted
    error output. ``remedy`` is the advice if it is not installed. It runs in ``cwd``, or else in the
    workspace.
    """

    argv: Sequence[str]
    env: Mapping[str, str] = field(repr=False)
    home: ProgramHome
    secrets: Sequence[str] = field(default=(), repr=False)
    limits: ProcessLimits = field(default_factory=ProcessLimits)
    remedy: str = ""
    cwd: str = ""


class ProcessLauncher:
    """Opens every program that an engine runs. One for the daemon; ``close`` it last."""

    def __init__(
        self,
        clock: Clock,
        *,
        limits: Callable[[], ProcessSlotLimits] = ProcessSlotLimits,
        memory_mb: Callable[[], int] = lambda: 4096,
        redact: Callable[[str], str] | None = None,
        fencing: Callable[[], Fencing] = Fencing,
        wait_s: float = _WAIT_S,
        look_s: float = _LOOK_S,
        files: BoundedPool | None = None,
    ) -> None:
        """``limits`` and ``memory_mb`` (for one group) are called at each use; ``redact`` masks
        what must not be shown; ``fencing`` returns the program fence; ``wait_s`` bounds the wait
        for a slot; memory is checked every ``look_s``; ``files`` is the pool in which homes are
        prepared.
        """
        self.files = files or BoundedPool("files")
        self.homes = HomePreparer(self.files)
        self._clock = clock
        self.process_slots = ProcessSlots(limits)
        """The slots: how many programs run, are paused and wait."""
        self._memory_mb = memory_mb
        self._redact = redact
        self._fencing = fencing
        self._wait_s = wait_s
        self._look_s = look_s
        self._open: dict[EngineProcess, int] = {}
        self._owner = TaskOwner("engine programs")
        self._watch: asyncio.Task[None] | None = None

    @property
    def children(self) -> tuple[EngineProcess, ...]:
        """The programs that are open now."""
        return tuple(self._open)

    @asynccontextmanager
    async def open(
        self,
        program: Program,
        spec: EngineSpec,
        host: Children,
        *,
        slot: ReleasableSlot | None = None,
    ) -> AsyncGenerator[EngineProcess]:
        """Run a program for the agent of ``spec``; its input stays open.

        It gets another ``TMPDIR`` if the fence requires that, and the variable that marks its group.
        The host records the process group before the program works. When the block is left, the
        group is ended: its input is closed, then TERM, and KILL ``term_grace_s`` later. ``slot`` is
        the turn's slot: it is given back while the start waits for a process slot. While the turn
        waits, its program is paused.
        Raises ``NotInstalled`` (with the remedy), ``NotConfigured``, ``EnginesBusy``.
        """
        argv, home, limits = program.argv, program.home, program.limits
        workspace, fencing = _absolute(spec.workspace), self._fencing()
        cwd = program.cwd or workspace

        def prepare() -> tuple[str, dict[str, str]]:
            found = find_program(argv[0], program.env, cwd=cwd, remedy=program.remedy)
            GuardedFolder(home.path).make(mode=0o700)
            _look_at(cwd)
            return found, fencing.with_room(program.env, home.path)

        try:
            file, env = await self.files.run(prepare, key=spec.agent)
        except OSError as error:
            why = error.strerror or error
            raise EnginesBusy(f"{argv[0]} has no place to run in now: {why}") from error
        process_slot = await self._slot(spec, slot)
        opened = (workspace, str(home.path), *home.opened, *spec.folders)
        try:
            rules = fencing.around(opened, (file, *home.shown), files=self.files, key=spec.agent)
            async with rules as fence:
                group = await _spawn([*_GATE, file, *argv[1:]], env, cwd, fence)
            conceal = concealer(
                [*program.secrets, spec.env.get("AGENTSUP_TOKEN", "")], self._redact
            )
            suspend_turn = slot.suspend if slot else lambda: False
            child = EngineProcess(
                Path(file).name, group, process_slot, limits, conceal, suspend_turn
            )
            try:
                await host.spawned(group.pgid, group.record.started_ticks, file)
                self._register(child, limits.memory_mb)
                child.feed(b"\n")
                # While the turn waits for others, they can start programs: this one is paused.
                with slot.watched(child.rest, child.wake) if slot else nullcontext():
                    yield child
            finally:
                await self._end(child, group, host, limits.term_grace_s)
        finally:
            process_slot.release()

    async def close(self) -> None:
        """Kill the programs that are still open; reading from one then raises ``EnginesBusy``."""
        for child in list(self._open):
            child.condemn(EnginesBusy("the daemon is ending"))
        await self._owner.close(_CLOSE_S)
        await self.homes.close()

    # -- inside ------------------------------------------------------------------------------------

    async def _slot(self, spec: EngineSpec, slot: ReleasableSlot | None) -> ProcessSlot:
        if slot is None or self.process_slots.has_room(spec.agent):
            return await self._taken(spec)
        taken: ProcessSlot | None = None
        try:
            # Turns whose programs run may need this slot before they can end.
            async with slot.released():
                taken = await self._taken(spec)
        except BaseException:
            if taken is not None:
                taken.release()
            raise
        return taken

    async def _taken(self, spec: EngineSpec) -> ProcessSlot:
        try:
            async with asyncio.timeout(self._wait_s):
                return await self.process_slots.take(spec.agent)
        except TimeoutError:
            raise EnginesBusy(
                f"no engine program could be started within {self._wait_s:g} s, as "
                f"{self.process_slots.running} run already (limits.processes)"
            ) from None

    def _register(self, child: EngineProcess, memory_mb: int | None) -> None:
        self._open[child] = memory_mb or self._memory_mb()
        if self._watch is None or self._watch.done() or self._watch.cancelling():
            self._watch = self._owner.spawn(self._watch_memory(), name="memory:programs")

    async def _end(
        self, child: EngineProcess, group: ProcessGroup, host: Children, grace_s: float
    ) -> None:
        self._open.pop(child, None)
        if not self._open and self._watch is not None:
            self._watch.cancel()
        cancelled: asyncio.CancelledError | None = None
        # A cancellation ends neither this nor the removal of the group's record; it shortens the wait.
        child.close_stdin()  # many programs end by themselves when their input ends
        try:
            try:
                await group.stop(term_grace_s=grace_s)
            except asyncio.CancelledError as error:
                cancelled = error
                await group.stop(term_grace_s=0)
        except GroupStuck as error:
            # Its record stays, so that the next start of the daemon looks for it again.
            _log.exception(f"{child.name} could not be killed ({error})")
        else:
            try:
                await host.reaped(group.pgid)
            except asyncio.CancelledError as error:
                cancelled = error
                await host.reaped(group.pgid)
        if cancelled is not None:
            raise cancelled

    async def _watch_memory(self) -> None:
        while self._open:
            await self._clock.sleep(self._look_s)
            rows, live = await asyncio.to_thread(proctable.table), live_groups()
            live.learn(rows)
            members = live.members(rows)
            allowed = {child.pgid: (child, limit) for child, limit in self._open.items()}
            known = {pgid: pids for pgid, pids in members.items() if pgid in allowed}
            used = await asyncio.to_thread(_group_mib, known)
            for pgid, mib in used.items():
                child, limit = allowed[pgid]
                if mib > limit and child in self._open:
                    child.condemn(
                        OutOfMemory(
                            f"{child.name} used {mib} MiB of memory and was ended; it may use "
                            f"{limit} MiB (engine_options.memory_mb, limits.process_memory_mb)",
                            program=child.name,
                        )
                    )


def _group_mib(members: Mapping[int, Iterable[int]]) -> dict[int, int]:
    """The private memory of each group in MiB. Pages of files that several programs map are not
    counted. Blocks for some milliseconds."""
    return {pgid: sum(map(proctable.private_bytes, pids)) // MIB for pgid, pids in members.items()}


def _look_at(folder: str) -> None:
    """Access the folder in this thread first. All agents share the thread that starts programs,
    which should not wait for a disk that does not answer."""
    with suppress(OSError):
        os.stat(folder)  # noqa: PTH116 - as it is named


def _absolute(workspace: str) -> str:
    if not Path(workspace).is_absolute():
        raise NotConfigured(f"the workspace {workspace!r} is not an absolute path")
    return workspace


async def _spawn(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, fence: int | None
) -> ProcessGroup:
    try:
        return await ProcessGroup.spawn(
            argv,
            env=env,
            cwd=cwd,
            stdin=Stdio.PIPE,
            stdout=Stdio.PIPE,
            stderr=Stdio.TAIL,
            fence=fence,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise NotConfigured(f"{argv[len(_GATE)]} can't be started in {cwd}: {why}") from error
