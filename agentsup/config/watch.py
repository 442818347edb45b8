"""Sees edits of files in about 80 ms, and at the latest after the slow re-read.

The *directory* is watched, because a file that is replaced takes its own watch with it. An event
only means "look now": what counts is whether a file's content differs from what was last told.
A slow re-read finds what no event told (network and bind mounts, an edit in the moment in which
the watch is set up). Any failure of its own is raised, so that whoever supervises it starts it
again.

watchfiles looks at its list of events in steps, and each step wakes a thread: about 70 µs of CPU
while nothing happens. So the steps are long, and the second look that it wants before it tells
anything follows the first one at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing, suppress
from pathlib import Path

from watchfiles import Change, awatch

from agentsup.config.agents_file import MAX_BYTES
from agentsup.config.files import ConfigFiles
from agentsup.kit.clock import Clock
from agentsup.kit.pool import NoAnswer
from agentsup.kit.tasks import TaskOwner

LOOK_S = 0.1
"""How long watchfiles waits between looks: ten wakes a second."""
DEBOUNCE_MS = 80
"""Shorter than the wait between looks: what is still going on then is told all the same."""
SETTLE_S = 0.015
"""How long files stand still before they are read."""
REST_S = 0.05
"""The same where it isn't known which files count."""
SETTLE_AT_MOST_S = 0.5
"""A file that never comes to rest is read all the same."""
REREAD_S = 3.0
MISSING_S = 0.25
"""How long until a directory that is gone is looked for again."""
_CLOSE_S = 0.5

NO_ANSWER = "no answer"
UNREADABLE = "unreadable"
"""In place of the hash of a file that can't be read; ``load`` says why."""

Hashes = Mapping[str, str | None]
"""Content hash by file name, None for a file that does not exist."""


async def watch(
    paths: Collection[Path],
    *,
    on_change: Callable[[set[str]], Awaitable[None]],
    stop: asyncio.Event,
    clock: Clock,
    known: Hashes | None = None,
    reread_s: float = REREAD_S,
    files: ConfigFiles | None = None,
) -> None:
    """Call `on_change` with the names of the files whose content changed, until `stop` is set.

    All `paths` lie in one directory. `known` is what the caller has read already (a snapshot's
    `file_hashes`): a difference at the start is told at once, so that no edit falls into the gap
    of a restart; a file that is not in `known` starts as it is. A file that does not answer counts
    as changed, and again once it answers. Raises what `on_change` raises,
    and `OSError` or `RuntimeError` where the directory can't be watched.
    """
    files = files or ConfigFiles()
    (directory,) = {path.parent for path in paths}
    watched = _Files(directory, tuple(sorted(path.name for path in paths)), clock, files)
    when = WatchedDirectory(directory, clock, names=watched.names, reread_s=reread_s, files=files)
    told = await watched.hashes()
    told.update((name, known[name]) for name in watched.names if known and name in known)
    async with aclosing(when.looks(stop)) as looks:
        async for _ in looks:
            if await watched.hashes() == told:
                continue  # most looks end here: nothing has to come to rest
            await watched.settle()
            now = await watched.hashes()
            changed = {name for name in watched.names if now[name] != told.get(name)}
            if changed:
                await on_change(changed)
                told = now


class _Pace:
    """What watchfiles asks in its thread before each look whether to stop: keeps the looks apart.

    It tells a change when two looks in a row find the same. Its own step would part these two as
    well; here only the first waits. (watchfiles sets the event it is given when it is cancelled,
    another reason why it doesn't get the caller's.)
    """

    def __init__(self) -> None:
        self._gate = threading.Lock()  # cheaper to wait for than an event
        self._gate.acquire()
        self._is_set = False
        self._is_first = False

    def is_set(self) -> bool:
        self._is_first = not self._is_first
        if self._is_first and self._gate.acquire(timeout=LOOK_S):
            self._gate.release()
        return self._is_set

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            self._gate.release()


class WatchedDirectory:
    """Tells when to look at a directory. That it is missing, or another one than before, is seen."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        names: Collection[str] | None = None,
        reread_s: float = REREAD_S,
        missing_s: float = MISSING_S,
        files: ConfigFiles | None = None,
    ) -> None:
        """``names`` are the files in it that count; None: whatever lies below it, which is looked
        at only after it had a moment to come to rest."""
        self._files = files or ConfigFiles()
        self._path = path
        self._clock = clock
        self._names = names
        self._reread_s = reread_s
        self._missing_s = min(reread_s, missing_s)
        self._due_at = 0.0
        self._is_lost = False

    async def looks(self, stop: asyncio.Event) -> AsyncGenerator[None, None]:
        """Yield whenever it should be looked at: at the start, on events, and every so often, until
        ``stop`` is set. Raises ``OSError`` or ``RuntimeError`` where it can't be watched."""
        is_missing = False
        self._looked()
        yield
        while not stop.is_set():
            identity = await self._identity()
            if identity is None:
                # Nothing to watch until the directory is back; then it is looked at.
                is_missing = True
                await wait_for_stop(stop, self._missing_s)
                continue
            if is_missing:
                is_missing = False
                yield
                continue
            self._is_lost = False
            async with aclosing(self._events(stop)) as events:
                async for _ in events:
                    self._looked()
                    # Asked before the look, so that the last look sees what took its place.
                    now = await self._identity()
                    is_another = self._is_lost or now != identity
                    yield
                    if is_another:
                        break

    async def _events(self, stop: asyncio.Event) -> AsyncGenerator[None, None]:
        pace = _Pace()

        async def end() -> None:
            await stop.wait()
            pace.set()

        changes = awatch(
            self._path,
            watch_filter=self._concerns,
            debounce=DEBOUNCE_MS,
            step=0,
            stop_event=pace,
            rust_timeout=max(1, int(self._reread_s * 1000)),
            yield_on_timeout=True,
            recursive=self._names is None,
        )
        tasks = TaskOwner("watch")
        tasks.spawn(end(), name=f"watch-end:{self._path.name}")
        try:
            async for found in changes:
                if found and self._names is None:
                    await self._clock.sleep(REST_S)
                yield
        finally:
            pace.set()
            await tasks.close(_CLOSE_S)

    def _concerns(self, change: Change, path: str) -> bool:
        """Whether an event is about our files, or comes when a look is due anyway.

        The store lies beside some of them, so under load there is never a quiet timeout.
        """
        if path == str(self._path):
            # A new directory may get the inode of the old one, so this is remembered.
            self._is_lost |= change is Change.deleted
            return True
        if self._names is None:
            return True
        name = os.path.basename(path)  # noqa: PTH119 - called for every event
        return name in self._names or self._clock.monotonic() >= self._due_at

    def _looked(self) -> None:
        self._due_at = self._clock.monotonic() + self._reread_s

    async def _identity(self) -> tuple[int, int] | None:
        try:
            status = await self._files.run(self._path.stat, key=f"{self._path}")
        except OSError:
            return None
        return status.st_dev, status.st_ino


async def wait_for_stop(stop: asyncio.Event, seconds: float) -> None:
    """Wait, but no longer than until ``stop`` is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


class _Files:
    """The files of one directory."""

    def __init__(
        self, directory: Path, names: tuple[str, ...], clock: Clock, files: ConfigFiles
    ) -> None:
        self.names = names
        self._directory = directory
        self._clock = clock
        self._files = files

    async def settle(self) -> None:
        """Wait until size and times of the files stand still, so that no half save is read."""
        until = self._clock.monotonic() + SETTLE_AT_MOST_S
        before = await self._signatures()
        while self._clock.monotonic() < until:
            await self._clock.sleep(SETTLE_S)
            now = await self._signatures()
            if now == before:
                return
            before = now

    async def _signatures(self) -> list[object]:
        return [await self._signature(name) for name in self.names]

    async def _signature(self, name: str) -> object:
        try:
            return await self._files.signature(self._directory / name)
        except OSError:
            return None

    async def hashes(self) -> dict[str, str | None]:
        """Content hash of each file, read one beside the other.

        Equal to a snapshot's `file_hashes`, also for files too large to be read: those are cut
        at the same length. An unreadable file is another one than before, and `load` says why.
        """
        found = await asyncio.gather(*map(self._hash, self.names))
        return dict(zip(self.names, found, strict=True))

    async def _hash(self, name: str) -> str | None:
        try:
            data = await self._files.read(self._directory / name, MAX_BYTES)
        except FileNotFoundError:
            return None
        except NoAnswer:
            return NO_ANSWER
        except OSError:
            return UNREADABLE
        return hashlib.sha256(data).hexdigest()
