"""Detects edits of files in about 80 ms, and at the latest at the next periodic re-read.

The *directory* is watched, because a watch on a file ends when the file is replaced. An event only
means "check now": a file counts as changed if its content differs from what was last reported. A
periodic re-read finds changes without an event (network and bind mounts, an edit while the watch is
set up). Any failure of the watch is raised, so that the supervisor starts it again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path

from agentsup.config.agents_file import MAX_BYTES
from agentsup.config.files import ConfigFiles
from agentsup.kit import inotify
from agentsup.kit.clock import Clock
from agentsup.kit.pool import BoundedPool, PoolTimeout
from agentsup.kit.tasks import TaskOwner, call_after, is_set_within

STEP_MS = 50
"""The time between two checks of watchfiles, which reports a change when two in a row find the same.
It watches roles, and all where the system does not tell as Linux does."""
DEBOUNCE_MS = 80
"""Changes that still continue are reported after this time."""
SETTLE_S = 0.015
"""The seconds for which files must not change before they are read."""
REST_S = 0.05
"""The seconds from an event to the check, in which an editor writes the rest."""
SETTLE_AT_MOST_S = 0.5
"""A file that never stops changing is read after this many seconds."""
REREAD_S = 3.0
MISSING_S = 0.25
"""The seconds until a missing directory is searched again."""
_CLOSE_S = 0.5
_HUNG_S = 600.0
"""The watch has failed if it says nothing for so long; it says something at each periodic re-read."""

NO_ANSWER = "no answer"
UNREADABLE = "unreadable"
"""Values in place of the hash of a file that can't be read; ``load`` reports the reason."""

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
    """Call ``on_change`` with the names of the files whose content changed, until ``stop`` is set.

    All ``paths`` lie in one directory. ``known`` are the hashes that the caller has read already (a
    snapshot's ``file_hashes``). A difference at the start is reported at once, so that no edit
    during a restart is missed; a file that is not in ``known`` starts with its present content. A
    file that does not answer counts as changed, and again once it answers. Raises what
    ``on_change`` raises, and ``OSError`` or ``RuntimeError`` if the directory can't be watched.
    """
    files = files or ConfigFiles()
    (directory,) = {path.parent for path in paths}
    watched = _Files(directory, tuple(sorted(path.name for path in paths)), clock, files)
    when = WatchedDirectory(directory, clock, names=watched.names, reread_s=reread_s, files=files)
    reported = await watched.hashes()
    reported.update((name, known[name]) for name in watched.names if known and name in known)
    async with aclosing(when.looks(stop)) as looks:
        async for _ in looks:
            if await watched.hashes() == reported:
                continue  # most checks end here: nothing changed
            await watched.settle()
            now = await watched.hashes()
            changed = {name for name in watched.names if now[name] != reported.get(name)}
            if changed:
                await on_change(changed)
                reported = now


class WatchedDirectory:
    """Reports when to check a directory. It also notices a directory that is missing or was
    replaced."""

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
        """``names`` are the files in it that count; None: everything below it, which is checked
        only after a short pause without changes."""
        self._files = files or ConfigFiles()
        self._path = path
        self._clock = clock
        self._names = names
        self._reread_s = reread_s
        self._missing_s = min(reread_s, missing_s)
        self._uses_inotify = names is not None and inotify.is_here()
        self._due_at = 0.0
        self._is_lost = False

    async def looks(self, stop: asyncio.Event) -> AsyncGenerator[None, None]:
        """Yield whenever it should be checked: at the start, on events, and periodically, until
        ``stop`` is set. Raises ``OSError`` or ``RuntimeError`` if it can't be watched."""
        is_missing = False
        self._looked()
        yield
        while not stop.is_set():
            identity = await self._identity()
            if identity is None:
                # Nothing can be watched until the directory is back; then it is checked.
                is_missing = True
                await is_set_within(stop, self._missing_s)
                continue
            if is_missing:
                is_missing = False
                yield
                continue
            self._is_lost = False
            events_of = self._events_of_files if self._uses_inotify else self._events_below
            async with aclosing(events_of(stop)) as events:
                async for _ in events:
                    self._looked()
                    # Asked before the check, so that the last check sees the new directory.
                    now = await self._identity()
                    is_another = self._is_lost or now != identity
                    yield
                    if is_another:
                        break

    async def _events_of_files(self, stop: asyncio.Event) -> AsyncGenerator[None, None]:
        """From the kernel itself: the store lies beside our files, and its writes wake nobody."""
        is_due = asyncio.Event()
        loop = asyncio.get_running_loop()
        try:
            changes = await self._files.pool.run(
                partial(inotify.DirectoryChanges, self._path),
                key=f"{self._path}",
                undo=inotify.DirectoryChanges.close,
            )
        except FileNotFoundError:  # since a moment ago; it is waited for
            return

        def read() -> None:
            each = [self._is_of_ours(change) for change in changes.read()]  # each may be a loss
            if any(each):
                is_due.set()

        loop.add_reader(changes, read)
        tasks = TaskOwner("watch")
        tasks.spawn(call_after(stop, is_due.set), name=f"watch-end:{self._path.name}")
        try:
            yield  # what changed before it was watched
            while not stop.is_set():
                if await is_set_within(is_due, self._reread_s) and await is_set_within(
                    stop, REST_S
                ):
                    break
                is_due.clear()
                yield
        finally:
            loop.remove_reader(changes)
            changes.close()
            await tasks.close(_CLOSE_S)

    def _is_of_ours(self, change: inotify.Change) -> bool:
        self._is_lost |= change.is_lost
        return not change.name or change.name in (self._names or ())

    async def _events_below(self, stop: asyncio.Event) -> AsyncGenerator[None, None]:
        from watchfiles.main import Change, watch  # noqa: PLC0415 - most homes have no roles

        ends = threading.Event()

        # In a thread of ours: for its own the library would load 1.3 MiB.
        pool = BoundedPool("watch", threads=1, limit_s=_HUNG_S)
        changes = watch(
            self._path,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            stop_event=ends,
            rust_timeout=max(1, int(self._reread_s * 1000)),
            yield_on_timeout=True,
            recursive=self._names is None,
        )
        tasks = TaskOwner("watch")
        tasks.spawn(call_after(stop, ends.set), name=f"watch-end:{self._path.name}")
        try:
            while (found := await pool.run(partial(next, changes, None))) is not None:
                # Each may tell of a loss.
                concerning = [self._concerns(kind is Change.deleted, path) for kind, path in found]
                if found and not any(concerning):
                    continue
                if found and self._names is None:
                    await self._clock.sleep(REST_S)
                yield
        finally:
            ends.set()
            await tasks.close(_CLOSE_S)

    def _concerns(self, is_gone: bool, path: str) -> bool:
        """Whether an event concerns our files, or comes when a check is due anyway.

        The store lies beside some of them, so under load the timeout without events never comes.
        """
        if path == str(self._path):
            # A new directory may get the inode of the old one, so this is stored.
            self._is_lost |= is_gone
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
        """Wait until size and times of the files stop changing: no half-saved file is read."""
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
        """Content hash of each file, read concurrently.

        Equal to a snapshot's ``file_hashes``, also for files that are too large: both are cut at
        the same length. An unreadable file counts as changed, and ``load`` reports the reason.
        """
        found = await asyncio.gather(*map(self._hash, self.names))
        return dict(zip(self.names, found, strict=True))

    async def _hash(self, name: str) -> str | None:
        try:
            data = await self._files.read(self._directory / name, MAX_BYTES)
        except FileNotFoundError:
            return None
        except PoolTimeout:
            return NO_ANSWER
        except OSError:
            return UNREADABLE
        return hashlib.sha256(data).hexdigest()
