"""Files that people send: fetched from any platform into the agent's workspace, and ended by a stop.

A stop may be given in any chat, channel or program. The code that writes it touches the topic
``STOPPED``; each download then reads from the store whether its own message was dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from agentsup.catalogue import LocalizedTexts
from agentsup.channels.core.errors import (
    NotSent,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    TokenRefused,
)
from agentsup.channels.core.files.inbox_files import FOLDER, InboxFolder, Write
from agentsup.channels.core.receiving.messages import PlatformMessages, ReceiveDependencies
from agentsup.channels.core.receiving.stop_marks import STOPPED
from agentsup.channels.core.receiving.texts import Attachment
from agentsup.kit.backoff import delay_s
from agentsup.kit.safe_files import GuardedFolder
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import Overloaded, StoreUnavailable, TooLarge
from agentsup.model.message import Part
from agentsup.store import Reader, is_over

T = TypeVar("T")
_STORE_PAUSE_S = 1.0
_CLOSE_S = 1.0
_PATIENCE_S = 60.0
"""Longest time for all tries of one file: enough for a restart of the platform's server. Later
messages of the chat wait meanwhile."""
_PAUSE_CAP_S = 10.0


class MessageDropped(Exception):
    """A stop has dropped the message before it was accepted."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file as a part of the message, or ``problem``: the text for the person if it failed."""

    part: Part | None = None
    problem: str = ""


class Downloads:
    """The downloads of one bot: a bounded number in parallel."""

    def __init__(self, deps: ReceiveDependencies, platform: PlatformMessages[Any]) -> None:
        self._deps = deps
        self._platform = platform
        self._name = f"{deps.channel}-{deps.agent_id}"
        self._slots = asyncio.Semaphore(platform.downloads)
        self._tasks = TaskOwner(f"downloads of {self._name}")

    async def all_of(
        self,
        sent: Sequence[Attachment],
        say: LocalizedTexts,
        away: AbstractAsyncContextManager[None],
    ) -> tuple[tuple[Part, ...], list[str]]:
        """Fetch the files of one message, in order, within the context ``away``.

        Returns the files, and the texts for the person about those that failed. A cancellation
        removes the fetched files.
        """
        parts: list[Part] = []
        problems: list[str] = []
        try:
            async with away, self._slots:
                for each in sent:
                    got = await self.fetch(each, say)
                    if got.part is not None:
                        parts.append(got.part)
                    else:
                        problems.append(got.problem)
        except asyncio.CancelledError:
            await self.discard(parts)
            raise
        return tuple(parts), problems

    async def run(
        self, fetching: Coroutine[Any, Any, T], row_id: int, is_dropped: Callable[[Reader], bool]
    ) -> T:
        """Run ``fetching`` and return its result; cancel it as soon as ``is_dropped`` is true.

        ``fetching`` must clean up when it is cancelled. ``row_id`` of the message is for the tasks'
        names. Raises ``MessageDropped``, and ``StoreUnavailable`` once the store is closed.
        """
        changed = asyncio.Event()
        changed.set()  # the stop may have come before we listen
        subject = f"{self._name}/{row_id}"
        download = self._tasks.spawn(fetching, name=f"fetch:{subject}")
        looking = self._tasks.spawn(
            self._until_dropped(changed, is_dropped), name=f"look:{subject}"
        )
        unlisten = self._deps.database.listen(STOPPED, changed.set)
        try:
            await asyncio.wait({download, looking}, return_when=asyncio.FIRST_COMPLETED)
            if not download.done():
                download.cancel()
                await asyncio.wait({download})
            if download.cancelled() and looking.done():
                looking.result()
                raise MessageDropped
            return download.result()
        finally:
            unlisten()
            looking.cancel()
            download.cancel()

    async def close(self) -> None:
        """Cancel the downloads. Takes a bounded time."""
        await self._tasks.close(_CLOSE_S)

    async def _until_dropped(
        self, changed: asyncio.Event, is_dropped: Callable[[Reader], bool]
    ) -> None:
        while True:
            await changed.wait()
            changed.clear()
            try:
                if await self._deps.database.read(is_dropped, name="channel.is_dropped"):
                    return
            except (StoreUnavailable, Overloaded) as error:
                if is_over(error):
                    raise
                await self._deps.clock.sleep(_STORE_PAUSE_S)
                changed.set()

    # -- one file ----------------------------------------------------------------------------------

    async def fetch(self, sent: Attachment, say: LocalizedTexts) -> Fetched:
        """Fetch one file to ``<workspace>/inbox/<date>-<name>``; a failure is returned as a text.

        While the platform cannot be reached, the platform's ``pull`` is called again.
        """
        clock, max_bytes = self._deps.clock, self._deps.max_file_bytes

        def failed(why: str) -> Fetched:
            return Fetched(problem=say("file.not_fetched", name=sent.name, why=why))

        def too_large() -> Fetched:
            name = sent.name + (f" ({sent.size / 1_048_576:.0f} MB)" if sent.size else "")
            return Fetched(problem=say(self._platform.over, name=name, mb=max_bytes // 1_048_576))

        if sent.size is not None and sent.size > max_bytes:
            return too_large()
        until = clock.monotonic() + _PATIENCE_S
        failures = 0
        while True:
            try:
                return Fetched(await self._fetched(sent))
            except TooLarge:
                return too_large()
            except (RateLimited, NotSent, OutcomeUnknown, TokenRefused) as error:
                # A refused token ends this life of the bot, and the next one handles the message.
                pause_s = delay_s(failures, base_s=1.0, cap_s=_PAUSE_CAP_S, unit=0.5)
                if isinstance(error, RateLimited):
                    pause_s = error.retry_after_s
                failures += 1
                if clock.monotonic() + pause_s > until:
                    return failed(error.message)
                await clock.sleep(pause_s)
            except PlatformError as error:
                return failed(error.message)
            except OSError as error:
                return failed(error.strerror or str(error) or say("file.unwritable"))

    async def _fetched(self, sent: Attachment) -> Part:
        """Fetch one file, in one attempt. Raises what ``pull`` raises, and ``OSError``."""
        deps, workspace = self._deps, self._deps.workspace
        run = partial(deps.files.run, key=workspace.parent.name)
        landing: InboxFolder | None = None

        async def opened() -> Write:
            nonlocal landing
            # By the owner's name a sweep finds unfinished files.
            make = partial(InboxFolder, workspace, owner=self._name, token=deps.entropy.token())
            landing = await run(make, undo=InboxFolder.close)
            out = landing.out

            async def write(piece: bytes) -> None:
                await run(partial(out.write, piece))

            return write

        try:
            await self._platform.pull(sent, opened)
            assert landing is not None, "what was pulled was written"
            # ``_keep`` also closes: a second call could time out after the file was published.
            keep = partial(_keep, landing, sent.name, deps.clock.now_ms())
            to = await run(keep, undo=lambda path: _remove(workspace, f"{FOLDER}/{path.name}"))
        except BaseException:
            if landing is not None:
                await self._close(landing)
            raise
        return Part("file", path=f"{FOLDER}/{to.name}", name=sent.name)

    async def _close(self, landing: InboxFolder) -> None:
        """Close a file that is given up. A cancellation, however often, only ends the wait."""
        files = self._deps.files
        try:
            with suppress(OSError):  # the file system is stuck; the first error counts
                await files.run(landing.close, key=self._deps.workspace.parent.name)
        except asyncio.CancelledError:
            files.submit(landing.close)  # the step may have been cancelled before its turn came
            raise

    async def discard(self, parts: Sequence[Part]) -> None:
        """Remove the files that were fetched for a message that was then not accepted."""
        workspace = self._deps.workspace
        paths = [part.path for part in parts if part.path]
        if paths:
            with suppress(OSError):
                remove = partial(_remove, workspace, *paths)
                await self._deps.files.run(remove, key=workspace.parent.name)


def _keep(landing: InboxFolder, name: str, now_ms: int) -> Path:
    """Give the file its final name and remove the temporary one: it is whole or does not exist."""
    try:
        return landing.keep(name, now_ms=now_ms)
    finally:
        landing.close()


def _remove(workspace: Path, *paths: str) -> None:
    for path in paths:
        with suppress(OSError):
            GuardedFolder(workspace).remove(path)
