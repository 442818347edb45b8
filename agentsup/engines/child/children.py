"""The one manager for engine children: starts them in their place, watches them, sees them gone."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path

from agentsup.engines.child.berths import Berth, BerthLimits, Berths
from agentsup.engines.child.child import Child, ChildLimits
from agentsup.engines.child.fencing import Fencing
from agentsup.engines.child.homes import ProgramHome
from agentsup.engines.child.memory import group_mib
from agentsup.engines.child.preparing import HomePreparer
from agentsup.engines.child.quoting import concealer
from agentsup.engines.child.surroundings import find_program
from agentsup.engines.failures import EnginesBusy, NotConfigured, OutOfMemory
from agentsup.kit import proctable
from agentsup.kit.clock import Clock
from agentsup.kit.leftovers import LEADER
from agentsup.kit.planted import Folder
from agentsup.kit.pool import BoundedPool
from agentsup.kit.procgroup import GroupStuck, ProcessGroup, Stdio, live_groups
from agentsup.kit.tasks import TaskOwner
from agentsup.model.engine import EngineSpec
from agentsup.model.tool import Children, TurnPlace

_log = logging.getLogger(__name__)

# The program starts only after a line came, so that nothing works before its group was recorded.
# The line is read byte by byte; what follows it is the program's own input. The shell's number is
# the program's and its group's: by it, a later sweep finds descendants that left the group.
_GATE = (
    "/bin/sh",
    "-c",
    f'read -r go || exit 125; {LEADER}=$$; export {LEADER}; exec "$@"',
    "gate",
)
_WAIT_S = 240.0
_LOOK_S = 1.0
_CLOSE_S = 2.0


class ChildManager:
    """Every program that an engine runs is opened here. One for the daemon; ``close`` it last."""

    def __init__(
        self,
        clock: Clock,
        *,
        limits: Callable[[], BerthLimits] = BerthLimits,
        memory_mb: Callable[[], int] = lambda: 4096,
        redact: Callable[[str], str] | None = None,
        fencing: Callable[[], Fencing] = Fencing,
        wait_s: float = _WAIT_S,
        look_s: float = _LOOK_S,
        files: BoundedPool | None = None,
    ) -> None:
        """``limits`` and ``memory_mb`` (for one group) are asked at each use; ``redact`` masks what
        must not be shown; ``fencing`` is what is closed to them; ``wait_s`` bounds the wait
        for a berth; memory is looked at every
        ``look_s``; ``files`` is the pool in which their places are prepared.
        """
        self.files = files or BoundedPool("files")
        self.homes = HomePreparer(self.files)
        self._clock = clock
        self._berths = Berths(limits)
        self._memory_mb = memory_mb
        self._redact = redact
        self._fencing = fencing
        self._wait_s = wait_s
        self._look_s = look_s
        self._open: dict[Child, int] = {}
        self._owner = TaskOwner("engine programs")
        self._watch: asyncio.Task[None] | None = None
        self._spawning = asyncio.Lock()

    @property
    def berths(self) -> Berths:
        """How many run, are held and wait."""
        return self._berths

    @property
    def children(self) -> tuple[Child, ...]:
        """The programs that are open now."""
        return tuple(self._open)

    @asynccontextmanager
    async def open(
        self,
        argv: Sequence[str],
        spec: EngineSpec,
        host: Children,
        *,
        env: Mapping[str, str],
        home: ProgramHome,
        stdin: bytes | None = None,
        secrets: Sequence[str] = (),
        limits: ChildLimits | None = None,
        remedy: str = "",
        slot: TurnPlace | None = None,
    ) -> AsyncGenerator[Child]:
        """Run ``argv`` in the workspace with exactly ``env``; ``home`` is what it reaches besides.

        ``stdin`` bytes are sent and its input is closed; without them it stays open for ``write``.
        ``secrets`` never appear in its quoted error output. No prompt and no secret belongs into
        ``argv``: every process of the machine can read it.

        The group is recorded with the host before the program works and is gone when the block is
        left: its input ends, TERM, ``term_grace_s`` later KILL. ``slot`` is the turn's, given back
        while it waits for a berth; while the turn waits, its program is held.
        Raises ``NotInstalled`` (with ``remedy``), ``NotConfigured``, ``EnginesBusy``.
        """
        bounds = limits or ChildLimits()
        cwd, fencing = _absolute(spec.workspace), self._fencing()

        def prepare() -> tuple[str, dict[str, str]]:
            program = find_program(argv[0], env, cwd=cwd, remedy=remedy)
            Folder(home.path).make(mode=0o700)
            _look_at(cwd)
            return program, fencing.with_room(env, home.path)

        try:
            program, env = await self.files.run(prepare, key=spec.agent)
        except OSError as error:
            why = error.strerror or error
            raise EnginesBusy(f"{argv[0]} has no place to run in now: {why}") from error
        berth = await self._berth(spec, slot)
        opened = (cwd, str(home.path), *home.opened, *spec.folders)
        try:
            # The disk is waited for before the lock is taken, which all agents share.
            rules = fencing.around(opened, (program, *home.shown), files=self.files, key=spec.agent)
            async with rules as fence, self._spawning:
                # A start blocks the loop for some milliseconds: one in each of its rounds.
                await self._clock.sleep(0)
                group = await _spawn([*_GATE, program, *argv[1:]], env, cwd, bounds, fence)
            conceal = concealer([*secrets, spec.env.get("AGENTSUP_TOKEN", "")], self._redact)
            let_go = slot.let_go if slot else lambda: False
            child = Child(Path(program).name, group, berth, bounds, conceal, let_go)
            try:
                await host.spawned(group.pgid, group.record.started_ticks, program)
                self._register(child, bounds.memory_mb)
                child.feed(b"\n")
                if stdin is not None:
                    child.feed(stdin, then_close=True)
                # A turn that waits for others holds up nobody who must start a program for it.
                with slot.watched(child.rest, child.wake) if slot else nullcontext():
                    yield child
            finally:
                await self._end(child, group, host, bounds.term_grace_s)
        finally:
            berth.leave()

    async def close(self) -> None:
        """Kill what is still open; the blocks that opened it see it gone."""
        for child in list(self._open):
            child.condemn(EnginesBusy("the daemon is ending"))
        await self._owner.close(_CLOSE_S)
        await self.homes.close()

    # -- inside ------------------------------------------------------------------------------------

    async def _berth(self, spec: EngineSpec, slot: TurnPlace | None) -> Berth:
        if slot is None or self._berths.has_room(spec.agent):
            return await self._taken(spec)
        berth: Berth | None = None
        try:
            # Those whose programs run may need the slot to end.
            async with slot.released():
                berth = await self._taken(spec)
        except BaseException:
            if berth is not None:
                berth.leave()
            raise
        return berth

    async def _taken(self, spec: EngineSpec) -> Berth:
        try:
            async with asyncio.timeout(self._wait_s):
                return await self._berths.take(spec.agent)
        except TimeoutError:
            raise EnginesBusy(
                f"no engine program could be started within {self._wait_s:g} s, as "
                f"{self._berths.running} run already (limits.processes)"
            ) from None

    def _register(self, child: Child, memory_mb: int | None) -> None:
        self._open[child] = memory_mb or self._memory_mb()
        if self._watch is None or self._watch.done() or self._watch.cancelling():
            self._watch = self._owner.spawn(self._watch_memory(), name="memory:programs")

    async def _end(self, child: Child, group: ProcessGroup, host: Children, grace_s: float) -> None:
        self._open.pop(child, None)
        if not self._open and self._watch is not None:
            self._watch.cancel()
        try:
            # An input that ends is the politest word; many programs end by it alone.
            child.close_stdin()
            await group.stop(term_grace_s=grace_s)
        except GroupStuck as error:
            # Its record stays, so that the next start of the daemon looks for it again.
            _log.exception("%s could not be killed (%s)", child.name, error)
            return
        await host.reaped(group.pgid)

    async def _watch_memory(self) -> None:
        while self._open:
            await self._clock.sleep(self._look_s)
            rows, live = await asyncio.to_thread(proctable.table), live_groups()
            live.learn(rows)
            members = live.members(rows)
            allowed = {child.pgid: (child, limit) for child, limit in self._open.items()}
            used = await asyncio.to_thread(
                group_mib, {pgid: pids for pgid, pids in members.items() if pgid in allowed}
            )
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


def _look_at(folder: str) -> None:
    """Wait here for a disk that does not answer, where it keeps nobody: a start, which goes to the
    folder, keeps the loop."""
    with suppress(OSError):
        os.stat(folder)  # noqa: PTH116 - as it is named


def _absolute(workspace: str) -> str:
    if not Path(workspace).is_absolute():
        raise NotConfigured(f"the workspace {workspace!r} is not an absolute path")
    return workspace


async def _spawn(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, limits: ChildLimits, fence: int | None
) -> ProcessGroup:
    try:
        return await ProcessGroup.spawn(
            argv,
            env=env,
            cwd=cwd,
            stdin=Stdio.PIPE,
            stdout=Stdio.PIPE,
            stderr=Stdio.TAIL,
            keep_stderr_bytes=limits.stderr_bytes,
            fence=fence,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise NotConfigured(f"{argv[len(_GATE)]} can't be started in {cwd}: {why}") from error
